"""Whole audits where the state is special: on a kink, at a symmetric matrix, beside the end of the domain, where nobody uses an output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pairgrad as pg
from tests.coherence.functions import doubles, points, sine_with

Tensor = torch.Tensor


def function(value: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return value(*inputs)

        @staticmethod
        def backward(ctx, *grads):
            return backward(*ctx.saved_tensors, *grads)

    return Made.apply


def kinds(report: pg.coherence.Report, severity: str) -> set[str]:
    return {finding.kind for finding in report.findings if finding.severity == severity}


def _table(x: Tensor) -> Tensor:
    """Linear between 64 random points."""
    heights = torch.randn(65, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    place = 64 * x.clamp(0, 0.999)
    left = place.detach().floor().long()
    return (heights[left] + (place - left) * (heights[left + 1] - heights[left])).sum()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["many rectifiers", "distances", "table"])
def test_many_kinks_are_no_missing_second_derivative(name: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2000, 8, generator=generator, dtype=torch.float64) / 2000
    points = torch.randn(64, generator=generator, dtype=torch.float64)
    fn, size = {
        "many rectifiers": (lambda x: (weights @ x).relu().sum(), 8),
        "distances": (lambda x: (x[:, None] - points).abs().mean(), 16),
        "table": (_table, 5),
    }[name]
    report = pg.audit(fn, torch.rand(size, generator=generator, dtype=torch.float64), seed=seed)
    assert report.passed, str(report)


def test_a_second_derivative_that_is_missing_is_still_found() -> None:
    constant = function(torch.exp, lambda x, grad: grad * x.exp().detach())
    report = pg.audit(constant, torch.randn(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert not report.passed
    assert kinds(report, "alarm") == {"second-order"}


@pytest.mark.parametrize(
    ("value", "slope", "wrong"),
    [
        (torch.relu, lambda x: (x > 0).to(x), 7.0),
        (torch.abs, torch.sign, -3.0),
    ],
    ids=["relu", "abs"],
)
def test_a_gradient_of_neither_side_is_warned_of(value: Any, slope: Any, wrong: float) -> None:
    x = doubles(0.0, 1.0, 0.5)
    report = pg.audit(function(value, lambda x, grad: torch.where(x == 0, wrong, slope(x)) * grad), x, effort="quick", second_order=False)
    (warning,) = [finding for finding in report.findings if finding.kind == "at-state" and finding.where == "input 0"]
    assert warning.severity == "warning"
    assert warning.remedy
    low, high = sorted((warning.numbers["left"], warning.numbers["right"]))
    assert not low <= warning.numbers["here"] <= high
    assert "at-state" not in kinds(pg.audit(value, x, effort="quick", second_order=False), "warning")


def test_a_forgotten_transpose_is_found_at_a_symmetric_matrix() -> None:
    fn = function(lambda x, w: x @ w, lambda x, w, grad: (grad @ w, x.T @ grad))
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    report = pg.audit(fn, (x, torch.eye(5, dtype=torch.float64)))
    assert not report.passed, str(report)
    right = function(lambda x, w: x @ w, lambda x, w, grad: (grad @ w.T, x.T @ grad))
    assert pg.audit(right, (x, torch.eye(5, dtype=torch.float64))).passed


def _two_outputs(when_none: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any]:
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx, a, b):
            (x,) = ctx.saved_tensors
            if b is None:
                return when_none(x, a)
            return (0 if a is None else a * x.cos()) - b * x.sin()

    return Two.apply


def test_an_output_that_nobody_uses() -> None:
    x = doubles(0.3, -0.7)
    assert pg.audit(_two_outputs(lambda x, a: a * x.cos()), x).passed
    wrong = pg.audit(_two_outputs(lambda x, a: 3 * a), x)
    (alarm,) = [finding for finding in wrong.findings if finding.severity == "alarm"]
    assert (alarm.kind, wrong.passed) == ("undefined", False)
    assert "output 0 alone is used" in alarm.text
    assert alarm.numbers["relative"] > 0.5
    raising = pg.audit(_two_outputs(lambda x, a: None + a), x)  # pyright: ignore[reportOptionalOperand]
    assert any("the backward raises if output 0 alone is used" in finding.text for finding in raising.findings)


@pytest.mark.parametrize("fn", [torch.sqrt, torch.special.entr], ids=["sqrt", "entr"])
def test_a_derivative_that_is_infinite_is_not_accused(fn: Any) -> None:
    report = pg.audit(fn, doubles(0.0, 0.5))
    assert not kinds(report, "alarm")
    assert "infinitely steep" in str(report)


def test_a_gradient_that_is_wrong_at_one_number_alone_is_accused_there() -> None:
    report = pg.audit(function(torch.square, lambda x, grad: torch.where(x == 0.7, 7.0, 2 * x) * grad), doubles(0.7, 1.0), effort="quick")
    assert report.verdict == "incoherent"
    assert (report.gradients[0].index, report.gradients[0].true) == ((0,), pytest.approx(1.4 * report.gradients[0].supplied / 7))


@pytest.mark.parametrize("slope", [torch.inf, -torch.inf, torch.nan])
def test_a_gradient_that_should_be_finite_is_accused(slope: float) -> None:
    report = pg.audit(function(torch.square, lambda x, grad: torch.where(x == 0, slope * grad.abs(), 2 * x * grad)), doubles(0.0, 1.0))
    assert kinds(report, "alarm") == {"non-finite"}


def test_a_defect_within_the_tolerance_is_in_the_headline() -> None:
    report = pg.audit(function(torch.sin, lambda x, grad: 1.005 * x.cos() * grad), doubles(0.3, 0.5), tolerance=0.01)
    assert report.passed
    assert report.headline.startswith("coherent within the tolerance: off by 0.005 of the gradient")


def test_a_function_that_could_not_be_told_is_not_accused_for_the_loss() -> None:
    square = function(lambda z: z.real**2 + z.imag**2, lambda z, grad: 2 * z * grad)
    weight = torch.tensor([0.5, -1.5], dtype=torch.float64, requires_grad=True)
    with pg.record() as recording:
        z = torch.complex(weight, 2 * weight)
        (square(z).sum() + (weight * weight.detach()).sum()).backward()
    report = recording.audit()
    node, loss = report.nodes[0], report.loss
    assert (node.passed, node.verdict.value) == (False, "inconclusive")
    assert loss is not None
    assert loss.verdict is report.verdict
    assert "Made" not in report.headline
    assert report.headline == f"incoherent: 1 custom backward, loss {loss.headline}"


def test_sparse_gradients_are_gradients() -> None:
    table = torch.nn.Embedding(5, 3, sparse=True, dtype=torch.float64)
    assert pg.audit(table, (torch.tensor([1, 2, 2]),)).passed


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_arguments_whose_squares_leave_the_range_are_audited(size: float) -> None:
    x = doubles(0.3, 0.7) * size
    report = pg.audit(lambda x: (x / size).sin(), x, effort="quick")
    assert report.verdict == "coherent"
    assert all(state.limit < 1 for state in report.states)
    wrong = sine_with(lambda x: 1.01).apply
    report = pg.audit(lambda x: wrong(x / size), x, effort="glance", consequences=False)
    (defect,) = (finding for finding in report.findings if finding.kind == "defect")
    assert 0.001 < defect.numbers["absolute"] * size < 0.02


def test_a_small_matrix_stored_by_columns_is_audited() -> None:
    assert pg.audit(torch.sin, points(2, 2).t(), effort="glance").verdict == "coherent"


def test_an_empty_parameter_has_no_lines() -> None:
    model = torch.nn.Linear(3, 1, dtype=torch.float64)
    model.register_parameter("nothing", torch.nn.Parameter(torch.zeros(0, dtype=torch.float64)))
    for effort in ("glance", "whole"):
        report = pg.audit(model, points(3), effort=effort)
        assert report.verdict == "coherent"
        assert "nothing" not in {state.argument for state in report.states}


class FreesItsOutput(torch.autograd.Function):
    """As a reversible block does, which computes its input from its output and then has no use for it."""

    @staticmethod
    def forward(ctx, x):
        y = 2 * x.detach()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        y.untyped_storage().resize_(0)
        return 2 * grad_output


class FreesItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = 2 * x.detach()
        x.untyped_storage().resize_(0)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


def test_memory_that_a_function_frees_is_not_read() -> None:
    """Reading it ends the process."""
    x = torch.tensor([0.3, -1.2], dtype=torch.float64)
    assert pg.audit(FreesItsOutput.apply, x).verdict == "coherent"
    assert pg.audit(lambda x: FreesItsInput.apply(x * 1.0), x).verdict == "coherent"
    report = pg.audit(FreesItsInput.apply, x)
    assert report.verdict == "not-reentrant"
    assert [finding.where for finding in report.findings if finding.kind == "edits"] == ["input 0"]


class Labelled(torch.Tensor):
    """A tensor with an attribute that a plain one does not have, and whose copies are plain."""

    label = "a name"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class WrongForLabelled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pattern):
        assert pattern.label
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


def test_a_function_that_cannot_be_applied_alone_does_not_end_the_audit() -> None:
    pattern = torch.ones(2).as_subclass(Labelled)
    x = torch.tensor([0.3, -1.2], dtype=torch.float64)
    report = pg.audit(lambda x: WrongForLabelled.apply(x, pattern), x)
    assert report.verdict == "incoherent"
