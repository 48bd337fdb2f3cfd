"""`pairgrad demo` as a user runs it."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tests.cli.command import invoke, pairgrad

import pairgrad as pg
from pairgrad_paper.commands.demo.bars import watched


def test_demo_tells_and_writes(tmp_path: Path) -> None:
    done = pairgrad("demo", "--output", str(tmp_path / "out"), "--epochs", "2", columns=80)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 of 5: Same loss, different gradients\n")
    printed = re.sub(r"\s+", " ", done.stdout)
    chapters = [printed.index(f"{number} of 5: ") for number in range(1, 6)]
    assert chapters == sorted(chapters)

    slopes = dict(re.findall(r"^(original|consistent|paired) +[\d.]+ +([\d.]+) +[\d.]+$", done.stdout, re.MULTILINE))
    assert slopes == {"original": "1.000000", "consistent": "0.984317", "paired": "0.984373"}
    updates = re.findall(r"^ +(\d+) +[\d.]+ +(yes|NO) +(\S+) +(\S+)$", done.stdout, re.MULTILINE)
    assert [int(update) for update, *_ in updates] == [0, 1, 2, 3, 5, 10, 15, 20]
    assert {same for _, same, *_ in updates} == {"yes"}
    assert all(1e-4 < float(apart) < 1e-2 for *_, apart, _ in updates)
    descents = [float(apart) for *_, apart in updates]
    assert descents[0] == 0
    assert descents == sorted(descents)
    assert "equal in every bit at 21 of 21 states" in printed

    proven = re.findall(r"^(arfr|paired) +(\S+e-\S+) +(\S+e-\S+) +(\d+) +(yes|NO)$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in proven] == ["arfr", "paired"]
    assert all(float(measured) <= float(bound) and held == "yes" for _, bound, measured, _, held in proven)
    steps = re.findall(r"^(arfr|paired) +(\S+e-\S+) +(\S+e-\S+)$", done.stdout, re.MULTILINE)
    assert 1e-10 < float(steps[0][1]) < 1e-7
    assert 0 < float(steps[1][1]) < 1e-14

    trained = re.findall(r"^(original|consistent|arfr) +([\d.]+) % +([\d.]+) % +([\d.]+) % +(\w+)", done.stdout, re.MULTILINE)
    assert [(name, verdict) for name, *_, verdict in trained] == [
        ("original", "incoherent"),
        ("consistent", "coherent"),
        ("arfr", "coherent"),
    ]
    runs = tmp_path / "out" / "runs"
    assert sorted(path.name for path in runs.iterdir()) == [f"digits-lt-{name}-seed3407" for name in ("arfr", "consistent", "original")]
    assert all(list(path.glob("evaluation-*.json")) for path in runs.iterdir())

    audited = re.findall(r"^(potential\(128, '[\w-]+'\).value|a clipped norm, by hand) +(\w+) ", done.stdout, re.MULTILINE)
    assert [verdict for _, verdict in audited] == ["incoherent", "coherent", "coherent", "coherent", "incoherent"]

    held = dict(re.findall(r"^([a-z-]+) +\d+ +(\d+ of \d+)$", done.stdout, re.MULTILINE))
    assert held["ratio-fidelity"] == "4 of 4"
    assert held["difference-fidelity"] == "1 of 2"  # log-Miller at 4096, and why
    assert printed.count("all printed digits in 7 of 7 rows: yes") == 2  # AR/FR and the certificate
    assert "all printed digits in 6 of 7 rows: NO" in printed
    rows = list(csv.DictReader((tmp_path / "out" / "ratio-fidelity.csv").read_text().splitlines()))
    assert [int(row["dim"]) for row in rows] == [64, 128, 256, 512, 1024, 2048, 4096]
    for row in rows:
        assert f"{float(row['arfr_error']):.2e}" == row["arfr_published"]
        assert float(row["arfr_error"]) <= float(row["proven"]) <= float(row["certificate"])
        assert float(row["paired_float64_relative"]) <= 1.2e-15
        assert float(row["paired_float32_relative"]) <= 4e-7
    tables = ("ratio-fidelity", "difference-fidelity", "parity", "constants", "complexity", "backward-counterfactual")
    expected = {f"{name}.{kind}" for name in tables for kind in ("csv", "md")}
    expected |= {f"value-and-slope.{kind}" for kind in ("svg", "png", "pdf", "csv", "md")} | {"runs", "report.html"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected
    assert (tmp_path / "out" / "value-and-slope.png").read_bytes().startswith(b"\x89PNG")

    page = (tmp_path / "out" / "report.html").read_text()
    assert str((tmp_path / "out" / "report.html").resolve()) in done.stdout
    assert len(re.findall(r"<h2 ", page)) == 6
    assert page.count("<img ") == 3  # the figure, the descents, the learning curves
    for name in tables:
        assert f'<h3 id="{name}">' in page
    assert "potential(128, &#39;original&#39;).value" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)  # nothing is loaded
    longest = max(done.stdout.replace(str(tmp_path), "").splitlines(), key=len)
    assert len(longest) <= 80, longest
    assert "\x1b" not in done.stdout


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
    assert done.returncode == 2
    assert "pip install 'pairgrad[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


class TestBars:
    def test_a_bar_for_each_run_on_a_terminal(self) -> None:
        console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
        with watched(console, ("original", "arfr")) as observers:
            for name, observer in observers.items():
                observer.started(0, 10, 5)
                observer.updated(7, {"total": 1.25} if name == "arfr" else None)
        last = console.file.getvalue().rsplit("original", 1)[1]
        assert re.search(r" 7/10 .*\n.*arfr .* 7/10 .* loss 1\.250", last)
        assert max(map(len, last.splitlines())) <= 80

    def test_lines_elsewhere(self) -> None:
        console = Console(file=io.StringIO(), force_terminal=False, width=80)
        with watched(console, ("original",)) as observers:
            observers["original"].started(0, 10, 5)
            observers["original"].epoch(1, {"train_total": 1.25})
        assert console.file.getvalue().startswith("original epoch 2  loss 1.2500")

    def test_what_the_monitor_says_stands_beside_the_bar(self) -> None:
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return pg.potential(128, "original").value(x)

        console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
        with pg.record() as recording:
            doubled(torch.tensor([4032.0], dtype=torch.float64, requires_grad=True)).sum().backward()
        with watched(console, ("original",)) as observers:
            observers["original"].started(0, 2, 1)
            observers["original"].looked(1, recording.audit())
            observers["original"].updated(2, None)
        assert "incoherent" in console.file.getvalue()


def test_an_interrupted_demonstration_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pairgrad_paper.commands.demo.run", stopped)
    done = invoke("demo", "--output", str(tmp_path / "out"))
    assert done.exit_code == 130
    assert f"run the same command again to resume the runs in {tmp_path / 'out'}" in done.stderr
