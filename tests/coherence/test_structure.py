"""Repeatability, linearity in grad_output and edits in place: what is found, and what is not taken for a finding."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import Function

from pairgrad.coherence import Finding, audit
from pairgrad.coherence.path import random_cotangent
from pairgrad.coherence.structure import SLACK, _backward_twice, _linearity, _own_rounding, apart, norm, structural_findings
from pairgrad.coherence.subject import Subject


def _findings(fn: Any, *inputs: Any, dtype: torch.dtype = torch.float64) -> list[Finding]:
    arguments = inputs or (torch.tensor([0.5, -1.5, 3.0], dtype=dtype),)
    with Subject(fn, arguments) as subject:
        return structural_findings(subject, torch.Generator().manual_seed(2))


def _alarms(fn: Any, *inputs: Any, dtype: torch.dtype = torch.float64) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in _findings(fn, *inputs, dtype=dtype) if finding.severity == "alarm"]


def _function(backward: Any, forward: Any = lambda x: x * x) -> Any:
    """apply of a Function with these two, the backward as a function of grad_output and x."""

    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, ctx.saved_tensors[0])

    return Made.apply


def _right(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return 2 * x * grad


# Nothing to find --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        torch.sin,
        torch.relu,
        _function(_right),
        lambda x: x.softmax(0),
        lambda x: (x.exp(), x.sum()),
        lambda x: x.detach() * 2,
        lambda x: (x - 1e-4 * x).logsumexp(0),
    ],
    ids=["sin", "relu", "function", "softmax", "two outputs", "detached", "logsumexp"],
)
def test_right_functions_have_no_findings(fn: Any, dtype: torch.dtype) -> None:
    assert _findings(fn, dtype=dtype) == []


def test_a_wrong_but_linear_backward_is_not_the_business_of_these_checks() -> None:
    assert _findings(_function(lambda grad, x: 3 * x * grad)) == []


# Repeated calls -----------------------------------------------------------------------------------------------------------


def test_a_value_that_changes_from_call_to_call_is_found() -> None:
    calls = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * len(calls)

    (finding, *_) = _findings(fn)
    assert (finding.kind, finding.severity) == ("not-reentrant", "alarm")
    assert "another value" in finding.text
    assert finding.numbers["value"] > 0.01


def test_a_gradient_that_changes_from_call_to_call_is_found() -> None:
    calls = []

    def backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return 2 * x * grad * len(calls)

    (finding, *_) = _findings(_function(backward))
    assert (finding.kind, finding.severity) == ("not-reentrant", "alarm")
    assert "another gradient" in finding.text
    assert finding.numbers["value"] == 0


def test_a_difference_of_rounding_between_calls_is_a_note() -> None:
    calls = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * (1 + 2.0**-50 * (len(calls) % 2))

    (finding,) = _findings(fn)
    assert (finding.kind, finding.severity) == ("nondeterministic", "note")


@pytest.mark.parametrize(("factor", "found"), [(0.25, False), (4.0, True)])
def test_the_line_between_the_two_is_the_slack_of_the_dtype(factor: float, found: bool) -> None:
    calls = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * (1 + factor * SLACK[torch.float64] * (len(calls) % 2))

    assert (("not-reentrant", "") in _alarms(fn)) is found


@pytest.mark.parametrize("dtype", SLACK)
def test_the_slack_is_well_above_rounding_and_well_below_a_difference(dtype: torch.dtype) -> None:
    """About half of the digits may be lost."""
    rounding = torch.finfo(dtype).eps
    assert 8 * rounding <= SLACK[dtype] <= 2 * math.sqrt(rounding)


def test_random_numbers_are_a_note_and_the_calls_repeat() -> None:
    (finding,) = _findings(torch.nn.Dropout(0.5))
    assert (finding.kind, finding.severity) == ("note", "note")
    assert "random numbers" in finding.text


def test_state_in_buffers_is_put_back_and_not_found() -> None:
    module = torch.nn.BatchNorm1d(3, momentum=0.5, dtype=torch.float64)
    assert _findings(module, torch.arange(12, dtype=torch.float64).reshape(4, 3).sin()) == []


# Second backward on the same graph ----------------------------------------------------------------------------------------


def test_a_backward_that_edits_what_was_saved_is_found_by_a_second_one() -> None:
    """The saved tensor is the caller's argument, which the edit shows in too."""
    alarms = _alarms(_function(lambda grad, x: grad * x.data.mul_(2)))
    assert ("not-reentrant", "") in alarms
    assert ("edits", "input 0") in alarms


def test_an_edit_of_a_saved_intermediate_result_is_found() -> None:
    class Kept(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slope = torch.cos(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, grad):
            return ctx.slope.mul_(grad)

    (finding,) = [finding for finding in _findings(Kept.apply) if finding.severity == "alarm"]
    assert finding.kind == "not-reentrant"
    assert "second backward through the same graph gives another gradient" in finding.text


def test_a_second_backward_that_raises_is_found() -> None:
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slopes = [2 * x]
            return x * x

        @staticmethod
        def backward(ctx, grad):
            if not ctx.slopes:
                raise RuntimeError("the slope is gone")
            return ctx.slopes.pop() * grad

    (finding,) = [finding for finding in _findings(Once.apply) if finding.severity == "alarm"]
    assert finding.kind == "not-reentrant"
    assert "raises: the slope is gone" in finding.text


def _twice(backwards: list[Any], slack: float = 0.125) -> list[Finding]:
    """What is said of a graph whose first and second backward are these."""
    left = iter(backwards)
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    output = _function(lambda grad, x: next(left)(grad))(x)
    subject: Any = SimpleNamespace(graph=lambda: ((output,), (x,)))
    return _backward_twice(subject, (torch.ones_like(output),), slack)


def _refused(grad: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("buffers are gone\nsecond line\nthird line")


def test_a_graph_that_can_be_gone_through_once_is_a_note_and_one_that_changes_an_alarm() -> None:
    (once,) = _twice([_refused])
    assert (once.kind, once.severity, once.text) == ("note", "note", "the graph can be gone through once only: buffers are gone")
    (then,) = _twice([torch.clone, _refused])
    text = "a second backward through the same graph raises: buffers are gone"
    assert (then.kind, then.severity, then.text) == ("not-reentrant", "alarm", text)
    (other,) = _twice([torch.clone, lambda grad: 2 * grad])
    assert (other.kind, other.severity, other.numbers) == ("not-reentrant", "alarm", {"gradient": 0.5})
    assert _twice([torch.clone, lambda grad: 2 * grad], slack=0.6) == []


def test_a_backward_that_gives_its_buffer_away_is_compared_with_what_it_gave_first() -> None:
    buffer = torch.zeros(1, dtype=torch.float64)
    assert [finding.kind for finding in _twice([buffer.add_, buffer.add_])] == ["not-reentrant"]


# Linearity ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backward", "of"),
    [
        (lambda grad, x: 2 * x, ""),
        (lambda grad, x: 2 * x * grad + 1e-3, ""),
        (lambda grad, x: 2 * x * grad.abs(), "negative"),
        (lambda grad, x: 2 * x * grad.clamp(-100, 100), "large"),
        (lambda grad, x: 2 * x * grad * (grad.abs() > 0.1), "small"),
        (lambda grad, x: 2 * x * grad.norm() * (1 if grad.sum() >= 0 else -1), ""),
        (lambda grad, x: 2 * x * grad / grad.norm().clamp(min=1e-30), ""),
    ],
    ids=["ignored", "offset", "abs", "clamp", "threshold", "norm", "normalised"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_backwards_that_are_not_linear_are_found(backward: Any, of: str, dtype: torch.dtype) -> None:
    found = [finding for finding in _findings(_function(backward), dtype=dtype) if finding.severity == "alarm"]
    assert [finding.kind for finding in found] == ["not-linear"]
    assert of in found[0].text
    assert found[0].numbers["relative"] > SLACK[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_one_number_is_enough_to_see_that_grad_output_is_ignored(dtype: torch.dtype) -> None:
    fn = _function(lambda grad, x: 2 * x)
    assert _alarms(fn, torch.tensor(0.5, dtype=dtype)) == [("not-linear", "")]


def test_half_precision_is_not_accused_of_its_range() -> None:
    """1024 times a gradient of 256 overflows in float16; the large multiple is smaller there."""
    assert _alarms(lambda x: 256 * x, dtype=torch.float16) == []


def test_a_gradient_that_is_not_finite_for_a_zero_cotangent_is_found() -> None:
    """0/0: grad_output of zero gives NaN."""
    fn = _function(lambda grad, x: 2 * x * grad * (grad.norm() / grad.norm()))
    assert ("not-linear", "") in _alarms(fn)


def test_a_backward_that_is_off_by_a_millionth_is_found() -> None:
    """Its rounding is measured with cotangents so close that next to nothing of that is taken for rounding."""
    (finding,) = _findings(_function(lambda grad, x: 2 * x * (grad + 1e-6 * grad.square())))
    assert (finding.kind, finding.severity) == ("not-linear", "alarm")
    assert "a large multiple" in finding.text


@pytest.mark.parametrize("dtype", SLACK)
def test_a_clamp_is_found_where_only_the_large_multiple_meets_it(dtype: torch.dtype) -> None:
    """Weights are at most 1.5: the others stay within 3, and so do those that measure the rounding."""
    (finding,) = _findings(_function(lambda grad, x: 2 * x * grad.clamp(-3, 3)), dtype=dtype)
    assert (finding.kind, "a large multiple" in finding.text) == ("not-linear", True)


def test_a_backward_that_is_zero_only_for_ordinary_weights_is_found() -> None:
    (finding,) = _findings(_function(lambda grad, x: 1e-6 * x * (grad - grad.clamp(-100, 100))))
    assert (finding.kind, finding.numbers) == ("not-linear", {"relative": 1.0})


def test_a_backward_that_drops_the_first_bits_of_the_weights_is_found() -> None:
    """It gives zero for the weights of an audit, which are eighths, and not for neighbours of them."""
    (finding,) = _findings(_function(lambda grad, x: x * (grad - (8 * grad).round() / 8)))
    assert (finding.kind, finding.numbers) == ("not-linear", {"relative": 1.0})
    assert "for a small multiple of it" in finding.text


def test_a_gradient_of_no_weights_is_found_where_the_derivative_is_zero() -> None:
    """In a part of the elements, and in all of them, where NaN comes of 0/0."""
    fn = _function(lambda grad, x: grad * (x > 0) + (grad == 0), torch.relu)
    assert _alarms(fn) == [("not-linear", "")]
    fn = _function(lambda grad, x: grad * (x > 10) * (grad.norm() / grad.norm()), lambda x: torch.relu(x - 10))
    (finding,) = _findings(fn)
    assert (finding.kind, finding.numbers) == ("not-linear", {"relative": math.inf})


class Weighed:
    """A backward that is the identity but for what is said: how far it is off in a case, and by how much relative noise elsewhere.

    The weights are -w / 4, for the w that they are added to. So of the five cases, the sizes are known as multiples of |w|.
    """

    SIZES = {"zero": 0.25, "a negative multiple": 0.5, "a large multiple": 256.0, "a small multiple": 0.25 / 1024, "a sum": 1.0}
    SCALES = {"zero": 0.0, "a negative multiple": 2.0, "a large multiple": 1024.0, "a small multiple": 1 / 1024, "a sum": 2.0}

    def __init__(self, off: dict[str, float] | None = None, *, noise: float = 0.0, second: float = 1.0) -> None:
        output = torch.zeros(3, dtype=torch.float64)
        (self.other,) = random_cotangent([output], torch.Generator().manual_seed(5))
        self.cotangent = -self.other / 4
        self.size, self.noise, self.second = norm([self.other]), noise, second
        self.off = dict.fromkeys(self.SIZES, 0.0) | (off or {})
        multiples = {"zero": 0.0, "a negative multiple": -2.0, "a large multiple": 1024.0, "a small multiple": 1 / 1024}
        self.weights = {name: factor * self.cotangent for name, factor in multiples.items()} | {"a sum": self.cotangent + self.other}
        self.outputs = self.tensors = (output,)

    def pull(self, at: Any, weights: tuple[torch.Tensor, ...]) -> Any:
        (w,) = weights
        exact = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        for name, case in self.weights.items():
            if torch.equal(w, case):
                return SimpleNamespace(gradients=(w + self.off[name] * self.size * exact,))
        if torch.equal(w, self.other):
            return SimpleNamespace(gradients=(w * self.second,))
        return SimpleNamespace(gradients=(w if torch.equal(w, self.cotangent) else w * (1 + self.noise),))

    def found(self) -> list[Finding]:
        subject: Any = self
        generator = torch.Generator().manual_seed(5)
        return _linearity(subject, (self.cotangent,), generator, SLACK[torch.float64], torch.float64)


@pytest.mark.parametrize("name", Weighed.SIZES)
def test_each_case_is_told_in_units_of_the_largest_gradient_in_it(name: str) -> None:
    (finding,) = Weighed({name: 0.5 * Weighed.SIZES[name]}).found()
    assert finding.text == f"the backward is not linear in grad_output: for {name} of it, it is off by 0.5 of its size"
    assert finding.numbers["relative"] == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in Weighed.SIZES if name != "zero"])
def test_what_the_rounding_of_the_backward_explains_is_not_told(name: str) -> None:
    """16 times that of both gradients, 2^-10 (1 + 1/4) |w|, times the multiple."""
    allowed = 16 * 2.0**-10 * 1.25 * Weighed.SCALES[name]
    assert Weighed({name: 0.98 * allowed}, noise=2.0**-10).found() == []
    assert len(Weighed({name: 1.02 * allowed}, noise=2.0**-10).found()) == 1


def test_rounding_does_not_explain_a_gradient_of_no_weights() -> None:
    assert len(Weighed({"zero": 1e-6}, noise=2.0**-10).found()) == 1
    assert Weighed(noise=2.0**-10).found() == []


def test_the_worst_case_is_the_one_that_is_told() -> None:
    (finding,) = Weighed({"zero": 0.05, "a negative multiple": 0.4, "a sum": 0.1}).found()
    assert "for a negative multiple of it, it is off by 0.8" in finding.text


def test_only_a_large_multiple_may_overflow() -> None:
    assert Weighed({"a large multiple": math.inf}).found() == []
    assert len(Weighed({"a large multiple": math.inf, "a sum": 0.5}).found()) == 1
    (finding,) = Weighed({"a sum": math.inf}).found()
    assert finding.numbers == {"relative": math.inf}


def test_gradients_that_are_not_finite_are_left_to_another_finding() -> None:
    assert Weighed(second=math.inf).found() == []
    assert Weighed(second=math.nan).found() == []


def test_own_rounding_is_the_worst_of_several_neighbours_that_are_finite() -> None:
    offs = iter([0.25, math.inf, 0.75, 0.5])

    def pull(at: Any, weights: tuple[torch.Tensor, ...]) -> Any:
        """The identity, with the first entry off by so much after the factor is taken out again."""
        (w,) = weights
        return SimpleNamespace(gradients=(w + next(offs) * torch.tensor([1.0, 0.0], dtype=torch.float64) * w[1],))

    u = torch.tensor([3.0, 1.0], dtype=torch.float64)
    subject: Any = SimpleNamespace(tensors=(), pull=pull)
    assert _own_rounding(subject, (u,), (u,), torch.float64) == pytest.approx(0.75, rel=1e-12)


# Not finite ---------------------------------------------------------------------------------------------------------------


def test_a_gradient_that_is_not_finite_where_the_value_is_gets_an_alarm() -> None:
    x = torch.tensor([4.0, 0.0, 9.0], dtype=torch.float64)
    (finding,) = [finding for finding in _findings(lambda x: torch.where(x > 0, x.sqrt(), 0.0), x) if finding.kind == "non-finite"]
    assert finding.severity == "alarm"
    assert finding.where == "input 0"
    assert finding.numbers == {"elements": 1}
    assert "1 of 3" in finding.text


def test_a_gradient_that_is_not_finite_where_the_value_is_not_gets_none() -> None:
    assert not [finding for finding in _findings(torch.log, torch.tensor([1.0, 0.0], dtype=torch.float64)) if finding.kind == "non-finite"]


# Edits --------------------------------------------------------------------------------------------------------------------


def test_an_edit_of_grad_output_is_found() -> None:
    assert _alarms(_function(lambda grad, x: grad.mul_(2 * x))) == [("edits", "grad_output")]


def test_an_edit_of_grad_output_between_other_operations_is_found_by_the_defect() -> None:
    """grad_output then belongs to the graph, not to the caller; the other branch gets a wrong gradient, which the audit measures."""
    edits = _function(lambda grad, x: grad.mul_(2 * x))
    x = torch.tensor([0.5, -1.5, 3.0], dtype=torch.float64)
    report = audit(lambda x: (x.sin() + edits(x)) ** 2, x, effort="quick", consequences=False)
    assert [finding.kind for finding in report.findings if finding.severity == "alarm"] == ["defect"], str(report)
    assert not report.passed, str(report)


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (lambda x, y: x.mul_(2) * y, ["input 0"]),
        (lambda x, y: x * y.data.mul_(2), ["input 1"]),
        (lambda x, y: (x.data.add_(1), y.data.add_(1), x * y)[2], ["input 0", "input 1"]),
        (lambda x, y: x.clone().mul_(2) * y, []),
    ],
    ids=["leaf", "constant", "both", "copy"],
)
def test_edits_of_arguments_are_found(fn: Any, names: list[str]) -> None:
    x, y = torch.tensor([0.5, -1.5], dtype=torch.float64, requires_grad=True), torch.tensor([2.0, 3.0], dtype=torch.float64)
    assert [where for kind, where in _alarms(fn, x, y) if kind == "edits"] == names


def test_an_edit_of_an_integer_argument_is_found() -> None:
    x, n = torch.tensor([0.5, -1.5], dtype=torch.float64), torch.tensor([2, 3])
    assert ("edits", "input 1") in _alarms(lambda x, n: (n.data.add_(1), x * 2)[1], x, n)


def test_edits_by_keyword_and_inside_containers_are_named() -> None:
    def fn(*, parts: list[torch.Tensor]) -> torch.Tensor:
        y = parts[0] * 2
        parts[1].data.add_(1)
        return y

    parts = [torch.tensor([1.0], dtype=torch.float64, requires_grad=True), torch.tensor([2.0], dtype=torch.float64)]
    with Subject(fn, {"parts": parts}) as subject:
        assert subject.calls_edit() == ["parts[1]"]


def test_writing_the_same_value_again_is_no_edit() -> None:
    assert _alarms(lambda x: (x.data.mul_(1), x * 2)[1]) == []


def test_nan_in_an_argument_is_no_edit() -> None:
    x, y = torch.tensor([0.5], dtype=torch.float64, requires_grad=True), torch.tensor([math.nan], dtype=torch.float64)
    assert _alarms(lambda x, y: x * torch.nan_to_num(y, 1.0), x, y) == []


def test_findings_lead_to_the_verdict() -> None:
    x = torch.tensor([0.5, -1.5, 3.0], dtype=torch.float64)
    edits = audit(_function(lambda grad, x: grad.mul_(2 * x)), x, effort="quick", consequences=False)
    assert (edits.verdict, edits.passed) == ("not-reentrant", False), str(edits)
    ignored = audit(_function(lambda grad, x: 2 * x), torch.tensor(0.5, dtype=torch.float64), effort="quick", consequences=False)
    assert (ignored.verdict, ignored.passed) == ("incoherent", False), str(ignored)


# Sizes --------------------------------------------------------------------------------------------------------------------


def test_norm_is_over_all_tensors_in_double() -> None:
    assert norm([torch.tensor([3.0]), torch.tensor([[4.0]])]) == 5.0
    assert norm([torch.tensor([3e30], dtype=torch.float32)]) == pytest.approx(3e30, rel=1e-6)
    assert norm([]) == 0.0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([3.0, 4.0], [3.0, 4.5], 0.5 / math.hypot(3, 4.5)),
        ([math.nan, 1.0], [math.nan, 1.0], 0.0),
        ([math.inf, 1.0], [math.inf, 1.0], 0.0),
        ([math.nan, 1.0], [0.0, 1.0], math.inf),
        ([math.inf, 1.0], [2.0, 1.0], math.inf),
        ([math.inf, 1.0], [-math.inf, 1.0], math.inf),
        ([0.0], [0.0], 0.0),
    ],
    ids=str,
)
def test_apart_is_relative_and_knows_what_is_not_finite(first: list[float], second: list[float], expected: float) -> None:
    a, b = (torch.tensor(values, dtype=torch.float64) for values in (first, second))
    assert apart([a], [b]) == pytest.approx(expected, rel=1e-14)


def test_apart_takes_each_tensor_by_its_own_size() -> None:
    large, small = torch.tensor([1e6]), torch.tensor([1.0])
    assert apart([large, small], [large, 2 * small]) == 0.5
