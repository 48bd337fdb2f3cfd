"""`pairgrad demo` as a user runs it."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .command import invoke, pairgrad


def test_demo_prints_and_writes(tmp_path: Path) -> None:
    done = pairgrad("demo", "--output", str(tmp_path / "out"), "--epochs", "2")
    assert done.returncode == 0, done.stderr
    printed = re.sub(r"\s+", " ", done.stdout)
    assert printed.startswith("Same value, different slopes")
    assert "values equal bit for bit: yes" in printed
    assert "coherence defect of original: 1.568e-02" in printed
    assert "losses equal bit for bit: yes" in printed
    proven = re.findall(r"(\w+): proven to be within (\S+) of the exact loss, and every gradient within (\S+), rounding included", printed)
    assert [name for name, *_ in proven] == ["arfr", "paired"]
    assert 1e-10 < float(proven[0][1]) < 1e-7
    assert 0 < float(proven[1][1]) < 1e-14
    assert "held at all 427 points measured: yes" in printed
    trained = re.findall(r"│ (original|consistent|arfr) +│ ([\d.]+) % +│ ([\d.]+) % +│ ([\d.]+) % +│ (\w+)", done.stdout)
    assert [(name, verdict) for name, *_, verdict in trained] == [
        ("original", "incoherent"),
        ("consistent", "coherent"),
        ("arfr", "coherent"),
    ]
    runs = tmp_path / "out" / "runs"
    assert sorted(path.name for path in runs.iterdir()) == [f"digits-lt-{name}-seed3407" for name in ("arfr", "consistent", "original")]
    assert all(list(path.glob("evaluation-*.json")) for path in runs.iterdir())
    titles = (
        "How far each ratio is from the exact one",
        "How far each unit difference of the potential is from the exact one",
        "The raw ratio at x = 1e9: odd orders grow, even orders vanish",
        "Single numbers",
        "Depth, certificate and measured time",
        "Synthetic states, only the backward rule changed: same scores, same losses, other gradients",
    )
    places = [printed.index(title) for title in titles]
    assert places == sorted(places)
    assert printed.count("all printed digits in 7 of 7 rows: yes") == 4  # AR/FR twice, the certificate twice
    assert "all printed digits in 6 of 7 rows: NO" in printed  # log-Miller at 4096, and why
    assert "7.558e-09" in printed
    rows = list(csv.DictReader((tmp_path / "out" / "ratio-fidelity.csv").read_text().splitlines()))
    assert [int(row["dim"]) for row in rows] == [64, 128, 256, 512, 1024, 2048, 4096]
    for row in rows:
        assert f"{float(row['arfr_error']):.2e}" == row["arfr_published"]
        assert float(row["arfr_error"]) <= float(row["proven"]) <= float(row["certificate"])
        assert float(row["paired_float64_relative"]) <= 1.2e-15
        assert float(row["paired_float32_relative"]) <= 4e-7
    tables = ("ratio-fidelity", "difference-fidelity", "parity", "constants", "complexity", "synthetic-counterfactual")
    expected = {f"{name}.{kind}" for name in tables for kind in ("csv", "md")}
    expected |= {f"value-and-slope.{kind}" for kind in ("svg", "png", "pdf", "csv", "md")} | {"runs"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected
    assert (tmp_path / "out" / "value-and-slope.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "out" / "value-and-slope.svg").read_text()


def test_help_version_and_realizations() -> None:
    import pairgrad as package

    helped = invoke("--help").stdout
    assert all(command in helped for command in ("demo", "tables", "figures", "realizations"))
    assert invoke("--version").stdout.strip() == package.__version__
    listed = invoke("realizations").stdout
    assert all(r.name in listed for r in package.realizations())


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_extra_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from pairgrad.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "pip install 'pairgrad[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
