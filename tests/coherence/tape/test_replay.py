"""A taped step computes its loss again: the same bits, the gradients that training got, and a function of the parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pairgrad
from pairgrad.coherence.step import Replay
from pairgrad.coherence.subject import rng_state, same_rng, set_rng_state
from tests.coherence.tape.steps import (
    STEPS,
    Cube,
    Double_,
    Split,
    Wrong,
    cube,
    custom,
    mlp,
    parameter,
    same,
    several_outputs,
    taped,
    triple,
)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_replayed(name):
    loss, parameters = STEPS[name]()
    tape, value, gradients, random = taped(loss, parameters)
    shift = [0.1 * torch.randn_like(w) for w in parameters]
    with torch.no_grad():
        for w, by in zip(parameters, shift, strict=True):
            w += by
    replay = tape.replay({id(w): str(i) for i, w in enumerate(parameters)})
    assert replay is not None, tape.reason
    assert replay.value == value
    assert tape.reason == ""
    order = [replay.names.index(str(i)) for i in range(len(parameters))]
    for _ in range(2):
        now = rng_state()
        again = replay(*replay.leaves)
        assert same_rng(now, rng_state())
        assert again.item() == value
        found = torch.autograd.grad(again, replay.leaves, allow_unused=True)
        for i, gradient in zip(order, gradients, strict=True):
            assert same(found[i], gradient), (replay.names[i], found[i], gradient)
    # at another point it is the loss that the model has there
    moved = [leaf.detach().clone().requires_grad_() for leaf in replay.leaves]
    for i, w in zip(order, parameters, strict=True):
        moved[i] = w.detach().clone().requires_grad_()
    set_rng_state(random)
    there = loss()
    elsewhere = replay(*moved)
    assert elsewhere.item() == there.item() != value
    for w in parameters:
        w.grad = None
    there.backward()
    for found, w in zip(torch.autograd.grad(elsewhere, [moved[i] for i in order]), parameters, strict=True):
        assert same(found, w.grad), (found, w.grad)


def test_functions_on_the_way():
    for build, expected in ((custom(cube, Double_.apply, cube), (Cube, Double_)), (several_outputs, (Split,)), (mlp, ())):
        replay = taped(*build())[0].replay()
        assert isinstance(replay, Replay)
        assert replay.functions == expected
    operator = taped(*custom(triple)())[0].replay()
    assert operator is not None
    assert [function.__name__ for function in operator.functions] == ["GeneratedBackwardFor_tape_tests_triple_default"]


def test_functions_that_the_loss_does_not_depend_on_are_cut():
    w = parameter(3)

    def loss():
        Wrong.apply(w).sum()
        return cube(w).sum()

    replay = taped(loss, [w])[0].replay()
    assert replay is not None
    assert replay.functions == (Cube,)
    assert len(replay._step.calls) == 2


@pytest.mark.parametrize(("function", "verdict"), [(cube, "coherent"), (Wrong.apply, "incoherent")])
def test_the_audit_takes_a_replay(function, verdict):
    w, x = nn.Parameter(torch.rand(4, dtype=torch.float64) + 0.5), torch.rand(4, dtype=torch.float64)
    replay = taped(lambda: (function(w) * x).sum() + F.dropout(w, 0.5).sum(), [w])[0].replay()
    assert replay is not None
    report = pairgrad.audit(replay, replay.leaves, effort="quick")
    assert str(report.verdict) == verdict, report


def test_names():
    weight, point = parameter(3, 2), torch.randn(2, requires_grad=True)
    tape = taped(lambda: (weight @ point).sum(), [weight, point])[0]
    replay = tape.replay()
    assert replay is not None
    assert replay.names == ("parameter 0 (3, 2)", "tensor 1 (2,)")
    assert tape.replay() is replay
    with pytest.raises(TypeError, match=r"leaves must be 2 tensors, as replay.leaves are, got 1"):
        replay(weight)


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
    loss, parameters = build()
    tape, value, _gradients, _ = taped(loss, parameters)
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == value
    assert {leaf.shape for leaf in replay.leaves} == {w.shape for w in parameters}
    assert len(replay.leaves) == len(parameters)
    report = pairgrad.audit(replay, replay.leaves, effort="quick", second_order=False, consequences=False)
    assert report.passed, report


def test_constants_that_change_are_met_anew():
    tape, value, *_ = taped(*unseen_edit())
    replay = tape.replay()
    assert replay is not None, tape.reason
    assert replay.value == value


def test_what_is_done_without_gradients_before_the_step_takes_no_memory():
    model, batches = nn.Linear(8, 8), [torch.randn(4, 8) for _ in range(300)]

    def loss():
        with torch.no_grad():
            for batch in batches:
                model(batch)
        return model(batches[0]).square().sum()

    tape, *_ = taped(loss, list(model.parameters()), memory=4096)
    assert tape.replay() is not None, tape.reason
