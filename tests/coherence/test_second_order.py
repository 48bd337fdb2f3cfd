"""The second backward: what is missing from it is found and measured, and one that raises cannot be wrong in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import pairgrad as pg
from pairgrad.coherence import Report
from tests.coherence.functions import points


def looked_at(fn: Any, inputs: Any, **options: Any) -> Report:
    return pg.audit(fn, inputs, effort="glance", consequences=False, **options)


def function(value: Any, backward: Any) -> Any:
    class Made(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return value(*inputs)

        @staticmethod
        def backward(ctx, *grads):
            return backward(*ctx.saved_tensors, *grads)

    return Made.apply


def exponential(missing: float) -> Any:
    """exp, whose backward takes this part of the slope for a constant."""
    return function(torch.exp, lambda x, grad: grad * (x.exp() + missing * (x.exp().detach() - x.exp())))


def without_derivative(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    return grad * torch.from_numpy(np.exp(x.detach().numpy()))


@pytest.mark.parametrize("missing", [1.0, 0.5, 1e-4, 1e-8])
def test_the_missing_part_of_a_second_derivative_is_measured(missing: float) -> None:
    report = looked_at(exponential(missing), points(3))
    assert (report.verdict, report.passed) == ("second-order", False)
    (finding,) = report.findings
    assert (finding.kind, finding.severity, finding.where) == ("second-order", "alarm", "input 0")
    assert finding.text.startswith(f"the gradient is right, but the second derivative is off by {missing:.3g} of its size (±")
    assert finding.numbers["relative"] == report.defect == pytest.approx(missing, rel=1e-4)
    assert abs(report.defect - missing) <= report.defect_error < 1e-4 * missing
    assert {state.verdict for state in report.states if state.order == 1} == {"coherent"}


def test_a_right_second_derivative_is_looked_at_and_passes() -> None:
    report = looked_at(exponential(0.0), points(3))
    assert report.verdict == "coherent"
    assert {state.argument for state in report.states if state.order == 2} == {"input 0", "grad_output"}
    assert not any(state.order == 2 for state in looked_at(exponential(1.0), points(3), second_order=False).states)


@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        (function(torch.exp, without_derivative), torch.float64),
        (function(torch.exp, lambda x, grad: grad * x.exp().detach()), torch.float32),
    ],
    ids=["numpy", "float32"],
)
def test_a_backward_that_autograd_cannot_follow_lacks_all_of_it(fn: Any, dtype: torch.dtype) -> None:
    assert looked_at(fn, points(3, dtype=dtype)).defect == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize(("part", "found"), [(1.0, True), (0.5, True), (1e-3, False)])
def test_only_a_large_missing_part_in_grad_output_is_called_a_defect(part: float, found: bool) -> None:
    """The gradient is linear in grad_output, so that rounding of the second backward is all that a small difference shows."""
    fn = function(torch.exp, lambda x, grad: (grad + part * (grad.detach() - grad)) * x.exp())
    report = looked_at(fn, points(3))
    assert [(finding.kind, finding.where) for finding in report.findings] == ([("second-order", "grad_output")] if found else [])


def test_the_argument_whose_second_derivative_is_wrong_is_named() -> None:
    fn = function(lambda x, y: x * y**2, lambda x, y, grad: (grad * y**2, 2 * grad * x * y.detach()))
    report = looked_at(fn, (points(3), points(3, seed=1)))
    assert [(finding.kind, finding.where) for finding in report.findings] == [("second-order", "input 1")]


def test_a_defect_of_second_order_within_the_tolerance_is_a_note() -> None:
    report = looked_at(exponential(1e-4), points(3), tolerance=1e-2)
    assert report.passed
    assert [(finding.kind, finding.severity) for finding in report.findings] == [("second-order", "note")]


def test_where_the_first_derivative_is_wrong_the_second_is_not_looked_at() -> None:
    report = looked_at(function(torch.exp, lambda x, grad: 1.01 * grad * x.exp().detach()), points(3))
    assert {finding.kind for finding in report.findings if finding.severity == "alarm"} == {"defect"}
    assert {state.order for state in report.states} == {1}


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


class Refusing(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        raise NotImplementedError("not twice\nand more")


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (Once.apply, "a backward is marked once_differentiable"),
        (lambda x: Once.apply(x.sin()).exp() + x.exp() * x.sin(), "a backward is marked once_differentiable"),
        (function(torch.clone, lambda x, grad: Refusing.apply(grad)), "not twice"),
    ],
    ids=["once", "once inside", "raises"],
)
def test_a_second_backward_that_raises_is_a_note_with_its_reason(fn: Any, why: str) -> None:
    report = looked_at(fn, points(3))
    assert report.verdict == "coherent"
    (note,) = report.findings
    assert (note.kind, note.severity) == ("note", "note")
    assert note.text == f"second derivatives raise instead of being wrong silently: {why}"
    assert {state.order for state in report.states} == {1}


class SparsePower(torch.autograd.Function):
    """max(x, 0)^2 with a gradient of its output: its derivative is 0 / 0 where the output is zero."""

    @staticmethod
    def forward(ctx, x):
        y = x.clamp_min(0) ** 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * 2 * y.sqrt()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_second_derivative_that_is_no_number_is_wrong_where_differences_of_the_gradient_are(dtype) -> None:
    report = pg.audit(SparsePower.apply, torch.tensor([1.0, -0.5, 0.3], dtype=dtype))
    assert report.verdict == "second-order"
    assert "the second derivative is not finite at 1 of 3 elements" in report.summary
    assert pg.audit(SparsePower.apply, torch.tensor([1.0, 0.5, 0.3], dtype=dtype)).passed


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.norm(dim=1),  # at the origin of a norm the gradient leaps,
        lambda x: x.abs().pow(1.5).sum(),  # and here it has a vertical tangent
    ],
)
def test_where_the_gradient_has_no_derivative_one_that_is_not_finite_is_not_wrong(fn) -> None:
    assert pg.audit(fn, torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)).passed
