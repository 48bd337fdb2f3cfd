"""Machine-checked error bounds of the Bessel ratio: the paper's theorem, and proofs of the constants in `potentials.proven`.

What is proven, for the expansion of order n around c = nu + 1/2 (`family="midpoint"`, beta = 0) or c = nu (`family="centred"`, beta = 1, the paper's):

    |R - A_n| <= B v / c^(n+1),      |R - A_n| <= size_{n+1} / c^(n+1) + C / c^(n+2),      for all x >= 0 and all nu >= nu_0.

The steps, each a computation that can fail (docs/certificates.md has the mathematics between them):

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
from typing import Any

import torch

from pairgrad.certificates.curves import PRECISION, Curve, Outcome, ball, polynomial, rational
from pairgrad.ground.arithmetic import BallArithmetic
from pairgrad.ground.balls import flint, working_precision
from pairgrad.ground.certificate import Certificate
from pairgrad.ground.checks import exact_number, integer_at_least, one_of
from pairgrad.potentials import debye, proven
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.plan import MAX_ORDER, TRUNCATION_TOL, truncation_estimate
from pairgrad.potentials.protocol import RATIO_ERROR, Potential
from pairgrad.potentials.reference import Balls

FAMILIES = {"midpoint": 0, "centred": 1}
_COEFFICIENTS = "barrier, by coefficients"
_STRIP = "barrier, on boxes of all x and c"
PAPER_NU = Fraction(10, 9)
_MOST_BOXES = 50_000


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
    bound = proven.upwards(Fraction(certificate.bound) * length)
    return Certificate(quantity, bound, certificate.hypothesis, equation, certificate.status)


def measured_ratio_error(pot: Potential, dtype: torch.dtype = torch.float64, points: int = 121) -> Certificate:
    """The largest |slope - R| of the formulas over `points` concentrations, x / c from 1e-2 to 1e2, both in balls: what a bound is to be compared with."""
    formulas = pot.formulas(pot.compute_dtype(dtype))
    scale = float(formulas.centre) if isinstance(formulas, Expansion) else max(float(pot.nu), 0.5)
    bound = pot.ratio_bound(dtype)
    digits = 20 + (math.ceil(-math.log10(bound)) if bound and math.isfinite(bound) else 20)
    balls, ops, largest = Balls(pot.nu, digits), BallArithmetic(), 0.0
    with working_precision(4 * digits + 64):
        for i in range(points):
            x = flint().arb(scale * 10 ** (4 * i / (points - 1) - 2))
            largest = max(largest, float(abs(formulas.slope(ops, x) - balls.slope_ball(x)).upper()))
    return Certificate(RATIO_ERROR, largest, f"{points} concentrations, x / c from 1e-2 to 1e2", "", "measured")


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
    tol = TRUNCATION_TOL[dtype]
    least = {order: _least_centre(order, tol) for order in range(1, MAX_ORDER - 1)}
    economy = Fraction(tol) / 2
    found = []
    for order, centre in least.items():
        shifted = centre < min(least.values()) + 1
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
class Step:
    """One thing that was checked. `margin` is the share of the bound that was left, where that means something."""

    name: str
    statement: str
    holds: bool
    margin: float | None = None
    detail: str = ""


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
            if step.name in (_COEFFICIENTS, _STRIP):
                by_barrier[step.statement] = max(by_barrier.get(step.statement, 0.0), step.margin or 0.0)
        return min(by_barrier.values(), default=0.0)

    def failures(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if not step.holds)


@dataclass(frozen=True)
class Terms:
    """g_0 .. g_n of one family as curves in t, and what the Riccati equation makes of their sum."""

    beta: int
    order: int

    def numerator(self, k: int) -> Any:
        """(1 + t) g_k, and 0 beyond the order."""
        return polynomial(debye.numerator(self.beta, k) if 0 <= k <= self.order else (0,))

    def term(self, k: int) -> Curve:
        """r_k / v = g_k / t."""
        return Curve(self.numerator(k) // polynomial((0, 1)), 1)

    def rate(self, k: int) -> Curve:
        """dr_k / dz = g_k - t (1 - t^2) g_k'."""
        n = self.numerator(k)
        return Curve(n * polynomial((1, 1, -1)) - polynomial((0, 1, 0, -1)) * n.derivative(), 1)

    def residual(self, k: int) -> Curve:
        """The coefficient of h^k in E = 1 - (2 + beta h) A / z - A^2 - h dA/dz, A = sum_{k<=n} h^k z g_k (eq. a2-exact-residual-app at n = 2)."""
        one_plus = polynomial((1, 1))
        total = one_plus * one_plus * (1 if k == 0 else 0)
        total -= one_plus * (2 * self.numerator(k) + self.beta * self.numerator(k - 1))
        squares = sum((self.numerator(i) * self.numerator(k - i) for i in range(k + 1)), polynomial((0,)))
        total -= polynomial((1, 0, -1)) * (squares // polynomial((0, 0, 1)))  # every numerator has the factor t
        below = self.numerator(k - 1)
        total -= one_plus * (below * polynomial((1, 1, -1)) - polynomial((0, 1, 0, -1)) * below.derivative())
        return Curve(total, 2)


def residual_steps(beta: int, order: int) -> Iterator[Step]:
    """E has no power below h^(n+1), and the one at n + 1 is 2 r_{n+1} / v."""
    terms, after = Terms(beta, order), Terms(beta, order + 1)
    gone = all(not terms.residual(k).numerator for k in range(order + 1))
    leading = terms.residual(order + 1)
    wanted = Curve(2 * after.term(order + 1).numerator, after.term(order + 1).power)
    same = (leading.numerator, leading.power) == (wanted.numerator, wanted.power)
    yield Step("residual", f"Riccati residual of order {order} is (2 r_{order + 1} / v) / c^{order + 1} + ..., exactly", gone and same)


def suprema_steps(beta: int, last: int, table: tuple[proven.Suprema, ...] | None = None) -> Iterator[Step]:
    """The three suprema of r_1 .. r_last, in balls over the whole axis."""
    table = proven.SUPREMA[beta] if table is None else table
    terms = Terms(beta, last)
    for k in range(1, last + 1):
        bounds, term, rate = table[k - 1], terms.term(k), terms.rate(k)
        yield _supremum(f"|r_{k}|", bounds.size, term.at_most(bounds.size, "v"))
        yield _supremum(f"|r_{k}| / v", bounds.relative, term.at_most(bounds.relative))
        yield _supremum(f"|dr_{k}/dz|", bounds.rate, rate.at_most(bounds.rate))


def _supremum(what: str, bound: Fraction, outcome: Outcome) -> Step:
    detail = f"{outcome.boxes} boxes" if outcome.holds else f"exceeded at t = {outcome.exceeded_at:.6f}"
    return Step("suprema", f"{what} <= {float(bound):g}", outcome.holds, outcome.margin if outcome.holds else None, detail)


def barrier_steps(beta: int, order: int, centre: Fraction, constant: Fraction | None = None) -> Iterator[Step]:
    """The barrier B = `constant` of `order` at `centre` and every larger one: by the coefficients, and on boxes of the whole half strip."""
    wall = proven.barrier(beta, order, centre)
    if wall is None:
        yield Step(
            "barrier", f"order {order} has a barrier for c >= {float(centre):g}", False, None, "the inequality has no solution there"
        )
        return
    if constant is not None:
        wall = wall._replace(constant=constant)
    claim = f"|R - A_{order}| <= {float(wall.constant):.4g} v / c^{order + 1} for all c >= {float(centre):g}"
    yield _coefficient_step(claim, beta, wall)
    outcome = _impassable(Terms(beta, order), wall)
    detail = f"{outcome.boxes} boxes" if outcome.holds else f"passable at t = {outcome.exceeded_at:.6f}"
    yield Step(_STRIP, claim, outcome.holds, outcome.margin if outcome.holds else None, detail)


def _coefficient_step(claim: str, beta: int, wall: proven.Barrier) -> Step:
    """The inequality between powers of h with nonnegative coefficients, put together again in balls: true at h_0, it is true below."""
    n, h = wall.order, ball(wall.h)
    size = [ball(term.size) for term in proven.SUPREMA[beta]]  # entry k - 1 is that of r_k
    residual = 2 * ball(proven.SUPREMA[beta][n].relative)
    for i in range(2, n + 1):
        for j in range(n + 2 - i, n + 1):
            residual += h ** (i + j - n - 1) * size[i - 1] * size[j - 1]
    higher = ball(0)
    for k in range(2, n + 1):
        higher += 2 * h**k * size[k - 1]
    pull = 2 - higher - (h * rational(proven.OMEGA[beta]) if n else 0)
    pairs = ((wall.residual, residual), (wall.pull, pull), (wall.pull_most, 2 + 2 * beta * h + higher))
    same = all(ball(exact).overlaps(again) for exact, again in pairs)
    margin = wall.margin()
    return Step(_COEFFICIENTS, claim, same and margin >= 0, float(margin))


def _impassable(terms: Terms, wall: proven.Barrier) -> Outcome:
    """B (kappa + h t^3) - |E| / h^(N+1) - B^2 h^(N+1) (1 - t^2) > 0 for all t in [0, 1] and h in [0, h_0], without the detour over suprema."""
    order, beta = wall.order, terms.beta
    residual = [terms.residual(k) for k in range(order + 1, 2 * order + 2)]
    shape = [terms.term(k) for k in range(order + 1)]
    constant = ball(wall.constant)
    known: dict[tuple[Fraction, Fraction], tuple[list[Any], list[Any]]] = {}

    def sides(low: Fraction, high: Fraction, near: Fraction, far: Fraction) -> tuple[Any, Any]:
        if (low, high) not in known:
            known[low, high] = [curve.over(low, high) for curve in residual], [curve.over(low, high) for curve in shape]
        errors, heights = known[low, high]
        t = ball((low + high) / 2, (high - low) / 2)
        h = ball((near + far) / 2, (far - near) / 2)
        rest = 1 - t * t
        kappa = (2 + beta * h) * t + 2 * rest * _horner(heights, h)
        return abs(_horner(errors, h)) + constant**2 * h ** (order + 1) * rest, constant * (kappa + h * t**3)

    boxes, margin = 0, 1.0
    pending = [(Fraction(0), Fraction(1), Fraction(0), wall.h)]
    while pending:
        low, high, near, far = pending.pop()
        boxes += 1
        push, pull = sides(low, high, near, far)
        if push < pull:
            margin = min(margin, float((pull - push).lower() / pull.upper()))
            continue
        t, h = (low + high) / 2, (near + far) / 2
        for place in (h, far):
            push, pull = sides(t, t, place, place)
            if not push < pull or boxes > _MOST_BOXES:
                return Outcome(False, boxes, -1.0, float(t))
        if high - low >= (far - near) / wall.h:
            pending += [(low, t, near, far), (t, high, near, far)]
        else:
            pending += [(low, high, near, h), (low, high, h, far)]
    return Outcome(True, boxes, margin)


def _horner(coefficients: list[Any], h: Any) -> Any:
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * h + c
    return total


def elementary_steps() -> Iterator[Step]:
    """The few suprema that do not depend on an order: of the first-order part of kappa, and of what an economised tail adds."""
    first = polynomial((Fraction(1, 27), 0, -1, 2)) - polynomial((1, -6, 9)) * polynomial((1, 6)) / 27
    yield Step("suprema", "2 t^3 - t^2 = (1 - 3 t)^2 (1 + 6 t) / 27 - 1/27, exactly", not first)
    size, turn = Curve(polynomial((0, 0, 1))), Curve(polynomial((0, 0, 0, -2, 0, 3)))
    yield _supremum("v t^2", proven.ECONOMY_SIZE, size.at_most(proven.ECONOMY_SIZE, "v"))
    yield _supremum("|t^3 (3 t^2 - 2)|", proven.ECONOMY_TURN, turn.at_most(proven.ECONOMY_TURN))
    # (1 + t) t^(7/2) sqrt(1 - t), squared
    square = Curve(polynomial((1, 2, 1)) * polynomial((0,) * 7 + (1,)) * polynomial((1, -1)))
    yield _supremum("((1 + t) t^(7/2) sqrt(1 - t))^2", proven.ECONOMY_RATE**2, square.at_most(proven.ECONOMY_RATE**2))


def prove_order(family: str, order: int, nu_0: Fraction | float | None = None) -> Proof:
    """Prove the theorem of one order of one family for all nu >= nu_0 (the least multiple of 1/100 that has a proof, unless given)."""
    beta = FAMILIES[one_of("family", family, tuple(FAMILIES))]
    order = _proven_order(order)
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
    expansion = pot.formulas(pot.compute_dtype(dtype))
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
        yield _total_step(expansion, wall, bound)

    constants = {"B": wall.constant, "economy": expansion.economised_by}
    where = f"order {expansion.order}, c = {float(expansion.centre):g}" + (f", shift {expansion.shift}" if expansion.shift else "")
    return _run(
        f"|slope - R| <= {certificate.bound:.4g} for all x >= 0 ({where}, barrier of order {wall.order})",
        certificate.hypothesis,
        constants,
        steps,
        certificate.bound,
    )


def prove_plans(dtype: torch.dtype) -> Proof:
    """Prove `planned_bound(dtype)`: every supremum of the midpoint family, and by coefficients the barrier of the worst case of each order."""
    certificate = planned_bound(dtype)
    walls = [(depth.order, depth.centre, error.barrier) for depth, error in _planned_errors(dtype)]

    def steps() -> Iterator[Step]:
        yield from suprema_steps(0, proven.LAST_TERM)
        yield from elementary_steps()
        for order in sorted({wall.order for _, _, wall in walls}):
            yield from residual_steps(0, order)
        for order, centre, wall in walls:
            yield _coefficient_step(
                f"order {order} from c = {float(centre):.4g} on: |R - A_{wall.order}| <= B v / c^{wall.order + 1}", 0, wall
            )

    bound, relative = certificate.bound, certificate.relative_bound
    statement = f"|slope - R| <= {bound:.3g} and <= {relative:.3g} R, order 'auto', {dtype}".replace("torch.", "")
    return _run(statement, "all x >= 0, all nu >= 0", {"relative": Fraction(relative or 0)}, steps, bound)


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
    if change:
        yield _supremum("|D|", change, Curve(left_over).at_most(change))
        turning = Curve(polynomial((0, 0, 0, 0, 1, 0, -1)) * left_over.derivative())
        yield _supremum("v^2 t^4 |D'|", proven.ECONOMY_RATE * rate, turning.at_most(proven.ECONOMY_RATE * rate))
    else:
        yield Step("coefficients", "D = 0", not left_over)


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


def _total_step(expansion: Expansion, wall: proven.Barrier, bound: float) -> Step:
    """The sum of all parts, in balls and from the pieces, against the number that is returned."""
    h, c, order, table = ball(wall.h), ball(expansion.centre), expansion.order, proven.SUPREMA[expansion.beta]
    reach = h ** (wall.order + 1)
    size, rate = ball(wall.constant) * reach, reach * (ball(wall.residual) + ball(wall.constant) * ball(wall.pull_most))
    rate = rate + size**2
    for k in range(min(order, wall.order) + 1, max(order, wall.order) + 1):
        size, rate = size + h**k * ball(table[k - 1].size), rate + h ** (k + 1) * ball(table[k - 1].rate)
    size = size + ball(proven.ECONOMY_SIZE * expansion.economised_by)
    rate = rate + (ball(proven.ECONOMY_TURN * expansion.economised_by) + ball(proven.ECONOMY_RATE * expansion.economised_rate)) / c
    total = size
    if expansion.shift:
        total = size + (size / ball(expansion.nu + expansion.shift) + rate) / (1 - size)
    slack = float((flint().arb(bound) - total).lower() / bound)
    return Step(
        "total", f"terms, barrier, economy and shift add up to {float(total):.6g} <= {bound:.6g}", bool(slack >= -1e-30), max(slack, 0.0)
    )


def _proven_order(order: int) -> int:
    order = integer_at_least("order", order, 1)
    if order > MAX_ORDER:
        raise ValueError(f"order must be <= {MAX_ORDER}, got {order}: the table of proven constants ends there")
    return order


def _run(
    statement: str, hypothesis: str, constants: dict[str, Fraction], steps: Callable[[], Iterator[Step]], bound: float | None = None
) -> Proof:
    started = time.perf_counter()
    with working_precision(PRECISION):
        done = tuple(steps())
    return Proof(statement, hypothesis, constants, done, bound, time.perf_counter() - started)
