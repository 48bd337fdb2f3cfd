"""The depth that `"paired"` chooses: the fewest steps of recurrence, then the lowest order, whose truncation cannot be told from rounding."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from tests.tolerances import PLANNED_TRUNCATION_ROUNDINGS

DTYPES = (torch.float32, torch.float64)
NUS = (Fraction(0), Fraction(3, 2), Fraction(13), Fraction(31), Fraction(255), Fraction(49_999), Fraction(10**9))


def test_depth_is_what_the_documentation_says() -> None:
    assert pg.potential(512).depth == {torch.float32: (2, 0), torch.float64: (6, 0)}
    assert pg.potential(2).depth == {torch.float32: (11, 6), torch.float64: (21, 14)}


def test_from_dim_64_on_there_is_no_step() -> None:
    assert [pg.potential(64).depth[dtype][1] for dtype in DTYPES] == [0, 0]
    assert pg.potential(28).depth[torch.float64][1] > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nu", NUS, ids=str)
def test_the_chosen_depth_is_enough_and_none_that_is_cheaper(nu: Fraction, dtype: torch.dtype) -> None:
    """By proven bounds relative to R: below the promised share of rounding as planned, and a quarter of the rounding or more one order lower, or with one
    step less at any order. (The quarter is what the planner allows for the first omitted terms, before the bound adds what follows.)"""
    pot, unit = pg.potential(nu=nu), torch.finfo(dtype).eps / 2
    order, shift = pot.depth[dtype]
    planned = pot.ratio_certificate(dtype).relative_bound
    assert planned is not None
    assert planned <= PLANNED_TRUNCATION_ROUNDINGS * unit
    cheaper = [(order - 1, shift)] if order > 1 else []
    cheaper += [(other, shift - 1) for other in range(1, 23)] if shift else []
    for lower, fewer in cheaper:
        bound = pg.potential(nu=nu, order=lower, shift=fewer).ratio_certificate().relative_bound
        assert bound is None or bound >= unit / 4, (lower, fewer, bound / unit)


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("nu", [Fraction(40), Fraction(300)])
def test_the_relative_bound_is_what_truncation_does(nu: Fraction, order: int) -> None:
    """The largest relative error of the slope, against balls: below the bound, and not far below."""
    x = float(nu) * torch.logspace(-2, 2, 41, dtype=torch.float64)
    exact = pg.potential(nu=nu, realization="reference").slope(x)
    pot = pg.potential(nu=nu, order=order)
    error = float(((pot.slope(x) - exact) / exact).abs().max())
    bound = pot.ratio_certificate().relative_bound
    assert bound is not None
    assert bound / 4 < error + 4 * 2.0**-53
    assert error < bound + 4 * 2.0**-53
