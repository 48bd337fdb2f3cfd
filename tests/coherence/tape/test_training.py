"""A recording of a step leaves training alone: the same bits, nothing kept alive, whichever way gradients are requested."""

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

import pairgrad
from tests.coherence.tape.steps import Wrong, cube, loss_of, parameter, recorded, refusal_of


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


@pytest.mark.parametrize("memory", [1 << 20, 1])
def test_training_has_the_same_bits(memory):
    recording = pairgrad.record(memory=memory)
    losses, state, random = train(recording)
    plain_losses, plain_state, plain_random = train(contextlib.nullcontext())
    assert losses == plain_losses
    assert torch.equal(random, plain_random)
    assert all(map(torch.equal, state, plain_state))
    if memory > 1:
        assert loss_of(recording).passed
    else:
        assert "MiB or more, memory allows" in refusal_of(recording)


def test_constants_are_those_of_the_step():
    """Inputs that are overwritten after the step, and buffers that the step itself edits."""
    w, x, buffer = parameter(3), torch.randn(4, 3), torch.randn(3)

    def loss():
        h = w * x + buffer
        buffer.add_(x.mean(0))
        return (h + buffer).square().sum()

    recording, *_ = recorded(loss, [w])
    mean = buffer.clone()
    x.zero_()
    assert loss_of(recording).passed
    assert torch.equal(buffer, mean)


def test_intermediate_results_are_released():
    alive = []

    def step(w):
        h = w * 2
        alive.append(weakref.ref(h))
        return (h + 1).sum()  # nothing that backward needs

    w = parameter(100)
    with pairgrad.record() as recording:
        loss = step(w)
        gc.collect()
        assert alive[0]() is None
        loss.backward()
        root = weakref.ref(loss)
        del loss
        gc.collect()
        assert root() is None
    assert loss_of(recording).passed
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
    recording, *_ = recorded(lambda: Look.apply(Note.apply(w) + 1).sum(), [w])
    Look.gone = None
    loss_of(recording)
    assert Look.gone is True


def test_tensors_at_an_address_that_is_used_again():
    """A tensor at the address of one that is gone is another tensor."""
    w = parameter(3)

    def loss():
        total = w.sum()
        for i in range(40):
            total = total + (w * torch.full((3,), float(i))).sum()
        return total

    assert loss_of(recorded(loss, [w])[0]).passed


@pytest.mark.parametrize("wrong_one", [0, 1])
def test_gradient_accumulation_gives_the_first_loss(wrong_one):
    w = parameter(3)
    with pairgrad.record() as recording:
        for i in range(2):
            (Wrong.apply(w) if i == wrong_one else cube(w)).sum().backward()
            assert _get_current_function_mode_stack() == []  # it costs nothing any more
    assert loss_of(recording).passed is (wrong_one == 1)


def test_an_optimizer_before_the_step():
    w = parameter(3)
    optimizer = torch.optim.AdamW([w], lr=0.1)
    w.square().sum().backward()
    with pairgrad.record() as recording:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        w.requires_grad_(False)
        w.requires_grad_()
        w.square().sum().backward()
        optimizer.step()
    assert loss_of(recording).passed


@pytest.mark.parametrize("way", ["backward", "weights", "grad", "inputs"])
def test_ways_to_request_a_gradient(way):
    w = parameter(3)
    with pairgrad.record() as recording:
        loss = cube(w).sum()
        if way == "backward":
            torch.autograd.backward(loss)
        elif way == "weights":
            loss.backward(gradient=torch.ones(()))
        elif way == "grad":
            torch.autograd.grad(loss, [w])
        else:
            loss.backward(inputs=[w])
    assert loss_of(recording).passed
