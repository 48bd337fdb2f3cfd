"""`derivative` and `defect`: what the value that is computed really does, beside the slope that is supplied."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

import pairgrad as pg
from pairgrad.ground import TorchArithmetic
from tests.tolerances import paired_tolerance
from tests.truth import exact, relative_error

from .literal import literal, literal_slope, running_bounds

COHERENT = ("paired", "arfr", "scott", "consistent")
MISMATCHED = ("original", "log-miller")
EDGES = [0.0, 1e-320, 1e-12, 0.5, 63.0, 1000.0, 4032.0, 1e6, 1e300, math.inf, -4032.0, -math.inf]


def points(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", COHERENT)
def test_a_coherent_realization_has_its_slope_for_derivative_and_no_defect(name: str, dtype: torch.dtype) -> None:
    pot = pg.potential(128, name)
    x = points(*EDGES, dtype=dtype)
    assert torch.equal(pot.derivative(x), pot.slope(x))
    assert torch.equal(pot.defect(x), torch.zeros_like(x))
    assert pot.defect(points(math.nan)).isnan().item()
    assert pot.derivative(points(math.nan)).isnan().item()


def test_the_recorded_and_the_exact_realization_have_their_slope_for_derivative() -> None:
    x = points(0.0, 0.5, 63.0, 4032.0, -4032.0)
    for pot in (pg.potential(128, "consistent", derivative="autograd"), pg.potential(128, "reference")):
        assert torch.equal(pot.derivative(x), pot.slope(x))
        assert torch.equal(pot.defect(x), torch.zeros_like(x))


@pytest.mark.parametrize("name", MISMATCHED)
@pytest.mark.parametrize(("nu", "start"), [(1, 2), (63, 126), (64, 200), (255, 510)])
def test_derivative_and_defect_against_the_literal_recurrence(name: str, nu: int, start: int) -> None:
    """Within the running error bounds of the tangent, and for the defect of the supplied ratio besides; the logarithms of "log-miller" round sums of
    up to `start` logarithms below log b_0 < x + start log(2 start), twice each."""
    pot = pg.potential(nu=nu, realization=name, start=start)
    for x in (0.5 * nu, 4.0 * nu, 64.0 * nu, 400.0 * nu):
        with mpmath.workdps(50):
            derivative_ref, ratio_ref = literal_slope(nu, start, x), min(literal(nu, start, x)[1], mpmath.mpf(1))
            derivative, defect = pot.derivative(points(x)).item(), pot.defect(points(x)).item()
            _, ratio_tol, slope_tol = running_bounds(nu, start, x)
            if name == "log-miller":
                ratio_tol += 2 * start * (x + start * math.log(2 * start)) * 2.0**-53
            assert abs(derivative - derivative_ref) <= slope_tol, (x, derivative, derivative_ref)
            assert abs(defect - (ratio_ref - derivative_ref)) <= slope_tol + ratio_tol * ratio_ref, (x, defect, ratio_ref - derivative_ref)


@pytest.mark.parametrize("name", MISMATCHED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_derivative_is_the_slope_of_the_control_arm_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    x = points(*EDGES, dtype=dtype)
    assert torch.equal(pg.potential(128, name).derivative(x), pg.potential(128, "consistent").slope(x))


def test_the_defect_has_the_digits_of_the_recurrence_in_float32_too() -> None:
    """It is subtracted where the recurrence runs, in float64, and rounded once."""
    pot = pg.potential(512, "original")
    x = points(100.0, 30000.0, 1e5, 100243.0, dtype=torch.float32)
    assert torch.equal(pot.defect(x), pot.defect(x.double()).float())
    assert pot.defect(x)[2].item() > 2.5e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_log_bessel_is_differentiated_without_its_cancellation(dtype: torch.dtype) -> None:
    """Its value is Phi to rounding, and so is its derivative; the slope loses what the difference of two logarithms of size x loses."""
    pot = pg.potential(128, "log-bessel")
    x = points(0.5, 63.0, 4032.0, 1e6, dtype=dtype)
    errors = relative_error(pot.derivative(x), exact("slope", 128, x))
    assert errors.max() <= paired_tolerance("slope", dtype, 128), errors
    unit = torch.finfo(dtype).eps / 2
    size = float(x.max()) + 64 * math.log(2 * float(x.max()))
    assert unit < pot.defect(x).abs().max().item() <= 16 * unit * size


@pytest.mark.parametrize("name", ["paired", "arfr", "scott", "log-bessel", "consistent", "original", "log-miller"])
def test_the_derivative_is_that_of_the_value_formula(name: str) -> None:
    """What autograd finds when it goes through the operations of the value, and the slope supplied plays no part. Its own rounding: sums of up to nu
    terms nu / x that cancel, for the recurrences."""
    pot = pg.potential(128, name)
    x = points(30.0, 63.0, 1000.0, 4032.0, 8064.0).requires_grad_()
    (through,) = torch.autograd.grad(pot.formulas(torch.float64).value(TorchArithmetic(), x).sum(), x)
    assert ((pot.derivative(x) - through).abs() <= 2.0**-53 * (63**2 + 16 * 63) / x + 8 * 2.0**-53).all()


@pytest.mark.parametrize("name", ["paired", "log-bessel", "consistent", "original", "log-miller"])
def test_derivative_and_defect_are_differentiable(name: str) -> None:
    pot = pg.potential(128, name)
    x = points(1.0, 100.0, 4032.0, -1e4).requires_grad_()
    # differences over 2e-6 of numbers near 1 round by 1e-10; the curvature at 1e4 is 6e-7
    assert torch.autograd.gradcheck(pot.derivative, x, atol=2e-9, rtol=1e-3)
    if name != "log-bessel":  # whose defect is rounding, not a function
        assert torch.autograd.gradcheck(pot.defect, x, atol=2e-9, rtol=1e-3)
    tangent = torch.func.jvp(torch.func.vmap(pot.derivative), (x.detach(),), (torch.ones_like(x),))[1]
    (gradient,) = torch.autograd.grad(pot.derivative(x).sum(), x)
    assert torch.equal(tangent, gradient)


def test_value_keeps_the_supplied_slope() -> None:
    """`derivative` tells; it does not change what backward gives."""
    pot = pg.potential(128, "original")
    x = points(4032.0).requires_grad_()
    (gradient,) = torch.autograd.grad(pot.value(x).sum(), x)
    assert gradient.item() == 1.0
    assert pot.derivative(x).item() == pytest.approx(0.984317, abs=5e-7)
