"""The table of costs: published beside ours, factors, and what is said where nothing was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairgrad_paper.tables import NotRun, Row, Table

from . import run_fakes
from .made import read
from .records_fakes import stored


def row(table: Table, method: str) -> Row:
    (found,) = [each for each in table.rows if each["method"] == method]
    return found


def test_published_and_ours(tmp_path: Path) -> None:
    table = read("h100-local", stored(tmp_path, run_fakes.costs()))
    dense = row(table, "AR/FR")
    assert (dense["published_ms"], dense["published_mib"], dense["published_faster"]) == ("4.90", "508.12", "54.4")
    assert (dense["cpu_ms"], dense["cpu_mib"]) == (954.5, 501.13)
    assert dense["cpu_faster"] == pytest.approx(1244 / 954.5)
    assert dense["gpu_ms"] == "not run"
    assert row(table, "Structure-aware AR/FR")["published_faster"] == "1293"
    assert row(table, "Structure-aware paired")["published_ms"] is None
    assert row(table, "Structure-aware paired")["cpu_ms"] == 5.73
    assert "floor" not in table.column("method")
    assert all(check.held for check in table.checks)
    assert "54.4, 23.8, 1293, 15.8" in table.checks[0].text
    assert "1.3 times faster" in table.notes[1]
    assert "`python -m benchmarks.learning --protocol paper" in table.notes[-1]


def test_nothing_measured(tmp_path: Path) -> None:
    table = read("h100-local", stored(tmp_path))
    assert len(table.rows) == 5
    assert {each["cpu_ms"] for each in table.rows} == {"not run"}
    assert len(table.notes) == 3
    with pytest.raises(NotRun, match=r"python -m benchmarks\.learning --parts paper"):
        read("efficiency-compact", stored(tmp_path))


def test_a_gpu_and_the_protocol_of_the_paper_first(tmp_path: Path) -> None:
    records = stored(tmp_path, run_fakes.costs("cuda"), run_fakes.costs(original=1.0), run_fakes.costs(protocol="paper", original=2000.0))
    original = row(read("h100-local", records), "Original recurrence")
    assert (original["cpu_ms"], original["gpu_ms"]) == (2000.0, 1244.0)
    assert original["gpu_faster"] == 1


def test_points_of_the_picture(tmp_path: Path) -> None:
    table = read("efficiency-compact", stored(tmp_path, run_fakes.costs()))
    assert [each["machine"] for each in table.rows] == ["published"] * 5 + ["cpu"] * 5
    assert table.rows[0] == {"machine": "published", "method": "Original recurrence", "milliseconds": 266.4, "mebibytes": 504.89}
    assert table.rows[9]["milliseconds"] == 5.72
