"""A recording beside other modes, threads, recordings and exceptions."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import pairgrad
from pairgrad.coherence import visits
from tests.coherence.tape.steps import Wrong, cube, loss_of, parameter, recorded, refusal_of


class Counting(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_it_ends_below_other_modes():
    w, counting = parameter(3), Counting()
    with pairgrad.record() as recording, torch.device("cpu"), counting:
        (w * torch.ones(3)).sum().backward()
        device, above = _get_current_function_mode_stack()
        assert above is counting
        assert isinstance(device, torch.utils._device.DeviceContext)
        assert counting.calls
    assert _get_current_function_mode_stack() == []
    assert loss_of(recording).passed


def test_it_can_be_entered_within_other_modes_and_end_outside():
    w, recording = parameter(3), pairgrad.record()
    with torch.device("cpu"):
        with Counting() as counting:
            recording.__enter__()
            loss = w.sum()
            assert _get_current_function_mode_stack()[-1] is counting
        loss = loss * 2
    loss.backward()
    assert _get_current_function_mode_stack() == []
    recording.__exit__()
    assert loss_of(recording).passed


def test_one_that_gave_up_lets_everything_pass():
    w = parameter(3)
    with pairgrad.record(memory=1):
        loss = w.square().sum()
        assert torch.equal(cube(w), w**3)
        assert _get_current_function_mode_stack() == []  # it costs nothing any more
        loss.backward()
    assert torch.equal(w.grad, 2 * w)
    with pairgrad.record(memory=1):
        w.square()
    assert _get_current_function_mode_stack() == []


def test_exceptions_of_the_user_pass():
    w, recording = parameter(3), pairgrad.record()
    with pytest.raises(RuntimeError, match="size of tensor"), recording:
        w + torch.ones(4)
    assert "no gradient was asked of a loss" in refusal_of(recording)
    with pairgrad.record():
        loss = w.square().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            loss.backward()


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

    report = recorded(loss, [w])[0].audit()
    assert report.loss.passed
    assert [(node.name, node.contribution) for node in report.nodes] == [("Cube", 1)]


class Stubborn(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.clone:
            raise KeyError("not me")
        return super().__torch_function__(func, types, args, kwargs)


def test_training_continues_if_the_recording_fails():
    w, x = parameter(3), torch.ones(3).as_subclass(Stubborn)
    recording, value, gradients = recorded(lambda: (w * x).sum(), [w])
    assert value == w.sum().item()
    assert torch.equal(gradients[0], torch.ones(3))
    assert refusal_of(recording) == "the tape failed with KeyError: 'not me'"


def test_other_threads_are_left_alone():
    """A backward in another thread does not end the step."""
    w, found = parameter(3), []

    def other():
        v = nn.Parameter(torch.ones(2))
        Wrong.apply(v).sum().backward()
        found.append(v.grad)

    with pairgrad.record() as recording:
        loss = cube(w).sum()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        loss.backward()
    assert torch.equal(found[0], torch.full((2,), 2.0))
    assert loss_of(recording).passed


def test_two_recordings_keep_one_step():
    w = parameter(3)
    with pairgrad.record() as outer, pairgrad.record() as inner:
        Wrong.apply(w).sum().backward()
    assert loss_of(outer).verdict == "incoherent"
    assert refusal_of(inner) == "another recording keeps a step at the same time"


@pytest.mark.parametrize("recording_first", [False, True])
def test_beside_visits(recording_first):
    """Both see the same node, and nothing of each other."""
    w, recording = parameter(3), pairgrad.record()

    def step():
        (Wrong.apply(w) * 2).sum().backward()

    def recorded_step():
        with recording:
            step()

    if recording_first:
        with recording:
            seen = visits(step)
    else:
        seen = visits(recorded_step)
    assert [visit.function for visit in seen] == [Wrong]
    assert torch.equal(seen[0].arguments[0], w)
    report = recording.audit()
    assert report.loss.verdict == "incoherent"
    assert [(node.name, node.visits, node.contribution) for node in report.nodes] == [("Wrong", 1, 1)]


def test_entered_again_it_keeps_the_first_step_that_can_be_replayed():
    w, recording = parameter(3), pairgrad.record()
    with recording:
        (w * 2).backward(torch.arange(3.0))
    assert "with weights, not of a loss" in refusal_of(recording)
    with recording:
        cube(w).sum().backward()
    assert loss_of(recording).passed
    with recording:
        Wrong.apply(w).sum().backward()
    assert loss_of(recording).passed
