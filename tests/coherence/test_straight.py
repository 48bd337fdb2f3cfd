"""Straight-through estimators are told from defects."""

import pytest
import torch

from pairgrad.coherence.explore import line_through
from pairgrad.coherence.path import random_cotangent
from pairgrad.coherence.straight import straight_through
from pairgrad.coherence.subject import Subject
from tests.coherence.functions import Round, Window, sine_with


def line_of(fn, seed=0, count=12):
    generator = torch.Generator().manual_seed(seed)
    subject = Subject(fn, 2 * torch.randn(count, generator=generator, dtype=torch.float64))
    return line_through(subject, subject.tensors, [0], random_cotangent(subject.outputs, generator), generator, relative=False)[0]


@pytest.mark.parametrize("fn", [Round.apply, Window.apply, lambda x: (Round.apply(x) * 1.5 - 1).square().mean()])
@pytest.mark.parametrize("seed", range(3))
def test_straight_through_estimators_are_recognised(fn, seed):
    found = straight_through(line_of(fn, seed))
    assert found.like
    assert found.jump is not None


@pytest.mark.parametrize("fn", [sine_with(lambda x: 1.1).apply, sine_with(lambda x: 0 * x).apply])
def test_a_mistake_on_a_smooth_function_is_not_one(fn):
    assert not straight_through(line_of(fn)).like


def test_residual_of_a_mistake_with_steps_stays():
    class Twice(Round):
        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    assert not straight_through(line_of(Twice.apply)).like
