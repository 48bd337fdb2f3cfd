"""How results of `pairgrad evaluate` look, in 80 columns."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pairgrad.ood import CONVENTIONS, AccuracyReport, OODMetrics, SCOODReport, SourceMetrics, mean_metrics
from pairgrad_paper.commands.evaluation_tables import compare, show
from pairgrad_paper.evaluation import Evaluation, ScoreReport, Trained
from pairgrad_paper.recipes import RECIPES, changed
from pairgrad_paper.runs import RunDirectory


def report(score: str, few: float | None = 0.5, sources: int = 6, ood: bool = True) -> ScoreReport:
    """Numbers as wide as they come."""
    metrics = OODMetrics(1.0, 1.0, 1.0, dict.fromkeys(CONVENTIONS, 1.0))
    names = [*(f"imagenet_ood_test_{number}k" for number in range(5)), "[red]"][:sources]
    found = tuple(SourceMetrics(name, metrics, 50_000, 50_000) for name in names)
    accuracy = AccuracyReport(1.0, 1.0, 1.0, 1.0, few, (1.0,))
    return ScoreReport(score, accuracy, SCOODReport(found, mean_metrics([metrics])) if ood else None)


def trained(tmp_path: Path, *settings: str, name: str = "patt-imagenet-lt", realization: str = "consistent", seed: int = 1) -> Trained:
    run = RunDirectory(tmp_path / f"{name}-[bold]{seed}", {}, {}, resumed=True, lock=None)
    return Trained(run, changed(RECIPES[name], settings), realization, seed, 362_000, {})


def evaluation(*reports: ScoreReport, **left_out: str) -> Evaluation:
    return Evaluation({each.score: each for each in reports}, left_out, ("a [note]",))


def printed(width: int, draw: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    draw(console)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "…" not in text
    return text.splitlines()


ALL = tuple(report(score) for score in ("msp", "energy", "patt-paper", "patt-released"))


def test_80_columns_are_enough_for_a_run(tmp_path: Path) -> None:
    lines = printed(80, lambda console: show(console, trained(tmp_path), evaluation(*ALL, odin="[no] reason"), CONVENTIONS))
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "imagenet_ood_test_3k" in line)
    assert row.split() == ["imagenet_ood_test_3k", "50000", "50000", *["100.00"] * 6]
    assert sum(line.strip().startswith("[red]") for line in lines) == 4
    assert sum(line.strip().startswith("mean") for line in lines) == 4
    head, below = (next(line for line in lines if word in line) for word in ("FPR95", "openood"))
    assert head.split()[-3:] == ["FPR95"] * 3
    assert below.split()[-3:] == ["patt", "sc-ood", "openood"]
    assert lines[0] == "patt-imagenet-lt-[bold]1, after 362000 updates"
    assert "odin was left out: [no] reason" in lines
    assert "note: a [note]" in lines


def test_80_columns_are_enough_for_several_runs(tmp_path: Path) -> None:
    apart = [(trained(tmp_path, seed=seed), evaluation(*(spread(each, seed) for each in ALL))) for seed in (1, 2)]
    lines = printed(80, lambda console: compare(console, apart, CONVENTIONS))
    assert max(map(len, lines)) <= 80
    assert sum("± 42.43" in line for line in lines) == 4
    wide = printed(120, lambda console: compare(console, apart, CONVENTIONS))
    assert sum(line.count("70.00 ± 42.43") for line in wide) == 4 * 6
    assert max(map(len, wide)) <= 120


def spread(given: ScoreReport, seed: int) -> ScoreReport:
    """1 with one seed and 0.4 with the other."""
    value = 1.0 if seed == 1 else 0.4
    metrics = OODMetrics(value, value, value, dict.fromkeys(CONVENTIONS, value))
    return ScoreReport(given.score, AccuracyReport(value, value, value, value, value, (value,)), SCOODReport((), metrics))


def test_what_is_compared_with_what(tmp_path: Path) -> None:
    """Recipes, settings and numbers of updates apart; realizations side by side in the order of scores; seeds together, wherever they were set."""
    short = replace(trained(tmp_path), step=5)
    given = [
        (trained(tmp_path, realization="paired", seed=1), evaluation(report("energy"), report("msp"))),
        (trained(tmp_path, "seed=7", realization="paired", seed=7), evaluation(report("msp"))),
        (trained(tmp_path, realization="arfr"), evaluation(report("msp"))),
        (trained(tmp_path, "loss.cap=10", realization="paired"), evaluation(report("msp"))),
        (short, evaluation(report("msp"))),
        (trained(tmp_path, name="digits-lt", realization="paired"), evaluation(report("msp", few=None, ood=False))),
    ]
    lines = printed(80, lambda console: compare(console, given, ("patt",)))
    titles = [line.split(": mean")[0] for line in lines if "updates" in line]
    assert titles == [
        "digits-lt, after 362000 updates",
        "patt-imagenet-lt with loss.cap=10.0, after 362000 updates",
        "patt-imagenet-lt, after 362000 updates",
        "patt-imagenet-lt, after 5 updates",
    ]
    rows = [line.split() for line in lines if re.match(r"(msp|energy) ", line)]
    assert [row[:3] for row in rows] == [
        ["msp", "paired", "1"],
        ["msp", "paired", "1"],
        ["msp", "arfr", "1"],
        ["msp", "paired", "2"],
        ["energy", "paired", "1"],
        ["msp", "consistent", "1"],
    ]
    assert rows[0][3:] == ["100.00", "–", "–", "–"]


def test_nothing_could_be_computed(tmp_path: Path) -> None:
    lines = printed(80, lambda console: show(console, trained(tmp_path), evaluation(energy="no reason"), CONVENTIONS))
    assert lines == ["patt-imagenet-lt-[bold]1, after 362000 updates", "energy was left out: no reason", "note: a [note]"]


def test_one_source_has_no_mean(tmp_path: Path) -> None:
    lines = printed(80, lambda console: show(console, trained(tmp_path), evaluation(report("msp", sources=1)), ("patt",)))
    assert not any(line.strip().startswith("mean") for line in lines)
    assert any(line.startswith("as they are") for line in lines)  # the accuracy of MSP's logits, which are the energy's
