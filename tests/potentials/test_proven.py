"""The arithmetic behind the proven bounds: barriers, the way from one order to another, economy and shift, on numbers known beforehand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from pairgrad.certificates.steps import Terms
from pairgrad.potentials import proven
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.proven import Barrier, Depth, Error

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


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        (0.12341, "0.1235"),
        (0.5, "0.5"),
        (7.0, "7"),
        (1.00000001, "1.001"),
        (9.9991, "10"),
        (1234.5, "1235"),
        (56781.0, "56790"),
        (3.2105e-7, "3.211e-7"),
    ],
)
def test_four_digits_rounded_up(number: float, rounded: str) -> None:
    assert proven._few_digits(number) == Fraction(rounded)


WALL = Barrier(order=2, h=HALF, residual=Fraction(1, 3), pull=Fraction(2), pull_most=Fraction(3), constant=Fraction(1, 5))


@pytest.mark.parametrize(("order", "between"), [(2, ()), (4, (3, 4)), (1, (2,)), (5, (3, 4, 5))])
@pytest.mark.parametrize("beta", BETAS)
def test_the_terms_between_two_orders_are_counted(beta: int, order: int, between: tuple[int, ...]) -> None:
    """sum_k h^k S_k, sum_k h^k V_k and sum_k h^(k+1) D_k over the terms that one has and the other has not."""
    error = proven._through(beta, order, WALL)
    size = relative = WALL.size
    rate = WALL.rate
    for k in between:
        row = proven.SUPREMA[beta][k - 1]
        size, relative, rate = size + row.size / 2**k, relative + row.relative / 2**k, rate + row.rate / 2 ** (k + 1)
    assert error == Error(size, relative, rate, WALL)


FOUND = Error(size=Fraction(1, 10), relative=Fraction(1, 5), rate=Fraction(1, 7), barrier=WALL)
SIZE = Fraction(1, 10) + Fraction("0.385") / 100  # with an economy of 1/100, whose terms have a rate of 1/20
RATE = Fraction(1, 7) + (Fraction(1, 100) + Fraction("0.417") / 20) / 4
BY_RATIO = Fraction(9, 4) + Fraction(2, 9)  # a + 1 / (2 a) with a = (2 * 7/2 + 2) / 4


def deep(*, shifted: bool) -> Depth:
    return Depth(0, 2, Fraction(4), Fraction(7, 2), shifted, Fraction(1, 100), Fraction(1, 20))


def test_what_economy_adds() -> None:
    error = proven._carried_down(deep(shifted=False), FOUND)
    assert error == Error(SIZE, BY_RATIO * Fraction(21, 100), RATE, WALL)


def test_what_a_shift_adds() -> None:
    """epsilon + (epsilon / (nu + m) + epsilon') / (1 - epsilon), and the same relative to R."""
    error = proven._carried_down(deep(shifted=True), FOUND)
    assert error.size == SIZE + (SIZE / Fraction(7, 2) + RATE) / (1 - SIZE)
    assert error.relative == BY_RATIO * Fraction(21, 100) * (1 + 1 / (Fraction(7, 2) * (1 - SIZE))) + RATE / (1 - SIZE)
    assert (error.rate, error.barrier) == (RATE, WALL)


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


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(("order", "centre"), [(1, 4), (2, 20), (6, 8), (24, 3)])
def test_the_least_of_all_barriers_is_taken(order: int, centre: int, shifted: bool) -> None:
    """Within a thousandth, and among those the one of the lowest order."""
    depth = Depth(0, order, Fraction(centre), centre - HALF, shifted, Fraction(1, 10**6), Fraction(1, 10**5))
    errors = []
    for n in range(proven.LAST_TERM):
        wall = proven.barrier(0, n, Fraction(centre))
        if wall is not None:
            error = proven._through(0, order, wall)
            if not shifted or error.size + Fraction("0.385") / 10**6 < 1:
                errors.append(proven._carried_down(depth, error))
    least = min(error.size for error in errors)
    chosen = proven.least_error(depth)
    assert chosen is not None
    assert chosen in errors
    assert least <= chosen.size <= least * Fraction(1001, 1000)
    assert next(error for error in errors if error.size <= least * Fraction(1001, 1000)) == chosen
    assert len({error.size <= least * Fraction(1001, 1000) for error in errors}) == 2  # there was something to choose


def test_a_shift_needs_an_error_below_one() -> None:
    """At 1 and above the slope may have a pole. Without a shift such an error is a bound, if a poor one."""
    plain = Depth(0, 2, Fraction(1), HALF, False, Fraction(0), Fraction(0))
    sizes = [proven._through(0, 2, wall).size for n in range(proven.LAST_TERM) if (wall := proven.barrier(0, n, Fraction(1))) is not None]
    exactly_one = (1 - min(sizes)) / Fraction("0.385")
    for economy, bounded in ((exactly_one * Fraction(99, 100), True), (exactly_one, False), (2 * exactly_one, False)):
        shifted = plain._replace(shifted=True, economy=economy)
        assert (proven.least_error(shifted) is not None) == bounded
        assert proven.least_error(plain._replace(economy=economy)) is not None


def test_no_barrier_no_bound() -> None:
    assert proven.least_error(Depth(1, 2, HALF, HALF, False, Fraction(0), Fraction(0))) is None


@pytest.mark.parametrize("value", [Fraction(1, 2), Fraction(3), Fraction(1, 10), Fraction(1, 3), Fraction(2, 3), Fraction(10**30 + 1, 7)])
def test_upwards_is_the_least_float_that_is_not_below(value: Fraction) -> None:
    found = proven.upwards(value)
    assert Fraction(math.nextafter(found, -math.inf)) < value <= Fraction(found)
