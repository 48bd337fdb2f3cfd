"""`pairgrad train`, as it is used and as it is misused."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.cli.command import invoke

from pairgrad.cli import main
from pairgrad_paper.recipes import RECIPES, changed, recipe_named
from pairgrad_paper.runs import RunDirectory, RunLock, RunLogWriteError, load_checkpoint
from pairgrad_paper.training import Arm, Observer, Process, load_data

SMALL = ("--set", "epochs=2", "--set", "batch_size=32", "--set", "outlier_batch_size=16", "--monitor-every", "0")
NAME = "digits-lt-paired-seed3407"


def trained(output, *more):
    return invoke("train", "digits-lt", *SMALL, "--output", str(output), *more)


def weights(output, name=NAME):
    newest = max((Path(output) / name / "checkpoints").iterdir())
    return load_checkpoint(newest).state["network"]


def assert_equal_weights(first, second):
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def test_recipes_are_listed():
    result = invoke("train")
    assert result.exit_code == 0
    assert all(name in result.output for name in RECIPES)


def test_a_run_and_the_same_command_again(tmp_path):
    first = trained(tmp_path, "--stop-at", "5")
    assert first.exit_code == 0
    assert "286 training images of 7 classes" in first.output
    assert "stopped after update 5" in first.output
    second = trained(tmp_path)
    assert second.exit_code == 0
    assert "resuming after update 5 of 16" in second.output
    assert f"pairgrad evaluate {tmp_path}" in second.output.replace("\n", " ").replace("  ", " ")
    third = trained(tmp_path)
    assert "finished after 16 updates" in third.output
    assert "resuming" not in third.output


def test_accuracy_is_printed_after_a_resume(tmp_path):
    """Wherever the run was stopped: evaluations are at multiples of --evaluate-every, and lines of a log at tenths of what is left."""
    longer = ("--set", "epochs=20", "--evaluate-every", "4")
    assert trained(tmp_path, *longer, "--stop-at", "11").exit_code == 0
    lines = trained(tmp_path, *longer).output.splitlines()
    evaluated = [line.split()[1] for line in lines if line.startswith("epoch ") and " test " in line]
    assert evaluated == ["4", "8", "12", "16", "20"]


def test_several_arms_and_seeds(tmp_path):
    result = trained(tmp_path, "--realization", "consistent", "--realization", "arfr", "--seed", "1", "--seed", "2", "--stop-at", "1", "-q")
    assert result.exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"digits-lt-{name}-seed{seed}" for name in ("arfr", "consistent") for seed in (1, 2)
    ]


def test_a_dry_run_writes_nothing(tmp_path):
    result = trained(tmp_path / "new", "--dry-run")
    assert result.exit_code == 0
    assert not (tmp_path / "new").exists()
    for words in ("optimizer.lr", "held-out-digits", "117, 71, 43, 26, 15, 9, 5", "2 epochs of 8 updates on cpu", "would train in the new"):
        assert words in result.output.replace("\n", " ")
    trained(tmp_path, "--stop-at", "3")
    assert "would resume from step-00000003" in trained(tmp_path, "--dry-run").output.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "digit-lt"), "did you mean digits-lt"),
        (("train", "digits-lt", "--set", "optimizer.rate=1"), "did you mean optimizer"),
        (("train", "digits-lt", "--set", "epochs=many"), "epochs must be a whole number, got 'many'"),
        (("train", "digits-lt", "--set", "epochs"), "--set must look like key=value"),
        (("train", "digits-lt", "--realization", "exact"), "--realization must be one of paired, arfr"),
        (("train", "digits-lt", "--device", "abacus"), "device 'abacus' cannot be used here"),
        (("train", "digits-lt", "--device", "meta"), "device 'meta' cannot be used here"),
        (("train", "digits-lt", "--seed", "-1"), "--seed must be from 0"),
        (("train", "digits-lt", "--seed", "1", "--seed", "2", "--from", "x"), "--from is a checkpoint of one run: give one --realization"),
        (("train", "digits-lt", "--from", "/no/such/place"), "/no/such/place is not a checkpoint: there is no such directory"),
        (("train", "patt-cifar10-lt-if100", "--data-root", "/no/such/place"), "/no/such/place"),
        (("train", "digits-lt", "--set", "batch_size=4000"), "a batch of 4000 is larger than the 286 training images"),
    ],
)
def test_what_cannot_start_says_why(arguments, words, tmp_path):
    result = invoke(*arguments, "--output", str(tmp_path / "out"), columns=200)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not list((tmp_path / "out").glob("*/checkpoints/*"))


def test_a_missing_data_root_says_how_to_give_one(tmp_path, monkeypatch):
    monkeypatch.delenv("PAIRGRAD_DATA", raising=False)
    result = invoke("train", "patt-cifar10-lt-if100", "--output", str(tmp_path))
    assert result.exit_code == 2
    assert "PAIRGRAD_DATA" in result.output


def test_another_run_in_the_directory(tmp_path):
    trained(tmp_path, "--stop-at", "1")
    result = trained(tmp_path, "--set", "optimizer.lr=0.1")
    assert result.exit_code == 2
    assert "recipe.optimizer.lr: 0.005 there, 0.1 given" in result.output
    result = trained(tmp_path, "--set", "optimizer.lr=0.1", "--dry-run")
    assert result.exit_code == 2
    assert "recipe.optimizer.lr: 0.005 there, 0.1 given" in " ".join(result.output.split())
    (tmp_path / "mine" / NAME).mkdir(parents=True)
    (tmp_path / "mine" / NAME / "thesis.txt").write_text("all of it")
    result = trained(tmp_path / "mine")
    assert result.exit_code == 2
    assert "thesis.txt" in result.output
    assert (tmp_path / "mine" / NAME / "thesis.txt").read_text() == "all of it"


def test_two_processes_in_one_directory(tmp_path):
    trained(tmp_path, "--stop-at", "1")
    before = (tmp_path / NAME / "record.jsonl").read_bytes()
    with RunLock(tmp_path / NAME):
        result = trained(tmp_path)
    assert result.exit_code == 2
    assert str(os.getpid()) in result.output
    assert (tmp_path / NAME / "record.jsonl").read_bytes() == before
    assert trained(tmp_path).exit_code == 0


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "runs").write_text("")
    result = trained(tmp_path / "runs")
    assert result.exit_code == 2
    assert "is not a directory" in result.output or "is a file" in result.output


def test_commands_to_copy_and_names_of_files_are_whole_and_in_their_line(tmp_path):
    """Whatever is in the name of the directory: bytes that are no text, and line feeds that could begin a line of ours."""
    name = "run-\udcff\udcfe\nPASS"
    output = os.fsdecode(os.fsencode(tmp_path)) + "/" + name
    shown = f"{tmp_path}/{name}/{NAME}".replace("\n", r"\n").encode(errors="backslashreplace").decode()
    dry = trained(output, "--dry-run").output
    done = trained(output).output
    checked = invoke("check", f"{output}/{NAME}").output
    for text, words in ((dry, "would train in the new directory"), (done, "writes to"), (done, "pairgrad evaluate"), (checked, "")):
        assert f"{words}{shown}".replace(" ", "") in "".join(text.split())
        assert not [line for line in text.splitlines() if line.startswith("PASS")]


def test_damage_is_shown_and_repaired_from_a_copy(tmp_path):
    """Nothing advises to remove anything."""
    output = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))  # a name that is not UTF-8 changes nothing
    run = output / NAME
    trained(output, "--stop-at", "5")
    checked = invoke("check", str(run))
    assert checked.exit_code == 0
    assert checked.output.count(": intact") == 4
    assert "resumes after update 5" in checked.output
    shutil.copytree(run / "checkpoints" / "step-00000005", tmp_path / "copy")
    for path in (run / "checkpoints").iterdir():
        with (path / "state.safetensors").open("r+b") as file:
            file.seek(1000)
            file.write(b"damage")
    checked = invoke("check", str(run))
    assert checked.exit_code == 1
    assert checked.output.count("DAMAGED: state.safetensors is damaged (") == 2
    refused = trained(output)
    assert refused.exit_code == 2
    said = " ".join((checked.output + refused.output + refused.stderr).split())
    assert "nothing was removed: resume from a copy of one with --from COPY" in said
    assert "SHA-256 is" in said
    assert not re.search(r"(?<!was )\b(remove|delete)", said)
    resumed = trained(output, "--from", str(tmp_path / "copy"))
    assert resumed.exit_code == 0
    assert "resuming after update 5 of 16" in resumed.output
    assert invoke("check", str(run)).exit_code == 0
    trained(tmp_path / "whole")
    assert_equal_weights(weights(output), weights(tmp_path / "whole"))


def test_a_run_whose_lock_file_was_removed_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(Observer, "updated", lambda *_: (tmp_path / NAME / ".lock").unlink(missing_ok=True))
    result = trained(tmp_path, "-q")
    assert result.exit_code == 4
    assert "was removed or replaced while this process worked" in " ".join(result.output.split())
    assert [path.name for path in (tmp_path / NAME / "checkpoints").iterdir()] == ["step-00000000"]
    monkeypatch.undo()
    assert trained(tmp_path).exit_code == 0


def test_a_loss_that_is_not_finite(tmp_path):
    """A learning rate that no network survives."""
    result = trained(tmp_path, "--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e18")
    assert result.exit_code == 3
    assert "are not finite" in result.output
    assert list((tmp_path / NAME / "failures").iterdir())


@pytest.mark.parametrize("error", [RunLogWriteError("no space for the record"), OSError(28, "No space left on device", "coherence.csv")])
def test_what_cannot_be_written_on_the_way(error, tmp_path, monkeypatch):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(Observer, "updated", full)
    result = trained(tmp_path, "-q")
    assert result.exit_code == 4
    assert "stopped" in result.output
    assert str(error).split(":")[0] in result.output
    monkeypatch.undo()
    assert trained(tmp_path, "--stop-at", "1").exit_code == 0


class _Gone(io.StringIO):
    """A standard output that nobody reads any more, or whose disk is full."""

    def __init__(self, error):
        super().__init__()
        self.error, self.writes = error, 0

    def write(self, text):
        self.writes += 1
        if self.writes > 1:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device")])
def test_a_log_that_ends_does_not_end_the_run(error, tmp_path, monkeypatch):
    stream = _Gone(error)
    monkeypatch.setattr(sys, "stdout", stream)
    options = ("--set", "batch_size=200", "--evaluate-every", "5", "--output", str(tmp_path))  # two epochs of one update
    monkeypatch.setattr(sys, "argv", ["pairgrad", "train", "digits-lt", *SMALL, *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert stream.getvalue().startswith(NAME)
    assert stream.writes > 1
    assert (tmp_path / NAME / "checkpoints" / "step-00000002").exists()
    events = [json.loads(line) for line in (tmp_path / NAME / "record.jsonl").read_text().splitlines()]
    assert ["test_accuracy" in event for event in events if event["kind"] == "epoch"] == [False, True]  # the last is evaluated in any case


def test_tensorboard(tmp_path, monkeypatch):
    made = []

    class SummaryWriter(contextlib.nullcontext):
        def __init__(self, folder, purge_step):
            super().__init__(self)
            made.append((Path(folder).name, purge_step))

        def add_scalar(self, name, value, step):
            made.append((name, step))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=SummaryWriter))
    for end in ("1", "2"):
        assert trained(tmp_path, "--tensorboard", "--record-every", "1", "--stop-at", end).exit_code == 0
    assert [one for one in made if one[0] in ("tensorboard", "train/total")] == [
        ("tensorboard", 1),
        ("train/total", 1),
        ("tensorboard", 2),  # what is shown of update 1 stays
        ("train/total", 2),
    ]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = trained(tmp_path, "--tensorboard")
    assert result.exit_code == 2
    assert "pip install tensorboard" in result.output


def test_what_may_change_the_bits_is_said(tmp_path):
    for end in ("1", "2"):
        assert "this run began" not in trained(tmp_path, "--stop-at", end).output
    path = tmp_path / NAME / "run.json"
    content = json.loads(path.read_text())
    environment = content["environment"]
    environment["cpu"]["threads"], environment["device"]["type"], environment["versions"]["torch"] = 99, "cuda", "1.0"
    path.write_text(json.dumps(content))
    said = " ".join(trained(tmp_path, "--stop-at", "3").output.split())
    assert "began with 99 threads" in said
    assert "began on cuda and is now on cpu" in said
    assert "began with torch 1.0" in said


def test_a_dry_run_knows_what_may_change(tmp_path):
    given = Arm(changed(recipe_named("digits-lt"), SMALL[1:6:2]), "paired", 3407)
    with RunDirectory.create(tmp_path / NAME, given.facts(load_data(given.recipe, None), Process(0, 2))):
        pass
    assert trained(tmp_path, "--dry-run").exit_code == 2
    assert trained(tmp_path, "--dry-run", "--reshare").exit_code == 0
    assert trained(tmp_path, "--dry-run", "--reshare", "--set", "optimizer.lr=0.1").exit_code == 2


def command(output, *more):
    return [sys.executable, "-m", "pairgrad", "train", "digits-lt", *SMALL, "--output", str(output), "--threads", "1", "-q", *more]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def started(output, *more):
    return subprocess.Popen(command(output, *more), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_update(process, output, step, name=NAME):
    """Until the record says that the run is past an update, or the process has ended."""
    path = Path(output) / name / "record.jsonl"
    while True:  # until the time limit of tests
        if path.exists() and any(json.loads(line)["step"] >= step for line in path.read_text().splitlines() if line.endswith("}")):
            return
        if process.poll() is not None:
            return
        time.sleep(0.01)


def kill(process):
    process.kill()
    process.communicate()
    return process.returncode


LONGER = ("--set", "epochs=12", "--record-every", "1", "--realization", "original")
LONGER_NAME = "digits-lt-original-seed3407"


def finish(output, *more):
    result = trained(output, "--threads", "1", *more)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    output = tmp_path_factory.mktemp("undisturbed")
    finish(output, *LONGER)
    return weights(output, LONGER_NAME)


def test_killed_and_taken_up_with_the_same_bits(undisturbed, tmp_path):
    output, killed = tmp_path, False
    while not killed:  # one that was at its end before it was killed is of no use
        output = output / "again"
        process = started(output, *LONGER)
        wait_for_update(process, output, 37, LONGER_NAME)
        assert kill(process) in (-signal.SIGKILL, 0)
        killed = not (output / LONGER_NAME / "checkpoints" / "step-00000096").exists()
    finish(output, *LONGER)
    assert_equal_weights(weights(output, LONGER_NAME), undisturbed)


@pytest.mark.slow
def test_killed_at_random_again_and_again(undisturbed, tmp_path):
    generator = torch.Generator().manual_seed(3407)
    kills = 0
    for target in sorted(torch.randint(1, 90, (6,), generator=generator).tolist()):
        process = started(tmp_path, *LONGER, "--checkpoint-minutes", "0")
        wait_for_update(process, tmp_path, target, LONGER_NAME)
        time.sleep(float(torch.rand((), generator=generator)) * 0.05)
        kills += kill(process) == -signal.SIGKILL
    assert kills
    finish(tmp_path, *LONGER)
    assert_equal_weights(weights(tmp_path, LONGER_NAME), undisturbed)


@pytest.mark.slow
def test_ctrl_c(undisturbed, tmp_path):
    process = started(tmp_path, *LONGER)
    wait_for_update(process, tmp_path, 20, LONGER_NAME)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=1000)
    assert process.returncode == 130
    assert "SIGINT" in output
    assert "Traceback" not in output
    assert "run the same command again to resume" in output
    finish(tmp_path, *LONGER)
    assert_equal_weights(weights(tmp_path, LONGER_NAME), undisturbed)


@pytest.mark.slow
def test_two_processes_at_once(tmp_path):
    endless = ("--set", "epochs=500")  # the first is still training when the second has loaded torch
    first = started(tmp_path, *LONGER, *endless)
    wait_for_update(first, tmp_path, 5, LONGER_NAME)
    second = started(tmp_path, *LONGER, *endless)
    output, _ = second.communicate(timeout=1000)
    assert second.returncode == 2
    assert str(first.pid) in output
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate(timeout=1000)
    assert first.returncode == 130
    assert "SIGTERM" in output


def _small_disk(path: Path, size: str) -> bool:
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.slow
def test_a_disk_that_is_too_small_or_gets_full(undisturbed, tmp_path):
    disk = tmp_path / "disk"
    if not _small_disk(disk, "1500k"):
        pytest.skip("mounting a tmpfs needs root; paper/tests/training/test_loop.py has the drill without it")
    try:
        (disk / "ballast").write_bytes(bytes(1200 * 1024))
        result = subprocess.run(command(disk / "runs", *LONGER), env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert result.returncode in (2, 4)
        assert "free" in result.stdout + result.stderr
        (disk / "ballast").unlink()
        process = started(disk / "runs", *LONGER)
        wait_for_update(process, disk / "runs", 20, LONGER_NAME)
        left = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "ballast").write_bytes(bytes(max(left - 8192, 0)))
        output, _ = process.communicate(timeout=1000)
        assert process.returncode == 4, output
        assert "No space left" in output or "free" in output
        (disk / "ballast").unlink()
        finish(disk / "runs", *LONGER)
        assert_equal_weights(weights(disk / "runs", LONGER_NAME), undisturbed)
    finally:
        subprocess.run(["umount", str(disk)], check=False)


@pytest.mark.slow
@pytest.mark.distributed
def test_torchrun(tmp_path):
    """Two processes: the bank has seen what one process would have shown it, and a stopped run goes on with the same bits."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", *command("OUT")[2:]]

    def launch(output, *more):
        arguments = [str(output) if word == "OUT" else word for word in launcher]
        result = subprocess.run([*arguments, *more], env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    launch(tmp_path / "whole")
    launch(tmp_path / "parts", "--stop-at", "10")
    launch(tmp_path / "parts")
    assert_equal_weights(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    state = load_checkpoint(tmp_path / "whole" / NAME / "checkpoints" / "step-00000016").state
    assert int(state["objective"]["loss.augmentation.bank.counts"].sum()) == 2 * 32 * 16
