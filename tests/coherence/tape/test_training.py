"""A tape leaves training alone: the same bits, nothing kept alive, whichever way gradients are asked for."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

from pairgrad.coherence.tape import Tape
from tests.coherence.tape.steps import (
    cube,
    parameter,
    taped,
)


def train(around):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.4), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(20, 6), torch.randint(0, 3, (20,)))
    losses = []
    with around:
        for _ in range(2):
            for x, y in torch.utils.data.DataLoader(data, 5, shuffle=True):
                optimizer.zero_grad()
                loss = F.cross_entropy(cube(net(x)), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses, [tensor.clone() for tensor in net.state_dict().values()], torch.get_rng_state()


@pytest.mark.parametrize("memory", [1 << 20, 0])
def test_training_has_the_same_bits(memory):
    tape = Tape(memory=memory)
    losses, state, random = train(tape)
    plain_losses, plain_state, plain_random = train(contextlib.nullcontext())
    assert losses == plain_losses
    assert torch.equal(random, plain_random)
    assert all(map(torch.equal, state, plain_state))
    replay = tape.replay()
    if memory:
        assert replay is not None, tape.reason
        assert replay.value == losses[0]
    else:
        assert replay is None
        assert "MiB or more, memory allows 0 MiB" in tape.reason


def test_constants_are_those_of_the_step():
    """Inputs that are overwritten after the step, and buffers that the step itself edits."""
    w, x, buffer = parameter(3), torch.randn(4, 3), torch.randn(3)

    def loss():
        h = w * x + buffer
        buffer.add_(h.detach().mean(0))
        return (h + buffer).square().sum()

    tape, value, *_ = taped(loss, [w])
    mean = buffer.clone()
    x.zero_()
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert [replay(*replay.leaves).item() for _ in range(3)] == [value] * 3
    assert torch.equal(buffer, mean)


def test_intermediate_results_are_released():
    alive = []

    def step(w):
        h = w * 2
        alive.append(weakref.ref(h))
        return (h + 1).sum()  # nothing that backward needs

    w = parameter(100)
    with Tape() as tape:
        loss = step(w)
        gc.collect()
        assert alive[0]() is None
        loss.backward()
        root = weakref.ref(loss)
        del loss
        gc.collect()
        assert root() is None
    assert tape.replay() is not None
    keeper = weakref.ref(w)
    del w
    gc.collect()
    assert keeper() is None


class Note(Function):
    seen = None

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        Note.seen = weakref.ref(y)
        return y

    @staticmethod
    def backward(ctx, u):
        return u


class Look(Note):
    gone = None

    @staticmethod
    def forward(ctx, x):
        Look.gone = Note.seen is not None and Note.seen() is None
        return x.clone()


def test_a_replay_releases_them_too():
    w = parameter(3)
    tape, *_ = taped(lambda: Look.apply(Note.apply(w) + 1).sum(), [w])
    replay = tape.replay()
    assert replay is not None, tape.reason
    Look.gone = None
    replay(*replay.leaves)
    assert Look.gone is True


def test_ids_that_are_used_again():
    """A tensor at the address of one that is gone is another tensor."""
    w = parameter(3)

    def loss():
        total = w.sum()
        for i in range(200):
            total = total + (w * torch.full((3,), float(i))).sum()
        return total

    tape, value, *_ = taped(loss, [w])
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay(*replay.leaves).item() == value


def test_gradient_accumulation_gives_the_first_loss():
    w = parameter(3)
    with Tape() as tape:
        first = (w * 2).sum()
        first.backward()
        assert tape.finished
        assert not _get_current_function_mode_stack()
        (w * 7).square().sum().backward()
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == first.item()


def test_an_optimizer_before_the_step():
    w = parameter(3)
    optimizer = torch.optim.AdamW([w], lr=0.1)
    w.square().sum().backward()
    with Tape() as tape:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        w.requires_grad_(False)
        w.requires_grad_()
        at = w.detach().clone()
        w.square().sum().backward()
        optimizer.step()
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert torch.equal(replay.leaves[0], at)


@pytest.mark.parametrize("ask", ["backward", "weights", "grad", "inputs"])
def test_ways_to_ask_for_a_gradient(ask):
    w = parameter(3)
    with Tape() as tape:
        loss = cube(w).sum()
        if ask == "backward":
            torch.autograd.backward(loss)
        elif ask == "weights":
            loss.backward(gradient=torch.ones(()))
        elif ask == "grad":
            torch.autograd.grad(loss, [w])
        else:
            loss.backward(inputs=[w])
        assert tape.finished
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == loss.item()
