"""The record of costs, from the file of the learning benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairgrad_paper.records import RecordError, records_of_costs, write
from paper.tests.records.cost_files import row, run, stored
from paper.tests.run_fakes import METHODS

DOCUMENTED = Path(__file__).parents[3] / "docs" / "learning-benchmarks.json"


def test_what_is_kept(tmp_path: Path) -> None:
    (record,) = records_of_costs(stored(tmp_path / "a.json", run()))
    assert (record.name, record.record) == ("local-costs-cpu", "cost")
    assert record.title == "Cost of the learning step on the CPU, B = 32, K = 1000, p = 1024"
    assert record.one("cost") == {
        "kind": "cost",
        "method": "original",
        "published_name": "Original recurrence",
        "median_ms": pytest.approx(300),
        "low_ms": pytest.approx(200),
        "high_ms": pytest.approx(400),
        "faster": 1.0,
        "peak_mib": 3.0,
        "repetitions": 5,
        "note": "",
    }
    assert record.facts["size"] == {"batch": 32, "classes": 1000, "dim": 1024}
    assert record.facts["date"] == "2026-01-02"
    assert record.command == "python -m benchmarks.learning --output page.md"


def test_protocols_and_devices_have_names_of_their_own(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.json", run(), run("paper", "cuda:1"), run(rows=[row("floor", [1.0], setting="large")]))
    assert [record.name for record in records_of_costs(path)] == ["local-costs-cpu", "local-costs-cuda-paper"]


def test_faster_is_the_median_of_rounds_not_the_quotient_of_medians(tmp_path: Path) -> None:
    rows = [row("original", [1.0, 4.0, 9.0]), row("floor", [1.0, 1.0, 10.0, 0.1]), row("arfr dense", [])]
    lines = records_of_costs(stored(tmp_path / "a.json", run(rows=rows)))[0].lines
    assert [line["faster"] for line in lines] == [1.0, 1.0, None]  # 1, 4 and 0.9; of the medians: 4


def test_one_repetition_and_none(tmp_path: Path) -> None:
    rows = [row("floor", [0.5]), row("consistent", [], None, note="out of memory")]
    one, none = records_of_costs(stored(tmp_path / "a.json", run(rows=rows)))[0].lines
    assert (one["low_ms"], one["median_ms"], one["high_ms"]) == (500, 500, 500)
    assert one["published_name"] is None
    assert (none["median_ms"], none["peak_mib"], none["note"]) == (None, None, "out of memory")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as a record of costs"),
        ('{"format": 2, "runs": {}}', "must have format 1 and runs"),
        ("[]", "must have format 1 and runs"),
        ('{"format": 1, "runs": {"a": {"rows": [{"setting": "paper"}]}}}', "is missing"),
        ('{"format": 1, "runs": {}}', "has nothing of the setting 'paper'"),
    ],
)
def test_other_files(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(RecordError, match=message):
        records_of_costs(tmp_path / "a.json")


def test_the_documented_measurement(tmp_path: Path) -> None:
    """The file behind the documentation has a row for each of the paper's, and gives the same bytes twice."""
    first = records_of_costs(DOCUMENTED)
    assert {line["published_name"] for line in first[0].lines if line["published_name"]} == set(METHODS.values())
    a, b = (write(tmp_path / name, records[0]).read_bytes() for name, records in (("a", first), ("b", records_of_costs(DOCUMENTED))))
    assert a == b
