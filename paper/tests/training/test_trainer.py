"""An update, and the state that it reads."""

import copy

import pytest
import torch
from tests.distributed.ranks import run
from torch import distributed

from pairgrad_paper.runs import load_checkpoint, save_checkpoint
from pairgrad_paper.training import NonFinite, Process, Sharing, Trainer
from paper.tests.training.small import advanced, different, digits, recipe, trainer


def resumed(subject, path, *arguments):
    """Another trainer, from a checkpoint of this one on disk."""
    saved = save_checkpoint(path, subject.step, subject.state())
    other = trainer(*arguments)
    other.load(load_checkpoint(saved).state)
    return other


@pytest.mark.parametrize(("method", "realization"), [("patt", "original"), ("proco", "paired")])
def test_a_resumed_run_has_the_same_bits(method, realization, tmp_path):
    straight = advanced(trainer(method, realization), 10)
    halfway = advanced(trainer(method, realization), 4)
    torch.rand(5)  # somebody else draws
    again = resumed(halfway, tmp_path, method, realization)
    again.network.eval()  # somebody looked at test images
    advanced(again, 6)  # over the end of the first epoch, after 8
    assert again.step == 10
    first, second = straight.state(), again.state()
    assert different(first["network"], second["network"]) == []
    del first["random"], second["random"]
    assert different(first, second) == []


@pytest.mark.parametrize("at", [8, 9])
def test_at_and_after_the_end_of_an_epoch(at, tmp_path):
    straight = advanced(trainer("proco"), 11)
    again = advanced(resumed(advanced(trainer("proco"), at), tmp_path, "proco"), 11 - at)
    first, second = straight.state(), again.state()
    del first["random"], second["random"]
    assert different(first, second) == []


def test_the_state_holds_what_it_says(tmp_path):
    state = advanced(trainer("proco"), 3).state()
    assert {"network", "objective", "optimizer", "schedule", "random", "loader", "step"} <= set(state)
    assert {"loss.bank.sums", "loss.bank.next_sums", "loss.bank.counts"} <= set(state["objective"])
    assert state["loader"] == {"epoch": 0, "position": 3, "per_epoch": 8, "seed": 1}
    assert set(state["random"]) == {"torch", "cuda", "numpy", "python"}


def test_random_numbers_come_back(tmp_path):
    import random

    import numpy as np

    subject = trainer()
    state = load_checkpoint(save_checkpoint(tmp_path, 0, subject.state())).state
    drawn = [torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random(), random.gauss(0, 1)]  # noqa: NPY002
    subject.load(state)
    assert drawn == [torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random(), random.gauss(0, 1)]  # noqa: NPY002


def test_a_state_of_another_run_is_refused():
    state = trainer(seed=2).state()
    with pytest.raises(ValueError, match="seed 2, not 8 and 1: the data or the options are others"):
        trainer(seed=1).load(state)


def test_arms_start_alike_and_have_one_forward_and_two_gradients():
    arms = [trainer(realization=name) for name in ("original", "consistent")]
    assert different(arms[0].state()["network"], arms[1].state()["network"]) == []
    assert different(arms[0].state()["objective"], arms[1].state()["objective"]) == []
    losses, gradients = [], []
    for subject in arms:
        measures = subject.update(subject.batches.batch(0)).read()
        losses.append((measures["total"], measures["vmf"]))
        gradients.append(torch.cat([p.grad.flatten() for p in subject.network.parameters()]))
    assert losses[0] == losses[1]
    gap = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert 1e-5 < gap < 1e-1, f"relative distance of the gradients {gap:g}"


@pytest.mark.slow
def test_learning():
    """Six epochs lower the loss of the views that are seen and of the classifier."""
    subject = trainer("patt", "paired", 1, "epochs=6", "optimizer.lr=0.005")
    first = advanced(subject, 8).means()
    last = advanced(subject, 40).means()
    assert last["total"] < 0.7 * first["total"]
    assert last["accuracy"] > first["accuracy"] + 0.2


def test_means_are_over_the_epoch():
    subject = trainer()
    read = [subject.update(subject.batches.batch(step)).read() for step in range(10)]
    for done, part in ((10, read[8:]),):
        assert subject.step == done
        for name, mean in subject.means().items():
            assert mean == pytest.approx(sum(one[name] for one in part) / len(part), rel=1e-12)


def test_an_update_out_of_turn_is_refused():
    subject = trainer()
    with pytest.raises(ValueError, match="batch must be that of update 0, got that of 3"):
        subject.update(subject.batches.batch(3))


@pytest.mark.parametrize("what", ["outputs", "loss", "gradient"])
def test_what_is_not_finite_stops_before_anything_changes(what, monkeypatch):
    subject = advanced(trainer(), 2)
    batch = subject.batches.batch(2)
    if what == "outputs":
        batch = batch._replace(views=(batch.views[0] * torch.inf, *batch.views[1:]))
    elif what == "loss":
        forward = subject.objective.forward
        monkeypatch.setattr(subject.objective, "forward", lambda *a: forward(*a)._replace(total=torch.tensor(torch.nan)))
    else:
        subject.network.classifier.weight.register_hook(lambda gradient: gradient * torch.nan)
    before = {name: tensor.clone() for name, tensor in subject.network.named_parameters()}
    counts = subject.objective.bank.counts.clone()
    with pytest.raises(NonFinite, match=f"the {what} of update 2 (is|are) not finite") as caught:
        subject.update(batch)
    assert caught.value.step == 2
    assert caught.value.before
    assert subject.step == 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.network.named_parameters())
    if what == "outputs":
        assert torch.equal(subject.objective.bank.counts, counts)


def test_the_learning_rate_follows_the_schedule():
    subject = trainer("patt", "arfr", 1, "schedule.kind=steps", "schedule.milestones=1", "optimizer.lr=0.01")
    advanced(subject, 8)
    assert subject.optimizer.param_groups[0]["lr"] == 0.01
    advanced(subject, 1)
    assert subject.optimizer.param_groups[0]["lr"] == pytest.approx(0.001)


def test_what_a_bank_derives_comes_from_the_checkpoint():
    """Row by row as they changed, the derived numbers may differ in the last bit from those derived at once."""
    subject = trainer()
    state = subject.state()
    other = state["derived"]["_concentrations"] * 1.5
    state["derived"] = {**state["derived"], "_concentrations": other.clone()}
    subject.load(state)
    assert torch.equal(subject.objective.bank.classes().concentration, other)


def test_on_a_device_what_is_not_finite_is_found_at_the_next_look():
    """As on a GPU: nothing waits for the device between two looks, and the first of several bad updates is named."""
    subject = advanced(trainer(), 2)
    good = copy.deepcopy(subject.state())
    subject.device = torch.device("cuda")  # of which `update` only asks whether it is the CPU
    subject.look()
    subject.network.classifier.weight.register_hook(lambda gradient: gradient * torch.nan)
    advanced(subject, 1)
    subject._refuse(torch.tensor(False), "outputs")  # of update 3
    with pytest.raises(NonFinite, match="the loss of update 2 is not finite") as caught:
        subject.look()
    assert (caught.value.step, caught.value.before) == (2, False)
    subject.load(good)
    subject.look()


def test_the_first_update_adds_what_was_foretold():
    for settings, copies in (
        ((), 2),
        (("optimizer.name=sgd",), 1),
        (("optimizer.name=sgd", "optimizer.momentum=0", "optimizer.nesterov=false"), 0),
    ):
        subject = trainer("patt", "arfr", 1, *settings)
        assert len(subject.still_to_come()) == copies * len(list(subject.network.parameters()))
    advanced(subject := trainer(), 1)
    assert subject.still_to_come() == []


def _shared_anew(ways):
    """The state of a run in one way of sharing, and what other ways make of it."""
    rank = distributed.get_rank()

    def made(sharing):
        return Trainer(recipe("proco"), digits(), "arfr", 1, process=Process(rank, distributed.get_world_size(), sharing=sharing))

    subject = advanced(made(ways[0]), 2)
    content = [subject.state()]
    distributed.broadcast_object_list(content)  # as if all had read it
    found = []
    for sharing in ways:
        other = made(sharing)
        other.load(content[0])
        found.append(different(other.state(), content[0]))
        if sharing == ways[0]:
            advanced(subject, 1), advanced(other, 1)
            found.append(different(other.state(), subject.state()))
    return content[0], found


@pytest.mark.distributed
def test_a_state_is_that_of_one_process_and_can_be_shared_anew():
    """Weights, moments and banks come out of any way of sharing and go into any other, bit for bit."""
    (state, found), _ = run(2, _shared_anew, [Sharing(2, wrap="fsdp"), Sharing(), Sharing(2)])
    assert found == [[], [], [], []]
    alone = trainer("proco")
    alone.load(state)
    assert different(alone.state(), state) == []
    assert alone.step == 2
    advanced(alone, 1)
