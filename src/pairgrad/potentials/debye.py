"""Exact coefficients of the uniform (Debye) expansion of the Bessel ratio [olver1954asymptotic].

Write the Riccati equation of R = I_{nu+1}/I_nu around a centre c as

    R' = 1 - R^2 - (2 c + beta) R / x,        2 c + beta = 2 nu + 1,

so that beta = 1 is the centre c = nu of the paper (eq. a2-riccati-app) and beta = 0 the *midpoint* c = nu + 1/2. With
s = sqrt(c^2 + x^2) and t = c / s in (0, 1], put R = (x / c) sum_k g_k(t) / c^k. Since dt/dx = -x t^3 / c^2, equal powers of c give

    g_0 = t / (1 + t),
    g_k = (t / 2) [ -(1 + beta) g_{k-1} + t (1 - t^2) g_{k-1}' - ((1 - t^2) / t^2) sum_{0<i<k} g_i g_{k-i} ].

Only halvings occur, so N_k = 4^k (1 + t) g_k has integer coefficients and the whole table is integer arithmetic. (1 + t)
divides N_k for every k >= 2, and for k = 1 when beta = 1. r_k of the paper (eq. a2-candidate-app) is (x / nu) g_k at beta = 1.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import zip_longest
from math import comb
from typing import Any, NamedTuple

Polynomial = tuple[Fraction, ...]  # coefficients, constant term first


@cache
def _numerator(beta: int, k: int) -> tuple[int, ...]:
    """N_k = 4^k (1 + t) g_k; the recursion above, multiplied by 4^k (1 + t)."""
    if k == 0:
        return (0, 1)
    previous = _numerator(beta, k - 1)
    rate = tuple(i * c for i, c in enumerate(previous))[1:]
    # (1 + t) t (1 - t^2) g' = t (1 - t^2) N' - t (1 - t) N
    bracket = plus(product((-(1 + beta), -1, 1), previous), product((0, 1, 0, -1), rate))
    products = (0,)
    for i in range(1, k):
        products = plus(products, product(_numerator(beta, i), _numerator(beta, k - i)))
    # (1 + t) ((1 - t^2) / t^2) g_i g_j = ((1 - t) / t^2) N_i N_j, and N_i N_j starts at t^4 or later
    products = product((1, -1), products)[2:]
    doubled = [0, *plus(product((4,), bracket), products, -1)]
    halves = [c // 2 for c in doubled]
    while halves[-1] == 0:
        halves.pop()
    return tuple(halves)


def numerator(beta: int, k: int) -> Polynomial:
    """(1 + t) g_k(t), exactly."""
    for j in range(k):  # fills the cache from below, so that the recursion stays shallow
        _numerator(beta, j)
    return tuple(Fraction(c, 4**k) for c in _numerator(beta, k))


def polynomial(beta: int, k: int) -> Polynomial:
    """g_k(t), exactly, where it is a polynomial (k >= 2)."""
    dividend = numerator(beta, k)
    quotient = [Fraction(0)] * (len(dividend) - 1)
    carry = Fraction(0)
    for i in range(len(dividend) - 1, 0, -1):
        carry = dividend[i] - carry
        quotient[i - 1] = carry
    if dividend[0] != carry:
        raise ValueError(f"g_{k} at beta = {beta} is not a polynomial: (1 + t) leaves the remainder {dividend[0] - carry}")
    return tuple(quotient)


def derivative(coefficients: Polynomial) -> Polynomial:
    """Of a polynomial, by its coefficients from the constant one on."""
    return tuple(i * c for i, c in enumerate(coefficients))[1:] or (Fraction(0),)


def antiderivative(coefficients: Polynomial) -> Polynomial:
    """The one that vanishes at 0."""
    return (Fraction(0), *(c / (i + 1) for i, c in enumerate(coefficients)))


def combine(terms: dict[int, Polynomial], c: Fraction) -> Polynomial:
    """sum_k terms[k] / c^k as one polynomial."""
    total: Polynomial = (Fraction(0),)
    for k, coefficients in terms.items():
        total = plus(total, product((1 / c**k,), coefficients))
    return total


def plus(a: tuple[Any, ...], b: tuple[Any, ...], sign: int = 1) -> tuple[Any, ...]:
    """a + sign b."""
    return tuple(p + sign * q for p, q in zip_longest(a, b, fillvalue=0))


def product(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """a b."""
    total = [0 * b[0]] * (len(a) + len(b) - 1)
    for i, p in enumerate(a):
        for j, q in enumerate(b if p else ()):
            total[i + j] += p * q
    return tuple(total)


def quotient_at_one(q: Polynomial) -> Polynomial:
    """(q(t) - q(1)) / (t - 1), exactly."""
    quotient: list[Fraction] = []
    carry = Fraction(0)
    for c in reversed(q[1:]):
        carry += c
        quotient.append(carry)
    return tuple(reversed(quotient)) or (Fraction(0),)


class Economised(NamedTuple):
    """A shortened polynomial, and sum |b_j| and sum j |b_j| over the Chebyshev terms b_j T_j(2 t - 1) that were dropped.

    Since |T_j| <= 1, the first sum bounds the change; the second bounds its derivative by sum j |b_j| / sqrt(t (1 - t)).
    """

    polynomial: Polynomial
    change: Fraction
    rate: Fraction


def chebyshev_coefficients(coefficients: Polynomial) -> list[Fraction]:
    """The b_j with p(t) = sum_j b_j T_j(2 t - 1): t^i = 4^-i sum_{|j| <= i} binom(2 i, i - j) T_|j|(2 t - 1), exactly."""
    total = [Fraction(0)] * len(coefficients)
    for i, a in enumerate(coefficients):
        for j in range(i + 1 if a else 0):
            total[j] += a * Fraction(comb(2 * i, i - j) * (2 if j else 1), 4**i)
    return total


def economise(coefficients: Polynomial, tol: Fraction) -> Economised:
    """The polynomial of least degree within `tol` on [0, 1] that dropping Chebyshev terms gives."""
    chebyshev = chebyshev_coefficients(coefficients)
    change = rate = Fraction(0)
    while chebyshev and change + abs(chebyshev[-1]) <= tol:
        dropped = abs(chebyshev.pop())
        change += dropped
        rate += len(chebyshev) * dropped
    if not chebyshev:
        return Economised((Fraction(0),), change, rate)
    # back to powers of t, with T_{j+1} = (4 t - 2) T_j - T_{j-1}
    below, current = (Fraction(1),), (Fraction(-1), Fraction(2))
    total: Polynomial = (chebyshev[0],)
    for b in chebyshev[1:]:
        total = plus(total, product((b,), current))
        below, current = current, plus(product((-2, 4), current), below, -1)
    return Economised(total, change, rate)


def around_half(coefficients: Polynomial) -> Polynomial:
    """The same polynomial in w = 2 t - 1, which runs over [-1, 1]: better conditioned where coefficients alternate."""
    total: Polynomial = coefficients[-1:]
    for c in reversed(coefficients[:-1]):
        total = plus(product((Fraction(1, 2), Fraction(1, 2)), total), (c,))
    return total
