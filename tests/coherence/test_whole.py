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


class Slow(nn.Module):
    def forward(self, x):
        time.sleep(0.03)
        return x


def network(factor=1.0, *, slow=False):
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    blocks = [Block(8), Block(8, factor), Block(8)]
    return nn.Sequential(*[Slow()] * slow, stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("training", [True, False])
def test_a_residual_network_in_float32_is_decided_with_the_limit_that_was_reached(training):
    report = pg.audit(network().train(training), IMAGES, effort="whole", second_order=False)
    assert report.verdict == "coherent", str(report)
    assert {state.argument for state in report.states} == {"all tensors, along the gradient", "all tensors, along a random direction"}
    along = max(state.limit for state in report.states if state.argument.endswith("the gradient"))
    assert along < 0.02
    assert along <= report.limit < 0.25
    assert report.checks | {"first order": "right", "re-entrant": "yes", "linear": "yes", "layouts": "yes"} == report.checks
    assert report.evaluations < 200  # 85 of the structure and 200 at the inputs were too many for a large model


@pytest.mark.parametrize("factor", [1.1, 0.0])
def test_one_wrong_layer_is_found_and_named(factor):
    report = pg.audit(network(factor), IMAGES, effort="whole", second_order=False)
    assert report.verdict == "incoherent", str(report)
    assert report.place.startswith("Scaled")


def test_when_time_is_up_the_segments_that_were_looked_at_decide():
    report = pg.audit(network(slow=True), IMAGES, effort="whole", seconds=3)  # some 55 calls for the inputs, of 85
    assert report.verdict == "coherent", str(report)
    assert report.complete
    assert any(what.startswith("looking at the inputs: time was up") for what in report.left_out), report.left_out
