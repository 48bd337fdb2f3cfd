"""The study on a CPU: its rows, what it says of itself, and its learning curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pairgrad_paper.records import Records
from pairgrad_paper.tables import NotRun

from . import run_fakes
from .made import read
from .records_fakes import stored

ARMS = ("original", "consistent", "arfr")


@pytest.fixture
def three(tmp_path: Path) -> Records:
    return stored(tmp_path, *(run_fakes.run(arm, epochs=10, shift=k / 100) for k, arm in enumerate(ARMS)))


def test_a_row_for_each_run_and_score(three: Records) -> None:
    table = read("cifar-study", three)
    assert [(row["realization"], row["score"]) for row in table.rows] == [(arm, score) for arm in ARMS for score in run_fakes.SCORES]
    energy = table.rows[5]  # of the consistent arm, 0.51 and a shift of 0.01
    assert {key: round(float(str(energy[key])), 9) for key in ("accuracy", "many", "medium", "few")} == {
        "accuracy": 52,
        "many": 62,
        "medium": 52,
        "few": 42,
    }
    assert {
        key: round(float(str(energy[key])), 9) for key in ("auroc", "aupr_in", "aupr_out", "fpr95_patt", "fpr95_sc-ood", "fpr95_openood")
    } == {
        "auroc": 57,
        "aupr_in": 52,
        "aupr_out": 47,
        "fpr95_patt": 43,
        "fpr95_sc-ood": 42,
        "fpr95_openood": 41,
    }
    assert (energy["seed"], energy["epochs"], energy["minutes"]) == (3407, 10, 31.5)
    assert all(check.held for check in table.checks)


def test_it_says_what_it_is_not(three: Records) -> None:
    for table in (read("cifar-study", three), read("cifar-study-ood", three)):
        text = " ".join(table.notes)
        assert "Scaled down from the paper's system" in text
        assert "One seed: there are no error bars" in text
        assert "the SC-OOD source lsun is missing" in text
        assert f"`pairgrad train {run_fakes.CPU}`" in text
        assert "3 runs of" in table.caption


def test_several_seeds(tmp_path: Path) -> None:
    table = read("cifar-study", stored(tmp_path, *(run_fakes.run(seed=seed) for seed in (2, 1))))
    assert [row["seed"] for row in table.rows[::4]] == [1, 2]
    assert "2 seeds" in table.notes[0]
    assert "seeds 1, 2" in table.caption


def test_a_row_for_each_source(three: Records) -> None:
    table = read("cifar-study-ood", three)
    assert len(table.rows) == 3 * len(run_fakes.SCORES) * len(run_fakes.SOURCES)
    first, second = table.rows[:2]
    assert (first["source"], first["num_id"], first["num_ood"]) == ("cifar100", 100, 40)
    assert (second["source"], second["num_ood"]) == ("svhn", 41)
    assert round(float(str(second["auroc"])) - float(str(first["auroc"])), 9) == 10


def test_runs_that_did_not_begin_alike_are_noticed(tmp_path: Path) -> None:
    other = run_fakes.run("arfr")
    other = replace(other, facts={**other.facts, "data": {"class_counts": [50, 4], "train": "b"}})
    (check,) = read("cifar-study", stored(tmp_path, run_fakes.run("original"), other)).checks
    assert not check.held


@pytest.mark.parametrize("name", ["cifar-study", "cifar-study-ood", "learning-curves"])
def test_without_records(tmp_path: Path, name: str) -> None:
    records = stored(tmp_path, run_fakes.run(name="patt-cifar10-lt-if100"))  # one for a GPU does not count
    with pytest.raises(NotRun, match=r"pairgrad train patt-cifar10-lt-if100-cpu .*pairgrad collect"):
        read(name, records)


def test_only_finished_and_evaluated_runs_are_in_the_tables(tmp_path: Path) -> None:
    stopped = run_fakes.run("arfr", ending="stopped: Ctrl-C")
    records = stored(tmp_path, run_fakes.run("original"), run_fakes.run("consistent", evaluated=False), stopped)
    assert {row["realization"] for row in read("cifar-study", records).rows} == {"original"}
    curves = read("learning-curves", records)
    assert {row["realization"] for row in curves.rows} == set(ARMS)
    assert "Not finished: arfr" in curves.caption


def test_curves(three: Records) -> None:
    table = read("learning-curves", three)
    epochs = [row for row in table.rows if (row["realization"], row["part"]) == ("original", "epoch")]
    assert [row["epoch"] for row in epochs] == list(range(1, 11))
    assert [row["test_accuracy"] is None for row in epochs] == [True, False] * 5
    looks = [row for row in table.rows if (row["realization"], row["part"]) == ("original", "look")]
    assert [row["step"] for row in looks] == [37, 296]
    assert looks[1]["epoch"] == 4
    assert all(2.5e-3 < float(str(row["defect"])) < 2.6e-3 for row in looks)
    assert {row["defect"] for row in table.rows if row["part"] == "look" and row["realization"] != "original"} == {0.0}


def test_curves_of_the_recipe_with_the_most_realizations(tmp_path: Path) -> None:
    other = "patt-cifar10-lt-if10-cpu"
    records = stored(tmp_path, run_fakes.run(name=other), *(run_fakes.run(arm, epochs=6) for arm in ARMS[:2]))
    assert run_fakes.CPU in read("learning-curves", records).caption


def test_a_look_without_a_number_is_left_out(tmp_path: Path) -> None:
    record = run_fakes.run(epochs=10)
    lines = [
        {**line, "functions": [{**line["functions"][0], "defect": None}]} if line["kind"] == "coherence" and line["step"] == 37 else line
        for line in record.lines
    ]
    table = read("learning-curves", stored(tmp_path, replace(record, lines=tuple(lines))))
    assert [row["step"] for row in table.rows if row["part"] == "look"] == [296]
