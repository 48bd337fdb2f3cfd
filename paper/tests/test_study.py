"""The study on a CPU: its rows, what it says of itself, and its learning curves."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from pairgrad_paper.records import Record, RecordError, Records
from pairgrad_paper.tables import NotRun, Row, Table, to_markdown

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
    assert (energy["runs"], energy["seeds"], energy["epochs"], energy["minutes"]) == (1, "3407", 10, 31.5)
    assert energy["accuracy_deviation"] is None
    assert all(check.held for check in table.checks)


def test_it_says_what_it_is_not(three: Records) -> None:
    for table in (read("cifar-study", three), read("cifar-study-ood", three)):
        text = " ".join(table.notes)
        assert "Scaled down from the paper's system" in text
        assert "One seed: there are no error bars" in text
        assert "the SC-OOD source lsun is missing" in text
        assert f"`pairgrad train {run_fakes.CPU}`" in text
        assert "3 runs of" in table.caption


NEW, OLD = "0123456789abcdef", "fedcba9876543210"


def three_seeds(commit: str = NEW) -> list[Record]:
    """Accuracies of `patt-paper`: 52, 53 and 54 of the original arm, 52, 54 and 56 of the consistent one."""
    return [
        run_fakes.run(arm, 1 + k, epochs=10, shift=step * k / 100, commit=commit)
        for arm, step in (("original", 1), ("consistent", 2))
        for k in range(3)
    ]


def of(table: Table, arm: str, score: str = "patt-paper") -> list[Row]:
    return [row for row in table.rows if (row["realization"], row["score"]) == (arm, score)]


def test_mean_and_deviation_over_three_seeds(tmp_path: Path) -> None:
    table = read("cifar-study", stored(tmp_path, *three_seeds()))
    (own,), (other,) = of(table, "original"), of(table, "consistent")
    assert [round(float(str(row[key])), 9) for row in (own, other) for key in ("accuracy", "accuracy_deviation", "fpr95_patt")] == [
        *(53, 1, 42),
        *(54, 2, 41),
    ]
    assert (own["runs"], own["seeds"], own["version"]) == (3, "1 2 3", "commit 0123456")
    page = to_markdown(table)
    assert "| PATT | original | patt-paper | 53.00 ± 1.00 |" in page
    assert "3 seeds: the deviation is that of a sample" in page
    assert "One seed" not in page
    assert "6 runs of" in table.caption
    assert "seeds 1, 2, 3" in table.caption
    assert "version of the code" not in [column.heading for column in table.shown]


def test_differences_are_of_runs_of_one_seed_with_an_interval_of_students_t(tmp_path: Path) -> None:
    """They are 0, 1 and 2: the mean is 1, the deviation 1, and t with two degrees of freedom 4.3027."""
    table = read("cifar-study-differences", stored(tmp_path, *three_seeds()))
    (row,) = of(table, "consistent")
    half = 4.302652729911275 / math.sqrt(3)
    assert (row["runs"], row["seeds"]) == (3, "1 2 3")
    for key, sign in (("accuracy", 1), ("auroc", 1), ("fpr95_patt", -1)):
        assert [float(str(row[f"{key}{end}"])) for end in ("", "_low", "_high")] == pytest.approx([sign, sign - half, sign + half])
    assert row["accuracy_interval"] == "-1.48 to +3.48"
    assert row["accuracy_by_seed"] == "1: +0.0000; 2: +1.0000; 3: +2.0000"
    text = " ".join(table.notes)
    assert "Student's t over seeds: with 3 seeds t = 4.30" in text
    assert "and is wide" in text
    assert "0 of the 12 intervals exclude zero" in text
    assert not of(table, "original")


def test_a_seed_that_an_arm_has_not_is_in_no_difference(tmp_path: Path) -> None:
    own = three_seeds()
    table = read("cifar-study-differences", stored(tmp_path, *own[1:]))  # the original arm without its first seed
    (row,) = of(table, "consistent")
    assert (row["runs"], row["seeds"]) == (2, "2 3")
    assert "In no difference: consistent of patt-cifar10-lt-if100-cpu, seed 1 (commit 0123456): no original" in " ".join(table.notes)
    means = read("cifar-study", Records(tmp_path))
    assert [row["runs"] for arm in ("original", "consistent") for row in of(means, arm)] == [2, 3]


def test_two_versions_are_never_in_one_mean_nor_in_one_difference(tmp_path: Path) -> None:
    runs = [*three_seeds()[:2], run_fakes.run("original", 3, epochs=10, commit=OLD), run_fakes.run("consistent", 1, epochs=10, commit=OLD)]
    records = stored(tmp_path, *runs)
    table = read("cifar-study", records)
    assert [(row["version"], row["seeds"]) for row in of(table, "original")] == [("commit 0123456", "1 2"), ("commit fedcba9", "3")]
    assert "version of the code" in [column.heading for column in table.shown]
    assert "no mean and no difference is over two of them" in " ".join(table.notes)
    with pytest.raises(NotRun):  # the consistent run has the seed of another version's
        read("cifar-study-differences", records)


def test_versions_that_are_declared_equal_are(tmp_path: Path) -> None:
    records = stored(tmp_path, *three_seeds()[:-1], run_fakes.run("consistent", 3, epochs=10, shift=0.04, commit=OLD))
    (tmp_path / "equal-versions.toml").write_text('[[equal]]\ncommits = ["0123456", "fedcba9"]\nwhy = "only pages changed"\n')
    (row,) = of(read("cifar-study", records), "consistent")
    assert (row["runs"], row["version"]) == (3, "commit 0123456 = fedcba9")
    assert of(read("cifar-study-differences", records), "consistent")[0]["runs"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "[[equal",
        '[[equal]]\ncommits = ["0123456"]\nwhy = "x"',
        '[[equal]]\ncommits = ["0123456", "f"]\nwhy = "x"',
        '[[equal]]\ncommits = ["0123456", "fedcba9"]\nwhy = " "',
        '[[equal]]\ncommits = ["0123456", "fedcba9"]',
    ],
)
def test_a_declaration_without_commits_or_a_reason_is_refused(text: str, tmp_path: Path) -> None:
    records = stored(tmp_path, *three_seeds())
    (tmp_path / "equal-versions.toml").write_text(text)
    with pytest.raises(RecordError, match=r"equal-versions\.toml"):
        read("cifar-study", records)


def test_runs_of_changed_files_are_equal_to_no_commit(tmp_path: Path) -> None:
    own = run_fakes.run(seed=1, commit=NEW)
    changed = replace(run_fakes.run(seed=2), environment={"source": {"revision": NEW, "changed": True}})
    assert {row["version"] for row in read("cifar-study", stored(tmp_path, own, changed)).rows} == {
        "commit 0123456",
        "commit 0123456 with changed files",
    }


def test_runs_of_other_settings_are_in_no_mean(tmp_path: Path) -> None:
    first, second = run_fakes.run(seed=1, epochs=10), run_fakes.run(seed=2, epochs=10)
    second = replace(second, facts={**second.facts, "recipe": {**second.facts["recipe"], "batch_size": 7}})
    assert [row["runs"] for row in of(read("cifar-study", stored(tmp_path, first, second)), "original")] == [1, 1]


def test_runs_evaluated_on_other_images_are_noticed(tmp_path: Path) -> None:
    first, second = three_seeds()[:2]
    lines = json.loads(json.dumps(second.lines).replace('"num_ood": 41', '"num_ood": 5'))
    table = read("cifar-study", stored(tmp_path, first, replace(second, lines=tuple(lines))))
    assert [check.held for check in table.checks] == [True, False]
    assert len(read("cifar-study-ood", Records(tmp_path)).rows) == 3 * len(run_fakes.SCORES)  # cifar100 of both, svhn of each


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
    assert [check.held for check in read("cifar-study", stored(tmp_path, run_fakes.run("original"), other)).checks] == [False, True]


@pytest.mark.parametrize("name", ["cifar-study", "cifar-study-differences", "cifar-study-ood", "learning-curves"])
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
