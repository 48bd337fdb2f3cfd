"""`pairgrad evaluate` as a user runs it, on one run and on several, and what it says when it cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import invoke
from typer.testing import Result

from pairgrad_paper.evaluation import Trained
from paper.tests.evaluation.small import train_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two seeds, and one with another setting."""
    place = tmp_path_factory.mktemp("runs")
    train_run(place, "epochs=1", seed=1)
    train_run(place, "epochs=1", seed=2)
    train_run(place / "slow", "epochs=1", "optimizer.lr=0.001", seed=1)
    return place


@pytest.fixture
def runs(folder: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    place = shutil.copytree(folder, tmp_path / "runs")
    return place / "digits-lt-arfr-seed1", place / "digits-lt-arfr-seed2", place / "slow" / "digits-lt-arfr-seed1"


def evaluate(*arguments: str | Path, columns: int = 80) -> Result:
    given = ["evaluate", *map(str, arguments), "--device", "cpu"]
    return invoke(*given, columns=columns)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_another_rule_for_groups_of_classes(runs: tuple[Path, ...]) -> None:
    done = evaluate(runs[0], "--score", "msp", "--shots", "proco", columns=160)
    assert done.exit_code == 0, done.stderr
    assert "by the rule of proco, many: 1 classes of 117 to 117 training images; medium: 3 classes of 26 to 71" in done.stdout
    refused = evaluate(runs[0], "--shots", "thirds")
    assert refused.exit_code == 2
    assert "--shots must be one of patt, proco, got 'thirds'" in refused.stderr


def test_one_run(runs: tuple[Path, ...]) -> None:
    done = evaluate(runs[0])
    assert done.exit_code == 0, done.stderr
    content = json.loads((runs[0] / "evaluation-00000004.json").read_text())
    lines = done.stdout.splitlines()
    assert lines[0] == "digits-lt-arfr-seed1, after 4 updates"
    for words, score in (("as they are", "energy"), ("calibrated, paper", "patt-paper"), ("calibrated, released code", "patt-released")):
        a = content["scores"][score]["accuracy"]
        (line,) = (line for line in lines if line.startswith(words))
        assert line.removeprefix(words).split() == [f"{100 * a[key]:.2f}" for key in ("accuracy", "many", "medium", "few", "balanced")]
    for score in ("msp", "energy", "patt-paper", "patt-released"):
        (source,) = content["scores"][score]["ood"]["sources"]
        row = lines[[line.rstrip() for line in lines].index(score) + 1]
        numbers = [source[key] for key in ("auroc", "aupr_in", "aupr_out")] + [
            source["fpr95"][key] for key in ("patt", "sc-ood", "openood")
        ]
        assert row.split() == ["held-out-digits", "420", "533", *(f"{100 * number:.2f}" for number in numbers)]
    assert "note: patt-released fits its calibration on test images" in done.stdout
    assert f"written to {runs[0] / 'evaluation-00000004.json'}" in lines
    assert "over runs" not in done.stdout
    assert "\x1b" not in done.stdout  # no bar and no colour where nobody looks


def test_several_runs(runs: tuple[Path, ...], tmp_path: Path) -> None:
    done = evaluate(*runs, "--score", "msp", "--score", "patt-paper", "--convention", "patt", "--json", tmp_path / "all.json")
    assert done.exit_code == 0, done.stderr
    entries = json.loads((tmp_path / "all.json").read_text())
    assert [(entry["run"], entry["recipe"], entry["realization"], entry["seed"], entry["step"]) for entry in entries] == [
        (str(path), "digits-lt", "arfr", seed, 4) for path, seed in zip(runs, (1, 2, 1), strict=True)
    ]
    for path, entry in zip(runs, entries, strict=True):
        written = json.loads((path / "evaluation-00000004-msp-patt-paper.json").read_text())
        assert {key: written[key] for key in ("scores", "left_out", "notes")} == {
            key: entry[key] for key in ("scores", "left_out", "notes")
        }
    assert set(entries[0]["scores"]) == {"msp", "patt-paper"}
    assert "sc-ood" not in done.stdout
    assert "energy" not in done.stdout
    # Runs with other settings are not other seeds of the same.
    both, alone = done.stdout.split("digits-lt with ")[1:]
    assert both.startswith("epochs=1, after 4 updates: mean ± standard deviation over runs, %")
    assert alone.startswith("optimizer.lr=0.001, epochs=1, after 4 updates: mean ±")
    first, second = (100 * entry["scores"]["msp"]["accuracy"]["accuracy"] for entry in entries[:2])
    rows = both.splitlines()
    (place,) = (number for number, line in enumerate(rows) if line.startswith("msp"))
    assert rows[place].split()[:4] == ["msp", "arfr", "2", f"{(first + second) / 2:.2f}"]
    assert rows[place + 1].split()[:2] == ["±", f"{abs(first - second) / 2**0.5:.2f}"]
    (row,) = (line for line in alone.splitlines() if line.startswith("msp"))
    assert row.split()[:4] == ["msp", "arfr", "1", f"{100 * entries[2]['scores']['msp']['accuracy']['accuracy']:.2f}"]
    assert "±" not in row
    assert f"written to {tmp_path / 'all.json'}" in done.stdout


def test_notes_are_told_once(runs: tuple[Path, ...]) -> None:
    shown = evaluate(*runs, "--score", "msp", "--score", "patt-released").stdout
    assert shown.count("note: digits-lt is made of") == shown.count("note: patt-released fits") == 1
    assert shown.count("other notes as above") == 2


def test_the_groups_are_explained(runs: tuple[Path, ...]) -> None:
    shown = " ".join(evaluate(runs[0], "--score", "msp").stdout.split())
    assert "accuracy on digits test, 420 images, %" in shown
    assert (
        "many: 2 classes of 71 to 117 training images; medium: 3 classes of 15 to 43 training images; few: 2 classes of 5 to 9 training images"
        in shown
    )


def test_near_a_run(runs: tuple[Path, ...]) -> None:
    """The folder of several runs, or a folder inside one."""
    place = runs[0].parent
    assert f"{place} is not a run, but holds 2: name them, such as {runs[0]}, or all with {place}/*" in refused(place)
    for inside in (runs[0] / "checkpoints", runs[0] / "checkpoints" / "step-00000004"):
        assert f"{inside} is a part of a run: name {runs[0]}, and a checkpoint by the number of its update with --step" in refused(inside)


def test_a_damaged_checkpoint_is_told(runs: tuple[Path, ...]) -> None:
    damage(runs[0] / "checkpoints" / "step-00000004" / "state.safetensors")
    done = evaluate(runs[0], "--score", "msp", columns=1000)
    assert done.exit_code == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert "step-00000004" in first
    assert first.endswith("; the checkpoint before it is evaluated")
    assert "digits-lt-arfr-seed1, after 0 updates" in done.stdout
    assert (runs[0] / "evaluation-00000000-msp.json").exists()
    shutil.rmtree(runs[0] / "checkpoints")
    assert "has no intact checkpoint: train it" in refused(runs[0])


def test_a_step(runs: tuple[Path, ...]) -> None:
    done = evaluate(runs[0], "--step", "0", "--score", "msp")
    assert done.exit_code == 0, done.stderr
    assert "after 0 updates" in done.stdout
    assert "has no checkpoint of update 3; it has 0, 4" in refused(runs[0], "--step", "3")


def test_from_inside_the_run(runs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs[0])
    assert evaluate(".", "--score", "msp").stdout.startswith("digits-lt-arfr-seed1, after 4 updates")


def refused(*arguments: str | Path) -> str:
    done = evaluate(*arguments)
    assert done.exit_code == 2, done.stdout
    assert done.stderr.startswith("pairgrad evaluate: ")
    assert not done.stdout  # nothing was computed
    return done.stderr


def test_what_it_refuses(runs: tuple[Path, ...], tmp_path: Path) -> None:
    assert "--score must be one of msp, energy, patt-paper, patt-released, got 'odin'" in refused(runs[0], "--score", "odin")
    assert "--convention must be one of patt, sc-ood, openood, got 'mine'" in refused(runs[0], "--convention", "mine")
    assert f"{runs[0] / '.'} was given twice: a run counts once in a mean" in refused(runs[1], runs[0], runs[0] / ".")
    missing = tmp_path / "nowhere"
    assert f"{missing / 'run.json'} cannot be read" in refused(missing)
    assert f"{missing / 'run.json'} cannot be read" in refused(runs[0], missing)  # before the first is evaluated
    assert f"--json must be a file in a directory that exists, got {missing / 'x.json'}" in refused(runs[0], "--json", missing / "x.json")
    assert f"--json must be a file, got the directory {tmp_path}" in refused(runs[0], "--json", tmp_path)
    assert not list(tmp_path.rglob("evaluation-*"))


def test_a_run_that_is_none(runs: tuple[Path, ...]) -> None:
    content = json.loads((runs[0] / "run.json").read_text())
    content["facts"]["recipe"]["epochs"] = "many"
    (runs[0] / "run.json").write_text(json.dumps(content))
    assert "the recipe of this run is not one that this version of pairgrad writes: epochs is 'many'" in refused(runs[0])
    (runs[0] / "run.json").write_text("{")
    assert "is damaged or not of a run" in refused(runs[0])


def test_data_are_checked_for_every_run(runs: tuple[Path, ...]) -> None:
    """Also where an earlier run has loaded them already."""
    content = json.loads((runs[1] / "run.json").read_text())
    content["facts"]["data"]["class_counts"][0] += 1
    (runs[1] / "run.json").write_text(json.dumps(content))
    done = evaluate(runs[0], runs[1], "--score", "msp")
    assert done.exit_code == 2
    assert f"{runs[1]} was trained on 287 images" in done.stderr
    assert (runs[0] / "evaluation-00000004-msp.json").exists()  # what was done stays


def test_data_are_read_once(runs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    plain = Trained.data

    def counted(self: Trained, *arguments: Any, **options: Any) -> Any:
        read.append(self.run.path)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(Trained, "data", counted)
    assert evaluate(runs[0], runs[1], "--score", "msp").exit_code == 0
    assert read == [runs[0]]


def test_results_that_cannot_be_written(runs: tuple[Path, ...]) -> None:
    (runs[0] / "evaluation-00000004-msp.json").mkdir()
    assert "evaluation-00000004-msp.json cannot be written (Is a directory)" in refused(runs[0], "--score", "msp")


def test_results_of_all_that_cannot_be_written(runs: tuple[Path, ...]) -> None:
    done = evaluate(runs[0], "--score", "msp", "--json", "/proc/all.json")  # where no user can make a file
    assert done.exit_code == 2
    assert "/proc/all.json cannot be written" in done.stderr
    assert (runs[0] / "evaluation-00000004-msp.json").exists()


def test_a_bar_on_a_terminal(runs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # which says that it is one
    text = evaluate(runs[0], "--score", "msp").stdout
    assert "held-out-digits" in text
    assert "━" in text
