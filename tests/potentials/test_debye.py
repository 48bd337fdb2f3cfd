"""Exact coefficients, and the choice of depth."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from pairgrad.potentials import debye
from pairgrad.potentials.expansion import Expansion


def evaluate(coefficients: debye.Polynomial, t: Fraction) -> Fraction:
    return sum((c * t**i for i, c in enumerate(coefficients)), Fraction(0))


def test_the_papers_terms() -> None:
    """eq. a2-candidate-app: r_1 = -z / (2 S^2), r_2 = z (4 - z^2) / (8 S^5), with t = 1 / S and r_k = z g_k."""
    assert debye.polynomial(1, 1) == (0, 0, Fraction(-1, 2))
    assert debye.polynomial(1, 2) == (0, 0, 0, Fraction(-1, 8), 0, Fraction(5, 8))  # t^5 (4 - z^2) / 8 with z^2 = 1 / t^2 - 1


@pytest.mark.parametrize("beta", [0, 1])
@pytest.mark.parametrize("order", [1, 2, 5, 9])
def test_riccati_residual_has_the_order_of_the_expansion(beta: int, order: int) -> None:
    """Inserting order n into the Riccati equation leaves c^-n (up to a factor): at c and 10 c the residuals are in the ratio 10^(n + 1)."""

    def residual(c: Fraction, t: Fraction) -> Fraction:
        g = [debye.numerator(beta, k) for k in range(order + 1)]
        value = sum((evaluate(n, t) / (1 + t) / c ** (k + 1) for k, n in enumerate(g)), Fraction(0))
        slope = sum(
            ((evaluate(debye.derivative(n), t) / (1 + t) - evaluate(n, t) / (1 + t) ** 2) / c ** (k + 1) for k, n in enumerate(g)),
            Fraction(0),
        )
        # G - t (1 - t^2) G' = 1 - x^2 G^2 - (2 c + beta) G with x^2 = c^2 (1 - t^2) / t^2
        x_squared = c * c * (1 - t * t) / (t * t)
        return 1 - x_squared * value**2 - (2 * c + beta) * value - (value - t * (1 - t * t) * slope)

    t = Fraction(3, 7)
    ratio = residual(Fraction(1000), t) / residual(Fraction(10_000), t)
    assert float(ratio) == pytest.approx(10 ** (order + 1), rel=0.05)


def test_g_is_a_polynomial_from_order_two_on() -> None:
    for k in range(2, 12):
        n, g = debye.numerator(0, k), debye.polynomial(0, k)
        t = Fraction(2, 5)
        assert evaluate(n, t) == (1 + t) * evaluate(g, t)
    with pytest.raises(ValueError, match=r"g_1 at beta = 0 is not a polynomial: \(1 \+ t\) leaves the remainder 1/2$"):
        debye.polynomial(0, 1)


def test_numerators_obey_the_recursion() -> None:
    """The recursion of the module's docstring, written out at rational points; the last coefficient is never zero."""
    for beta in (0, 1):
        assert debye.numerator(beta, 0) == (0, 1)
        for k in range(1, 7):
            got = debye.numerator(beta, k)
            assert got[-1] != 0
            for t in (Fraction(1, 3), Fraction(-2, 7), Fraction(5, 4)):
                g = [evaluate(debye.numerator(beta, i), t) / (1 + t) for i in range(k)]
                n = debye.numerator(beta, k - 1)
                slope = evaluate(debye.derivative(n), t) / (1 + t) - evaluate(n, t) / (1 + t) ** 2
                products = sum((g[i] * g[k - i] for i in range(1, k)), Fraction(0))
                want = t / 2 * (-(1 + beta) * g[k - 1] + t * (1 - t * t) * slope - (1 - t * t) / (t * t) * products)
                assert evaluate(got, t) == (1 + t) * want, (beta, k, t)


def test_arithmetic_of_polynomials() -> None:
    a, b = (Fraction(1), Fraction(2), Fraction(3)), (Fraction(5), Fraction(-7))
    assert debye.product(a, b) == (5, 3, 1, -21)
    assert debye.product(b, a) == (5, 3, 1, -21)
    assert debye.plus(a, b) == debye.plus(b, a) == (6, -5, 3)
    assert debye.plus(a, b, -1) == (-4, 9, 3)
    assert debye.combine({}, Fraction(3)) == (0,)
    assert debye.combine({1: a, 2: b}, Fraction(2)) == (Fraction(7, 4), Fraction(-3, 4), Fraction(3, 2))
    assert debye.derivative(a) == (2, 6)
    assert debye.derivative(b[:1]) == (0,)
    assert debye.antiderivative(a) == (0, 1, 1, 1)
    assert debye.quotient_at_one(a) == (5, 3)
    assert debye.quotient_at_one(a[:1]) == (0,)
    assert debye.around_half(a) == (Fraction(11, 4), Fraction(5, 2), Fraction(3, 4))


def test_chebyshev_coefficients_and_what_is_dropped() -> None:
    """t^2 = (3 + 4 T_1 + T_2) / 8 in w = 2 t - 1, and t = (1 + T_1) / 2."""
    assert debye.chebyshev_coefficients((Fraction(0), Fraction(0), Fraction(8))) == [3, 4, 1]
    assert debye.chebyshev_coefficients((Fraction(1), Fraction(2))) == [2, 1]
    square = (Fraction(0), Fraction(0), Fraction(8))
    assert debye.economise(square, Fraction(99, 100)) == debye.Economised(square, Fraction(0), Fraction(0))
    assert debye.economise(square, Fraction(1)) == debye.Economised((Fraction(-1), Fraction(8)), Fraction(1), Fraction(2))
    assert debye.economise(square, Fraction(5)) == debye.Economised((Fraction(3),), Fraction(5), Fraction(6))
    assert debye.economise(square, Fraction(8)) == debye.Economised((Fraction(0),), Fraction(8), Fraction(6))


def test_limit_at_zero_argument() -> None:
    """R = x / (2 nu + 2) + ... = (x / 2 c) / (1 + 1 / (2 c)) at the midpoint: g_k(1) = (-1/2)^k / 2."""
    for k in range(12):
        assert evaluate(debye.numerator(0, k), Fraction(1)) / 2 == Fraction(-1, 2) ** k / 2


def test_economised_polynomial_is_within_its_own_bound() -> None:
    full = debye.combine({k: debye.polynomial(0, k)[3:] for k in range(2, 13)}, Fraction(63, 2))
    short, change, _ = debye.economise(full, Fraction(1, 2**56))
    assert len(short) < len(full) * 2 / 3
    assert change <= Fraction(1, 2**56)
    distances = [abs(evaluate(full, Fraction(i, 200)) - evaluate(short, Fraction(i, 200))) for i in range(201)]
    assert 0 < max(distances) <= change
    moved = debye.around_half(short)
    assert len(moved) == len(short)
    assert evaluate(moved, Fraction(-1, 5)) == evaluate(short, Fraction(2, 5))


def test_explicit_order_is_not_economised() -> None:
    pot = pg.potential(64, order=6)
    assert pot.formulas().economised_by == 0
    assert len(pot.formulas().exact.tail) == 3 * 6 - 3
    assert isinstance(pot.formulas(), Expansion)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_error_falls_with_the_order(order: int) -> None:
    """Doubling nu divides the largest error of order n by about 2^(n + 1), for both families."""
    for name in ("paired", "arfr"):
        errors = []
        for dim in (42, 82):
            x = (dim / 2 - 1) * torch.logspace(-1.5, 1.5, 61, dtype=torch.float64)
            errors.append((pg.potential(dim, name, order=order).slope(x) - pg.potential(dim).slope(x)).abs().max().item())
        assert errors[0] / errors[1] == pytest.approx(2 ** (order + 1), rel=0.2), (name, errors)
