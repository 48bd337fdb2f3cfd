"""Machine-checked error bounds of the Bessel ratio: the paper's theorem, and proofs of the constants in `potentials.proven`.

What is proven, for the expansion of order n around c = nu + 1/2 (`family="midpoint"`, beta = 0) or c = nu (`family="centred"`, beta = 1, the paper's):

    |R - A_n| <= B v / c^(n+1),      |R - A_n| <= size_{n+1} / c^(n+1) + C / c^(n+2),      for all x >= 0 and all nu >= nu_0.

The steps, each a computation that can fail (docs/derivations/remainder.md has the mathematics between them):

1. residual: A_n, put into the Riccati equation, leaves nothing below the power c^-(n+1); exact rationals;
2. suprema: |r_k| <= size, |r_k| <= relative * v, |dr_k/dz| <= rate for every term used; balls over the whole axis;
3. barrier: the inequality that makes +-B v / c^(N+1) impassable, at nu_0 and for every larger nu; balls over the whole axis *and* over all
   c >= c_0 at once, and by the coefficients, as `ratio_bound` uses it;
4. for a given potential, that its own coefficients are those of the theorem, and what economy and order shift add.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import torch

from pairgrad.certificates.curves import PRECISION, ball, polynomial, rational
from pairgrad.certificates.steps import (
    COEFFICIENTS,
    STRIP,
    Step,
    Terms,
    barrier_steps,
    coefficient_step,
    elementary_steps,
    residual_steps,
    suprema_steps,
)
from pairgrad.ground.arithmetic import BallArithmetic
from pairgrad.ground.balls import flint, working_precision
from pairgrad.ground.certificate import Certificate, rounded_up
from pairgrad.ground.checks import computing_dtype, exact_number, integer_at_least, one_of
from pairgrad.potentials import debye, proven
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.plan import MAX_ORDER, TRUNCATION_TOL, truncation_estimate
from pairgrad.potentials.protocol import RATIO_ERROR, Potential
from pairgrad.potentials.reference import Balls

FAMILIES = {"midpoint": 0, "centred": 1}
PAPER_NU = Fraction(10, 9)


def paper_theorem(nu: Fraction | float) -> Certificate:
    """|R - A_R| <= nu^-3 for nu >= 10/9 and all x >= 0: Theorem thm:a2, eq. a2-bound."""
    nu = exact_number("nu", nu)
    quantity = "sup over x >= 0 of |R(x) - A_R(x)|"
    if nu < PAPER_NU:
        reason = f"the theorem needs nu >= 10/9, got nu = {float(nu):g}; pairgrad.potential(nu=...).ratio_bound() has a bound at every nu"
        return Certificate(quantity, None, "nu >= 10/9", "eq. a2-bound", "none", reason)
    return Certificate(quantity, proven.upwards(1 / nu**3), "nu >= 10/9", "eq. a2-bound", "proven")


def paper_difference_theorem(nu: Fraction | float, a: float, b: float) -> Certificate:
    """|[Phi(b) - Phi(a)] - [F_R(b) - F_R(a)]| <= nu^-3 |b - a|: the integral of the theorem, eq. cor:endpoint-fidelity."""
    return over_interval(paper_theorem(nu), a, b, "eq. cor:endpoint-fidelity")


def over_interval(certificate: Certificate, a: float, b: float, equation: str | None = None) -> Certificate:
    """The bound of a slope, integrated from a to b: of the difference of the potentials that belong to the slopes."""
    quantity = f"|[Phi({b:g}) - Phi({a:g})] - [value({b:g}) - value({a:g})]|"
    equation = certificate.equation if equation is None else equation
    if certificate.bound is None:
        return Certificate(quantity, None, certificate.hypothesis, equation, "none", certificate.reason)
    length = abs(exact_number("b", b) - exact_number("a", a))
    bound = proven.upwards(Fraction(certificate.bound) * length) if math.isfinite(certificate.bound) else certificate.bound
    return Certificate(quantity, bound, certificate.hypothesis, equation, certificate.status, certificate.reason)


def measured_ratio_error(pot: Potential, dtype: torch.dtype = torch.float64, points: int = 121) -> Certificate:
    """The largest |slope - R| of the formulas over `points` concentrations, x / c from 1e-2 to 1e2, both in balls: what a bound is to be compared with."""
    points = integer_at_least("points", points, 2)
    formulas = pot.formulas(computing_dtype("dtype", dtype))
    scale = float(formulas.centre) if isinstance(formulas, Expansion) else max(float(pot.nu), 0.5)
    bound = pot.ratio_bound(dtype)
    digits = 20 + (math.ceil(-math.log10(bound)) if bound and math.isfinite(bound) else 20)
    balls, ops, largest = Balls(pot.nu, digits), BallArithmetic(), 0.0
    with working_precision(4 * digits + 64):
        for i in range(points):
            x = flint().arb(scale * 10 ** (4 * i / (points - 1) - 2))
            largest = max(largest, float(abs(formulas.slope(ops, x) - balls.slope_ball(x)).upper()))
    return Certificate("largest |slope(x) - R(x)| seen", largest, f"{points} concentrations, x / c from 1e-2 to 1e2", "", "measured")


def planned_bound(dtype: torch.dtype) -> Certificate:
    """What holds for every potential with `order="auto"`, at all nu >= 0 at once.

    An order n is chosen around a centre c only if the estimate of its truncation is below the tolerance there, that is for c >= c_n; a shift only
    if no order is good enough without one, so with c < min c_n + 1. No part of the bound grows with c: the worst case of each order is at c_n, with as
    much economy as the planner allows.
    """
    errors = _planned_errors(dtype)
    size, relative = (max(getattr(error, part) for _, error in errors) for part in ("size", "relative"))
    quantity = f"{RATIO_ERROR} of every potential with order 'auto', {dtype}".replace("torch.", "")
    return Certificate(quantity, proven.upwards(size), "nu >= 0", proven.PAGE, "proven", relative_bound=proven.upwards(relative))


def _planned_errors(dtype: torch.dtype) -> list[tuple[proven.Depth, proven.Error]]:
    """The worst case of each order that the planner may choose."""
    tol = TRUNCATION_TOL[computing_dtype("dtype", dtype)]
    least = {order: _least_centre(order, tol) for order in range(1, MAX_ORDER - 1)}
    economy = Fraction(tol) / 2
    found = []
    for order, centre in least.items():
        shifted = centre < min(least.values()) + Fraction(101, 100)  # the centres were taken a little too low
        # the polynomial T has a degree below 3 n
        depth = proven.Depth(0, order, centre, centre - Fraction(1, 2), shifted, economy, 3 * order * economy)
        error = proven.least_error(depth)
        if error is None:
            raise AssertionError(f"no barrier stands at c = {float(centre)}")
        found.append((depth, error))
    return found


def _least_centre(order: int, tol: float) -> Fraction:
    """A little below the c from which on the planner accepts `order` (`truncation_estimate` falls as c grows)."""
    low, high = Fraction(1, 2), Fraction(1)
    while truncation_estimate(high - Fraction(1, 2), order, 0) > tol:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if truncation_estimate(middle - Fraction(1, 2), order, 0) > tol else (low, middle)
    return max(low.limit_denominator(1000) - Fraction(1, 500), Fraction(1, 2))


@dataclass(frozen=True)
class Proof:
    """A statement, under what hypothesis, and the steps that were checked for it."""

    statement: str
    hypothesis: str
    constants: dict[str, Fraction]
    steps: tuple[Step, ...]
    bound: float | None = None  # for a given potential: the number that `ratio_bound` returns
    seconds: float = field(default=0.0, compare=False)

    @property
    def holds(self) -> bool:
        return all(step.holds for step in self.steps)

    @property
    def margin(self) -> float:
        """How far the barriers are from being passable: the least share of the inward pull that the residual leaves, as far as that is proven.

        The two ways to prove a barrier bound the same share from below; the better one counts.
        """
        by_barrier: dict[str, float] = {}
        for step in self.steps:
            if step.name in (COEFFICIENTS, STRIP):
                by_barrier[step.statement] = max(by_barrier.get(step.statement, 0.0), step.margin or 0.0)
        return min(by_barrier.values(), default=0.0)

    def failures(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if not step.holds)


def prove_order(family: str, order: int, nu_0: Fraction | float | None = None) -> Proof:
    """Prove the theorem of one order of one family for all nu >= nu_0 (the least multiple of 1/100 that has a proof, unless given)."""
    beta = FAMILIES[one_of("family", family, tuple(FAMILIES))]
    order = integer_at_least("order", order, 1)
    if order > MAX_ORDER:
        raise ValueError(f"order must be <= {MAX_ORDER}, got {order}: the table of proven constants ends there")
    least = max(proven.first_order(beta, n) for n in (order, order + 1))
    nu = least if nu_0 is None else exact_number("nu_0", nu_0)
    centre = nu + (Fraction(1, 2) if beta == 0 else 0)
    if nu < least:
        raise ValueError(
            f"nu_0 must be at least {float(least)} for order {order} of the {family} family, got {float(nu):g}: no barrier stands there"
        )
    walls = [proven.barrier(beta, n, centre) for n in (order, order + 1)]
    if walls[0] is None or walls[1] is None:
        raise AssertionError("first_order promised both barriers")
    leading = proven.SUPREMA[beta][order].size

    def steps() -> Iterator[Step]:
        for n in (order, order + 1):
            yield from residual_steps(beta, n)
        yield from suprema_steps(beta, order + 2)
        yield from elementary_steps()
        for n in (order, order + 1):
            yield from barrier_steps(beta, n, centre)

    c = "c" if beta == 0 else "nu"
    statement = f"|R - A_{order}| <= {float(leading):g} {c}^-{order + 1} + {float(walls[1].constant):.4g} {c}^-{order + 2}"
    statement += f" and <= {float(walls[0].constant):.4g} v {c}^-{order + 1}"
    hypothesis = f"all x >= 0, all nu >= {float(nu):g}" + (", c = nu + 1/2" if beta == 0 else "")
    constants = {"nu_0": nu, "leading": leading, "next": walls[1].constant, "relative": walls[0].constant}
    return _run(statement, hypothesis, constants, steps)


def prove_potential(pot: Potential, dtype: torch.dtype = torch.float64) -> Proof:
    """Prove `pot.ratio_bound(dtype)` from the coefficients that the kernel of this very potential uses."""
    certificate = pot.ratio_certificate(dtype)
    expansion = pot.formulas(computing_dtype("dtype", dtype))
    if not isinstance(expansion, Expansion):
        raise ValueError(
            f"only realizations 'paired' and 'arfr' are expansions with a proof, got {pot!r}: {certificate.reason or certificate}"
        )
    error = proven.slope_error(expansion)
    bound = certificate.bound
    if bound is None or error is None:
        raise ValueError(f"there is no finite bound to prove for {pot!r}: {certificate.reason}")
    beta, wall = expansion.beta, error.barrier

    def steps() -> Iterator[Step]:
        yield from coefficient_steps(expansion)
        yield from residual_steps(beta, wall.order)
        yield from suprema_steps(beta, max(wall.order + 1, expansion.order))
        yield from elementary_steps()
        yield from barrier_steps(beta, wall.order, expansion.centre)
        if expansion.shift:
            yield from shift_steps(expansion)
        yield _total_step(proven.depth(expansion), error, bound, certificate.relative_bound or 0.0)

    constants = {"B": wall.constant, "economy": expansion.economised_by}
    where = f"order {expansion.order}, c = {float(expansion.centre):g}" + (f", shift {expansion.shift}" if expansion.shift else "")
    return _run(
        f"|slope - R| <= {rounded_up(bound)} for all x >= 0 ({where}, barrier of order {wall.order})",
        certificate.hypothesis,
        constants,
        steps,
        certificate.bound,
    )


def prove_plans(dtype: torch.dtype) -> Proof:
    """Prove `planned_bound(dtype)`: every supremum of the midpoint family, and by coefficients the barrier of the worst case of each order."""
    certificate = planned_bound(dtype)
    errors = _planned_errors(dtype)

    def steps() -> Iterator[Step]:
        yield from suprema_steps(0, proven.LAST_TERM)
        yield from elementary_steps()
        for order in sorted({error.barrier.order for _, error in errors}):
            yield from residual_steps(0, order)
        for depth, error in errors:
            wall = error.barrier
            claim = f"order {depth.order} from c = {float(depth.centre):.4g} on: |R - A_{wall.order}| <= B v / c^{wall.order + 1}"
            yield coefficient_step(claim, 0, wall)
            yield _total_step(depth, error, bound, relative)

    bound, relative = certificate.bound or 0.0, certificate.relative_bound or 0.0
    statement = f"|slope - R| <= {rounded_up(bound)} and <= {rounded_up(relative)} R, order 'auto', {dtype}".replace("torch.", "")
    return _run(statement, "all x >= 0, all nu >= 0", {"relative": Fraction(relative)}, steps, bound)


def coefficient_steps(expansion: Expansion) -> Iterator[Step]:
    """That the kernel's head and tail are g_0 .. g_n / c^k, up to an economy whose two sums bound it."""
    exact, c = expansion.exact, rational(expansion.centre)
    terms = Terms(expansion.beta, expansion.order)
    tail = polynomial(exact.tail)
    if exact.stretch == 2:
        tail = tail(polynomial((-1, 2)))
    one_plus = polynomial((1, 1))
    kernel = polynomial(exact.head) + one_plus * polynomial((0, 0, 1)) * tail
    theorem = sum((terms.numerator(k) / c**k for k in range(expansion.order + 1)), polynomial((0,))) // polynomial((0, 1))
    left_over = (theorem - kernel) // one_plus // polynomial((0, 0, 1))
    whole = not theorem - kernel - left_over * one_plus * polynomial((0, 0, 1))
    if not expansion.economy:
        yield Step("coefficients", f"the kernel holds g_0 .. g_{expansion.order}, exactly", whole and not left_over)
        return
    change, rate = expansion.economised_by, expansion.economised_rate
    yield Step("coefficients", f"the kernel holds g_0 .. g_{expansion.order} up to v t^2 times a polynomial D", whole)
    dropped = debye.chebyshev_coefficients(tuple(Fraction(int(c.p), int(c.q)) for c in left_over.coeffs()))
    same = sum(map(abs, dropped)) == change and sum(j * abs(b) for j, b in enumerate(dropped)) == rate
    yield Step("coefficients", f"D has Chebyshev coefficients b_j with sum |b_j| = {float(change):.3g}, exactly", same)


def shift_steps(expansion: Expansion) -> Iterator[Step]:
    """That U and W of the order shift are Lommel's polynomials, from their closed form; all coefficients are positive."""
    nu, m, c = expansion.nu, expansion.shift, expansion.centre

    def closed(length: int) -> tuple[Fraction, ...]:
        total = []
        for j in range(length // 2 + 1):
            rising = Fraction(1)
            for i in range(length - 2 * j):
                rising *= 2 * (nu + 1 + j + i)
            total.append(math.comb(length - j, j) * rising / c ** (length - 2 * j))
        return tuple(total)

    same = tuple(expansion.exact.free) == closed(m) and tuple(expansion.exact.bound) == closed(m - 1)
    positive = all(value > 0 for value in (*expansion.exact.free, *expansion.exact.bound))
    yield Step("shift", f"P = U + W x V' of the {m} steps has Lommel's polynomials, exactly, with positive coefficients", same and positive)


def _total_step(depth: proven.Depth, error: proven.Error, bound: float, relative_bound: float) -> Step:
    """Terms, barrier, economy and shift, added up again in balls, against the numbers that are returned."""
    wall, table = error.barrier, proven.SUPREMA[depth.beta]
    h, c, top = ball(wall.h), ball(depth.centre), ball(depth.expanded)
    reach = h ** (wall.order + 1)
    size = by_v = ball(wall.constant) * reach
    rate = reach * (ball(wall.residual) + ball(wall.constant) * ball(wall.pull_most)) + size**2
    for k in range(min(depth.order, wall.order) + 1, max(depth.order, wall.order) + 1):
        term = table[k - 1]
        size, by_v, rate = size + h**k * ball(term.size), by_v + h**k * ball(term.relative), rate + h ** (k + 1) * ball(term.rate)
    size, by_v = size + ball(proven.ECONOMY_SIZE) * ball(depth.economy), by_v + ball(depth.economy)
    rate = rate + (ball(proven.ECONOMY_TURN) * ball(depth.economy) + ball(proven.ECONOMY_RATE) * ball(depth.economy_rate)) / c
    a = 2 * (top + 1) / c
    relative = (a + 1 / (2 * a)) * by_v
    if depth.shifted:
        left = 1 - size
        relative = relative * (1 + 1 / (top * left)) + rate / left
        size = size + (size / top + rate) / left
    again = size.overlaps(ball(error.size)) and relative.overlaps(ball(error.relative))
    holds = again and Fraction(bound) >= error.size and Fraction(relative_bound) >= error.relative
    claim = f"order {depth.order} around {float(depth.centre):.6g}: all parts add up to {rounded_up(bound)}, relative {rounded_up(relative_bound)}"
    return Step("total", claim, bool(holds))


def _run(
    statement: str, hypothesis: str, constants: dict[str, Fraction], steps: Callable[[], Iterator[Step]], bound: float | None = None
) -> Proof:
    started = time.perf_counter()
    with working_precision(PRECISION):
        done = tuple(steps())
    return Proof(statement, hypothesis, constants, done, bound, time.perf_counter() - started)
