"""The realization `arfr`: what it says of itself. Its numbers are those of an expansion, which test_expansion.py and test_registry.py look at."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

import pairgrad as pg
from pairgrad.ground import MpmathArithmetic


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_theorem_holds_from_its_first_nu_on(order: int) -> None:
    hypothesis = pg.potential(64, realization="arfr", order=order).ratio_certificate().hypothesis
    least = Fraction(hypothesis.split("nu >= ")[1])
    at, below = (pg.potential(nu=nu, realization="arfr", order=order).ratio_certificate() for nu in (least, least - Fraction(1, 100)))
    assert (at.status, below.status, below.bound) == ("proven", "none", None)
    assert at.bound is not None
    assert 0 < at.bound <= 1
    assert at.hypothesis == below.hypothesis == f"order {order} around nu, nu >= {float(least):g}"
    assert f"dim >= {math.ceil(2 * least + 2)}" in below.reason


def test_it_is_not_right_to_rounding() -> None:
    assert not pg.potential(64, realization="arfr").to_rounding


def test_offset_is_the_limit_of_phi_minus_value() -> None:
    x, pot = 1e9, pg.potential(8, realization="arfr")  # Phi - value tends to the offset like dim^2 / x
    with mpmath.workdps(60):
        phi = mpmath.log(mpmath.besseli(3, x)) - 3 * mpmath.log(x)
        assert abs(phi - pot.formulas().value(MpmathArithmetic(), mpmath.mpf(x)) - pot.offset) < 64 / x


@pytest.mark.parametrize("order", [0, 25])
def test_orders_outside_of_the_range_are_refused(order: int) -> None:
    with pytest.raises(ValueError, match="order must be"):
        pg.potential(8, realization="arfr", order=order)
    assert pg.potential(8, realization="arfr", order=24 if order else 1).order == (24 if order else 1)


def test_nu_zero_is_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match="needs nu > 0"):
        pg.potential(2, realization="arfr")
    with pytest.raises(ValueError, match="cannot be held in floats"):
        pg.potential(nu=Fraction(1, 10**200), realization="arfr", order=2)
