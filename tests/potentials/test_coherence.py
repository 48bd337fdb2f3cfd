"""The supplied slope is the derivative of the value: at fifty digits, with every formula differentiating itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mpmath
import pytest
import torch

import pairgrad as pg
from pairgrad.ground import BallArithmetic, MpmathArithmetic
from tests.dual import Dual, DualArithmetic
from tests.tolerances import COHERENCE_AT_50_DIGITS

DTYPES = (torch.float64, torch.float32)
ARGUMENTS = ("1e-6", "0.04", "1.1", "7.5", "80", "4.2e5")
COHERENT: list[tuple[dict[str, Any], str]] = [
    *(({"dim": dim}, "paired") for dim in (2, 3, 5, 12, 29, 30, 64, 512, 4096)),
    ({"nu": 2.75}, "paired"),
    ({"dim": 9, "order": 1, "shift": 1}, "paired"),
    ({"dim": 9, "order": 4, "shift": 3}, "paired"),
    ({"dim": 64, "order": 3}, "paired"),
    ({"dim": 3}, "arfr"),
    ({"dim": 128}, "arfr"),
    *(({"dim": 64, "order": n}, "arfr") for n in (1, 3, 8)),
    ({"dim": 8}, "consistent"),
    ({"dim": 8, "start": 9, "epsilon": 0.0}, "consistent"),
    ({"dim": 31}, "scott"),
]


@pytest.fixture(autouse=True)
def _fifty_digits() -> Iterator[None]:
    with mpmath.workdps(50):
        yield


def defect(pot: pg.Potential, dtype: torch.dtype, x: str) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Relative defects of slope against the derivative of the value, and of curvature against the derivative of the slope."""
    formulas, plain, dual = pot.formulas(dtype), MpmathArithmetic(), DualArithmetic()
    point, tangent = mpmath.mpf(x), Dual(mpmath.mpf(x), 1)
    slope, curvature = formulas.slope(plain, point), formulas.curvature(plain, point)
    first = formulas.value(dual, tangent).derivative
    second = formulas.slope(dual, tangent).derivative
    return abs(slope / first - 1), abs(curvature / second - 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "name"), COHERENT, ids=lambda v: str(v))
def test_defect_is_zero_at_fifty_digits(size: dict[str, Any], name: str, dtype: torch.dtype) -> None:
    pot = pg.potential(realization=name, **size)
    for x in ARGUMENTS:
        first, second = defect(pot, dtype, x)
        # derivatives of logarithms close to 0 cancel like x^2 against 1: that many of the fifty digits are not there
        lost = max(mpmath.mpf(1), (float(pot.nu) + 1) / mpmath.mpf(x)) ** 2
        assert first <= COHERENCE_AT_50_DIGITS * lost, (x, first)
        assert second <= COHERENCE_AT_50_DIGITS * lost**2, (x, second)


@pytest.mark.parametrize(("x", "expected"), [("1008", 1.19e-5), ("4032", 1.57e-2)])
def test_original_has_the_published_defect(x: str, expected: float) -> None:
    """p = 128, x/nu = 16 and 64: supplied slope minus derivative of the finite forward."""
    formulas = pg.potential(128, "original").formulas()
    supplied = formulas.slope(MpmathArithmetic(), mpmath.mpf(x))
    derivative = formulas.value(DualArithmetic(), Dual(mpmath.mpf(x), 1)).derivative
    assert float(supplied - derivative) == pytest.approx(expected, rel=5e-3)  # three printed digits


@pytest.mark.parametrize(("size", "name"), COHERENT, ids=lambda v: str(v))
def test_two_point_formulas_belong_to_the_value(size: dict[str, Any], name: str) -> None:
    """difference and secant are the value's, in real arithmetic; complement is 1 - slope (up to truncation where it uses the Riccati equation)."""
    pot = pg.potential(realization=name, **size)
    ops = MpmathArithmetic()
    for dtype in DTYPES:
        formulas = pot.formulas(dtype)
        truncation = 0.0 if name != "paired" or "order" in size else {torch.float64: 2e-16, torch.float32: 1e-7}[dtype]
        for a, b in (("0.3", "0.31"), ("0.001", "9"), ("12", "40"), ("5", "1e6"), ("1e-4", "700")):
            a, b = mpmath.mpf(a), mpmath.mpf(b)
            rise = formulas.value(ops, b) - formulas.value(ops, a)
            lost = max(1, abs(formulas.value(ops, b) / rise))
            assert abs(formulas.difference(ops, a, b) / rise - 1) <= COHERENCE_AT_50_DIGITS * lost
            assert abs(formulas.secant(ops, a, b) * (b - a) / rise - 1) <= COHERENCE_AT_50_DIGITS * lost
            assert abs(formulas.secant(ops, b, b) / formulas.slope(ops, b) - 1) <= COHERENCE_AT_50_DIGITS
            rest = 1 - formulas.slope(ops, b)
            assert abs(formulas.complement(ops, b) / rest - 1) <= COHERENCE_AT_50_DIGITS / rest + truncation


@pytest.mark.parametrize("dim", [2, 9, 64, 512])
def test_balls_run_the_same_lines(dim: int) -> None:
    """Ball arithmetic on the formulas of the kernel encloses what mpmath gives for them, and float64 is next to both."""
    import flint

    pot = pg.potential(dim)
    formulas = pot.formulas()
    before, flint.ctx.prec = flint.ctx.prec, 200
    try:
        for x in (0.01, 1.5, 33.0, 2500.0):
            ball, point = flint.arb(x), mpmath.mpf(x)
            for quantity in ("value", "slope", "curvature", "complement"):
                enclosure = getattr(formulas, quantity)(BallArithmetic(), ball)
                number = getattr(formulas, quantity)(MpmathArithmetic(), point)
                assert abs(enclosure - flint.arb(mpmath.nstr(number, 45))) < 1e-40 * abs(enclosure), (quantity, x)
            secant = formulas.secant(BallArithmetic(), ball, ball)
            assert secant.overlaps(formulas.slope(BallArithmetic(), ball))
            kernel = pot.slope(torch.tensor([x], dtype=torch.float64)).item()
            assert abs(flint.arb(kernel) / formulas.slope(BallArithmetic(), ball) - 1) < 1.2e-15
    finally:
        flint.ctx.prec = before
