"""A tape beside other modes, threads, interceptions and exceptions."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from pairgrad.coherence.nodes import Interception
from pairgrad.coherence.tape import NO_LOSS, Tape
from tests.coherence.tape.steps import (
    Cube,
    Wrong,
    cube,
    parameter,
    taped,
)


class Counting(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_it_is_taken_off_from_below_other_modes():
    w, counting = parameter(3), Counting()
    with Tape() as tape, torch.device("cpu"), counting:
        (w * torch.ones(3)).sum().backward()
        below, above = _get_current_function_mode_stack()
        assert above is counting
        assert below is not tape
        assert counting.calls
    assert _get_current_function_mode_stack() == []
    assert tape.replay() is not None


def test_it_can_be_put_on_within_other_modes_and_taken_off_outside():
    w, tape = parameter(3), Tape()
    with torch.device("cpu"):
        with Counting() as counting:
            tape.__enter__()
            loss = w.sum()
            assert _get_current_function_mode_stack()[-1] is counting
        loss = loss * 2
    assert _get_current_function_mode_stack() == [tape]
    loss.backward()
    assert _get_current_function_mode_stack() == []
    tape.stop()
    assert tape.replay() is not None


def test_a_tape_that_gave_up_lets_everything_pass():
    w = parameter(3)
    with Tape(memory=0) as tape:
        loss = w.square().sum()
        assert tape.finished
        assert torch.equal(cube(w), w**3)  # an opportunity to go
        assert _get_current_function_mode_stack() == []
        loss.backward()
    assert torch.equal(w.grad, 2 * w)
    with Tape(memory=0) as tape:
        w.square()
        tape.stop()
        assert _get_current_function_mode_stack() == []


def test_exceptions_of_the_user_pass():
    w, tape = parameter(3), Tape()
    with pytest.raises(RuntimeError, match="size of tensor"), tape:
        w + torch.ones(4)
    with Tape():
        loss = w.square().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            loss.backward()
    assert tape.reason == NO_LOSS
    with pytest.raises(RuntimeError, match="make a new one"):
        tape.__enter__()
    with pytest.raises(ValueError, match="memory must be an integer >= 0"):
        Tape(memory=-1)


def test_a_function_that_raises():
    class Raising(Function):
        @staticmethod
        def forward(ctx, x):
            raise KeyError("mine")

    w = parameter(3)

    def loss():
        with contextlib.suppress(KeyError):
            Raising.apply(w)
        return cube(w).sum()

    replay = taped(loss, [w])[0].replay()
    assert replay is not None
    assert replay.functions == (Cube,)


class Stubborn(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.clone:
            raise KeyError("not me")
        return super().__torch_function__(func, types, args, kwargs)


def test_training_goes_on_if_the_tape_fails(monkeypatch):
    w, x = parameter(3), torch.ones(3).as_subclass(Stubborn)
    tape, value, gradients, _ = taped(lambda: (w * x).sum(), [w])
    assert value == w.sum().item()
    assert torch.equal(gradients[0], torch.ones(3))
    assert tape.replay() is None
    assert tape.reason == "the tape failed with KeyError: 'not me'"
    monkeypatch.setattr("pairgrad.coherence.tape._shaped", None)
    with Tape() as tape:
        (w * 2).backward(torch.ones(3))
    assert tape.reason.startswith("the tape failed with TypeError")


def test_other_threads_are_left_alone():
    w, found = parameter(3), []

    def other():
        v = nn.Parameter(torch.ones(2))
        cube(v).sum().backward()
        found.append(v.grad)

    with Tape() as tape:
        loss = cube(w).sum()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not tape.finished
        loss.backward()
    assert torch.equal(found[0], torch.full((2,), 3.0))
    assert tape.replay() is not None


class Watching(Interception):
    """Notes whose forward and backward ran."""

    def __init__(self):
        super().__init__()
        self.ran = []

    def remember(self, function, ctx, arguments):
        self.ran.append(("forward", function, tuple(map(torch.clone, arguments))))

    def backward(self, function, ctx, memory, original, grads):
        self.ran.append(("backward", function, grads))
        return original(ctx, *grads)


@pytest.mark.parametrize("tape_first", [False, True])
def test_beside_an_interception(tape_first):
    w, tape, watching = parameter(3), Tape(), Watching()
    with contextlib.ExitStack() as stack:
        for manager in (tape, watching) if tape_first else (watching, tape):
            stack.enter_context(manager)
        (Wrong.apply(w) * 2).sum().backward()
    assert [(when, function) for when, function, _ in watching.ran] == [("forward", Wrong), ("backward", Wrong)]
    replay = tape.replay()
    assert replay is not None
    assert replay.functions == (Wrong,)
    assert len(replay._step.calls) == 3  # what the interception does is not the step's
