"""Proofs that a rational function stays below a constant, on functions whose suprema are known."""

from __future__ import annotations

from fractions import Fraction

import flint
import pytest

from pairgrad.certificates.curves import PRECISION, Curve, polynomial
from pairgrad.ground.balls import working_precision


@pytest.fixture(autouse=True)
def _precision():
    with working_precision(PRECISION):
        yield


def test_lowest_terms_and_values():
    curve = Curve(polynomial((1, 2, 1)) * polynomial((0, 3)), 3)  # 3 t / (1 + t)
    assert curve.power == 1
    assert curve.at(Fraction(1, 2)) == 1
    assert curve.derivative.at(Fraction(1, 2)) == flint.fmpq(4, 3)


@pytest.mark.parametrize("low", [Fraction(0), Fraction(1, 3), Fraction(7, 8)])
@pytest.mark.parametrize("power", [0, 1, 2])
def test_enclosures_contain_the_values(low, power):
    curve = Curve(polynomial((1, -7, 3, 11, -9)), power)
    high = low + Fraction(1, 8)
    ball = curve.over(low, high)
    for i in range(33):
        assert curve.at(low + i * (high - low) / 32) in ball
    # a box of half the width has about half the radius
    assert float(curve.over(low, (low + high) / 2).rad()) < 0.7 * float(ball.rad())


def test_a_supremum_inside():
    hump = Curve(polynomial((0, 1, -1)))  # 1/4 at t = 1/2
    assert hump.at_most(Fraction("0.2501")).holds
    refused = hump.at_most(Fraction("0.2499"))
    assert not refused.holds
    assert refused.exceeded_at == pytest.approx(0.5, abs=0.02)


def test_a_supremum_attained_at_an_end_is_proven_with_margin_zero():
    for curve in (Curve(polynomial((0, 0, 1))), Curve(polynomial((0, 0, -1)), 1), Curve(polynomial((1, -1)))):
        largest = max(abs(Fraction(int(v.p), int(v.q))) for v in (curve.at(Fraction(0)), curve.at(Fraction(1))))
        outcome = curve.at_most(largest)
        assert outcome.holds
        assert outcome.margin == 0
        assert not curve.at_most(largest - Fraction(1, 10**9)).holds


def test_the_weight():
    """sup of t sqrt(1 - t^2) is 1/2, at t^2 = 1/2."""
    line = Curve(polynomial((0, 1)))
    assert line.at_most(Fraction("0.5001"), "v").holds
    refused = line.at_most(Fraction("0.4999"), "v")
    assert not refused.holds
    assert refused.exceeded_at == pytest.approx(0.5**0.5, abs=0.02)
    assert not line.at_most(Fraction("0.9999")).holds


def test_precision_is_restored_also_after_an_error():
    before = flint.ctx.prec

    def fail():
        with working_precision(before + 24):
            assert flint.ctx.prec == before + 24
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert flint.ctx.prec == before
