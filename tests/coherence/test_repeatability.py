"""Repeated calls, repeated backwards, linearity in grad_output, edits in place, and gradients that are not finite: alarms, notes, and what is neither."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.autograd import Function

import pairgrad as pg
from pairgrad.coherence import Finding, Report

X = torch.tensor([0.5, -1.5, 3.0], dtype=torch.float64)
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
OTHERS = {"defect", "no-gradient", "unresolved", "kink"}  # of the derivative, which is not looked at here


def looked_at(fn: Any, *inputs: Any) -> Report:
    return pg.audit(fn, inputs or (X,), effort="glance", second_order=False, consequences=False, seed=2)


def said(fn: Any, *inputs: Any) -> list[Finding]:
    return [finding for finding in looked_at(fn, *inputs).findings if finding.kind not in OTHERS]


def alarms(fn: Any, *inputs: Any) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in said(fn, *inputs) if finding.severity == "alarm"]


def square_with(backward: Any, forward: Any = lambda x: x * x) -> Any:
    """A Function with these two, the backward as a function of grad_output and x."""

    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, ctx.saved_tensors[0])

    return Made.apply


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "fn",
    [
        torch.relu,
        square_with(lambda grad, x: 2 * x * grad),
        lambda x: (x.exp(), x.sum()),
        lambda x: (x - 1e-4 * x).logsumexp(0),
        lambda x: 256 * x,  # 1024 times that overflows in float16
    ],
    ids=["relu", "function", "two outputs", "logsumexp", "large"],
)
def test_right_functions_have_no_findings(fn: Any, dtype: torch.dtype) -> None:
    """In float16 the gradient of a very small grad_output underflows, and that of a very large one overflows."""
    assert [finding for finding in said(fn, X.to(dtype)) if finding.kind != "size" or dtype != torch.float16] == []


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.data.mul_(1), x * 2)[1],  # writes the same value again
        lambda x: x * torch.nan_to_num(torch.tensor(math.nan, dtype=x.dtype), 1.0),
        lambda x: x.clone().mul_(2),
        torch.nn.BatchNorm1d(3, momentum=0.5, dtype=torch.float64),  # its buffers are put back
    ],
    ids=["same value", "NaN", "copy", "buffers"],
)
def test_what_changes_nothing_for_the_caller_is_not_a_finding(fn: Any) -> None:
    assert said(fn, torch.arange(12, dtype=torch.float64).reshape(4, 3).sin()) == []


def test_random_numbers_are_a_note_and_the_calls_repeat() -> None:
    (finding,) = said(torch.nn.Dropout(0.5))
    assert (finding.kind, finding.severity) == ("note", "note")
    assert "draws random numbers" in finding.text


def counted(by: Any) -> tuple[Any, Any]:
    """Two functions that multiply the value, or the gradient, by a number that depends on how often they were called."""
    forward, backward = itertools.count(1), itertools.count(1)
    return (lambda x: x * by(next(forward))), square_with(lambda grad, x: 2 * x * grad * by(next(backward)))


@pytest.mark.parametrize(("index", "what"), [(0, "another value"), (1, "another gradient")])
def test_a_result_that_changes_from_call_to_call_is_found(index: int, what: str) -> None:
    fn = counted(lambda calls: 1 + 0.5 * (calls % 2))[index]
    report = looked_at(fn)
    assert (report.verdict, report.passed) == ("not-reentrant", False)
    finding = next(finding for finding in report.findings if finding.kind == "not-reentrant")
    assert finding.severity == "alarm"
    assert what in finding.text
    assert finding.numbers["gradient"] == pytest.approx(1 / 3)
    assert finding.numbers["value"] == (pytest.approx(1 / 3) if index == 0 else 0)


@pytest.mark.parametrize(
    ("index", "dtype", "off", "kind"),
    [
        (0, torch.float64, 2.0**-50, "nondeterministic"),
        (1, torch.float64, 2.0**-34, "nondeterministic"),
        (0, torch.float64, 2.0**-30, "not-reentrant"),
        (1, torch.float32, 2.0**-22, "nondeterministic"),
        (1, torch.float32, 2.0**-10, "not-reentrant"),
    ],
)
def test_a_difference_of_rounding_between_calls_is_a_note_and_a_larger_one_an_alarm(
    index: int, dtype: torch.dtype, off: float, kind: str
) -> None:
    found = said(counted(lambda calls: 1 + off * (calls % 2))[index], X.to(dtype))
    assert (found[0].kind, found[0].severity) == (kind, "note" if kind == "nondeterministic" else "alarm")


class Kept(Function):
    """Edits the slope that it kept."""

    @staticmethod
    def forward(ctx, x):
        ctx.slope = torch.cos(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.slope.mul_(grad)


class Once(Function):
    """Gives its slope away."""

    @staticmethod
    def forward(ctx, x):
        ctx.slopes = [2 * x]
        return x * x

    @staticmethod
    def backward(ctx, grad):
        if not ctx.slopes:
            raise RuntimeError("the slope is gone\nand more")
        return ctx.slopes.pop() * grad


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (Kept.apply, "a second backward through the same graph gives another gradient, off by"),
        (Once.apply, "a second backward through the same graph raises: the slope is gone"),
    ],
    ids=["edits", "gives away"],
)
def test_a_second_backward_that_differs_or_raises_is_found(fn: Any, text: str) -> None:
    report = looked_at(fn)
    assert report.verdict == "not-reentrant"
    (finding,) = [finding for finding in report.findings if finding.severity == "alarm" and finding.kind != "defect"]
    assert finding.kind == "not-reentrant"
    assert finding.text.startswith(text)
    assert "and more" not in finding.text


BENT = {
    "ignored": (lambda grad, x: 2 * x, ""),
    "offset": (lambda grad, x: 2 * x * grad + 1e-3, ""),
    "abs": (lambda grad, x: 2 * x * grad.abs(), "a negative multiple"),
    "clamp": (lambda grad, x: 2 * x * grad.clamp(-3, 3), "large multiples"),
    "threshold": (lambda grad, x: 2 * x * grad * (grad.abs() > 0.1), "small multiples"),
    "normalised": (lambda grad, x: 2 * x * grad / grad.norm().clamp(min=1e-30), ""),
    "NaN for zero": (lambda grad, x: 2 * x * grad * (grad.norm() / grad.norm()), "zero"),
}


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", BENT)
def test_a_backward_that_is_not_linear_in_grad_output_is_found(name: str, dtype: torch.dtype) -> None:
    backward, case = BENT[name]
    report = looked_at(square_with(backward), X.to(dtype))
    assert (report.verdict, report.passed) == ("incoherent", False)
    (finding,) = [finding for finding in report.findings if finding.kind == "not-linear"]
    assert finding.severity == "alarm"
    assert f"not linear in grad_output: for {case}" in finding.text
    assert finding.numbers["relative"] > 1e-4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_number_is_enough_to_see_that_grad_output_is_ignored(dtype: torch.dtype) -> None:
    assert alarms(square_with(lambda grad, x: 2 * x), torch.tensor(0.5, dtype=dtype)) == [("not-linear", "")]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_clamp_that_only_large_weights_meet_is_found_in_every_dtype(dtype: torch.dtype) -> None:
    (finding,) = [f for f in said(square_with(lambda grad, x: 2 * x * grad.clamp(-3, 3)), X.to(dtype)) if f.kind == "not-linear"]
    assert "large multiples" in finding.text


def test_a_backward_that_bends_by_a_millionth_is_found() -> None:
    assert ("not-linear", "") in alarms(square_with(lambda grad, x: 2 * x * (grad + 1e-6 * grad.square())))


def test_a_gradient_that_comes_of_no_weights_is_found_where_the_derivative_is_zero() -> None:
    relu = square_with(lambda grad, x: grad * (x > 0) + (grad == 0), torch.relu)
    assert alarms(relu) == [("not-linear", "")]


def test_a_backward_that_rounds_its_own_gradient_is_not_accused() -> None:
    """A gradient that cancels to 1e-9 of its parts is known to 1e-7 of itself, for every weight differently."""

    def backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (grad * (1e9 + 2 * x) / 3 - grad * 1e9 / 3) * 3

    assert said(square_with(backward)) == []


def test_a_gradient_that_is_not_finite_where_the_value_is_gets_an_alarm_with_a_count() -> None:
    (finding,) = said(lambda x: torch.where(x > 0, x.sqrt(), 0.0), torch.tensor([4.0, 0.0, 9.0], dtype=torch.float64))
    assert (finding.kind, finding.severity, finding.where) == ("non-finite", "alarm", "input 0")
    assert finding.numbers == {"elements": 1}
    assert "1 of 3" in finding.text


def test_a_gradient_that_is_not_finite_where_the_value_is_not_gets_none() -> None:
    assert said(torch.log, torch.tensor([1.0, 0.0], dtype=torch.float64)) == []


def test_edits_of_grad_output_and_of_what_was_saved_are_found() -> None:
    report = looked_at(square_with(lambda grad, x: grad.mul_(2 * x)))
    assert (report.verdict, report.passed) == ("not-reentrant", False)
    assert [(f.kind, f.where, f.text) for f in report.findings if f.severity == "alarm"] == [("edits", "grad_output", "is edited in place")]
    saved = alarms(square_with(lambda grad, x: grad * x.data.mul_(2)))
    assert {("not-reentrant", ""), ("edits", "input 0")} <= set(saved)


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (lambda x, y: x.mul_(2) * y, ["input 0"]),
        (lambda x, y: x * y.data.mul_(2), ["input 1"]),
        (lambda x, y: (x.data.add_(1), y.data.add_(1), x * y)[2], ["input 0", "input 1"]),
    ],
    ids=["leaf", "constant", "both"],
)
def test_edits_of_arguments_are_found_and_the_arguments_given_are_not_written_to(fn: Any, names: list[str]) -> None:
    x, y = torch.tensor([0.5, -1.5], dtype=torch.float64, requires_grad=True), torch.tensor([2.0, 3.0], dtype=torch.float64)
    assert [where for kind, where in alarms(fn, x, y) if kind == "edits"] == names
    assert (x.tolist(), y.tolist()) == ([0.5, -1.5], [2.0, 3.0])


def test_edits_of_integers_and_inside_containers_are_named() -> None:
    n = torch.tensor([2, 3, 4])
    assert ("edits", "input 1") in alarms(lambda x, n: (n.data.add_(1), x * 2)[1], X, n)
    assert n.tolist() == [2, 3, 4]

    def fn(*, parts: list[torch.Tensor]) -> torch.Tensor:
        y = parts[0] * 2
        parts[1].data.add_(1)
        return y

    parts = [X.clone().requires_grad_(), torch.tensor([2.0], dtype=torch.float64)]
    report = pg.audit(fn, {"parts": parts}, effort="glance", second_order=False, consequences=False)
    assert [finding.where for finding in report.findings if finding.kind == "edits"] == ["parts[1]"]


def test_an_edit_of_grad_output_between_other_operations_is_found_by_the_defect() -> None:
    """grad_output then belongs to the graph, not to the caller; the other branch gets a wrong gradient, which the audit measures."""
    edits = square_with(lambda grad, x: grad.mul_(2 * x))
    report = looked_at(lambda x: (x.sin() + edits(x)) ** 2)
    assert [finding.kind for finding in report.findings if finding.severity == "alarm"] == ["defect"], str(report)
    assert not report.passed
