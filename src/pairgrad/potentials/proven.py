"""Proven constants of the uniform expansion, and the error bounds that follow from them.

With centre c, z = x / c, t = c / s and v = x / s as in `expansion`, the order-n slope is A_n = r_0 + r_1 / c + ... + r_n / c^n, r_k = z g_k(t).
Three suprema over the whole axis are known of every term (`SUPREMA`; `pairgrad prove` proves them again in ball arithmetic):

    |r_k| <= size,      |r_k| <= relative * v,      |dr_k / dz| <= rate.

Everything else is a short computation with rationals. In R' = 1 - R^2 - (2 c + beta) R / x the error e = R - A_N obeys (eq. a2-error-ode-app)

    e' = E - K e - e^2,        K v = kappa,

and +-B v / c^(N+1) are barriers that e cannot cross if, with h = 1 / c,

    2 relative_{N+1} + sum_{k=N+2}^{2N} h^(k-N-1) sum_{i+j=k} size_i size_j + B^2 h^(N+1)  <=  B (2 - omega h - 2 sum_{k=2}^N h^k size_k).

Both sides are monotone in h, so what holds at one centre holds at every larger one (docs/derivations/remainder.md has the derivation). A bound of order n
then follows from the barrier of any order N: the terms between the two are counted by their suprema.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from pairgrad.potentials.expansion import Expansion

PAGE = "docs/certificates.md"
_GOOD_ENOUGH = Fraction("1.001")


class Suprema(NamedTuple):
    """Bounds of |r_k|, of |r_k| / v and of |dr_k / dz| over the whole axis."""

    size: Fraction
    relative: Fraction
    rate: Fraction


def _table(*rows: str) -> tuple[Suprema, ...]:
    return tuple(Suprema(*map(Fraction, row.split())) for row in rows)


SUPREMA: dict[int, tuple[Suprema, ...]] = {  # by beta; entry k - 1 belongs to r_k
    0: _table(
        "0.107 0.25 0.25",
        "0.02511 0.125 0.125",
        "0.02248 0.0625 0.08909",
        "0.01701 0.04432 0.09781",
        "0.02737 0.0494 0.167",
        "0.03706 0.08311 0.2988",
        "0.08304 0.1501 0.6904",
        "0.1642 0.3441 1.699",
        "0.4707 0.8513 4.971",
        "1.227 2.48 15.5",
        "4.289 7.76 55.01",
        "13.88 27.46 207.3",
        "57.34 103.8 865.9",
        "221.8 432.3 3824",
        "1058 1914 18380",
        "4759 9177 92990",
        "25710 46520 505500",
        "132000 252500 2.884e6",
        "796900 1.443e6 1.75e7",
        "4.598e6 8.741e6 1.111e8",
        "3.068e7 5.553e7 7.439e8",
        "1.965e8 3.717e8 5.197e9",
        "1.436e9 2.6e9 3.812e10",
        "1.011e10 1.905e10 2.907e11",
        "8.031e10 1.454e11 2.316e12",
        "6.163e11 1.158e12 1.915e13",
    ),
    1: _table(
        "0.2501 0.5 0.5",
        "0.1349 0.5 0.5",
        "0.08349 0.5 0.5",
        "0.0691 0.5 0.5",
        "0.09356 0.5 0.6744",
        "0.1411 0.5 1.251",
        "0.2819 0.6513 2.617",
        "0.606 1.433 6.753",
        "1.594 3.456 18.3",
        "4.443 9.663 59.69",
        "14.49 30.29 198.9",
        "49.63 103.1 780.8",
        "193.4 394.4 3089",
        "785.4 1586 14170",
        "3558 7133 64930",
        "16730 33100 340000",
        "86370 171000 1.773e6",
        "461000 899900 1.044e7",
        "2.675e6 5.241e6 6.1e7",
        "1.598e7 3.087e7 3.985e8",
        "1.029e8 2e8 2.581e9",
        "6.801e8 1.304e9 1.853e10",
        "4.81e9 9.29e9 1.318e11",
        "3.487e10 6.64e10 1.031e12",
        "2.688e11 5.164e11 7.976e12",
        "2.12e12 4.016e12 6.752e13",
    ),
}
LAST_TERM = len(SUPREMA[0])  # the highest k with known suprema; barriers are known up to order LAST_TERM - 1
# omega: kappa + h t^3 >= 2 - omega h - 2 sum_{k>=2} h^k size_k, for N >= 1. At beta = 1 the first-order terms are 2 t^3, at beta = 0 they are
# 2 t^3 - t^2 = (1 - 3 t)^2 (1 + 6 t) / 27 - 1/27.
OMEGA = {0: Fraction(1, 27), 1: Fraction(0)}
# An economised T differs from T_n by dropped Chebyshev terms b_j T_j(2 t - 1). With |T_j| <= 1 and |dT_j/dt| <= j / sqrt(t (1 - t)) these three
# suprema over t in [0, 1] carry sum |b_j| and sum j |b_j| to the slope and to its rate.
ECONOMY_SIZE = Fraction("0.385")  # v t^2
ECONOMY_TURN = Fraction(1)  # |t^3 (3 t^2 - 2)|
ECONOMY_RATE = Fraction("0.417")  # (1 + t) t^(7/2) sqrt(1 - t)


class Barrier(NamedTuple):
    """Both sides of the inequality above at one centre, and the B that meets it: |R - A_N| <= B v h^(N+1) there and at larger centres.

    The paper's barrier at order 2 is a constant: `residual` stands where it has eq. a2-residual-bound-app, `pull` where it has eq. a2-k-bound-app.
    """

    order: int  # N
    h: Fraction  # 1 / c
    residual: Fraction  # |E| <= residual * h^(N+1)
    pull: Fraction  # least value of kappa + h t^3
    pull_most: Fraction  # largest value of kappa
    constant: Fraction  # B

    def margin(self) -> Fraction:
        """Right side minus left side, relative to the right: not negative, or there is no theorem. The paper's own is eq. a2-lower-margin-app."""
        right = self.constant * self.pull
        return 1 - (self.residual + self.constant**2 * self.h ** (self.order + 1)) / right

    @property
    def size(self) -> Fraction:
        """sup |R - A_N| <= size; relative to v as well."""
        return self.constant * self.h ** (self.order + 1)

    @property
    def rate(self) -> Fraction:
        """sup |d(R - A_N)/dx| <= rate, from the equation e' = E - K e - e^2 itself."""
        return self.h ** (self.order + 1) * (self.residual + self.constant * self.pull_most) + self.size**2


@cache
def _residual_bounds(beta: int, order: int) -> tuple[Fraction, ...]:
    """Bounds of the coefficients of h^(N+1) .. h^2N in E: 2 r_{N+1} / v, then minus the sums of r_i r_j with i, j <= N."""
    terms = SUPREMA[beta]
    products = (
        sum(terms[i - 1].size * terms[k - i - 1].size for i in range(k - order, order + 1)) for k in range(order + 2, 2 * order + 1)
    )
    return (2 * terms[order].relative, *map(Fraction, products))


@cache
def _size_bounds(beta: int, order: int) -> tuple[Fraction, ...]:
    """Bounds of |r_2| .. |r_N| as coefficients of h^2 .. h^N."""
    return (Fraction(0), Fraction(0), *(term.size for term in SUPREMA[beta][1:order]))


def _powers(coefficients: tuple[Fraction, ...], h: Fraction) -> Fraction:
    total = Fraction(0)
    for c in reversed(coefficients):
        total = total * h + c
    return total


@cache
def barrier(beta: int, order: int, centre: Fraction) -> Barrier | None:
    """The barrier of order N = `order` around `centre`, with the least B that a few digits can give; None where the inequality has no solution."""
    if not 0 <= order < LAST_TERM or centre <= 0:
        return None
    h = 1 / centre
    residual, higher = _powers(_residual_bounds(beta, order), h), 2 * _powers(_size_bounds(beta, order), h)
    first = OMEGA[beta] * h if order else Fraction(0)
    pull, pull_most = 2 - first - higher, 2 + 2 * beta * h + higher
    square = h ** (order + 1)
    discriminant = float(pull**2 - 4 * square * residual)
    if pull <= 0 or discriminant < 0:
        return None
    least = 2 * float(residual) / (float(pull) + math.sqrt(discriminant))
    for slack in (1e-3, 0.0):  # a little room makes the proof on boxes short; close to the first order there is none
        found = Barrier(order, h, residual, pull, pull_most, _few_digits(least * (1 + slack)))
        if found.margin() >= 0:
            return found
    return None


def _few_digits(x: float) -> Fraction:
    """x rounded up to four digits."""
    places = 3 - math.floor(math.log10(x))
    return Fraction(math.ceil(Fraction(x) * Fraction(10) ** places)) / Fraction(10) ** places


class Error(NamedTuple):
    """Bounds of an expansion's slope error e = slope - R: of |e|, of |e| / R and of |e'|; through which barrier they were had."""

    size: Fraction
    relative: Fraction
    rate: Fraction
    barrier: Barrier


def _through(beta: int, order: int, wall: Barrier) -> Error:
    """The error of the expansion of `order` by the barrier of another: the terms between them are counted by their suprema."""
    between = range(min(order, wall.order) + 1, max(order, wall.order) + 1)
    terms = [(wall.h**k, SUPREMA[beta][k - 1]) for k in between]
    return Error(
        size=wall.size + sum(power * term.size for power, term in terms),
        relative=wall.size + sum(power * term.relative for power, term in terms),
        rate=wall.rate + sum(wall.h * power * term.rate for power, term in terms),
        barrier=wall,
    )


class Depth(NamedTuple):
    """What the error of an expansion depends on."""

    beta: int
    order: int
    centre: Fraction
    expanded: Fraction  # nu + m
    shifted: bool
    economy: Fraction  # sum |b_j| and sum j |b_j| of the dropped Chebyshev terms
    economy_rate: Fraction


def depth(expansion: Expansion) -> Depth:
    """What the proven error bound takes of an expansion."""
    e = expansion
    return Depth(e.beta, e.order, e.centre, e.nu + e.shift, e.shift > 0, e.economised_by, e.economised_rate)


def _carried_down(depth: Depth, error: Error) -> Error:
    """What is left of the error after economy and shift; `relative` becomes relative to R instead of v."""
    c, top = depth.centre, depth.expanded
    size = error.size + ECONOMY_SIZE * depth.economy
    by_v = error.relative + depth.economy
    rate = error.rate + (ECONOMY_TURN * depth.economy + ECONOMY_RATE * depth.economy_rate) / c
    a = (2 * top + 2) / c  # v / R <= sqrt(1 + a^2) <= a + 1 / (2 a), because R >= x / (2 (nu + m) + 2 + x)
    by_ratio = a + 1 / (2 * a)
    if depth.shifted:
        # slope - R changes by -eta' / (1 - eta), eta = theta e, 0 <= theta <= R_{nu+m-1} <= 1, |theta'| <= 1 / (nu + m)
        added = rate / (1 - size)
        turned = 1 / top / (1 - size)
        return error._replace(size=size * (1 + turned) + added, relative=by_ratio * by_v * (1 + turned) + added, rate=rate)
    return error._replace(size=size, relative=by_ratio * by_v, rate=rate)


def least_error(depth: Depth) -> Error | None:
    """A bound of |slope - R| within a thousandth of the least that the barriers give, by the lowest such barrier; None where they give none.

    It does not grow with the centre: what holds here holds around every larger centre with the same order and economy.
    """
    walls = (barrier(depth.beta, order, depth.centre) for order in range(LAST_TERM))
    found = [_through(depth.beta, depth.order, wall) for wall in walls if wall is not None]
    if depth.shifted:  # the denominator P of the shifted slope is positive only if the error is below 1
        found = [error for error in found if error.size + ECONOMY_SIZE * depth.economy < 1]
    carried = [_carried_down(depth, error) for error in found]
    least = min((error.size for error in carried), default=None)
    return next((error for error in carried if least is not None and error.size <= _GOOD_ENOUGH * least), None)


@cache
def slope_error(expansion: Expansion) -> Error | None:
    """`least_error` of one expansion."""
    return least_error(depth(expansion))


@cache
def first_order(beta: int, order: int) -> Fraction:
    """The least Bessel order, in steps of 1/100, from which the barrier of `order` stands: for all nu >= this the order-n theorem holds."""
    offset = Fraction(1, 2) if beta == 0 else Fraction(0)
    low, high = 0, 1000  # hundredths
    while low < high:
        middle = (low + high) // 2
        if barrier(beta, order, Fraction(middle, 100) + offset) is None:
            low = middle + 1
        else:
            high = middle
    return Fraction(low, 100)


def upwards(value: Fraction) -> float:
    """The least float that is not below `value`."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
