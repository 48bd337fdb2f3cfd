"""`pairgrad train` under torchrun: processes that share a run, and processes that are lost."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.command import invoke

from pairgrad_paper.runs import RunDirectory, load_checkpoint
from paper.tests.commands.several import NAME, SMALL, Launched
from paper.tests.training.small import different

pytestmark = pytest.mark.distributed
KILLED = str(Path(__file__).with_name("killed_in_a_checkpoint.py"))
WELL_CONDITIONED = ("--set", "loss.geometry=factorised")  # see paper/tests/training/test_objective.py
EPOCHS = ("--set", "epochs=6")  # of five updates


def newest(output: Path) -> Any:
    """The state of the newest checkpoint, of which every byte is checked; a damaged one fails."""
    return load_checkpoint(RunDirectory.open(output / NAME).checkpoints()[-1])


def finished(output: Path, processes: int, *more: str) -> dict[str, Any]:
    with Launched(output, processes, *more) as launched:
        assert launched.wait() == 0, launched.text()
        assert "Warning" not in launched.text()
    return newest(output).state


def assert_steps_are_there_once(output: Path, last: int) -> None:
    steps = [event["step"] for event in RunDirectory.open(output / NAME).events() if event["kind"] == "step"]
    assert steps == list(range(1, last + 1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--class-parallel", "2"), "--class-parallel must divide the number of processes, got 2 and there is one process"),
        (("--exchange", "carrier-pigeon"), "--exchange must be one of auto, gather, reduce, got 'carrier-pigeon'"),
        (("--wrap", "foil"), "--wrap must be one of ddp, fsdp, got 'foil'"),
        (("--timeout", "0"), "--timeout must be a positive number of seconds, got 0"),
    ],
)
def test_what_cannot_start_says_why(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    command = ["train", "digits-lt", *arguments, "--output", str(tmp_path / "out")]
    result = invoke(*command, columns=200)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("world", "arguments", "words"),
    [
        ("6", ("--class-parallel", "4"), "--class-parallel must divide the number of processes, got 4 and there are 6 processes"),
        ("6", ("--class-parallel", "6"), "--class-parallel 6 leaves a process without any of the 7 classes, in shards of 2"),
    ],
)
def test_numbers_of_processes_that_do_not_fit(
    world: str, arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", world)
    for more in ((), ("--dry-run",)):
        options = ("--set", "batch_size=48", "--set", "outlier_batch_size=24", "--output", str(tmp_path / "out"))
        result = invoke("train", "digits-lt", *options, *arguments, *more, columns=200)
        assert result.exit_code == 2
        assert words in " ".join(result.output.split())


def test_options_for_several_processes_in_one_are_said_to_have_no_effect(tmp_path: Path) -> None:
    options = ("--set", "batch_size=200", "--set", "epochs=1", "--monitor-every", "0", "--output", str(tmp_path))
    result = invoke("train", "digits-lt", *options, "--wrap", "fsdp", "--timeout", "5")
    assert result.exit_code == 0
    assert "note: --wrap, --timeout without effect: there is one process" in " ".join(result.output.split())
    assert "sharing" not in RunDirectory.open(tmp_path / NAME).facts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "more"),
    [(2, ("--class-parallel", "2")), (2, ("--wrap", "fsdp")), (3, ()), (4, ("--class-parallel", "2", "--wrap", "fsdp"))],
    ids=["classes", "fsdp", "three", "both"],
)
def test_a_stopped_run_goes_on_with_the_same_bits(processes: int, more: tuple[str, ...], tmp_path: Path) -> None:
    """And its checkpoints are those of one process: `pairgrad evaluate` and a single trainer read them."""
    whole = finished(tmp_path / "whole", processes, *more, "--set", "epochs=2")
    finished(tmp_path / "parts", processes, *more, "--set", "epochs=2", "--stop-at", "7")
    assert newest(tmp_path / "parts").step == 7
    assert different(whole, finished(tmp_path / "parts", processes, *more, "--set", "epochs=2")) == []
    assert int(whole["objective"]["loss.augmentation.bank.counts"].sum()) == 2 * 48 * 10
    assert invoke("evaluate", str(tmp_path / "whole" / NAME), "--score", "energy").exit_code == 0


@pytest.mark.slow
def test_every_way_of_sharing_trains_the_same_network(tmp_path: Path) -> None:
    """Five updates in a well-conditioned arithmetic; batch normalisation has the same parts in all of them."""
    ways = {"ddp": (), "reduce": ("--exchange", "reduce"), "classes": ("--class-parallel", "2"), "fsdp": ("--wrap", "fsdp")}
    states = {name: finished(tmp_path / name, 2, *WELL_CONDITIONED, "--set", "epochs=1", *more) for name, more in ways.items()}
    for name, state in states.items():
        assert state.keys() == states["ddp"].keys()
        for key, tensor in states["ddp"]["network"].items():
            found = state["network"][key]
            # a rounding of a gradient of 1e-6 grows with five updates of Adam, which divides by the size of gradients
            torch.testing.assert_close(found, tensor, rtol=1e-3, atol=1e-3 * float(tensor.abs().max()), msg=f"{name}: {key}")
    result = invoke("train", "digits-lt", "--output", str(tmp_path / "classes"), "--set", "epochs=1")
    assert result.exit_code == 2
    assert "processes: 2 there, 1 given" in result.output
    assert 'sharing: {"class_parallel": 2, "exchange": "auto", "wrap": "ddp"} there, (absent) given' in result.output


@pytest.mark.slow
def test_a_run_goes_on_with_fewer_processes_if_it_may(tmp_path: Path) -> None:
    """Four processes, then two, then one; every image is counted as often as by four all the way. Weights differ: batch normalisation has other parts."""
    output, short = tmp_path / "runs", (*WELL_CONDITIONED, "--set", "epochs=1")
    finished(output, 4, *short, "--class-parallel", "2", "--stop-at", "2")
    with Launched(output, 2, *short, "--class-parallel", "2") as launched:
        assert launched.wait() == 1
        (sentence,) = launched.sentences()
        assert "holds another run" in sentence
        assert "With --reshare it resumes with the options given now" in launched.text()
    finished(output, 2, *short, "--class-parallel", "2", "--reshare", "--stop-at", "3")
    assert newest(output).step == 3
    result = invoke("train", "digits-lt", *SMALL, *short, "--output", str(output), "--reshare")
    assert result.exit_code == 0
    run = RunDirectory.open(output / NAME)
    assert [each["processes"] for each in run.facts["before"]] == [4, 2]
    assert run.facts["processes"] == 1
    resumed = [event["changed"][0] for event in run.events() if event["kind"] == "resume"]
    assert resumed == ["processes: 4 there, 2 given", "processes: 2 there, 1 given"]
    assert_steps_are_there_once(output, 5)
    whole = finished(tmp_path / "whole", 4, *short, "--class-parallel", "2")
    state = newest(output).state
    counts = "loss.augmentation.bank.counts"
    assert torch.equal(state["objective"][counts], whole["objective"][counts])
    assert state["loader"] == whole["loader"]


@pytest.mark.slow
def test_a_killed_process_is_named_and_the_run_restarted(tmp_path: Path) -> None:
    """kill -9 in the middle of an update: torchrun starts all processes again, and these resume from the last checkpoint."""
    output = tmp_path / "runs"
    with Launched(output, 2, "--set", "epochs=3", torchrun=("--max-restarts", "1")) as launched:
        launched.wait_for_update(7)
        first = launched.ranks()
        launched.signal(1, signal.SIGKILL)
        assert launched.wait() == 0, launched.text()
        (sentence,) = launched.sentences()
        assert sentence.startswith("rank 0 of 2, in '")
        assert "rank 1 gave no sign of life" in sentence
        assert "Traceback" not in launched.text()
        assert len(launched.seen) > len(first)
    assert newest(output).step == 15
    resumed = [event["step"] for event in RunDirectory.open(output / NAME).events() if event["kind"] == "resume"]
    assert len(resumed) == 1
    assert resumed[0] in (5, 10)
    assert_steps_are_there_once(output, 15)


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "inside"), [(0, False), (1, True)])
@pytest.mark.parametrize("more", [("--class-parallel", "2"), ("--wrap", "fsdp")], ids=["classes", "fsdp"])
def test_killed_and_taken_up_with_the_same_bits(rank: int, inside: bool, more: tuple[str, ...], tmp_path: Path) -> None:
    """kill -9 of either process in an update, or while the other waits for it in a collective."""
    output = tmp_path / "runs"
    with Launched(output, 2, *EPOCHS, *more) as launched:
        launched.wait_for_update(12)
        if inside:
            launched.signal(rank, signal.SIGSTOP)
            time.sleep(1.0)  # by now the other waits for it
        launched.signal(rank, signal.SIGKILL)
        assert launched.wait() == 1
        (sentence,) = launched.sentences()
        assert f"rank {rank} gave no sign of life" in sentence
        assert "exitcode  : 5" in launched.text()
        assert "]: Traceback" not in launched.text()
    assert newest(output).step in (10, 15, 20, 25)
    state = finished(output, 2, *EPOCHS, *more)
    assert_steps_are_there_once(output, 30)
    assert different(state, finished(tmp_path / "undisturbed", 2, *EPOCHS, *more)) == []


@pytest.mark.slow
def test_killed_in_the_middle_of_a_checkpoint(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    with Launched(output, 2, *EPOCHS, program=(KILLED,), torchrun=("--max-restarts", "1")) as launched:
        assert launched.wait() == 0, launched.text()
        (sentence,) = launched.sentences()
        assert sentence.startswith("rank 1 of 2, in 'run: writing a checkpoint'")
        assert "rank 0 gave no sign of life" in sentence
    assert (output / "killed").read_text().startswith(".step-00000010")
    assert [event["step"] for event in RunDirectory.open(output / NAME).events() if event["kind"] == "resume"] == [5]
    assert [path.name for path in (output / NAME / "checkpoints").iterdir() if path.name.startswith(".")] == []
    assert_steps_are_there_once(output, 30)
    assert different(newest(output).state, finished(tmp_path / "undisturbed", 2, *EPOCHS)) == []


@pytest.mark.slow
def test_an_interrupt_of_one_process_stops_all(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    with Launched(output, 2, *EPOCHS) as launched:
        launched.wait_for_update(7)
        launched.signal(1, signal.SIGINT)
        assert launched.wait() == 1
        assert "exitcode  : 130" in launched.text()
        assert "]: Traceback" not in launched.text()
    (stop,) = [event for event in RunDirectory.open(output / NAME).events() if event["kind"] == "stop"]
    assert newest(output).step == stop["step"] < 30
    state = finished(output, 2, *EPOCHS)
    assert_steps_are_there_once(output, 30)
    assert different(state, finished(tmp_path / "undisturbed", 2, *EPOCHS)) == []


@pytest.mark.slow
def test_a_process_that_hangs(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    with Launched(output, 2, *EPOCHS, "--timeout", "15") as launched:  # which holds for the start, too
        launched.wait_for_update(7)
        launched.signal(1, signal.SIGSTOP)
        launched.wait_for_words("pairgrad train: ")
        launched.wait_for_words("Sending process")  # torchrun asks the other to end, and waits half a minute before it makes it
        sentence = launched.sentences()[0]
        assert "rank 1 gave no sign of life for 3 seconds: it died, or hangs" in sentence
        assert "Timed out" in sentence
        launched.signal(1, signal.SIGCONT)
        assert launched.wait() == 1
    assert newest(output).step == 5
    finished(output, 2, *EPOCHS)
    assert_steps_are_there_once(output, 30)


@pytest.mark.slow
def test_a_directory_that_is_taken_is_told_once(tmp_path: Path) -> None:
    """The first process finds out, and the other leaves with it, at once and without a word."""
    finished(tmp_path / "runs", 2, "--stop-at", "1")
    with Launched(tmp_path / "runs", 2, "--exchange", "reduce") as launched:
        assert launched.wait() == 1
        (sentence,) = launched.sentences()
        assert sentence.endswith("holds another run. What differs:")
        assert 'sharing.exchange: "auto" there, "reduce" given' in launched.text()
        assert "]: Traceback" not in launched.text()
