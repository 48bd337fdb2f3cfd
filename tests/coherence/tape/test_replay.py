"""The loss of a recorded step is computed again: as a function of the parameters, with the gradients that training got."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pairgrad
from tests.coherence.tape.steps import STEPS, Cube, Wrong, cube, loss_of, parameter, recorded

EXPECTED = {  # of the others the loss is coherent
    "edits": "incoherent",  # a part is computed without a graph
    "no_grad": "straight-through-like",
    "noise": None,  # its draws flip with the parameters: the value leaps here and there
    "autocast": None,  # in steps of bfloat16: nothing to rely on
    "wrong backward": "incoherent",
    "output is input": "incoherent",
    "view, edited": "incoherent",
    "adversarial": "incoherent",
    "hooks": "incoherent",
    "hook on a parameter": "incoherent",
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_replayed_as_it_was(name):
    """That the loss has a report says that value and gradients came out again; that it is coherent, that it follows the parameters."""
    torch.manual_seed(0)
    loss, parameters = STEPS[name]()
    recording, _, gradients = recorded(loss, parameters)
    with torch.no_grad():
        for w in parameters:  # what training does next
            w += 0.1 * torch.randn_like(w)
    after = [w.detach().clone() for w in parameters]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]  # noqa: NPY002
    report = loss_of(recording)
    expected = EXPECTED.get(name, "coherent")
    assert expected is None or report.verdict == expected, report
    if report.verdict == "coherent" and name != "autocast":
        assert report.typical_limit < 0.05  # of the gradient: it did move with the parameters
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), np.random.get_state()[2])  # noqa: NPY002
    for w, value, gradient in zip(parameters, after, gradients, strict=True):
        assert torch.equal(w, value)
        assert w.grad.layout == gradient.layout
        assert torch.equal(w.grad.to_dense(), gradient.to_dense())


def test_a_defect_of_the_loss_has_its_size():
    """x³ + 3 x at 1, where the backward of the first is two thirds of its derivative: 5 in place of 6."""
    w = nn.Parameter(torch.ones(4, dtype=torch.float64))
    recording, *_ = recorded(lambda: (Wrong.apply(w) + 3 * w).sum(), [w])
    report = recording.audit()
    assert report.loss.verdict == "incoherent"
    assert report.loss.defect == pytest.approx(1 / 6, rel=1e-6)
    (node,) = report.nodes
    assert node.contribution == pytest.approx(2 / 5, rel=1e-6)


@pytest.mark.parametrize(("function", "verdict"), [(cube, "coherent"), (Wrong.apply, "incoherent")])
def test_random_numbers_of_the_step_are_drawn_again(function, verdict):
    w, x = nn.Parameter(torch.rand(4, dtype=torch.float64) + 0.5), torch.rand(4, dtype=torch.float64)
    recording, *_ = recorded(lambda: (function(w) * x).sum() + F.dropout(w, 0.5).sum(), [w])
    assert loss_of(recording).verdict == verdict


def test_functions_that_the_loss_does_not_depend_on_contribute_nothing_to_it():
    w = parameter(3)
    with pairgrad.record() as recording:
        Wrong.apply(w).sum()
        cube(w).sum().backward()
        Wrong.apply(w).sum().backward()  # in another step
    report = recording.audit()
    assert report.loss.passed
    assert {node.name: node.contribution for node in report.nodes} == {"Cube": 1.0, "Wrong": None}


def test_a_function_that_is_applied_twice_contributes_once():
    """x⁹ + x at 1: nine tenths of the gradient go through it."""
    w = nn.Parameter(torch.ones(3, dtype=torch.float64))
    recording, *_ = recorded(lambda: (cube(Cube.apply(w)) + w).sum(), [w])
    (node,) = recording.audit().nodes
    assert node.visits == 2
    assert node.contribution == pytest.approx(0.9, rel=1e-12)


def unseen_edit():
    w, x = parameter(3), torch.ones(3)

    def loss():
        h = w + x
        with torch._C.DisableTorchFunction():
            x.add_(1)
        return (h + x).square().sum()

    return loss, [w]


def detached_fake():
    """A discriminator's step, with the generator before it."""
    make, judge = nn.Linear(3, 4), nn.Linear(4, 1)
    return (lambda: judge(make(torch.ones(5, 3)).detach()).square().sum()), list(judge.parameters())


def target_network():
    online, target = nn.Linear(3, 2), nn.Linear(3, 2)

    def loss():
        with torch.no_grad():
            wanted = target(torch.ones(5, 3)).max(dim=1).values
        return (online(torch.ones(5, 3)).max(dim=1).values - wanted).square().sum()

    return loss, list(online.parameters())


def frozen_backbone():
    backbone, head = nn.Linear(3, 4), nn.Linear(4, 1)

    def loss():
        with torch.no_grad():
            features = backbone(torch.ones(5, 3))
        return head(features).square().sum()

    return loss, list(head.parameters())


@pytest.mark.parametrize("build", [detached_fake, target_network, frozen_backbone])
def test_parameters_that_get_no_gradient_are_held_fixed(build):
    """So that the gradient that training gets is the derivative of the loss that is replayed."""
    report = loss_of(recorded(*build())[0])
    assert report.passed, report


def test_constants_that_change_unseen_are_copied_again():
    assert loss_of(recorded(*unseen_edit())[0]).passed


def test_what_is_done_without_gradients_before_the_step_takes_no_memory():
    model, batches = nn.Linear(8, 8), [torch.randn(4, 8) for _ in range(300)]

    def loss():
        with torch.no_grad():
            for batch in batches:
                model(batch)
        return model(batches[0]).square().sum()

    assert loss_of(recorded(loss, list(model.parameters()), memory=4096)[0]).passed
