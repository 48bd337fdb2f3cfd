"""Evaluating a run from its directory, and what it says when it cannot."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairgrad_paper.data import FileFact
from pairgrad_paper.evaluation import Trained, accuracy_on_test, evaluate_run
from pairgrad_paper.recipes import SettingError
from pairgrad_paper.runs import CheckpointError, RunDirectory, RunError

from .small import digits, recipe, train_run


def edit(run: Path, **facts: Any) -> None:
    """Change what a run says of itself."""
    content = json.loads((run / "run.json").read_text())
    content["facts"] |= facts
    (run / "run.json").write_text(json.dumps(content))


def facts(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())["facts"]


def damage(run: Path, step: int) -> None:
    path = run / "checkpoints" / f"step-{step:08}" / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_the_newest_checkpoint(finished_run: Path) -> None:
    trained = Trained.open(finished_run)
    assert (trained.step, trained.seed, trained.realization) == (8, 1, "arfr")
    assert trained.recipe == recipe()
    net = trained.network(digits())
    assert all(torch.equal(tensor, trained.state["network"][name]) for name, tensor in net.state_dict().items())
    last = [event for event in RunDirectory.open(finished_run).events() if event["kind"] == "epoch"][-1]
    assert last["step"] == 8
    before = Trained.open(finished_run, 4)
    assert before.step == 4
    assert not torch.equal(before.state["network"]["classifier.weight"], trained.state["network"]["classifier.weight"])


def test_a_step_that_is_not_there(finished_run: Path) -> None:
    with pytest.raises(RunError, match=r"has no checkpoint of update 5; it has 4, 8$"):
        Trained.open(finished_run, 5)


def test_a_checkpoint_that_was_set_aside(trained_run: Path) -> None:
    """A process was killed while it replaced one."""
    place = trained_run / "checkpoints" / "step-00000004"
    place.rename(place.with_name(f"{place.name}.replaced"))
    assert Trained.open(trained_run, 4).step == 4
    assert Trained.open(trained_run, 8).step == 8
    shutil.copytree(place.with_name(f"{place.name}.replaced"), place)
    damage(trained_run, 4)
    with pytest.raises(CheckpointError):  # the one in place counts
        Trained.open(trained_run, 4)


def test_a_damaged_checkpoint(trained_run: Path) -> None:
    damage(trained_run, 8)
    heard: list[CheckpointError] = []
    assert Trained.open(trained_run, on_damage=heard.append).step == 4
    assert len(heard) == 1
    assert "step-00000008" in str(heard[0])
    assert Trained.open(trained_run).step == 4  # nobody has to listen
    with pytest.raises(CheckpointError, match="step-00000008"):  # the one that was asked for, or none
        Trained.open(trained_run, 8)
    damage(trained_run, 4)
    with pytest.raises(RunError, match=r"has no intact checkpoint: train it, or resume training"):
        Trained.open(trained_run)


def test_no_run(tmp_path: Path, trained_run: Path) -> None:
    with pytest.raises(RunError, match=r"run\.json cannot be read .*: is .*nowhere the directory of a run\?"):
        Trained.open(tmp_path / "nowhere")
    shutil.rmtree(trained_run / "checkpoints")
    with pytest.raises(RunError, match=r"has no intact checkpoint"):
        Trained.open(trained_run)
    with pytest.raises(RunError, match=r"has no checkpoint of update 8; it has none$"):
        Trained.open(trained_run, 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": None},
        {"recipe": "digits-lt"},
        {"realization": None},
        {"seed": "1"},
        {"data": {}},
        {"data": {"class_counts": None}},
        {"data": []},
    ],
)
def test_a_run_of_something_else(changes: dict[str, Any], trained_run: Path) -> None:
    edit(trained_run, **changes)
    with pytest.raises(RunError, match=r"run\.json does not say which recipe was trained, on what: is it of pairgrad train\?"):
        Trained.open(trained_run)


def test_a_recipe_of_another_version(trained_run: Path) -> None:
    edit(trained_run, recipe={**facts(trained_run)["recipe"], "colour": "red"})
    with pytest.raises(SettingError, match=r"not one that this version of pairgrad writes: missing nothing, unknown colour"):
        Trained.open(trained_run)


def test_its_data(finished_run: Path) -> None:
    benchmark = Trained.open(finished_run).data(None)
    assert benchmark.class_counts == digits().class_counts
    assert torch.equal(benchmark.train.image(3), digits().train.image(3))


def test_data_of_another_size(trained_run: Path) -> None:
    data = facts(trained_run)["data"]
    edit(trained_run, data={**data, "class_counts": [*data["class_counts"][:-1], 6]})
    sentence = r"was trained on 287 images of 7 classes \(117, 71, 43, 26, 15, 9, 6\), and 286 images .* are found now: give the --data-root of that run"
    with pytest.raises(RunError, match=sentence):
        Trained.open(trained_run).data(None)
    with pytest.raises(RunError, match=sentence):
        Trained.open(trained_run).check_data(digits())


def test_weights_that_do_not_fit(finished_run: Path) -> None:
    trained = Trained.open(finished_run)
    other = replace(trained, recipe=recipe("model.head=4,4"))
    with pytest.raises(RunError, match=r"the checkpoint of update 8 in .* has not the weights of its recipe's network .*head"):
        other.network(digits())
    with pytest.raises(RunError, match=r"has not the weights"):
        replace(trained, state={}).network(digits())


def test_files_that_changed_since(trained_run: Path) -> None:
    trained = Trained.open(trained_run)
    assert trained.changed_files(digits()) == ()
    first, *others = digits().files
    other = replace(digits(), files=(FileFact(first.path, first.size, "0" * 32), *others, FileFact("new", 1, "1" * 32)))
    assert trained.changed_files(other) == (f"{first.path} is not the file it was when the run began: md5 {'0' * 32}, then {first.md5}",)
    result, path = evaluate_run(trained, other, scores=("msp",))
    assert result.notes[-1] == trained.changed_files(other)[0]
    assert json.loads(path.read_text())["notes"] == list(result.notes)


def test_what_is_written(trained_run: Path) -> None:
    trained = Trained.open(trained_run)
    result, path = evaluate_run(trained, digits())
    assert path == trained_run / "evaluation-00000008.json"

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    content = json.loads(path.read_text(), parse_constant=refuse)
    assert {key: content[key] for key in ("recipe", "realization", "seed", "step")} == {
        "recipe": "digits-lt",
        "realization": "arfr",
        "seed": 1,
        "step": 8,
    }
    assert content | result.to_dict() == content
    assert content["environment"]["versions"]["torch"] == torch.__version__
    accuracy = accuracy_on_test(trained.network(digits()), digits(), trained.recipe)["accuracy"]
    assert content["scores"]["msp"]["accuracy"]["accuracy"] == accuracy
    assert Trained.open(trained_run, 4).step == 4  # nothing else has changed


def test_a_part_does_not_replace_the_whole(trained_run: Path) -> None:
    trained = Trained.open(trained_run, 4)
    _, whole = evaluate_run(trained, digits())
    before = whole.read_bytes()
    _, part = evaluate_run(trained, digits(), scores=("energy", "msp"))
    assert part.name == "evaluation-00000004-msp-energy.json"
    assert whole.read_bytes() == before
    assert set(json.loads(part.read_text())["scores"]) == {"msp", "energy"}


def test_a_file_that_cannot_be_written(trained_run: Path) -> None:
    (trained_run / "evaluation-00000008-msp.json").mkdir()
    with pytest.raises(RunError, match=r"evaluation-00000008-msp\.json cannot be written \(Is a directory\): make its directory writable"):
        evaluate_run(Trained.open(trained_run), digits(), scores=("msp",))


def test_a_cosine_classifier_from_its_directory(tmp_path: Path) -> None:
    run = train_run(tmp_path, "model.classifier=cosine", "epochs=1", "data.imbalance=10")
    trained = Trained.open(run)
    benchmark = trained.data(None)
    assert benchmark.class_counts != digits().class_counts
    result, path = evaluate_run(trained, benchmark)
    assert set(result.left_out) == {"patt-paper", "patt-released"}
    assert json.loads(path.read_text())["left_out"] == dict(result.left_out)
    with pytest.raises(RunError, match="was trained on"):
        trained.check_data(digits())
