"""A step that cannot be computed again: the report says why."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import pairgrad
from tests.coherence.tape.steps import loss_of, parameter, recorded, refusal_of


def outside():
    w = parameter(3)
    before = w * 2
    return lambda: (before * w).sum(), [w]


def outside_loss():
    w = parameter(3)
    total = w.sum()
    return lambda: total, [w]


def transformed():
    w = parameter(3)
    return lambda: torch.func.grad(lambda v: v.pow(3).sum())(w).sum(), [w]


def edited_parameter():
    w = parameter(3)

    def loss():
        h = w * 2
        with torch.no_grad():
            w[0].clamp_(-1, 1)
        return h.sum() + w.sum()

    return loss, [w]


def replaced_data():
    w = parameter(3)

    def loss():
        h = w * 2
        w.data = w.data + 1
        return h.sum() + w.sum()

    return loss, [w]


def shared_memory():
    w, x = parameter(4), torch.ones(4)
    part = x[:2]

    def loss():
        h = w[:2] + part + (w + x).sum()
        x.add_(w.detach())
        return (h + part).square().sum()

    return loss, [w]


def shared_memory_late():
    w, x = parameter(4), torch.ones(4)
    part = x[:2]

    def loss():
        with torch.no_grad():
            x.copy_(w)
        return (w[:2] * part).sum()

    return loss, [w]


def switched():
    w, v = parameter(3), parameter(3)

    def loss():
        h = w * v
        v.requires_grad_(False)
        return (h * v).sum()

    return loss, [w]


def hooked_parameter():
    w = parameter(3)
    w.register_hook(lambda u: 2 * u)
    return lambda: w.square().sum(), [w]


def hidden_in_a_checkpoint():
    w = parameter(3)

    def inner(h):
        with torch.no_grad():
            scale = w.abs().max()
        return h * scale

    return lambda: checkpoint(inner, w * 2, use_reentrant=True).sum(), [w]


def scripted():
    w = parameter(3)
    fn = torch.jit.trace(lambda v: v * v, torch.ones(3))
    return lambda: fn(w).sum(), [w]


class Hidden(Function):
    """Depends on a tensor that it is not given."""

    weight = torch.ones(3)

    @staticmethod
    def forward(ctx, x):
        return x * Hidden.weight

    @staticmethod
    def backward(ctx, u):
        return u * Hidden.weight


def hidden_state():
    w = parameter(3)
    Hidden.weight = torch.ones(3)
    return lambda: Hidden.apply(w).sum(), [w]


REFUSED = {
    "graph from outside": (outside, r"a tensor of shape \(3,\) \(MulBackward0\) was made before the tape was on"),
    "loss from outside": (outside_loss, "the loss was made before the tape was on"),
    "torch.func": (transformed, "by a call that is not seen, such as one under a torch.func transform"),
    "parameter edited": (edited_parameter, "a parameter of shape .* is edited in place within the step"),
    "data replaced": (replaced_data, "the data of a tensor is replaced within the step"),
    "shared memory, met late": (shared_memory_late, "shares memory with one that was edited in place"),
    "shared memory": (shared_memory, "is edited in place, and tensors that share its memory are in use"),
    "switched off": (switched, "a parameter is switched on or off within the step"),
    "hook on a parameter": (hooked_parameter, "the replayed gradient of parameter 0 .* is off by 5.0e-01 of its size"),
    "no_grad in a checkpoint": (hidden_in_a_checkpoint, "the replayed gradient of parameter 0"),
    "jit": (scripted, "was made before the tape was on, or by a call that is not seen"),
}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_a_reason_is_given(name):
    build, reason = REFUSED[name]
    state = torch.get_rng_state()
    loss, parameters = build()
    recording, value, gradients = recorded(loss, parameters)
    note = refusal_of(recording)
    assert re.search(reason, note), note
    torch.set_rng_state(state)
    loss, parameters = build()
    plain = loss()
    plain.backward()
    assert plain.item() == value
    assert all(torch.equal(w.grad, gradient) for w, gradient in zip(parameters, gradients, strict=True))


def test_state_that_is_not_seen():
    recording, value, _ = recorded(*hidden_state())
    Hidden.weight = torch.full((3,), 2.0)
    assert refusal_of(recording) == f"the replayed loss is {2 * value!r}, the step had {value!r}: something it depends on was not seen"
    recording, *_ = recorded(*hidden_state())
    Hidden.weight = None
    assert refusal_of(recording).startswith("the replay raised TypeError: ")


def test_no_loss():
    w = parameter(3)
    with pairgrad.record() as recording:
        w.sum()
    assert refusal_of(recording) == "no gradient was asked of a loss while the tape was on"
    with pairgrad.record() as recording:
        (w * 2).backward(torch.arange(3.0))
    assert refusal_of(recording) == "a gradient is asked of a tensor of shape (3,) with weights, not of a loss"
    with pairgrad.record() as recording:
        torch.autograd.backward([w.sum(), (w * 2).sum()])
    assert refusal_of(recording) == "a gradient is asked of 2 tensors at once, not of one loss"
    with pairgrad.record(loss=False) as recording:
        w.sum().backward()
    assert refusal_of(recording) == "not asked for (loss=False)"


def test_a_loss_that_is_not_a_number():
    w = nn.Parameter(torch.tensor([-1.0, 2.0]))
    report = loss_of(recorded(lambda: w.log().sum(), [w])[0])
    assert report.verdict == "inconclusive"


@pytest.mark.slow
def test_a_recording_that_finds_no_end_of_the_step():
    w = torch.ones(3, requires_grad=True)
    with pairgrad.record() as recording:
        for _ in range(20_001):
            w.square()
    assert re.fullmatch("no gradient was asked of a loss within [0-9]+ calls", refusal_of(recording))
