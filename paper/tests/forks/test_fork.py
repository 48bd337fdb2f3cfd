"""Forks: branches on the same tensors, measured, interrupted and taken up again."""

import copy
import json
import signal

import pytest
import torch

from pairgrad_paper.forks import ForkRun, Plan, fork_record, random_start, trained_start
from pairgrad_paper.recipes import SettingError
from pairgrad_paper.records import RecordError, read, write
from pairgrad_paper.runs import RunError, RunMismatch
from paper.tests.training.small import advanced, different, digits, recipe, trainer

TWO = ("original", "consistent")


def fork(updates=6, probes=3, branches=TWO, start=None, epochs=2):
    settings = recipe("patt", f"epochs={epochs}")
    begin = random_start(settings, digits(), 1) if start is None else start
    return ForkRun(settings, digits(), 1, begin, Plan(updates, probes, branches))


def run(subject, output):
    with subject.directory(output) as directory:
        outcome = subject.run(directory)
        return outcome, fork_record(directory)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    subject = fork()
    outcome, record = run(subject, tmp_path_factory.mktemp("fork"))
    return subject, outcome, record


def test_branches_begin_equal_in_every_bit():
    subject = fork(branches=("original", "consistent", "arfr", "paired"))
    first, *others = (branch.state() for branch in subject.branches.values())
    for key in ("network", "objective", "optimizer"):
        assert all(different(first[key], other[key]) == [] for other in others)


def test_a_branch_is_what_training_alone_would_be(whole):
    subject, outcome, _ = whole
    assert outcome.finished
    assert outcome.step == 6
    for name in TWO:
        alone = advanced(trainer("patt", name), 6)
        assert different(alone.state()["network"], subject.branches[name].state()["network"]) == []


def test_what_is_measured(whole):
    _, _, record = whole
    assert record.record == "fork"
    assert record.name == "fork-digits-lt-seed1-random"
    probes = record.of("probe")
    assert [line["step"] for line in probes] == [0, 3, 6]
    assert all(line["scores_equal"] and line["loss_equal"] for line in probes)
    distances = record.of("distance")
    assert [line["step"] for line in distances] == [1, 2, 3, 5, 6]
    assert {line["branch"] for line in distances} == {"consistent"}
    parameter = [line["parameter"] for line in distances]
    assert 0 < parameter[0] < parameter[-1]
    assert all(line["feature"] > 0 and line["feature_cosine"] >= 0 for line in distances)
    assert record.one("end")["step"] == 6
    assert record.facts["start"] == "random"
    assert record.facts["branches"] == list(TWO)


def test_distances_are_those_of_the_branches(whole):
    subject, _, record = whole
    last = record.of("distance")[-1]
    theta = [torch.cat([p.detach().double().flatten() for p in subject.branches[name].network.parameters()]) for name in TWO]
    expected = (torch.linalg.vector_norm(theta[1] - theta[0]) / torch.linalg.vector_norm(theta[0])).item()
    assert last["parameter"] == pytest.approx(expected, rel=1e-9)


def test_a_record_is_read_as_it_was_written(whole, tmp_path):
    _, _, record = whole
    path = write(tmp_path / f"{record.name}.jsonl", record)
    again = read(path)
    assert again.lines == record.lines
    assert again.facts == json.loads(json.dumps(record.facts))
    assert "time" not in path.read_text().split('"kind": "probe"')[1]
    assert str(tmp_path.parent) not in path.read_text()


def test_losses_of_all_branches_and_the_controls(tmp_path):
    branches = ("original", "consistent", "arfr", "paired")
    _, record = run(fork(updates=10, probes=2, branches=branches), tmp_path)
    assert [(line["step"], line["branch"]) for line in record.of("loss")] == [(10, name) for name in branches]
    controls = record.of("control")
    assert {tuple(line["between"]) for line in controls} == {("consistent", "arfr"), ("arfr", "paired")}
    first = {tuple(line["between"]): line["parameter"] for line in controls if line["step"] == 1}
    assert first["arfr", "paired"] <= first["consistent", "arfr"] < record.of("distance")[0]["parameter"]


def test_an_interrupted_fork_ends_with_the_same_bits(whole, tmp_path):
    straight, _, record = whole
    subject = fork()

    def stop(step, _):
        if step == 4:
            signal.raise_signal(signal.SIGINT)

    with subject.directory(tmp_path) as directory:
        outcome = subject.run(directory, stop)
    assert (outcome.finished, outcome.step) == (False, 4)
    assert outcome.stopped
    said = []
    resumed = fork()
    with resumed.directory(tmp_path) as directory:
        assert resumed.run(directory, said=said.append).finished
        again = fork_record(directory)
    assert said == ["resuming after update 4 of 6"]
    assert different(straight.state()["branches"], resumed.state()["branches"]) == []
    assert again.lines[:-1] == record.lines[:-1]  # all but the minutes


def test_a_second_fork_begins_where_the_first_branch_ended(whole):
    subject, _, _ = whole
    start = trained_start(subject.first.state())
    second = fork(updates=3, probes=2, start=start)
    assert (start.kind, start.step) == ("trained", 6)
    assert second.name == "fork-digits-lt-seed1-trained"
    assert different(second.first.state()["network"], subject.first.state()["network"]) == []
    assert second.first.step == 6


def test_branches_of_a_trained_start_are_what_training_alone_would_be(whole):
    """Nothing is shared: a state that is loaded twice must not become one state, the moments of the optimizer least of all."""
    subject, _, _ = whole
    state = subject.first.state()
    untouched = copy.deepcopy(state)
    second = fork(updates=3, probes=2, start=trained_start(state))
    pointers = [
        {value.data_ptr() for moments in trainer.optimizer.state.values() for value in moments.values() if isinstance(value, torch.Tensor)}
        for trainer in second.branches.values()
    ]
    assert not pointers[0] & pointers[1]
    for _ in range(3):
        batch = second.first.batches.batch(second.start.step + second.step)
        for branch in second.branches.values():
            branch.update(batch)
        second.step += 1
    for name, branch in second.branches.items():
        alone = trainer("patt", name)
        alone.load(untouched)
        assert different(advanced(alone, 3).state()["network"], branch.state()["network"]) == []
    assert different(state, untouched) == []


def test_an_unfinished_fork_has_no_record(tmp_path):
    subject = fork()
    with subject.directory(tmp_path) as directory:
        directory.log.write("loss", 1, time=0.0, branch="original", total=1.0, vmf=1.0, accuracy=0.5)
        with pytest.raises(RecordError, match="is not finished"):
            fork_record(directory)
        directory.log.write("end", directory.facts["updates"], time="x")
        with pytest.raises(RecordError, match="something that is not as pairgrad fork writes it"):
            fork_record(directory)


def test_all_branches_draw_the_same_random_numbers(tmp_path, monkeypatch):
    """Whatever a network draws from the global generator, such as dropout, is the same in every branch."""
    from pairgrad_paper.training import Trainer

    plain, drawn = Trainer.update, []

    def drawing(self, batch):
        drawn.append(torch.rand(()).item())
        return plain(self, batch)

    monkeypatch.setattr(Trainer, "update", drawing)
    run(fork(updates=2, probes=2), tmp_path)
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]


def test_another_start_is_another_fork(whole, tmp_path):
    subject, _, _ = whole
    begins = [trained_start(subject.branches[name].state()) for name in TWO]
    with fork(updates=1, probes=2, start=begins[0]).directory(tmp_path):
        pass
    with pytest.raises(RunMismatch, match="start_weights"):
        fork(updates=1, probes=2, start=begins[1]).directory(tmp_path)


def test_distances_are_measured_in_evaluation_mode(tmp_path):
    """The features of two branches with equal weights are equal, whatever batches the network saw last; and the network trains on."""
    subject = fork(updates=1, probes=2, branches=("original", "consistent", "arfr", "paired"))
    _, record = run(subject, tmp_path)
    for line in (*record.of("distance"), *record.of("control")):
        assert (line["parameter"] == 0) == (line["feature"] == 0)
    assert all(branch.network.training for branch in subject.branches.values())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"branches": ("consistent", "original")}, "original first"),
        ({"branches": ("original",)}, "two realizations or more"),
        ({"branches": ("original", "arfr", "arfr")}, "each once"),
        ({"probes": 1}, "--probes must be from 2 to the number of updates plus 1, 1001, got 1"),
        ({"updates": 5, "probes": 7}, "got 7"),
    ],
)
def test_plans_that_cannot_be(options, words):
    with pytest.raises(SettingError, match=words):
        Plan(**options)


def test_the_paper_has_43_probes():
    probed = Plan().probed()
    assert len(set(probed)) == 43
    assert (probed[0], probed[-1]) == (0, 1000)


def test_a_fork_longer_than_the_recipe_says_what_to_set():
    with pytest.raises(SettingError, match=r"goes beyond the 16 updates of digits-lt: --set epochs=3 or more"):
        fork(updates=16, probes=2)


def test_a_checkpoint_without_a_trainer_is_no_start():
    with pytest.raises(RunError, match="must start from the state of a training run"):
        trained_start({"step": 3, "weights": {}})
