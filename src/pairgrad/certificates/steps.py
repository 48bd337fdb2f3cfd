"""The steps of a proof: the residual of the Riccati equation (eq. a2-riccati-app), suprema over the axis, barriers of the error (eq. a2-error-ode-app).

docs/derivations/remainder.md has the mathematics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pairgrad.certificates.curves import Curve, Outcome, ball, polynomial
from pairgrad.ground.arithmetic import horner
from pairgrad.potentials import debye, proven

COEFFICIENTS = "barrier, by coefficients"
STRIP = "barrier, on boxes of all x and c"
_MOST_BOXES = 50_000


@dataclass(frozen=True)
class Step:
    """One thing that was checked. `margin` is the share of the bound that was left, where that means something."""

    name: str
    statement: str
    holds: bool
    margin: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Terms:
    """g_0 .. g_n of one family as curves in t, and what the Riccati equation makes of their sum."""

    beta: int
    order: int

    def numerator(self, k: int) -> Any:
        """(1 + t) g_k, and 0 beyond the order."""
        return polynomial(debye.numerator(self.beta, k) if 0 <= k <= self.order else (0,))

    def term(self, k: int) -> Curve:
        """r_k / v = g_k / t (r_k: eq. a2-candidate-app for k <= 2 at beta = 1)."""
        return Curve(self.numerator(k) // polynomial((0, 1)), 1)

    def rate(self, k: int) -> Curve:
        """dr_k / dz = g_k - t (1 - t^2) g_k'."""
        n = self.numerator(k)
        return Curve(n * polynomial((1, 1, -1)) - polynomial((0, 1, 0, -1)) * n.derivative(), 1)

    def residual(self, k: int) -> Curve:
        """The coefficient of h^k in E = 1 - (2 + beta h) A / z - A^2 - h dA/dz, A = sum_{k<=n} h^k z g_k (eq. a2-exact-residual-app at n = 2, beta = 1)."""
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
    return Step("suprema", f"{what} <= {float(bound):g}", outcome.holds, outcome.margin, str(outcome))


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
    yield coefficient_step(claim, beta, wall)
    outcome = _impassable(Terms(beta, order), wall)
    yield Step(STRIP, claim, outcome.holds, outcome.margin, str(outcome))


def coefficient_step(claim: str, beta: int, wall: proven.Barrier) -> Step:
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
    pull = 2 - higher - (h * ball(proven.OMEGA[beta]) if n else 0)
    pairs = ((wall.residual, residual), (wall.pull, pull), (wall.pull_most, 2 + 2 * beta * h + higher))
    same = all(ball(exact).overlaps(again) for exact, again in pairs)
    margin = wall.margin()
    return Step(COEFFICIENTS, claim, same and margin >= 0, float(margin))


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
        kappa = (2 + beta * h) * t + 2 * rest * horner(heights, h)
        return abs(horner(errors, h)) + constant**2 * h ** (order + 1) * rest, constant * (kappa + h * t**3)

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
            if not push < pull:
                return Outcome(False, boxes, exceeded_at=float(t))
        if boxes > _MOST_BOXES:
            return Outcome(False, boxes, undecided_at=float(t))
        if high - low >= (far - near) / wall.h:
            pending += [(low, t, near, far), (t, high, near, far)]
        else:
            pending += [(low, high, near, h), (low, high, h, far)]
    return Outcome(True, boxes, margin)


def elementary_steps() -> Iterator[Step]:
    """The few suprema that do not depend on an order: of the first-order part of kappa, and of what an economised tail adds."""
    for beta, factored in ((0, polynomial((1, -6, 9)) * polynomial((1, 6)) / 27), (1, polynomial((0, 0, 0, 2)))):
        # kappa_1 + t^3 + omega as it is in the equation of the error, against a form that cannot be negative
        first = Terms(beta, 1).term(1)
        slope = Curve(polynomial((0, beta)) * polynomial((1, 1)) ** first.power + 2 * polynomial((1, 0, -1)) * first.numerator, first.power)
        lifted = slope.numerator + polynomial((proven.OMEGA[beta], 0, 0, 1))
        claim = f"kappa_1 + t^3 >= -{float(proven.OMEGA[beta]):.4g} at beta = {beta}, by a factorisation"
        yield Step("suprema", claim, slope.power == 0 and lifted == factored)
    size, turn = Curve(polynomial((0, 0, 1))), Curve(polynomial((0, 0, 0, -2, 0, 3)))
    yield _supremum("v t^2", proven.ECONOMY_SIZE, size.at_most(proven.ECONOMY_SIZE, "v"))
    yield _supremum("|t^3 (3 t^2 - 2)|", proven.ECONOMY_TURN, turn.at_most(proven.ECONOMY_TURN))
    # (1 + t) t^(7/2) sqrt(1 - t), squared
    square = Curve(polynomial((1, 2, 1)) * polynomial((0,) * 7 + (1,)) * polynomial((1, -1)))
    yield _supremum("((1 + t) t^(7/2) sqrt(1 - t))^2", proven.ECONOMY_RATE**2, square.at_most(proven.ECONOMY_RATE**2))
