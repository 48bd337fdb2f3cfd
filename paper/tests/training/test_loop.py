"""A run can be stopped, killed, damaged and taken up again; what it becomes does not change."""

import collections
import contextlib
import csv
import json
import os
import shutil
import signal

import pytest
import torch

from pairgrad_paper.evaluation import accuracy_on_test
from pairgrad_paper.runs import CheckpointWriteError, RunDirectory, RunError, SpaceError, load_checkpoint, required_space
from pairgrad_paper.training import Batches, NonFinite, Observer, Options, Process, set_deterministic, train
from paper.tests.runs.disks import limited_files
from paper.tests.training.small import arm, different, digits, made, opened, recipe

QUICK = Options(monitor_every=0, record_every=4)


def ran(path, options=QUICK, observer=None, given=None, **more):
    """Train in a directory with a new trainer; the outcome and the trainer."""
    given = arm() if given is None else given
    with opened(path, given) as run:
        subject = made(given)
        return train(run, subject, options, observer, **more), subject


def record(path, *kinds):
    lines = [json.loads(line) for line in (path / "record.jsonl").read_text().splitlines()]
    return [line for line in lines if not kinds or line["kind"] in kinds]


def measured(path):
    """The lines that training itself writes, without the clock."""
    return [{key: value for key, value in line.items() if key != "time"} for line in record(path, "step", "epoch")]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run of 16 updates that nobody disturbed."""
    path = tmp_path_factory.mktemp("straight") / "run"
    outcome, subject = ran(path)
    assert (outcome.ending, outcome.step) == ("finished", 16)
    return path, subject


def assert_same(path, subject, straight):
    assert different(subject.state(), straight[1].state()) == []
    assert measured(path) == measured(straight[0])


class At(Observer):
    """Does something after an update."""

    def __init__(self, step, action):
        self.step, self.action, self.messages = step, action, []

    def updated(self, step, measures):
        if step == self.step:
            self.action()

    def said(self, message):
        self.messages.append(message)


def test_the_record_and_the_checkpoints(straight):
    path, subject = straight
    assert [line["step"] for line in record(path, "step")] == [4, 8, 12, 16]
    epochs = record(path, "epoch")
    assert [line["epoch"] for line in epochs] == [0, 1]
    assert epochs[1]["train_total"] == pytest.approx(subject.means()["total"], rel=1e-15)
    assert [line["step"] for line in record(path, "checkpoint")] == [0, 8, 16]
    assert record(path)[-1]["kind"] == "end"
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == ["step-00000008", "step-00000016"]
    facts = json.loads((path / "run.json").read_text())
    assert facts["facts"]["realization"] == "arfr"
    assert facts["facts"]["recipe"]["name"] == "digits-lt"
    assert {"versions", "device", "source", "command"} <= set(facts["environment"])


@pytest.mark.parametrize("monitor", [0, 50])
def test_a_finished_run_stays_as_it_is(monitor, straight):
    path, subject = straight
    before = (path / "record.jsonl").read_bytes()
    outcome, again = ran(path, Options(monitor_every=monitor, record_every=4))
    assert (outcome.ending, outcome.step) == ("finished", 16)
    assert (path / "record.jsonl").read_bytes() == before
    assert different(again.state(), subject.state()) == []


@pytest.mark.parametrize("step", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_stopped_and_taken_up(step, straight, tmp_path):
    path = tmp_path / "run"
    outcome, _ = ran(path, Options(monitor_every=0, record_every=4, stop_at=step))
    assert (outcome.ending, outcome.step) == ("stopped", step)
    watcher = At(-1, None)
    _, subject = ran(path, observer=watcher)
    assert_same(path, subject, straight)
    assert watcher.messages == [f"resuming after update {step} of 16"]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_after_the_update(number, straight, tmp_path):
    path = tmp_path / "run"
    before = signal.getsignal(number)
    outcome, _ = ran(path, observer=At(5, lambda: signal.raise_signal(number)))
    assert (outcome.ending, outcome.step, outcome.reason) == ("stopped", 5, number.name)
    assert signal.getsignal(number) is before
    assert record(path)[-1]["kind"] == "stop"
    _, subject = ran(path)
    assert_same(path, subject, straight)


def test_a_second_interruption_does_not_wait(tmp_path):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path / "run", observer=At(5, twice))


class Killed(BaseException):
    """The end of the process, as far as the loop can see."""


@pytest.mark.parametrize("step", [13, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 2, 8, 15))])
def test_a_run_that_ended_without_a_word(step, straight, tmp_path):
    path = tmp_path / "run"

    def die():
        raise Killed

    with pytest.raises(Killed):
        ran(path, observer=At(step, die))
    _, subject = ran(path)
    assert_same(path, subject, straight)
    assert [line["step"] for line in record(path, "resume")] == [step // 8 * 8]


@pytest.mark.parametrize("damage", ["truncate", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("flip", "delete"))])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(damage, straight, tmp_path):
    path = tmp_path / "run"
    ran(path, Options(monitor_every=0, record_every=4, stop_at=11))
    file = path / "checkpoints" / "step-00000011" / "state.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[-5] ^= 1
        file.write_bytes(content)
    else:
        file.unlink()
    watcher = At(-1, None)
    _, subject = ran(path, observer=watcher)
    assert_same(path, subject, straight)
    assert "step-00000011" in watcher.messages[0]
    assert "Looking at the checkpoint before it" in watcher.messages[0]
    assert watcher.messages[1] == "resuming after update 8 of 16"


def test_a_loss_that_is_not_finite_leaves_the_batch_and_the_state(tmp_path):
    path = tmp_path / "run"
    given = arm()
    with opened(path, given) as run:
        subject = made(given)

        def break_it():
            with torch.no_grad():
                subject.network.classifier.weight.fill_(torch.inf)

        with pytest.raises(NonFinite, match="the outputs of update 10 are not finite"):
            train(run, subject, QUICK, At(10, break_it))
    failure = load_checkpoint(path / "failures" / "step-00000010")
    assert failure.extra == {"update": 10, "what": "outputs", "state_is_from_before_the_update": True}
    expected = subject.batches.batch(10)
    saved = failure.state["batch"]
    assert torch.equal(saved["indices"], expected.indices)
    assert all(map(torch.equal, saved["views"], expected.views))
    assert torch.equal(saved["outliers"], expected.outliers)
    assert failure.state["state"]["step"] == 10
    assert record(path)[-1]["kind"] == "failure"
    assert record(path, "checkpoint")[-1]["step"] == 8  # the last one is from before the trouble


def test_a_full_disk_loses_nothing(straight, tmp_path):
    path = tmp_path / "run"
    with contextlib.ExitStack() as stack:
        watcher = At(12, lambda: stack.enter_context(limited_files(50_000)))  # a checkpoint has more bytes, the log has fewer
        with pytest.raises(CheckpointWriteError, match="step-00000008"):
            ran(path, observer=watcher)
    _, subject = ran(path)
    assert_same(path, subject, straight)


def test_too_little_space_is_said_before_the_first_update(tmp_path, monkeypatch):
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1000))
    seen = []
    with pytest.raises(SpaceError, match="free"):
        ran(tmp_path / "run", observer=At(1, lambda: seen.append(1)))
    # enough for three of what there is now, and not of what there will be
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, 3 * required_space(made(arm()).state()) + 8192))
    with pytest.raises(SpaceError, match="free"):
        ran(tmp_path / "run", observer=At(1, lambda: seen.append(1)))
    assert not seen


def test_watching_changes_no_bit(straight, tmp_path):
    """The monitor, the evaluations and more checkpoints are of the record, not of the weights."""
    seen = []

    class Watcher(Observer):
        def looked(self, step, report):
            seen.extend(node.verdict.value for node in report.nodes)

    def evaluate(trainer):
        return accuracy_on_test(trainer.network, trainer.benchmark, trainer.recipe)

    torch.rand(3)  # whoever called may have drawn
    path = tmp_path / "run"
    options = Options(monitor_every=5, record_every=4, evaluate_every=1, checkpoint_minutes=0, keep=3)
    _, subject = ran(path, options, Watcher(), evaluate=evaluate)
    assert different(subject.state(), straight[1].state()) == []
    assert seen == ["coherent"] * len(seen) != []
    assert {"test_accuracy", "test_few"} <= set(record(path, "epoch")[0])
    assert record(path, "coherence")[0]["functions"][0]["verdict"] == "coherent"
    assert len(record(path, "checkpoint")) == 17
    assert len(list((path / "checkpoints").iterdir())) == 3
    assert (path / "coherence.csv").read_text().count("coherent") == len(seen)


def test_the_monitor_sees_the_original_system_apart(tmp_path):
    ran(tmp_path / "run", Options(monitor_every=8, stop_at=9, checkpoint_every=2), given=arm("patt", "original"))
    (line, *_) = record(tmp_path / "run", "coherence")
    assert [function["verdict"] for function in line["functions"]] == ["incoherent"]
    assert line["functions"][0]["defect"] > 1e-5
    assert [event["step"] for event in record(tmp_path / "run", "checkpoint")] == [0, 9]  # not after the first epoch, at 8


def test_scalars_for_tensorboard(tmp_path):
    class Writer:
        scalars: dict = {}

        def add_scalar(self, name, value, step):
            self.scalars[name, step] = value

    first = []

    def writer(step):
        first.append(step)
        return Writer()

    for end in (5, 8):
        ran(tmp_path / "run", Options(monitor_every=0, record_every=4, stop_at=end), writer=writer)
    assert Writer.scalars["train/total", 4] == record(tmp_path / "run", "step")[0]["total"]
    assert Writer.scalars["epoch/lr", 8] == 0.005
    assert first == [1, 6]  # what an earlier process wrote up to there stays


def test_logits_for_which_the_loss_would_not_be_finite(tmp_path):
    """They are finite, and divided by the temperature they are not: the reason is told, and the batch is kept."""
    given = arm("patt", "arfr", 1, "loss.logit_temperature=1e-18")
    with opened(tmp_path / "run", given) as run:
        subject = made(given)

        def enlarge():
            with torch.no_grad():
                subject.network.classifier.bias.fill_(1e30)

        reason = r"the loss of update 3 is not finite: logits must leave every row a class .* at temperature 1e-18"
        with pytest.raises(NonFinite, match=reason) as caught:
            train(run, subject, QUICK, At(3, enlarge))
    assert load_checkpoint(caught.value.kept).extra["what"] == "loss"


def test_a_failure_that_cannot_be_kept_is_still_told(tmp_path):
    given = arm()
    with opened(tmp_path / "run", given) as run, contextlib.ExitStack() as stack:
        subject = made(given)

        def break_it():
            with torch.no_grad():
                subject.network.classifier.weight.fill_(torch.inf)
            stack.enter_context(limited_files(50_000))

        watcher = At(1, break_it)
        with pytest.raises(NonFinite) as caught:
            train(run, subject, QUICK, watcher)
    assert caught.value.kept is None
    (message,) = watcher.messages
    assert message.startswith("the batch and the state of update 1 could not be kept: cannot write the checkpoint")


def test_a_failure_in_one_of_several_processes_keeps_the_batch_of_all(tmp_path):
    given = arm()
    with opened(tmp_path / "run", given) as run:
        subject = made(given)
        subject.batches = Batches(digits(), recipe(), given.seed, subject.device, Process(0, 2))

        def break_it():
            with torch.no_grad():
                subject.network.classifier.weight.fill_(torch.inf)

        with pytest.raises(NonFinite) as caught:
            train(run, subject, QUICK, At(3, break_it))
    found = load_checkpoint(caught.value.kept)
    assert torch.equal(found.state["batch"]["indices"], made(given).batches.indices(3))
    assert len(found.state["batch"]["indices"]) == 2 * len(subject.batches.batch(3).labels)


def test_a_directory_that_is_moved_away(tmp_path):
    path = tmp_path / "run"
    options = Options(monitor_every=0, checkpoint_minutes=0)
    with pytest.raises(CheckpointWriteError, match="was moved or removed"):
        ran(path, options, At(2, lambda: path.rename(tmp_path / "elsewhere")))
    assert not path.exists()
    assert [file.name for file in RunDirectory.open(tmp_path / "elsewhere").checkpoints()] == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("step", ["7", "\u00b2", "9" * 5000, None])
def test_looks_that_will_come_again_are_taken_from_the_file(step, tmp_path):
    """A killed process may have looked after its last checkpoint, or have been killed within a row."""
    path, looks = tmp_path / "run", tmp_path / "run" / "coherence.csv"
    ran(path, Options(monitor_every=2, stop_at=5))
    before = looks.read_text()
    *_, (_, _, *cells) = csv.reader(before.splitlines())
    with looks.open("a", newline="") as file:
        csv.writer(file).writerow(["3", "f"] if step is None else [step, "f", *cells])
    ran(path, Options(monitor_every=2, stop_at=8))
    text = looks.read_text()
    assert text.startswith(before)
    head, *rows = csv.reader(text.splitlines())
    assert all(len(row) == len(head) and row[1] != "f" for row in rows)
    assert all(int(row[0]) > 5 for row in csv.reader(text.removeprefix(before).splitlines()))


def test_a_file_of_looks_that_is_none_is_named(tmp_path):
    ran(tmp_path / "run", Options(monitor_every=2, stop_at=2))
    (tmp_path / "run" / "coherence.csv").write_bytes(b"\xff" + b"x" * 200_000)
    with pytest.raises(RunError, match=r"coherence\.csv is damaged \(field larger than field limit"):
        ran(tmp_path / "run", Options(monitor_every=2, stop_at=4))


def test_deterministic_algorithms(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    try:
        set_deterministic(False)
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
        assert (torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark) == (False, False, True)
        set_deterministic(True)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert (torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark) == (True, True, False)
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
        torch.use_deterministic_algorithms(before[0])
        cudnn.deterministic, cudnn.benchmark = before[1:]
