"""Choice of shift and order: sizes of omitted terms, the estimate they make, and the least that meets a tolerance."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from pairgrad.potentials import debye
from pairgrad.potentials.plan import MAX_ORDER, TRUNCATION_TOL, omitted_size, plan, truncation_estimate

ORDERS = range(1, MAX_ORDER - 1)  # the estimate looks two terms beyond the order


def test_omitted_size_by_hand() -> None:
    """|g_1 / g_0| = t^2 / 2, and g_k / g_0 = (-1/2)^k at t = 1, where the first three are largest."""
    assert [omitted_size(k) for k in (1, 2, 3)] == [1 / 2, 1 / 4, 1 / 8]


@pytest.mark.parametrize("k", [4, 5, 11, MAX_ORDER])
def test_omitted_size_is_the_largest_on_a_grid(k: int) -> None:
    """|(1 + t) g_k(t) / t| term by term, over the rationals; the numerator is (1 + t) g_k(t)."""
    numerator = debye.numerator(0, k)
    grid = [Fraction(i, 64) for i in range(1, 65)]
    found = max(abs(sum((c * t**j for j, c in enumerate(numerator)), Fraction(0)) / t) for t in grid)
    assert omitted_size(k) == float(found)


def test_estimate_is_the_sum_of_the_first_two_omitted_terms() -> None:
    c = 6.0  # 7/2 + 2 + 1/2
    want = omitted_size(4) / c**4 + omitted_size(5) / c**5
    assert truncation_estimate(Fraction(7, 2), 3, 2) == pytest.approx(want, rel=1e-13, abs=0)


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("nu", [Fraction(40), Fraction(300)])
def test_estimate_is_what_truncation_does(nu: Fraction, order: int) -> None:
    """The largest relative error of the slope, against balls: below the estimate, and not far below."""
    x = float(nu) * torch.logspace(-2, 2, 41, dtype=torch.float64)
    exact = pg.potential(nu=nu, realization="reference").slope(x)
    error = float(((pg.potential(nu=nu, order=order).slope(x) - exact) / exact).abs().max())
    estimate = truncation_estimate(nu, order, 0)
    assert estimate / 2 < error + 4 * 2.0**-53
    assert error < 1.01 * estimate + 4 * 2.0**-53


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "nu", [Fraction(0), Fraction(3, 2), Fraction(13), Fraction(31), Fraction(255), Fraction(49_999), Fraction(10**9)], ids=str
)
def test_plan_is_the_first_that_meets_the_tolerance(nu: Fraction, dtype: torch.dtype) -> None:
    """Every pair in turn, fewest steps first, then lowest order."""
    tol = TRUNCATION_TOL[dtype]
    first = next((shift, order) for shift in range(20) for order in ORDERS if truncation_estimate(nu, order, shift) <= tol)
    chosen = plan(nu, dtype)
    assert (chosen.shift, chosen.order) == first
    assert chosen.economy == Fraction(tol) / 2


def test_truncation_is_a_quarter_of_the_unit_roundoff() -> None:
    assert {dtype: torch.finfo(dtype).eps / 8 for dtype in TRUNCATION_TOL} == TRUNCATION_TOL


def test_from_dim_64_on_there_is_no_step() -> None:
    assert [plan(Fraction(31), dtype).shift for dtype in TRUNCATION_TOL] == [0, 0]


def test_depth_is_what_the_documentation_says() -> None:
    assert pg.potential(512).depth == {torch.float32: (2, 0), torch.float64: (6, 0)}
    assert pg.potential(2).depth == {torch.float32: (11, 6), torch.float64: (21, 14)}
