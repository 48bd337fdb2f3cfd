"""The directory of a run: made once, taken up again by the same run only, one process at a time."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pairgrad_paper.runs import CheckpointError, RunDirectory, RunError, RunLocked, RunMismatch

FACTS: dict[str, Any] = {"recipe": {"name": "cifar", "epochs": 200, "rates": (0.1, 0.01)}, "realization": "paired", "seed": 1}


def unexpected(error: CheckpointError) -> None:
    raise AssertionError(f"reported as damaged: {error}")


def test_a_run_is_created_written_and_taken_up_again(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "a" / "run", FACTS, {"versions": {"torch": "1"}}) as run:
        assert not run.resumed
        assert run.warning is None
        assert run.resume(unexpected) is None
        for step in (1, 2, 3):
            run.log.write("step", step)
            if step == 2:
                assert run.save(step, {"x": torch.ones(3)}, extra={"epoch": 1}) == run.checkpoints_path / "step-00000002"
        log = run.log
    with pytest.raises(RunError, match="was closed"):
        log.write("step", 4)
    with RunDirectory.create(tmp_path / "a" / "run", FACTS, {"versions": {"torch": "2"}}) as run:
        assert run.resumed
        assert run.environment == {"versions": {"torch": "1"}}
        assert run.facts["recipe"]["rates"] == [0.1, 0.01]
        checkpoint = run.resume(unexpected)
        assert checkpoint is not None
        assert (checkpoint.step, checkpoint.extra, run.rewound) == (2, {"epoch": 1}, 1)
        assert torch.equal(checkpoint.state["x"], torch.ones(3))
        run.log.write("resume", 2)
    kinds = [(event["kind"], event["step"]) for event in RunDirectory.open(tmp_path / "a" / "run").events()]
    assert kinds == [("step", 1), ("step", 2), ("checkpoint", 2), ("resume", 2)]
    assert sorted(os.listdir(tmp_path / "a" / "run")) == [".lock", "checkpoints", "record.jsonl", "run.json"]


def test_run_json_has_facts_and_environment_and_is_written_once(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, FACTS, {"command": ["x"]}) as run:
        content = run.run_path.read_bytes()
    assert json.loads(content) == json.loads(json.dumps({"format": 1, "facts": FACTS, "environment": {"command": ["x"]}}))
    with RunDirectory.create(tmp_path, FACTS, {"command": ["y"]}) as run:
        assert run.run_path.read_bytes() == content


def test_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, FACTS).close()
    other = {"recipe": {"name": "cifar", "epochs": 100, "rates": [0.1, 0.02], "new": None}, "seed": True}
    with pytest.raises(RunMismatch, match=r"(?s)holds another run.*Give another output directory, or the options of that run") as failure:
        RunDirectory.create(tmp_path, other)
    assert failure.value.differences == (
        "recipe.epochs: 200 there, 100 given",
        "recipe.rates: [0.1, 0.01] there, [0.1, 0.02] given",
        "recipe.new: (absent) there, null given",
        'realization: "paired" there, (absent) given',
        "seed: 1 there, true given",
    )
    assert all(line in str(failure.value) for line in failure.value.differences)
    RunDirectory.create(tmp_path, FACTS).close()  # the refused one let go of the lock


def test_foreign_files_are_refused_and_what_a_killed_start_leaves_is_not(tmp_path: Path) -> None:
    for name in (".lock", ".run.json.abc", ".writable.abc"):
        (tmp_path / name).write_text("x")
    RunDirectory.create(tmp_path, FACTS).close()
    assert sorted(os.listdir(tmp_path)) == [".lock", "run.json"]
    (tmp_path / ".record.jsonl.abc").write_text("x")
    (tmp_path / "checkpoints" / ".step-00000001-abc.partial").mkdir(parents=True)
    RunDirectory.create(tmp_path, FACTS).close()
    assert sorted(os.listdir(tmp_path)) == [".lock", "checkpoints", "run.json"]
    assert os.listdir(tmp_path / "checkpoints") == []
    (tmp_path / "checkpoints").rmdir()
    (tmp_path / "run.json").unlink()
    for number in range(7):
        (tmp_path / f"photo-{number}").write_text("x")
    with pytest.raises(RunError, match=r"not empty and has no run\.json: it has photo-0, photo-1, .*photo-4 and 2 more\. Choose a new"):
        RunDirectory.create(tmp_path, FACTS)
    assert len(os.listdir(tmp_path)) == 8
    assert not (tmp_path / "run.json").exists()


def test_results_beside_a_run_are_not_foreign(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, FACTS).close()
    (tmp_path / "evaluation.json").write_text("{}")
    with RunDirectory.create(tmp_path, FACTS) as run:
        assert run.resumed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"run\.json is damaged or not of a run \(JSONDecodeError"),
        ("{}", r"run\.json is damaged or not of a run \(KeyError: 'format'\)"),
        ("[]", r"run\.json is damaged or not of a run \(TypeError"),
        ('{"format": 1, "facts": 3, "environment": {}}', "must be objects"),
        ('{"format": 7, "facts": {}, "environment": {}}', r"has format 7, this version reads 1"),
    ],
)
def test_a_run_json_of_something_else_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    for use in (RunDirectory.open, lambda path: RunDirectory.create(path, FACTS)):
        with pytest.raises(RunError, match=message):
            use(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match=rf"{path} cannot be a run's directory: {tmp_path / 'file'} is not a directory"):
            RunDirectory.create(path, FACTS)


def test_open_needs_a_run_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run\.json cannot be read \(No such file or directory\): is .* the directory of a run"):
        RunDirectory.open(tmp_path)
    assert os.listdir(tmp_path) == []
    RunDirectory.create(tmp_path, FACTS).close()
    run = RunDirectory.open(tmp_path)
    assert (run.events(), run.checkpoints(), run.latest(unexpected)) == ([], [], None)
    for write in (lambda: run.log, lambda: run.save(1, {}), lambda: run.resume(unexpected)):
        with pytest.raises(RunError, match="open for reading only"):
            write()
    assert sorted(os.listdir(tmp_path)) == [".lock", "run.json"]


def test_open_with_the_lock_can_write_and_keeps_others_out(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, FACTS).close()
    with RunDirectory.open(tmp_path, lock=True) as run:
        run.log.write("evaluation", 3, accuracy=0.5)
        for use in (lambda: RunDirectory.create(tmp_path, FACTS), lambda: RunDirectory.open(tmp_path, lock=True)):
            with pytest.raises(RunLocked, match=rf"is in use by process {os.getpid()} on"):
                use()
        assert RunDirectory.open(tmp_path).events() == [{"kind": "evaluation", "step": 3, "accuracy": 0.5}]
    RunDirectory.open(tmp_path, lock=True).close()


def test_without_a_checkpoint_the_log_starts_again(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, FACTS) as run:
        run.log.write("step", 0)
        run.log.write("step", 1)
        assert run.resume(unexpected) is None
        assert run.rewound == 2
        run.log.write("step", 0)
        assert run.events() == [{"kind": "step", "step": 0}]


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_again_by_itself(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, FACTS) as run:
        run.log.write("step", 1)
        (run.save(1, {}) / "state.json").write_text("")
        reported: list[CheckpointError] = []
        with pytest.raises(
            CheckpointError, match=r"none of the 1 checkpoints in .* is intact, and nothing was removed: `pairgrad check .*--from COPY"
        ):
            run.resume(reported.append)
        assert len(reported) == 1
        assert len(run.events()) == 2


def test_the_log_is_on_the_disk_before_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        order.append(Path(target).name)
        rename(source, target)

    with RunDirectory.create(tmp_path, FACTS) as run:
        run.log.write("step", 1)
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", renamed)
        run.save(1, {})
    assert order.index("record.jsonl") < order.index("step-00000001")


def test_facts_must_be_strict_json(tmp_path: Path) -> None:
    for wrong in ({"x": float("nan")}, {"x": torch.ones(1)}):
        with pytest.raises((TypeError, ValueError), match="facts and environment must be strict JSON"):
            RunDirectory.create(tmp_path / "run", wrong)
    assert not (tmp_path / "run").exists()


def test_resuming_from_a_chosen_checkpoint_keeps_the_later_ones_under_other_names(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, FACTS) as run:
        for step in (1, 2, 3):
            run.save(step, {"x": step}, keep=9)
        for expected in (
            ["step-00000002.aside", "step-00000003.aside"],
            ["step-00000002.aside", "step-00000002.aside1", "step-00000003.aside"],
        ):
            found = run.resume(unexpected, source=run.checkpoints_path / "step-00000001")
            assert found is not None
            assert (found.step, found.state) == (1, {"x": 1})
            assert [path.name for path in run.checkpoints()] == ["step-00000001"]
            assert sorted(path.name for path in run.checkpoints_path.iterdir() if path.suffix) == expected
            assert [event["step"] for event in run.events()] == [1]
            run.save(2, {"x": 20}, keep=9)


def test_a_copy_is_resumed_from_and_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "one", FACTS) as run:
        shutil.copytree(run.save(1, {"x": 1}), tmp_path / "copy")
    with RunDirectory.create(tmp_path / "other", {**FACTS, "seed": 17}) as other:
        foreign = other.save(1, {"x": 2})
    with RunDirectory.create(tmp_path / "one", FACTS) as run:
        (run.checkpoints()[0] / "state.json").write_text("")
        found = run.resume(unexpected, source=tmp_path / "copy")
        assert found is not None
        assert found.state == {"x": 1}
        with pytest.raises(RunMismatch, match=r"is of another run than .*one\. What differs: seed: 1 there, 17 given\. Choose"):
            run.resume(unexpected, source=foreign)
        with pytest.raises(CheckpointError, match="is damaged"):
            run.resume(unexpected, source=run.checkpoints()[0])
