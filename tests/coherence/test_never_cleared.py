"""Backwards that are wrong in ways that are easy to miss: none of them may pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

import pairgrad as pg
from pairgrad.coherence import Report, audit
from pairgrad.testing import CoherenceTests
from tests.coherence.functions import function, vector

EFFORTS = ("glance", "quick", pytest.param("standard", marks=pytest.mark.slow))


def kinds(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings if finding.severity == "alarm"}


# 1. Rounded cotangents

ROUNDED = [
    (torch.float64, torch.bfloat16),
    (torch.float64, torch.float16),
    (torch.float64, torch.float32),
    (torch.float32, torch.bfloat16),
    (torch.float32, torch.float16),
]


def rounds(inside: torch.dtype) -> Callable[..., Any]:
    return function(torch.sin, lambda x, g: g.to(inside).to(g.dtype) * x.cos())


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("dtype", "inside"), ROUNDED)
@pytest.mark.parametrize("shape", [(), (5,)])
def test_a_backward_that_rounds_its_grad_output(shape: tuple[int, ...], dtype: torch.dtype, inside: torch.dtype, effort: str) -> None:
    x = torch.full(shape, 0.7, dtype=dtype)
    report = audit(rounds(inside), x, effort=effort, consequences=False)
    assert not report.passed, str(report)
    assert report.verdict == "incoherent", str(report)
    (finding,) = (finding for finding in report.findings if finding.kind == "rounds")
    assert str(inside).removeprefix("torch.") in finding.text


def test_the_inheritable_tests_see_rounded_cotangents() -> None:
    class Rounded(CoherenceTests):
        function = rounds(torch.bfloat16)
        inputs = vector(0.3, 0.7)
        dtypes = (torch.float64,)
        left_out = {"test_vmap": "not written for it", "test_compiled": "takes long"}

    with pytest.raises(ExceptionGroup) as caught:
        Rounded.check()
    assert "rounds grad_output" in str(caught.value.exceptions[0])


def test_a_recording_sees_rounded_cotangents_and_names_the_culprit() -> None:
    w = vector(0.3, 0.7, 1.1).requires_grad_()
    fn = rounds(torch.bfloat16)
    with pg.record() as recording:
        fn(w * 1.3).square().sum().backward()
    report = recording.audit()
    assert not report.passed, str(report)
    assert [node.verdict for node in report.nodes] == ["incoherent"], str(report)


def test_the_culprit_is_named_where_a_rounded_cotangent_comes_from_inside() -> None:
    fn = rounds(torch.bfloat16)
    report = audit(lambda x: fn(x * 1.3).exp() * 0.77, vector(0.3, 0.7))
    (node,) = (finding for finding in report.findings if finding.kind == "node")
    assert node.severity == "warning", str(report)
    assert "incoherent" in node.text, str(report)


# 2. Layouts


def misread(tensor: torch.Tensor) -> torch.Tensor:
    """What a kernel reads that takes a tensor for contiguous."""
    order = [1]
    for size in reversed(tensor.shape[1:]):
        order.insert(0, order[0] * size)
    last = tensor.storage_offset() + tensor.numel()
    storage = torch.as_strided(tensor, (tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
    padded = torch.cat([storage, storage.new_zeros(max(0, last - storage.numel()))])  # a kernel reads on beyond the end
    return torch.as_strided(padded, tensor.shape, order if tensor.ndim else (), tensor.storage_offset())


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("shape", [(3, 4), (5,), (2, 3, 4, 4)])
def test_a_backward_that_takes_grad_output_for_contiguous(shape: tuple[int, ...], effort: str) -> None:
    x = torch.linspace(0.2, 1.4, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    report = audit(function(torch.sin, lambda x, g: misread(g) * x.cos()), x, effort=effort, consequences=False)
    assert not report.passed, str(report)
    assert "layout" in kinds(report), str(report)
    assert report.checks["layouts"] == "no"


def test_a_backward_that_takes_a_saved_input_for_contiguous() -> None:
    x = torch.linspace(0.2, 1.4, 12, dtype=torch.float64).reshape(3, 4)
    report = audit(function(torch.sin, lambda x, g: g * misread(x).cos()), x, consequences=False)
    assert "layout" in kinds(report), str(report)


def test_right_functions_agree_in_all_layouts() -> None:
    x = torch.linspace(0.2, 1.4, 96, dtype=torch.float64).reshape(2, 3, 4, 4)
    report = audit(torch.nn.Conv2d(3, 2, 3).double(), x, effort="quick")
    assert report.passed, str(report)
    assert report.checks["layouts"] == "yes"


# 3. Sizes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("backward", "words"),
    [
        (lambda x, g: g.clamp(-1e4, 1e4) * x.cos(), "large"),
        (lambda x, g: torch.where(g.abs() < 1e-5, 0.0, g) * x.cos(), "small"),
    ],
)
def test_a_backward_that_minds_the_size_of_grad_output(backward: Any, words: str, dtype: torch.dtype) -> None:
    report = audit(function(torch.sin, backward), vector(0.3, 0.7, dtype=dtype), consequences=False)
    assert "not-linear" in kinds(report), str(report)
    assert words in next(finding.text for finding in report.findings if finding.kind == "not-linear")


def test_underflow_in_half_precision_is_reported_with_its_size() -> None:
    report = audit(torch.sin, vector(0.3, 0.7, dtype=torch.float16), consequences=False)
    (finding,) = (finding for finding in report.findings if finding.kind == "size")
    assert finding.severity == "warning"
    assert 2.0**-24 <= finding.numbers["underflow"] <= 2.0**-8, str(report)


# 4. One jump


@pytest.mark.parametrize("effort", EFFORTS)
def test_one_jump_near_the_input_excuses_nothing(effort: str) -> None:
    fn = function(lambda x: x.exp() + 0.01 * (x > 0.01), lambda x, g: 1.05 * g * x.exp())
    report = audit(fn, torch.tensor(0.0, dtype=torch.float64), effort=effort, consequences=False)
    assert report.verdict == "incoherent", str(report)
    assert report.defect == pytest.approx(0.05, rel=1e-3), str(report)


def test_steps_of_one_size_are_steps() -> None:
    """A value that is rounded to float32 inside float64 is right, coarsely."""
    fn = function(lambda x: x.float().sin().double(), lambda x, g: g * x.cos())
    report = audit(fn, vector(0.3, 0.7), consequences=False)
    assert report.passed, str(report)


# 5. Narrow regions


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("width", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("at", [1.0, 0.6180339887498949])
def test_a_gradient_that_is_zero_near_the_input(at: float, width: float, effort: str) -> None:
    fn = function(torch.sin, lambda x, g: torch.where((x - at).abs() < width, 0.0, g * x.cos()))
    report = audit(fn, torch.tensor(at, dtype=torch.float64), effort=effort, consequences=False)
    assert report.verdict == "incoherent", str(report)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("width", [1e-3, 1e-5])
def test_a_value_that_bends_near_the_input(width: float, effort: str) -> None:
    fn = function(lambda x: x.sin() + width * torch.tanh((x - 1) / width), lambda x, g: g * x.cos())
    report = audit(fn, torch.tensor(1.0, dtype=torch.float64), effort=effort, consequences=False)
    assert report.verdict == "incoherent", str(report)
    assert report.defect == pytest.approx(1 / (1 + torch.tensor(1.0).cos().item()), rel=1e-2), str(report)


def test_the_scales_that_were_looked_at_are_stated() -> None:
    report = audit(torch.sin, torch.tensor(1.0, dtype=torch.float64), consequences=False)
    smallest, largest = report.scales
    assert smallest <= 2e-5
    assert largest >= 0.2
    assert f"{smallest:.1g}" in str(report)


# 6. Near-degenerate states


def test_the_input_decides_where_the_defect_falls_off_nearby() -> None:
    """An eigenvalue gap of 1e-5, regularised in the backward alone: off at the input, right a little further."""

    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            values, vectors = torch.linalg.eigh((a + a.mT) / 2)
            ctx.save_for_backward(values, vectors)
            return vectors[:, 0] ** 2

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            values, vectors = ctx.saved_tensors
            gap = values[0] - values
            inverse = gap / (gap**2 + 1e-12)
            inner = vectors.mT @ (2 * g * vectors[:, 0]) * inverse
            inner[0] = 0
            outer = torch.outer(vectors @ inner, vectors[:, 0])
            return (outer + outer.mT) / 2

    a = torch.diag(vector(1.0, 1.00001, 2.0))
    a = a + 3e-6 * torch.ones(3, 3, dtype=torch.float64)
    report = audit(First.apply, a, consequences=False)
    assert report.verdict == "incoherent", str(report)
    assert 3e-3 < report.defect < 3e-2, str(report)


# 7. Errors are not refusals


def test_a_forward_that_runs_out_of_memory_makes_the_audit_incomplete() -> None:
    for last in (8, 61, 200):
        calls = [0]

        def forward(x: torch.Tensor, calls: list[int] = calls, last: int = last) -> torch.Tensor:
            calls[0] += 1
            if calls[0] > last:
                raise torch.OutOfMemoryError("out of memory")
            return x.sin()

        report = audit(forward, vector(0.3, 0.7, 1.1))
        assert not report.complete, str(report)
        assert not report.passed, str(report)
        assert "out of memory" in str(report)


def test_any_error_that_comes_at_the_inputs_makes_the_audit_incomplete() -> None:
    calls = [0]

    def forward(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if calls[0] > 61:
            raise RuntimeError("the device went away")
        return x.sin()

    report = audit(forward, vector(0.3, 0.7, 1.1))
    assert not report.complete, str(report)
    assert not report.passed, str(report)
    assert "the device went away" in str(report)


# 8. One set of checks


def wrong_second() -> Callable[..., Any]:
    return function(lambda x: x**3, lambda x, g: g * 3 * x.detach() ** 2, once=False)


def test_recordings_make_the_checks_of_an_audit() -> None:
    fn = wrong_second()
    assert audit(fn, vector(0.3, 0.7)).verdict == "second-order"
    w = vector(0.3, 0.7).requires_grad_()
    with pg.record() as recording:
        fn(w).sum().backward()
    report = recording.audit()
    assert [node.verdict for node in report.nodes] == ["second-order"], str(report)


# 9. Verdicts are a set


class Counting(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        Counting.calls += 1
        return g * (ctx.saved_tensors[0].cos() * 2.2 + 1e-3 * (Counting.calls % 3))


def test_what_is_allowed_excuses_itself_alone() -> None:
    with pytest.raises(AssertionError):
        pg.assert_coherent(Counting.apply, vector(0.3, 0.7), allow=["not-reentrant"])
    report = audit(Counting.apply, vector(0.3, 0.7))
    found = {judgement.verdict.value: judgement.relative for judgement in report.verdicts}
    assert {"incoherent", "not-reentrant"} <= set(found), str(report)
    assert found["incoherent"] == pytest.approx(1.2, rel=1e-2), str(report)


def test_an_input_overwritten_on_purpose_is_declared_and_the_rest_is_judged() -> None:
    class Overwriting(torch.autograd.Function):
        factor = 1.0

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            value, gradient = x.square().sum(), 2 * x
            x.copy_(Overwriting.factor * gradient)
            ctx.save_for_backward(x)
            return value

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * ctx.saved_tensors[0]

    x = vector(0.3, 0.7)
    assert not audit(Overwriting.apply, x).passed
    report = audit(Overwriting.apply, x, intent="overwrites-input")
    assert report.passed, str(report)
    Overwriting.factor = 1.5
    report = audit(Overwriting.apply, x, intent="overwrites-input")
    assert not report.passed, str(report)
    assert report.verdict == "incoherent", str(report)


# 10. Rough backwards


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("count", [1, 7])
def test_a_jagged_gradient_does_not_pass(count: int, effort: str) -> None:
    fn = function(torch.sin, lambda x, g: g * (torch.sin(x + 1e-15) - torch.sin(x)) / 1e-15)
    report = audit(fn, torch.linspace(1.9, 0.7, count, dtype=torch.float64), effort=effort, consequences=False)
    assert not report.passed, str(report)
    assert "rough" in {finding.kind for finding in report.findings}, str(report)


def test_a_constant_with_a_zero_gradient_is_inconclusive() -> None:
    fn = function(lambda x: torch.ones_like(x), lambda x, g: torch.zeros_like(x))
    report = audit(fn, vector(0.3, 0.7))
    assert report.verdict == "inconclusive", str(report)
    assert not report.passed


# 11. Culprits


def test_a_function_that_misreads_its_cotangent_is_named() -> None:
    class Misreading(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return misread(g) * ctx.saved_tensors[0].cos()

    weights = torch.linspace(1, 2, 12, dtype=torch.float64).reshape(4, 3)
    x = torch.linspace(0.2, 1.4, 12, dtype=torch.float64).reshape(3, 4)
    report = audit(lambda x: (Misreading.apply(x).t() * weights).sum(), x)
    assert not report.passed, str(report)
    (node,) = (finding for finding in report.findings if finding.kind == "node")
    assert "Misreading" in node.where, str(report)
    assert node.severity == "warning", str(report)


def test_the_consistent_gradient_is_confirmed_for_every_argument() -> None:
    """The forward hides one argument from autograd: the differentiated forward misses it, and no number may come of that."""

    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            return x * w.data

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x, w = ctx.saved_tensors
            return 2 * g * w, g * x

    x, w = vector(0.3, 0.7), vector(1.1, 1.7)
    report = audit(lambda x, w: Hidden.apply(x, w).sum(), (x, w))
    by_name = {gradient.argument: gradient for gradient in report.gradients}
    assert by_name["input 0"].relative == pytest.approx(1.0, rel=1e-6), str(report)
    assert by_name["input 1"].relative <= 1e-6, str(report)
    assert by_name["input 1"].factor == pytest.approx(1.0, rel=1e-6), str(report)


# Ordinary cotangents, ties and states that are easy to forget

F16 = torch.float16


def first_where(condition: Callable[[torch.Tensor], Any], wrong: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    return function(torch.sin, lambda x, g: (wrong(g) if condition(g) else g) * x.cos())


FORGOTTEN: dict[str, tuple[Any, Any]] = {
    "an element of grad_output is zero": (
        first_where(lambda g: bool((g == 0).any()), torch.zeros_like),
        torch.rand(6, dtype=torch.float64),
    ),
    "grad_output is the same everywhere": (
        first_where(lambda g: bool((g == g.flatten()[0]).all()), lambda g: g / 6),
        torch.rand(6, dtype=torch.float64),
    ),
    "expanded along one dimension": (
        first_where(lambda g: 0 in g.stride(), lambda g: torch.full_like(g, 0.3)),
        torch.rand(3, 4, dtype=torch.float64),
    ),
    "matrices stored by columns": (first_where(lambda g: g.stride(-2) == 1, lambda g: 2 * g), torch.rand(2, 3, 4, dtype=torch.float64)),
    "both of a tie get all": (function(lambda x: x.max(), lambda x, g: g * (x == x.max())), torch.ones(4, dtype=torch.float64)),
    "neither of a tie gets any": (function(lambda x: x.max(), lambda x, g: torch.zeros_like(x)), torch.ones(4, dtype=torch.float64)),
    "small ones dropped in float16": (
        function(torch.sin, lambda x, g: torch.where(g.abs() < 1e-3, 0, g) * x.cos()),
        torch.rand(6).to(F16) + 0.1,
    ),
    "clamped, with bfloat16 inside": (
        function(lambda x: x.bfloat16().sin().float(), lambda x, g: g.clamp(-100, 100) * x.bfloat16().cos().float()),
        torch.rand(6) + 0.1,
    ),
    "wrong at one of several numbers": (function(torch.exp, lambda x, g: g * torch.where(x == 0, 0.5, x.exp())), torch.arange(4.0)),
    "transposed at zero": (
        function(
            lambda w: (torch.arange(9.0).reshape(3, 3).double() @ w).sin(), lambda w, g: g.mT @ torch.arange(9.0).reshape(3, 3).double()
        ),
        torch.zeros(3, 3, dtype=torch.float64),
    ),
}


@pytest.mark.parametrize("name", FORGOTTEN)
@pytest.mark.parametrize("effort", EFFORTS[1:])
def test_what_ordinary_losses_and_states_bring(name: str, effort: str) -> None:
    fn, x = FORGOTTEN[name]
    report = audit(fn, x, effort=effort, consequences=False)
    assert not report.passed, str(report)


def test_a_gradient_that_depends_on_who_else_asks() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x, w = ctx.saved_tensors
            return g * w if all(ctx.needs_input_grad) else 2 * g * w, g * x

    report = audit(Product.apply, (vector(0.3, 0.7), vector(1.1, 1.7)), consequences=False)
    assert not report.passed, str(report)
    assert "alone asks for a gradient" in str(report)


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda x: x.logsumexp(-1), torch.tensor([1e4, 1e4 - 1, 3.0])),
        (torch.nn.BatchNorm1d(3).double(), torch.linspace(-1, 2, 15, dtype=torch.float64).reshape(5, 3).cos()),
        (lambda x: x.var(), 1e5 + torch.linspace(-3, 3, 50).sin()),
        (lambda x: x.amax(), torch.ones(4, dtype=torch.float64)),
        (lambda x: torch.nn.functional.max_pool1d(x, 2), torch.ones(1, 1, 4, dtype=torch.float64)),
        (lambda x: x.bfloat16().sin().double(), torch.linspace(0.3, 1.7, 5, dtype=torch.float64)),
    ],
    ids=["logsumexp of large numbers", "batch norm", "variance with a large mean", "amax of ties", "max pool of ties", "bfloat16 inside"],
)
def test_right_functions_that_look_suspicious_are_not_accused(fn: Any, x: torch.Tensor) -> None:
    for seed in range(2):
        report = audit(fn, x, effort="quick", seed=seed, consequences=False)
        assert not kinds(report), str(report)


def rounded_weight(factor: float) -> tuple[Any, Any]:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            return x.sin() * w.double()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            x, w = ctx.saved_tensors
            return factor * g * x.cos() * w.double(), (g * x.sin()).bfloat16()

    return Times.apply, (torch.linspace(0.2, 1.3, 4, dtype=torch.float64), torch.linspace(-1, 2, 4).bfloat16())


def rounded_output(factor: float) -> tuple[Any, Any]:
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            ctx.save_for_backward(x)
            return x.sin(), x.bfloat16()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor, rounded: torch.Tensor) -> Any:
            return factor * g * ctx.saved_tensors[0].cos() + rounded.double()

    return Both.apply, torch.linspace(0.2, 1.3, 4, dtype=torch.float64)


@pytest.mark.parametrize("effort", EFFORTS[1:])
@pytest.mark.parametrize("make", [rounded_weight, rounded_output])
def test_one_bfloat16_tensor_does_not_lower_the_limit_of_the_others(make: Callable[[float], tuple[Any, Any]], effort: str) -> None:
    assert audit(*make(1.0), effort=effort, consequences=False).passed
    report = audit(*make(1.03), effort=effort, consequences=False)
    assert "defect" in kinds(report), str(report)


@pytest.mark.parametrize("seed", range(4))
def test_a_jagged_gradient_is_not_said_to_be_nearer_than_it_is(seed: int) -> None:
    """A forward difference in float32: right on average, off at each element."""
    x = torch.randn(4, generator=torch.Generator().manual_seed(seed))
    report = audit(function(torch.sin, lambda x, g: g * ((x + 1e-5).sin() - x.sin()) / 1e-5), x, effort="quick", consequences=False)
    supplied, true = ((x + 1e-5).sin() - x.sin()) / 1e-5, x.double().cos()
    off = float((supplied - true).norm() / true.norm())
    assert not report.passed or report.limit >= off, (off, str(report))
