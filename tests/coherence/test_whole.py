"""Audits of whole models, of which a call takes long."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import pairgrad as pg


class Scaled(torch.autograd.Function):
    """The identity, with a factor in the backward alone."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.factor * grad_output, None


class Block(nn.Module):
    """Of a residual network."""

    def __init__(self, width, factor=1.0):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)) for _ in range(2)
        )
        self.factor = factor

    def forward(self, x):
        return torch.relu(x + Scaled.apply(self.second(torch.relu(self.first(x))), self.factor))


CALLS = []


class Slow(nn.Module):
    """From some call on."""

    def forward(self, x):
        CALLS.append(1)
        if len(CALLS) > 60:
            time.sleep(1)
        return x


def network(factor=1.0, *further, depth=3):
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    blocks = [Block(8, factor if i == 1 else 1.0) for i in range(depth)]
    return nn.Sequential(*further, stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def limits(report):
    """Along the gradient, and along a random direction."""
    return [state.limit for state in report.states]


IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("training", [True, False])
def test_a_residual_network_in_float32_is_decided_with_the_limit_that_was_reached(training):
    report = pg.audit(network().train(training), IMAGES, effort="whole", second_order=False)
    assert report.verdict == "coherent", str(report)
    assert [state.argument for state in report.states] == ["all tensors, along the gradient", "all tensors, along a random direction"]
    assert limits(report)[0] < 0.005
    assert report.limit == max(limits(report)) < 0.02
    assert report.checks | {"first order": "right", "re-entrant": "yes", "linear": "yes", "layouts": "yes"} == report.checks
    assert report.evaluations < 160  # a large model has time for about that many


def test_a_deep_network_is_decided_by_the_line_along_the_gradient():
    """Along a random direction its kinks hide what would decide elsewhere."""
    small = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    report = pg.audit(network(depth=12), small, effort="whole", second_order=False)
    assert report.verdict == "coherent", str(report)
    along, across = limits(report)
    assert along < 0.015 < 0.02 < across == report.limit < 0.25


@pytest.mark.parametrize("factor", [1.1, 0.0])
def test_one_wrong_layer_is_found_and_named(factor):
    report = pg.audit(network(factor), IMAGES, effort="whole", second_order=False)
    assert report.verdict == "incoherent", str(report)
    assert report.place.startswith("Scaled")


def test_when_time_is_up_the_segments_that_were_looked_at_decide():
    CALLS.clear()
    report = pg.audit(network(1.0, Slow()), IMAGES, effort="whole", seconds=5)
    assert report.verdict == "coherent", str(report)
    assert report.complete
    assert len(limits(report)) == 1
    assert any(what.startswith("looking at the inputs: time was up") for what in report.left_out), report.left_out
