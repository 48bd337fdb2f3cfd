"""The arithmetic behind the proven bounds: barriers, the way from one order to another, economy and shift, on numbers known beforehand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from pairgrad.certificates.steps import Terms
from pairgrad.potentials import proven
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.proven import Barrier, Depth

BETAS = (0, 1)
OMEGA = {0: Fraction(1, 27), 1: Fraction(0)}
HALF = Fraction(1, 2)


def rational(number) -> Fraction:
    return Fraction(int(number.p), int(number.q))


def offset(beta: int) -> Fraction:
    """c - nu."""
    return HALF if beta == 0 else Fraction(0)


def sides(beta: int, order: int, centre: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """Inequality (2) of docs/derivations/remainder.md as it is written there: residual + B^2 square <= B pull."""
    h, table = 1 / centre, proven.SUPREMA[beta]
    size = {k: row.size for k, row in enumerate(table, 1)}
    residual = 2 * table[order].relative
    for i, j in itertools.product(range(1, order + 1), repeat=2):
        if i + j >= order + 2:
            residual += h ** (i + j - order - 1) * size[i] * size[j]
    pull = 2 - (OMEGA[beta] * h if order >= 1 else 0) - 2 * sum((h**k * size[k] for k in range(2, order + 1)), Fraction(0))
    return residual, pull, h ** (order + 1)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("order", [0, 1, 2, 3, 7, 25])
def test_a_barrier_holds_both_sides_of_the_inequality(beta: int, order: int) -> None:
    wall = proven.barrier(beta, order, Fraction(4))
    assert wall is not None
    residual, pull, square = sides(beta, order, Fraction(4))
    assert (wall.order, wall.h, wall.residual, wall.pull) == (order, Fraction(1, 4), residual, pull)
    assert wall.margin() == (wall.constant * pull - residual - wall.constant**2 * square) / (wall.constant * pull)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("order", range(6))
def test_a_barrier_bounds_the_equation_of_the_error(beta: int, order: int) -> None:
    """|E| <= residual h^(N+1), pull <= kappa + h t^3 and kappa <= pull_most, with E and kappa as functions of t, over the rationals."""
    centre = proven.first_order(beta, order) + offset(beta)
    wall = proven.barrier(beta, order, centre)
    assert wall is not None
    h, terms = 1 / centre, Terms(beta, order)
    least, most, left = [], [], []
    for t in (Fraction(i, 24) for i in range(25)):
        height = sum(h**k * rational(terms.term(k).at(t)) for k in range(order + 1))
        kappa = (2 + beta * h) * t + 2 * (1 - t * t) * height
        least.append(kappa + h * t**3)
        most.append(kappa)
        left.append(abs(sum(h ** (k - order - 1) * rational(terms.residual(k).at(t)) for k in range(order + 1, 2 * order + 1))))
    assert wall.pull <= min(least)
    assert max(most) <= wall.pull_most
    assert max(left) <= wall.residual
    if order <= 1:  # nothing of higher order is counted: the least pull is attained, at t = 1/3 or t = 0
        assert wall.pull == min(least)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("order", range(proven.LAST_TERM))
def test_a_barrier_stands_exactly_where_the_inequality_has_a_solution(beta: int, order: int) -> None:
    """From the first order on, in hundredths; one hundredth below it the quadratic in B has no root. B is its smaller root, rounded up."""
    first = proven.first_order(beta, order)
    assert (100 * first).denominator == 1
    for hundredths in (-2, -1, 0, 1, 2, 50, 400):
        nu = first + Fraction(hundredths, 100)
        if nu + offset(beta) <= 0 or nu < 0:
            continue
        residual, pull, square = sides(beta, order, nu + offset(beta))
        exists = pull > 0 and pull**2 >= 4 * square * residual
        assert exists == (hundredths >= 0), nu
        wall = proven.barrier(beta, order, nu + offset(beta))
        assert (wall is not None) == exists, nu
        if wall is not None:
            assert wall.margin() >= 0
            root = 2 * float(residual) / (float(pull) + math.sqrt(float(pull**2 - 4 * square * residual)))
            assert root * (1 - 1e-12) <= wall.constant <= root * (1 + 2.1e-3)  # a thousandth of room, and four digits
            if hundredths >= 50:  # close to the first order there is no room
                assert wall.constant >= root * (1 + 0.999e-3)


def test_order_zero_stands_at_every_order_of_the_midpoint_family() -> None:
    """1/2 + B^2 h <= 2 B, which B = 1/2 alone meets at h = 2: without room, and only as an equality."""
    wall = proven.barrier(0, 0, HALF)
    assert wall is not None
    assert (wall.residual, wall.pull, wall.pull_most, wall.constant, wall.margin()) == (HALF, 2, 2, HALF, 0)
    assert proven.first_order(0, 0) == 0
    assert proven.barrier(0, 0, HALF - Fraction(1, 10**6)) is None


@pytest.mark.parametrize(
    ("order", "centre"), [(-1, 5), (proven.LAST_TERM, 50), (2, 0), (2, -3), (0, Fraction(-1, 2)), (10, Fraction(1, 10))]
)
@pytest.mark.parametrize("beta", BETAS)
def test_there_is_no_barrier(beta: int, order: int, centre: Fraction) -> None:
    assert proven.barrier(beta, order, Fraction(centre)) is None


def test_both_families_have_the_same_number_of_terms() -> None:
    assert {beta: len(rows) for beta, rows in proven.SUPREMA.items()} == {0: proven.LAST_TERM, 1: proven.LAST_TERM}
    assert proven.barrier(0, proven.LAST_TERM - 1, Fraction(50)) is not None


def test_size_and_rate_of_a_barrier() -> None:
    wall = Barrier(order=1, h=HALF, residual=Fraction(1, 3), pull=Fraction(2), pull_most=Fraction(3), constant=Fraction(1, 5))
    assert wall.margin() == 1 - (Fraction(1, 3) + Fraction(1, 25) / 4) / Fraction(2, 5)
    assert wall.size == Fraction(1, 20)
    assert wall.rate == (Fraction(1, 3) + Fraction(3, 5)) / 4 + Fraction(1, 400)


def test_the_constants_of_economy_are_suprema() -> None:
    """Not exceeded on a grid, and not more than a thousandth above what is attained there."""
    grid = [i / 4096 for i in range(4097)]
    for constant, curve in (
        (proven.ECONOMY_SIZE, lambda t: math.sqrt(1 - t * t) * t**2),
        (proven.ECONOMY_TURN, lambda t: abs(t**3 * (3 * t**2 - 2))),
        (proven.ECONOMY_RATE, lambda t: (1 + t) * t**3.5 * math.sqrt(1 - t)),
    ):
        largest = max(map(curve, grid))
        assert largest <= constant <= 1.001 * largest


def test_what_the_bound_takes_of_an_expansion() -> None:
    for shift in (0, 1, 5):
        expansion = Expansion(Fraction(3), 4, shift, economy=Fraction(1, 100))
        found = proven.depth(expansion)
        assert found[:5] == (0, 4, Fraction(7, 2) + shift, 3 + shift, shift > 0)
        assert found[5:] == (expansion.economised_by, expansion.economised_rate)
        assert found.economy > 0
    assert proven.depth(Expansion(Fraction(3), 2, beta=1))[:5] == (1, 2, Fraction(3), Fraction(3), False)


def test_a_shift_needs_an_error_below_one() -> None:
    """At 1 and above the slope may have a pole. Without a shift such an error is a bound, if a poor one."""
    plain = Depth(0, 2, Fraction(1), HALF, False, Fraction(0), Fraction(0))
    error = proven.least_error(plain)
    assert error is not None
    up_to_one = (1 - error.size) / proven.ECONOMY_SIZE  # the economy with which the error before the shift is 1
    for economy, bounded in ((up_to_one * Fraction(9, 10), True), (up_to_one * Fraction(11, 10), False), (2 * up_to_one, False)):
        shifted = plain._replace(shifted=True, economy=economy)
        assert (proven.least_error(shifted) is not None) == bounded
        assert proven.least_error(plain._replace(economy=economy)) is not None


def test_no_barrier_no_bound() -> None:
    assert proven.least_error(Depth(1, 2, HALF, HALF, False, Fraction(0), Fraction(0))) is None


@pytest.mark.parametrize("value", [Fraction(1, 2), Fraction(3), Fraction(1, 10), Fraction(1, 3), Fraction(2, 3), Fraction(10**30 + 1, 7)])
def test_upwards_is_the_least_float_that_is_not_below(value: Fraction) -> None:
    found = proven.upwards(value)
    assert Fraction(math.nextafter(found, -math.inf)) < value <= Fraction(found)
