"""`increment(a, squared)`, the difference a score is made of, and its gain slope(b) / b, with b^2 = a^2 + squared: against ball arithmetic, at fifty
digits against the formulas they belong to, and through autograd."""

from __future__ import annotations

from typing import Any

import flint
import mpmath
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.func import grad, jvp, vmap

import pairgrad as pg
from pairgrad.ground import MpmathArithmetic
from tests.dual import Dual, DualArithmetic
from tests.potentials.increments import exact_increment, shrinkage, states
from tests.tolerances import COHERENCE_AT_50_DIGITS, gain_tolerance, increment_tolerance
from tests.truth import relative_error, working_precision

DTYPES = (torch.float64, torch.float32)
DIMS = (2, 3, 4, 8, 16, 64, 128, 512, 1024, 4096)
FAITHFUL = ("paired", "arfr", "scott", "log-bessel")
COHERENT = (*FAITHFUL, "consistent")
ALL = (*COHERENT, "original", "log-miller")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_value_and_gradient(dim: int, dtype: torch.dtype) -> None:
    """The gradient in `squared` is half the gain, slope(b) / b."""
    a, squared = states(dim, dtype, 60, seed=2)
    leaf = squared.clone().requires_grad_()
    value = pg.potential(dim).increment(a, leaf)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    exact_value, exact_gain = exact_increment(dim, a, squared)
    lost = shrinkage(dim, a, squared)
    for name, got, truth, tolerance in (
        ("value", value, exact_value, increment_tolerance(dtype, dim, lost)),
        ("gain", 2 * gradient, exact_gain, gain_tolerance(dtype, dim, lost)),
    ):
        errors = relative_error(got, truth)
        worst = int(np.argmax(errors / tolerance))
        assert errors[worst] <= tolerance[worst], (
            f"{name} at dim {dim}, a = {a[worst].item()!r}, squared = {squared[worst].item()!r}: got {got[worst].item()!r}, "
            f"expected {float(truth[worst])!r}, relative error {errors[worst]:.3g} > {tolerance[worst]:.3g}"
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_no_step_is_no_increment(name: str, dtype: torch.dtype) -> None:
    a = torch.tensor([1e-3, 7.0, 1e5], dtype=dtype)
    assert torch.equal(pg.potential(64, name).increment(a, torch.zeros_like(a)), torch.zeros_like(a))


EXPANSIONS: list[tuple[dict[str, Any], str]] = [
    *(({"dim": dim}, "paired") for dim in (2, 3, 9, 29, 64, 512)),
    ({"nu": 2.75}, "paired"),
    ({"dim": 64, "order": 3}, "paired"),
    ({"dim": 9, "order": 4, "shift": 3}, "paired"),
    *(({"dim": dim}, "arfr") for dim in (3, 64, 128)),
    ({"dim": 64, "order": 5}, "arfr"),
]
STEPS = (("0.3", "0.05"), ("3", "-8.9"), ("7.5", "400"), ("80", "-6000"), ("80", "1e6"), ("4.2e3", "-1.2e5"), ("1e5", "2e6"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "name"), EXPANSIONS, ids=lambda v: str(v))
def test_gain_is_twice_the_derivative_of_the_increment(size: dict[str, Any], name: str, dtype: torch.dtype) -> None:
    """d difference / d squared = gain / 2, and d difference / d a = a (gain(b) - gain(a)): the increment differentiates itself."""
    formulas = pg.potential(realization=name, **size).formulas(dtype)
    with mpmath.workdps(50):
        for low, step in STEPS:
            a, squared = mpmath.mpf(low), mpmath.mpf(step)
            difference, gain = formulas.increment(MpmathArithmetic(), a, squared)
            b = mpmath.sqrt(a * a + squared)
            # digits that cancel against 1 or between logarithms
            lost = max(1, 1 / abs(difference)) * ((float(formulas.centre) + a) / min(b, a)) ** 2
            tolerance = COHERENCE_AT_50_DIGITS * lost
            value = formulas.value(MpmathArithmetic(), b) - formulas.value(MpmathArithmetic(), a)
            assert abs(difference / value - 1) <= tolerance * max(1, abs(formulas.value(MpmathArithmetic(), b) / value)), (low, step)
            assert abs(gain * b / formulas.slope(MpmathArithmetic(), b) - 1) <= tolerance, (low, step)
            _, gain_a = formulas.increment(MpmathArithmetic(), a, mpmath.mpf(0))
            along = formulas.increment(DualArithmetic(), Dual(a), Dual(squared, 1))[0].derivative
            assert abs(2 * along / gain - 1) <= tolerance, (low, step, 2 * along - gain)
            start = formulas.increment(DualArithmetic(), Dual(a, 1), Dual(squared))[0].derivative
            assert abs(start - a * (gain - gain_a)) <= tolerance * gain_a * a, (low, step)


@pytest.mark.parametrize(("dim", "name"), [(64, "paired"), (512, "paired"), (64, "arfr"), (512, "arfr")])
def test_series_differs_from_the_logarithms_by_less_than_rounding(dim: int, name: str) -> None:
    """So that its gain, which knows nothing of the series, is its derivative as far as the dtype can tell."""
    for dtype in DTYPES:
        formulas, rounding = pg.potential(dim, name).formulas(dtype), torch.finfo(dtype).eps / 2
        terms = formulas.series_terms(10.0, rounding)
        with mpmath.workdps(50):
            for low, high in (("0", "10"), ("1", "11"), ("11", "1"), ("300", "310"), ("1e5", "99990")):
                a, b = mpmath.mpf(low), mpmath.mpf(high)
                exact, gain = formulas.increment(MpmathArithmetic(), a, b * b - a * a)
                series, same_gain = formulas.increment(MpmathArithmetic(), a, b * b - a * a, terms)
                # each series is cut below a quarter of the rounding; together they are a part of the whole that is at most 1
                assert abs(series / exact - 1) <= rounding
                assert abs(gain / same_gain - 1) <= 1e-45  # of 50 digits: the formula is the same, in another order
                along = formulas.increment(DualArithmetic(), Dual(a), Dual(b * b - a * a, 1), terms)[0].derivative
                assert abs(2 * along / gain - 1) <= 8 * rounding * (2 * terms[1] + 1)  # the derivative of a term has its exponent as factor


def points(dim: int, count: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    scale = max(dim / 2 - 1, 0.5)
    a = scale * (0.3 + 3 * torch.rand(count, dtype=torch.float64))
    b = scale * (0.3 + 3 * torch.rand(count, dtype=torch.float64))
    return a, b * b - a * a


@pytest.mark.parametrize(("name", "dim"), [*((name, dim) for name in FAITHFUL for dim in (3, 64)), ("consistent", 4), ("consistent", 16)])
def test_gradcheck_and_gradgradcheck(name: str, dim: int) -> None:
    pot = pg.potential(dim, name)
    inputs = tuple(t.requires_grad_() for t in points(dim))
    assert gradcheck(pot.increment, inputs, check_forward_ad=True)
    assert gradgradcheck(pot.increment, inputs)


@pytest.mark.parametrize("name", ["original", "log-miller"])
def test_gradcheck_refuses_the_incoherent_ones(name: str) -> None:
    a, squared = points(4)
    with pytest.raises(GradcheckError):
        gradcheck(pg.potential(4, name).increment, (a, squared.requires_grad_()))


@pytest.mark.parametrize("dim", [3, 64])
def test_derivatives_at_the_origin(dim: int) -> None:
    """d/d squared = 1 / (2 dim) at b = 0, and its derivative -1 / (2 dim^2 (dim + 2)); from b = 0 upwards nothing divides by b."""
    pot = pg.potential(dim)
    a = torch.tensor([0.0, 2.0, 32.0], dtype=torch.float64)
    squared = (-a * a).requires_grad_()
    (first,) = torch.autograd.grad(pot.increment(a, squared).sum(), squared, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), squared)
    lost = shrinkage(dim, a, squared.detach())
    assert np.all(np.abs(2 * dim * first.detach().numpy() - 1) <= gain_tolerance(torch.float64, dim, lost))
    # the series of R at 0: R(b) / b = 1 / p - b^2 / (p^2 (p + 2)) + ...
    torch.testing.assert_close(second, torch.full_like(a, -1 / (2 * dim**2 * (dim + 2))), rtol=1e-9, atol=0)


def test_gradients_where_rounding_takes_the_square_below_zero() -> None:
    """b = 0, but a^2 + squared is -1 ulp: the derivatives are those at b = 0."""
    pot = pg.potential(8)
    a = torch.tensor([0.3, 5.0], dtype=torch.float64)
    squared = torch.nextafter(-a * a, torch.full_like(a, -torch.inf))
    assert bool((a * a + squared < 0).all())
    a.requires_grad_()
    squared.requires_grad_()
    by_a, by_square = torch.autograd.grad(pot.increment(a, squared).sum(), (a, squared))
    torch.testing.assert_close(by_square, torch.full_like(a, 1 / 16), rtol=1e-14, atol=0)
    torch.testing.assert_close(by_a, a.detach() / 8 - pot.slope(a.detach()), rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("dim", [3, 64, 200_000])
def test_second_derivative_is_continuous_across_its_switch(dim: int) -> None:
    """d gain / d b^2 = (R' - R / b) / (2 b^2) from balls, on both sides of b = dim / 1000."""
    pot, truth = pg.potential(dim), pg.potential(dim, "reference")
    b = dim * torch.tensor([1e-6, 0.999e-3, 1.001e-3, 1e-2, 0.3, 4.0], dtype=torch.float64)
    squared = (b * b).requires_grad_()
    (first,) = torch.autograd.grad(pot.increment(torch.zeros_like(b), squared).sum(), squared, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), squared)
    b = squared.detach().sqrt()
    slopes, curvatures = truth.enclosure("slope", b), truth.enclosure("curvature", b)
    for i, x in enumerate(b.tolist()):
        with working_precision(200):  # the two agree in twelve digits
            want = float((curvatures[i] - slopes[i] / x) / (4 * flint.arb(x) ** 2))
        # below the switch the next term of the series is left out, 4 (b / dim)^2; above it, terms of size 1 / dim leave 2 (b / dim)^2 of themselves
        tolerance = 4e-6 if x <= 1e-3 * dim else 8 * torch.finfo(torch.float64).eps * (1 + (dim / x) ** 2)
        assert second[i].item() == pytest.approx(want, rel=tolerance, abs=0), (dim, x)


def test_torch_func() -> None:
    for name in ALL:
        pot = pg.potential(16, name)
        a, squared = points(16)
        along = vmap(grad(pot.increment, argnums=1))(a, squared)
        leaf = squared.clone().requires_grad_()
        (want,) = torch.autograd.grad(pot.increment(a, leaf).sum(), leaf)
        assert torch.equal(along, want), name
        value, tangent = jvp(pot.increment, (a, squared), (torch.zeros_like(a), 3 * torch.ones_like(a)))
        assert torch.equal(value, pot.increment(a, squared)), name
        torch.testing.assert_close(tangent, 3 * want)


def test_gradients_of_both_arguments_are_captured_in_one_graph() -> None:
    """A head that learns its concentrations needs the one of `a`, whose rule calls another function with a rule of its own."""
    pot = pg.potential(16)
    a, squared = (t.requires_grad_() for t in points(16))
    compiled = torch.compile(lambda a, squared: pot.increment(a, squared).sum(), fullgraph=True, backend="eager")
    got, want = (torch.autograd.grad(function(a, squared), (a, squared)) for function in (compiled, lambda *x: pot.increment(*x).sum()))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_the_increment_is_the_difference(name: str, dtype: torch.dtype) -> None:
    """Between a and the b of the same square, and the gradient in `squared` is the slope that is supplied at b, over 2 b."""
    pot = pg.potential(128, name)
    a = torch.tensor([2.0, 50.0, 300.0, 4032.0], dtype=torch.float64)
    b = torch.tensor([9.0, 30.0, 310.0, 4040.0], dtype=torch.float64)
    squared = (b * b - a * a).to(dtype).requires_grad_()
    got = pot.increment(a.to(dtype), squared)
    # values near b = 4000 are subtracted by some of the realizations, and a^2 + squared is rounded by all of them
    tolerance = 16 * torch.finfo(dtype).eps * 4040
    torch.testing.assert_close(got.double(), pot.difference(a, b), rtol=0, atol=tolerance)
    (gradient,) = torch.autograd.grad(got.sum(), squared)
    # log-bessel exponentiates the difference of two logarithms of that size
    lost = 4040 if name == "log-bessel" else 8
    torch.testing.assert_close(gradient.double(), pot.slope(b) / (2 * b), rtol=4 * lost * torch.finfo(dtype).eps, atol=0)


def test_original_and_consistent_report_equal_bits() -> None:
    a, squared = points(128, 40)
    squared = torch.cat([squared, 64 * 63 * torch.ones(1, dtype=torch.float64)])
    a = torch.cat([a, torch.full((1,), 64.0 * 63, dtype=torch.float64)])
    for dtype in DTYPES:
        low, step = a.to(dtype), squared.to(dtype)
        original, consistent = pg.potential(128, "original"), pg.potential(128, "consistent")
        assert torch.equal(original.increment(low, step), consistent.increment(low, step))
    # at x = 64 nu, the published defect of the slope
    still = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    slopes = [2 * a[-1] * torch.autograd.grad(pot.increment(a[-1:], still), still)[0] for pot in (original, consistent)]
    assert (slopes[0] - slopes[1]).item() == pytest.approx(1.57e-2, rel=5e-3)


def test_half_precision_and_broadcasting() -> None:
    pot = pg.potential(64)
    a, squared = torch.rand(5, 1), torch.rand(3)
    assert torch.equal(pot.increment(a, squared), pot.increment(a.expand(5, 3), squared.expand(5, 3)))
    half = pot.increment(a.half(), squared.half())
    assert half.dtype == torch.float16
    assert torch.equal(half, pot.increment(a.half().float(), squared.half().float()).half())
    with pytest.raises(ValueError, match="a and squared must broadcast against each other"):
        pot.increment(torch.rand(2), torch.rand(3))
    with pytest.raises(TypeError, match="squared must be a floating-point torch tensor"):
        pot.increment(torch.rand(2), 3.0)  # type: ignore[arg-type]


def test_constants_do_not_remember_a_default_device() -> None:
    """Of an order that nothing else here uses, so that its constants are first needed under the other default."""
    pot, one = pg.potential(nu=77.25), torch.ones(2)
    with torch.no_grad():
        with torch.device("meta"):
            assert pot.increment(torch.ones(2), torch.ones(2)).device.type == "meta"
        value = pot.increment(one, one)
    assert value.device.type == "cpu"
    torch.testing.assert_close(value, pot.difference(one, 2**0.5 * one), rtol=1e-5, atol=0)
