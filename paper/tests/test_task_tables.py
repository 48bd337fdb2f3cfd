"""The tables of the complete tasks: every published number, ours from records of full runs alone, and what to type where there are none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from pairgrad_paper.recipes import RECIPES
from pairgrad_paper.records import Record
from pairgrad_paper.tables import Row, Table

from . import run_fakes
from .made import read
from .records_fakes import stored

FULL = "patt-cifar10-lt-if50"


@pytest.fixture
def empty(tmp_path: Path) -> Table:
    return read("task-complete", stored(tmp_path))


def row(table: Table, metric: str, recipe: str = FULL) -> Row:
    (found,) = [each for each in table.rows if (each["recipe"], each["metric"]) == (recipe, metric)]
    return found


def full(realization: str, seed: int, shift: float = 0.0, commit: str | None = None) -> Record:
    return run_fakes.run(realization, seed, FULL, shift=shift, notes=(), commit=commit)


def test_without_records_everything_published_and_nothing_of_ours(empty: Table) -> None:
    assert len(empty.rows) == 21
    for each in empty.rows:
        for arm in ("original", "consistent", "arfr"):
            assert each[arm] == "not run"
            assert each[f"{arm}_mean"] is None
            assert each[f"{arm}_runs"] == 0
    assert "None was run here" in empty.caption
    last = empty.notes[-1]
    assert "`pairgrad train RECIPE --realization original --realization consistent --realization arfr --seed 0 --seed 1 --seed 2`" in last
    assert "`pairgrad collect runs/RECIPE-* --records records`" in last
    assert "patt-imagenet-lt" in last


@pytest.mark.parametrize(
    ("recipe", "metric", "arm", "text"),
    [
        ("patt-cifar10-lt-if10", "accuracy", "original", "92.04 ± 0.17"),
        ("patt-cifar10-lt-if50", "FPR95", "original", "34.51 ± 6.96"),
        ("patt-cifar100-lt-if100", "AUROC", "arfr", "75.21 ± 0.65"),
        ("patt-imagenet-lt", "FPR95", "consistent", "78.74"),
    ],
)
def test_published_numbers(empty: Table, recipe: str, metric: str, arm: str, text: str) -> None:
    assert row(empty, metric, recipe)[f"{arm}_published"] == text


def test_every_setting_of_the_paper_has_a_recipe(empty: Table) -> None:
    printed = [str(each[f"{arm}_published"]) for each in empty.rows for arm in ("original", "consistent", "arfr")]
    assert len(printed) == 63
    assert sum("±" in each for each in printed) == 54  # no deviation is printed for ImageNet-LT
    assert len({each["recipe"] for each in empty.rows} & set(RECIPES)) == 7


def test_the_summary_has_no_fpr95(tmp_path: Path) -> None:
    table = read("task-summary", stored(tmp_path))
    assert table.label == "tab:task-summary"
    assert [each["metric"] for each in table.rows[:4]] == ["accuracy", "AUROC", "accuracy", "AUROC"]
    assert len(table.rows) == 14


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    """The score patt-paper is 0.52 in accuracy and 0.57 in AUROC, and shifts are 0, 1 and 2 percent: means 53 and 58, deviation 1."""
    records = stored(tmp_path, *(full("consistent", seed, seed / 100) for seed in range(3)), full("arfr", 5))
    table = read("task-complete", records)
    for metric, mean in (("accuracy", 53.0), ("AUROC", 58.0), ("FPR95", 42.0)):
        found = row(table, metric)
        assert found["consistent"] == f"{mean:.2f} ± 1.00 (3 runs)"
        assert math.isclose(float(str(found["consistent_mean"])), mean, rel_tol=1e-12)
        assert math.isclose(float(str(found["consistent_deviation"])), 1.0, rel_tol=1e-12)
        assert found["original"] == "not run"
    assert row(table, "accuracy")["arfr"] == "52.00 (1 run)"
    assert row(table, "accuracy")["arfr_deviation"] is None
    assert "2 were run here" in table.caption
    assert FULL in table.notes[-1]  # the third arm is missing


def test_two_versions_of_the_code_have_no_common_mean(tmp_path: Path) -> None:
    records = stored(tmp_path, full("arfr", 1, commit="0" * 9), full("arfr", 2, 0.01, commit="0" * 9), full("arfr", 3, commit="1" * 9))
    found = row(table := read("task-complete", records), "accuracy")
    assert found["arfr"] == "52.50 ± 0.71 (2 runs, commit 0000000); 52.00 (1 run, commit 1111111)"
    assert (found["arfr_mean"], found["arfr_runs"]) == (None, 3)
    assert f"{FULL}: commit 0000000, commit 1111111. Where there are several" in " ".join(table.notes)


def test_what_does_not_count(tmp_path: Path) -> None:
    """Changed settings, the recipe for CPUs, a run that was stopped, one that was evaluated earlier, and one without that score."""
    plain = full("original", 1)
    earlier = [{**line, "step": line["step"] - 1} if line["kind"] == "evaluation" else line for line in plain.lines]
    parts = [line for line in run_fakes.run("original", 4, FULL, evaluated=False).lines if line["kind"] != "end"] + [
        {"kind": "evaluation", **run_fakes.evaluation(7400, scores=["msp"])},
        {"kind": "end", "step": 7400, "minutes": 1.0, "ending": "finished"},
    ]
    records = stored(
        tmp_path,
        run_fakes.run("original", 0, FULL, epochs=5),
        run_fakes.run("original", 1, f"{FULL}-cpu"),
        run_fakes.run("original", 2, FULL, ending="stopped: SIGTERM"),
        replace(plain, name="earlier", lines=tuple(earlier)),
        replace(plain, name="part", lines=tuple(parts)),
    )
    assert row(read("task-complete", records), "accuracy")["original"] == "not run"


def test_scores_of_several_files_are_put_together(tmp_path: Path) -> None:
    """One file has msp, the next patt-paper, which the table shows; what a third has again does not replace it."""
    record = full("original", 1)
    *others, end = (line for line in record.lines if line["kind"] != "evaluation")
    parts = [
        {"kind": "evaluation", **run_fakes.evaluation(end["step"], shift=shift, scores=[score])}
        for score, shift in (("msp", 0.0), ("patt-paper", 0.0), ("patt-paper", 0.3))
    ]
    table = read("task-complete", stored(tmp_path, replace(record, lines=(*others, *parts, end))))
    assert row(table, "accuracy")["original"] == "52.00 (1 run)"


def test_what_runs_say_of_their_data_is_in_the_notes(tmp_path: Path) -> None:
    table = read("task-complete", stored(tmp_path, run_fakes.run("arfr", 1, FULL)))
    assert any("the SC-OOD source lsun is missing" in note for note in table.notes)


def test_detection_without_sources(tmp_path: Path) -> None:
    record = full("original", 1)
    lines = []
    for line in record.lines:
        if line["kind"] == "evaluation":
            line = {**line, "scores": {name: {**report, "ood": None} for name, report in line["scores"].items()}}
        lines.append(line)
    table = read("task-complete", stored(tmp_path, replace(record, lines=tuple(lines))))
    assert row(table, "accuracy")["original"] == "52.00 (1 run)"
    assert row(table, "AUROC")["original"] == "not run"
