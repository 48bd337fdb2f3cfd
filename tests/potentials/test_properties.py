"""Properties of the exact function that the kernels keep at any dimension and argument, searched by Hypothesis."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pairgrad as pg

EPS = torch.finfo(torch.float64).eps
DIMS = st.integers(2, 100_000)
DECADES = st.floats(-8, 8)
FAST = settings(max_examples=150, deadline=None, derandomize=True)


def at(dim: int, decade: float) -> torch.Tensor:
    return torch.tensor([max(dim / 2 - 1, 0.5) * 10**decade], dtype=torch.float64)


@FAST
@given(DIMS, DECADES)
def test_slope_lies_between_the_amos_bounds(dim: int, decade: float) -> None:
    """x / (mu + sqrt(x^2 + (mu + 1)^2)) <= R <= x / (mu + sqrt(x^2 + mu^2)), mu = nu + 1/2 [amos1974computation]; ten roundings of slack."""
    x, mu = at(dim, decade).item(), (dim - 1) / 2
    slope = pg.potential(dim).slope(at(dim, decade)).item()
    low, high = x / (mu + math.hypot(x, mu + 1)), x / (mu + math.hypot(x, mu))
    assert low * (1 - 5 * EPS) <= slope <= high * (1 + 5 * EPS)


@FAST
@given(DIMS, DECADES)
def test_slope_and_complement_make_one(dim: int, decade: float) -> None:
    pot, x = pg.potential(dim), at(dim, decade)
    assert abs((pot.slope(x) + pot.complement(x)).item() - 1) <= 6 * EPS


@FAST
@given(DIMS, DECADES, st.floats(-12, 2))
def test_secant_lies_between_the_slopes_and_differences_add_up(dim: int, decade: float, gap: float) -> None:
    """The potential is convex. Slack: the documented 1.2e-15 on each side, and on each of three differences."""
    pot, a = pg.potential(dim), at(dim, decade)
    b = a * (1 + 10**gap)
    secant = pot.secant(a, b).item()
    assert pot.slope(a).item() * (1 - 2.4e-15) <= secant <= pot.slope(b).item() * (1 + 2.4e-15)
    c = b * 1.5
    whole, parts = pot.difference(a, c).item(), pot.difference(a, b).item() + pot.difference(b, c).item()
    assert abs(whole - parts) <= 3 * 1.2e-15 * whole


@FAST
@given(DIMS, DECADES)
def test_neighbouring_orders_obey_the_recurrence(dim: int, decade: float) -> None:
    """R_nu (2 (nu + 1) / x + R_{nu+1}) = 1: two objects that know nothing of each other."""
    x = at(dim, decade)
    here, above = pg.potential(dim).slope(x).item(), pg.potential(dim + 2).slope(x).item()
    assert abs(here * (dim / x.item() + above) - 1) <= 4 * 1.2e-15


@FAST
@given(DIMS, DECADES)
def test_curvature_is_positive_and_falls_below_its_start(dim: int, decade: float) -> None:
    curvature = pg.potential(dim).curvature(at(dim, decade)).item()
    assert 0 < curvature <= (1 + 1e-12) / dim
