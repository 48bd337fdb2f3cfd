"""The parts of the expansion that a result to rounding does not show: lengths of series, limits of ranges, what cannot overflow or underflow."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from pairgrad.potentials.expansion import Expansion

MIDPOINT_OF_8 = Fraction(7, 2)  # nu = 3, dim 8


@pytest.mark.parametrize("rounding", [2.0**-53, 2.0**-24])
def test_series_have_the_fewest_terms_whose_first_omitted_one_is_below_a_quarter_of_rounding(rounding: float) -> None:
    """`share` is the larger argument of artanh, reach over twice the centre; the other is half of it. Term n of artanh(z) / z is z^(2 n) / (2 n + 1)."""
    for share in torch.logspace(-10, -0.61, 200, dtype=torch.float64).tolist():
        terms = Expansion(Fraction(3), 2).series_terms(share * 2 * float(MIDPOINT_OF_8), rounding)
        assert terms is not None
        for argument, count in zip((share / 2, share), terms, strict=True):
            sizes = [argument ** (2 * n) / (2 * n + 1) for n in range(count + 1)]
            assert sizes[count] <= rounding / 4
            assert count == 1 or sizes[count - 1] > rounding / 4


def test_logarithms_are_taken_where_a_series_would_be_longer() -> None:
    expansion = Expansion(Fraction(3), 2)
    edge = 0.25 * 2 * float(MIDPOINT_OF_8)
    assert expansion.series_terms(edge, 2.0**-53) is not None
    assert expansion.series_terms(edge * (1 + 2.0**-50), 2.0**-53) is None
    assert Expansion(Fraction(3), 2, shift=1).series_terms(1e-3, 2.0**-53) is None


def evaluated(coefficients: tuple[Fraction, ...], t: Fraction) -> Fraction:
    return sum((c * t**i for i, c in enumerate(coefficients)), Fraction(0))


@pytest.mark.parametrize("shift", range(8))
def test_shifted_polynomials_are_the_recurrence(shift: int) -> None:
    """P_m from P_0 = 1 and P_1 = 2 (nu + m) + y, step by step, at a rational q and y; and scaled, at c : x : s = 3 : 4 : 5."""
    nu, q, y = Fraction(3, 2), Fraction(7, 3), Fraction(11, 5)
    expansion = Expansion(nu, 2, shift)
    below, here = Fraction(1), 2 * (nu + shift) + y
    for k in range(1, shift):
        below, here = here, 2 * (nu + shift - k) * here + q * below
    free, bound = expansion._lommel()
    assert evaluated(free, q) + evaluated(bound, q) * y == (here if shift else 1)
    assert (len(free), len(bound)) == (shift // 2 + 1, max(1, (shift + 1) // 2))
    if not shift:
        return
    s, x = expansion.centre * Fraction(5, 3), expansion.centre * Fraction(4, 3)
    t, v = Fraction(3, 5), Fraction(4, 5)
    scaled = expansion.exact
    assert sum(u * v ** (2 * j) * t ** (shift - 2 * j) for j, u in enumerate(scaled.free)) == evaluated(free, x * x) / s**shift
    assert sum(w * v ** (2 * j) * t ** (shift - 1 - 2 * j) for j, w in enumerate(scaled.bound)) == evaluated(bound, x * x) / s ** (
        shift - 1
    )


@pytest.mark.parametrize("beta", [0, 1])
def test_coefficients_are_those_of_one_function(beta: int) -> None:
    """H, C = s V'' and their relatives as polynomials at a rational t, from H alone: with x = c sqrt(1 - t^2) / t, dt/dx = -x t^3 / c^2."""
    expansion = Expansion(Fraction(5, 2), 4, beta=beta)
    k, c = expansion.exact, expansion.centre
    t, step = Fraction(2, 5), Fraction(1, 10**12)

    def height(at: Fraction) -> Fraction:
        return evaluated(k.head, at) / (1 + at) + at * at * evaluated(k.tail, at)

    def curved(at: Fraction) -> Fraction:
        return evaluated(k.curved_head, at) / (1 + at) + at * at * evaluated(k.curved_tail, at)

    def slope_of(f, at: Fraction) -> Fraction:
        return (f(at + step) - f(at - step)) / (2 * step)

    # V' = v H, s V'' = s (dt/dx) d(v H)/dt = t^2 H - t (1 - t^2) H'
    assert float(curved(t)) == pytest.approx(float(t * t * height(t) - t * (1 - t * t) * slope_of(height, t)), rel=1e-15)
    bent = evaluated(k.bent_head, t) / (1 + t) ** 2 + t * t * evaluated(k.bent_tail, t)
    assert float(bent) == pytest.approx(float(slope_of(lambda at: at * (height(at) + curved(at)), t)), rel=1e-15)
    assert evaluated(k.lifted_tail, t) == t**3 * evaluated(k.tail, t)
    assert float(slope_of(lambda at: evaluated(k.tail_integral, at), t)) == pytest.approx(float(evaluated(k.tail, t)), rel=1e-15)
    assert evaluated(k.value_quotient, t) * (t - 1) == evaluated(k.tail_integral, t) - evaluated(k.tail_integral, Fraction(1))
    assert (k.nu, k.centre, k.expanded, k.midpoint, k.stretch) == (Fraction(5, 2), c, Fraction(5, 2), 3, 1)
    assert c == Fraction(5, 2) + (0 if beta else Fraction(1, 2))


def test_polynomials_of_a_planned_expansion_are_in_a_stretched_argument() -> None:
    economy = Fraction(1, 2**40)
    plain, planned = Expansion(Fraction(20), 6), Expansion(Fraction(20), 6, economy=economy)
    t = Fraction(1, 3)
    assert planned.exact.stretch == 2
    change = abs(evaluated(planned.exact.tail, 2 * t - 1) - evaluated(plain.exact.tail, t))
    assert 0 < change <= planned.economised_by <= economy
    assert planned.economised_rate > planned.economised_by
    assert len(planned.exact.tail) < len(plain.exact.tail)
    assert (plain.economised_by, plain.economised_rate) == (0, 0)
    assert planned.exact.lifted_tail != planned.exact.tail
    assert evaluated(planned.exact.lifted_tail, 2 * t - 1) == t**3 * evaluated(planned.exact.tail, 2 * t - 1)


@pytest.mark.parametrize("dim", [2, 5, 64])
def test_increments_that_underflow_are_zero(dim: int) -> None:
    """The value is x^2 / (2 dim) near 0: nothing is left of it below 1e-162, but it must not become NaN, upwards or downwards."""
    pot = pg.potential(dim)
    a = torch.tensor([1e-200, 1e-201, -1e-201], dtype=torch.float64)
    b = torch.tensor([1e-201, 1e-200, 1e-200], dtype=torch.float64)
    assert pot.difference(a, b).tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(pot.secant(a, b), (a + b) / (2 * dim), rtol=1e-14, atol=0)
