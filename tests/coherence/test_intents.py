"""What was declared with `intended` or `intent=`: which findings it accounts for, which it does not, and what the report says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import Report
from tests.coherence.functions import Round, points, sine_with
from tests.coherence.zoo import ours

INTENTS = ("gradient-cap", "straight-through", "implicit-reparameterization")


def function(value: Any, backward: Any) -> Any:
    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return value(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(ctx.saved_tensors[0], grad)

    return Made.apply


def square_with(slope: Any) -> Any:
    return function(torch.square, lambda x, grad: grad * slope(x))


def opaque(factor: float) -> Any:
    return function(lambda x: torch.from_numpy(np.sin(x.detach().numpy())), lambda x, grad: factor * grad * x.cos())


def looked_at(fn: Any, x: torch.Tensor, **options: Any) -> Report:
    return pg.audit(fn, x, **({"effort": "glance", "second_order": False, "consequences": False} | options))


def weighed(report: Report) -> str:
    """What the report says of the declaration."""
    (finding,) = [finding for finding in report.findings if finding.kind == "intent"]
    assert finding.severity == ("note" if report.passed else "warning")
    return finding.text


# Of INTENTS, the one that accounts for the function, if any does.
DECLARED = {
    "clamped slope": (square_with(lambda x: (2 * x).clamp(-1, 1)), points(5), "gradient-cap"),
    "half the slope": (sine_with(lambda x: 0.5).apply, points(5), "gradient-cap"),
    "some slopes zero": (square_with(lambda x: 2 * x * (x > 0)), points(5), "gradient-cap"),
    "clamped grad_output": (function(torch.clone, lambda x, grad: grad.clamp(-0.25, 0.25)), points(5), "gradient-cap"),
    "opaque, shortened": (opaque(0.5), points(5), "gradient-cap"),
    "opaque and large, shortened": (opaque(0.5), points(100), "gradient-cap"),
    "one slope longer": (square_with(lambda x: torch.where(x > 0.5, 2.002 * x, x)), points(5), None),
    "one slope turned": (square_with(lambda x: torch.where(x > 0.5, -0.1 * x, x)), points(5), None),
    "opaque, longer": (opaque(2.0), points(5), None),
    "opaque and large, longer": (opaque(2.0), points(100), None),
    "opaque and large, turned": (opaque(-0.5), points(100), None),
    "rounded": (Round.apply, 3 * points(5), "straight-through"),
    "sign, steep": (function(torch.sign, lambda x, grad: 3 * grad), points(5), "straight-through"),
    "steps and a slope": (function(lambda x: x.round() + 0.1 * x, lambda x, grad: 3 * grad), 3 * points(5), "straight-through"),
    "gamma": (torch._standard_gamma, points(5).abs() + 1, "implicit-reparameterization"),
    "edits": (function(torch.square, lambda x, grad: grad.mul_(x)), points(5), None),
    "hidden NaN": (square_with(lambda x: torch.where(x == x[0], torch.nan, 2 * x)), points(5), None),
}


STEPS = ("rounded", "sign, steep", "steps and a slope")  # whose audits take longest


@pytest.mark.parametrize(
    ("name", "intent"),
    [
        pytest.param(name, intent, marks=[pytest.mark.slow] if name in STEPS and intent != DECLARED[name][2] else [])
        for name in DECLARED
        for intent in INTENTS
    ],
)
def test_a_declaration_accounts_for_what_it_names_and_nothing_else(name: str, intent: str) -> None:
    fn, x, wanted = DECLARED[name]
    report = looked_at(fn, x, intent=intent)
    assert report.passed == (intent == wanted), str(report)
    assert report.intent == intent
    assert weighed(report).startswith(f"declared as '{intent}'")


@pytest.mark.parametrize(
    ("name", "intent", "text"),
    [
        ("half the slope", "gradient-cap", "and the gradient is the derivative shortened, coordinate by coordinate"),
        ("opaque and large, shortened", "gradient-cap", "and the gradient is the derivative shortened, along the lines looked at"),
        ("one slope turned", "gradient-cap", "but the gradient is not the derivative shortened, coordinate by coordinate"),
        ("rounded", "straight-through", "and the value does move in steps"),
        ("half the slope", "straight-through", "but the value does not move in steps"),
        ("gamma", "implicit-reparameterization", "and it draws random numbers; the law of the gradient was not checked"),
        ("half the slope", "implicit-reparameterization", "but it draws no random numbers"),
    ],
)
def test_the_report_says_why_a_declaration_accounts_for_it_or_not(name: str, intent: str, text: str) -> None:
    fn, x, _ = DECLARED[name]
    assert weighed(looked_at(fn, x, intent=intent)) == f"declared as '{intent}', {text}"


def test_alarms_that_no_declaration_accounts_for_are_named() -> None:
    fn = function(torch.square, lambda x, grad: grad.mul_(x).data.mul_(torch.rand(1, dtype=x.dtype)))
    text = weighed(looked_at(fn, points(5), intent="implicit-reparameterization"))
    assert text == "declared as 'implicit-reparameterization'; it does not account for: edits, not-reentrant"


@pytest.mark.parametrize("intent", INTENTS)
def test_a_declaration_of_a_coherent_function_is_kept_and_not_weighed(intent: str) -> None:
    report = looked_at(torch.sin, points(5), intent=intent)
    assert (report.verdict, report.passed, report.intent) == ("coherent", True, intent)
    assert not report.findings


def test_the_intent_of_the_call_goes_before_the_declared_one() -> None:
    declared = pg.intended("straight-through")(type("Declared", (Round,), {})).apply
    assert looked_at(declared, 3 * points(5)).intent == "straight-through"
    report = looked_at(declared, 3 * points(5), intent="gradient-cap")
    assert (report.intent, report.passed) == ("gradient-cap", False)


def test_a_second_derivative_that_is_missing_is_accounted_for_too() -> None:
    fn = function(lambda x: x.square() + torch.rand(1, dtype=x.dtype), lambda x, grad: grad * 2 * x.detach())
    report = looked_at(fn, points(5), second_order=True, intent="implicit-reparameterization")
    assert {finding.kind for finding in report.findings if finding.severity == "alarm"} == {"second-order"}
    assert report.passed
    assert not looked_at(fn, points(5), second_order=True).passed


Rounded = pg.intended("straight-through")(type("Rounded", (Round,), {}))
Halved = pg.intended("gradient-cap")(type("Halved", (sine_with(lambda x: 0.5),), {}))
Doubled = pg.intended("gradient-cap")(type("Doubled", (sine_with(lambda x: 2.0),), {}))
Right, Wrong = sine_with(lambda x: 1.0, name="Right"), sine_with(lambda x: 1.1, name="Wrong")


def _edits(x: torch.Tensor) -> torch.Tensor:
    y = Halved.apply(x)
    x.data.add_(1)
    return y


@pytest.mark.parametrize(
    ("fn", "intent", "named"),
    [
        (lambda x: Halved.apply(x).square(), "gradient-cap", "Halved (gradient-cap)"),
        (lambda x: Halved.apply(x) + Right.apply(2 * x), "gradient-cap", "Halved (gradient-cap)"),
        (lambda x: Halved.apply(x) + Wrong.apply(2 * x), None, ""),
        (lambda x: Doubled.apply(x).square(), None, ""),
        (lambda x: Right.apply(x) * 2 + (0.1 * x - 0.1 * x.detach()), None, ""),
        (_edits, None, ""),
    ],
    ids=["alone", "beside a right one", "beside a wrong one", "not as declared", "no custom backward is wrong", "edits too"],
)
def test_a_declared_backward_passes_for_the_whole_if_nothing_else_is_wrong(fn: Any, intent: str | None, named: str) -> None:
    report = looked_at(fn, 2 * points(5), consequences=True)
    assert (report.intent, report.passed) == (intent, intent is not None), str(report)
    told = [finding for finding in report.findings if finding.kind == "intent"]
    assert [finding.text.split(";")[0] for finding in told] == ([f"declared inside: {named}"] if intent else [])


def test_two_declared_backwards_are_both_named() -> None:
    report = looked_at(lambda x: Halved.apply(x) + Rounded.apply(3 * x), 2 * points(5), consequences=True)
    assert report.passed
    (told,) = [finding.text for finding in report.findings if finding.kind == "intent"]
    assert "Halved (gradient-cap)" in told
    assert "Rounded (straight-through)" in told


@pytest.mark.parametrize("seed", [13, 14])
def test_steps_that_are_seen_beside_the_inputs_first_are_accounted_for(seed: int) -> None:
    """In float32 some inputs lie so near to a step that the defect is seen at a place near them, not at the inputs."""
    (specimen,) = (specimen for specimen in ours.SPECIMENS if specimen.name == "ours-rounded")
    assert pg.audit(specimen.right(), specimen.inputs(seed, torch.float32), effort="quick", seed=seed, consequences=False).passed
