"""`pairgrad demo` as a user runs it."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest


def pairgrad(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    code = "from pairgrad.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120", **environment},
        check=False,
    )


def test_demo_prints_and_writes(tmp_path: Path) -> None:
    done = pairgrad("demo", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "values equal bit for bit: yes" in done.stdout
    assert "coherence defect of original: 1.568e-02" in done.stdout.replace("\n", " ").replace("  ", " ")
    assert "held at all 427 points measured: yes" in done.stdout
    rows = list(csv.DictReader((tmp_path / "out" / "ratio-fidelity.csv").read_text().splitlines()))
    assert [int(row["dim"]) for row in rows] == [64, 128, 256, 512, 1024, 2048, 4096]
    for row in rows:
        # the published numbers have three digits
        assert float(row["arfr_error"]) == pytest.approx(float(row["arfr_published"]), rel=2e-3)
        assert float(row["arfr_error"]) <= float(row["certificate"])
        assert float(row["paired_float64_relative"]) <= 1.2e-15
        assert float(row["paired_float32_relative"]) <= 4e-7
    assert (tmp_path / "out" / "value-and-slope.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "out" / "value-and-slope.svg").read_text()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = pairgrad("demo", "--output", str(tmp_path / "file" / "below"))
    assert done.returncode == 2
    assert "choose another directory with --output" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_version_and_realizations() -> None:
    assert "demo" in pairgrad("--help").stdout
    import pairgrad as package

    assert pairgrad("--version").stdout.strip() == package.__version__
    listed = pairgrad("realizations").stdout
    assert all(r.name in listed for r in package.realizations())


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_extra_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from pairgrad.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "pip install 'pairgrad[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
