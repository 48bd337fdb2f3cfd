"""The paired uniform expansion: one potential, its slope, curvature, complement and two-point increment.

Notation (letters as in the paper where it has them)
    nu      Bessel order, dim / 2 - 1
    m       shift: the expansion is taken at order nu + m and brought down by m exact recurrence steps
    c       centre of the expansion: nu + m + 1/2 (midpoint family) or nu (the paper's family, m = 0)
    s       sqrt(c^2 + x^2),   t = c / s in (0, 1],   v = x / s in [0, 1]

Without shift the potential is, for both families and any order n >= 1,

    V(x) = s - nu log(c + s) - log(s) / 2 - c Q(t),      Q' = T,      T(t) = sum_{k=2}^{n} g_k(t) / (t^3 c^k),

and its derivative is v H(t) with H = (1/t) sum_{k=0}^{n} g_k / c^k: the terms k = 0, 1 integrate to the logarithms (x dx = s ds),
the others to the polynomial. At order 2 around c = nu these are eqs. f2 and a2.

With a shift, I_{j-1} = (2 j / x) I_j + I_{j+1} gives Phi_nu = Phi_{nu+m} + log P_m with the *linear* recurrence

    P_0 = 1,   P_1 = 2 (nu + m) + x V'(x),   P_{k+1} = 2 (nu + m - k) P_k + x^2 P_{k-1},

that is P_m = U(x^2) + W(x^2) x V'(x) with polynomials of positive coefficients (they are Lommel's). The potential of the pair is
V + log P_m with V the *approximate* potential at order nu + m, and everything else is derived from that sum, so that value and slope
belong to each other exactly, whatever the error of V. With q = x^2, P and its derivative (or divided difference) in q are evaluated
scaled by powers of s, p = P / s^m and e = s^2 P' / s^m, so that nothing overflows; all their terms are positive, so nothing cancels.

Formulas are functions of an arithmetic (`ground.arithmetic`): torch, mpmath and balls run these very lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import torch

from pairgrad.ground.arithmetic import (
    Arithmetic,
    Number,
    TorchArithmetic,
    as_float,
    divided_difference,
    homogeneous,
    homogeneous_difference,
    once,
)
from pairgrad.potentials import debye

_HALF = Fraction(1, 2)
_MOST_TERMS = 40  # of the series of artanh
_LONGEST_REACH = 0.25  # argument of artanh up to which its series is shorter than a logarithm
_NEAR = 0.75  # log(P_b / P_a) is taken from the divided difference up to this relative increase of P, from values beyond
_UNDERFLOW = 2.0**-60  # where (s - c) / c is 0 when multiplied by this, its parts may underflow, and one term of a series has all digits


class Coefficients(NamedTuple):
    """All constants of an expansion: exact rationals, or those brought into an arithmetic."""

    nu: Any
    centre: Any
    expanded: Any  # nu + m, the order at which the expansion is taken
    midpoint: Any  # nu + 1/2, of the Riccati equation of the result
    stretch: Any  # 2 if the polynomials below named "tail" or "quotient" are in w = 2 t - 1, 1 if they are in t
    head: Any  # (1 + t) (1/t) sum_{k<2} g_k / c^k = 1 + ...
    tail: Any  # T
    tail_over_centre: Any  # T / c
    tail_integral: Any  # Q
    value_quotient: Any  # (Q(t) - Q(1)) / (t - 1)
    curved_head: Any  # as head and tail, for s V'' = C(t) = (1/t) sum_k (g_k - t (1 - t^2) g_k') / c^k
    curved_tail: Any
    bent_head: Any  # (1 + t)^2 d/dt [t (H + C)], head and tail / t^2: for d^2 P_1 / dq^2
    bent_tail: Any
    lifted_tail: Any  # t^3 T
    free: Any  # P_m = U + W (x V') with polynomials U and W in x^2: u_j / c^(m - 2 j)
    bound: Any  # w_j / c^(m - 1 - 2 j)
    rate: Any  # value(x) / (s - c) at x = 0


class Point(NamedTuple):
    """Where an expansion is evaluated: s = sqrt(c^2 + x^2), t = c / s and v = x / s with its centre c."""

    s: Number
    t: Number
    v: Number


@dataclass(frozen=True)
class Expansion:
    """Order-n uniform expansion of the vMF potential of Bessel order `nu`, with `shift` exact steps of recurrence.

    Args:
        nu: Bessel order, a nonnegative rational.
        order: n >= 1, the last g_k that is kept.
        shift: m >= 0 recurrence steps; the expansion itself is taken at order nu + m.
        beta: 0 for the midpoint family (centre nu + m + 1/2), 1 for the paper's family (centre nu + m).
        economy: if positive, T is replaced by the shortest polynomial within this distance of it on [0, 1], *before* value, slope and
            curvature are derived from it: they stay one object.
    """

    nu: Fraction
    order: int
    shift: int = 0
    beta: int = 0
    economy: Fraction = Fraction(0)

    @property
    def centre(self) -> Fraction:
        return self.nu + self.shift + (_HALF if self.beta == 0 else 0)

    @cached_property
    def _tail(self) -> debye.Economised:
        terms = {k: debye.polynomial(self.beta, k)[3:] for k in range(2, self.order + 1)}
        tail = debye.combine(terms, self.centre)
        return debye.economise(tail, self.economy) if self.economy else debye.Economised(tail, Fraction(0), Fraction(0))

    @property
    def economised_by(self) -> Fraction:
        """A bound on |T - T_n| over [0, 1], T_n the full polynomial of order n: the slope at order nu + m moves by at most v t^2 times it."""
        return self._tail.change

    @property
    def economised_rate(self) -> Fraction:
        """|T' - T_n'| <= this over sqrt(t (1 - t))."""
        return self._tail.rate

    @cached_property
    def exact(self) -> Coefficients:
        c, zeros = self.centre, (Fraction(0),) * 3
        numerators = [debye.numerator(self.beta, k) for k in (0, 1)]
        head = debye.combine({k: n[1:] for k, n in enumerate(numerators)}, c)
        curved_head = debye.combine({k: _curved_numerator(n)[1:] for k, n in enumerate(numerators)}, c)
        tail = self._tail.polynomial
        curved_tail = _curved_tail(tail)
        integral = debye.antiderivative(tail)
        both_heads = (Fraction(0), *debye.plus(head, curved_head))
        both_tails = zeros + debye.plus(tail, curved_tail)
        free, bound = self._lommel()
        place = debye.around_half if self.economy else tuple
        free = tuple(u / c ** (self.shift - 2 * j) for j, u in enumerate(free))
        bound = tuple(w / c ** (self.shift - 1 - 2 * j) for j, w in enumerate(bound))
        height = sum(head, Fraction(0)) / 2 + sum(tail, Fraction(0))  # H at t = 1
        return Coefficients(
            nu=self.nu,
            centre=c,
            expanded=self.nu + self.shift,
            midpoint=self.nu + _HALF,
            stretch=Fraction(2 if self.economy else 1),
            head=head,
            tail=place(tail),
            tail_over_centre=place(debye.product((1 / c,), tail)),
            tail_integral=place(integral),
            value_quotient=place(debye.quotient_at_one(integral)),
            curved_head=curved_head,
            curved_tail=place(curved_tail),
            bent_head=debye.plus(debye.product((1, 1), debye.derivative(both_heads)), both_heads, -1),
            bent_tail=place(debye.derivative(both_tails)[2:]),
            lifted_tail=place(zeros + tail),
            free=free,
            bound=bound,
            rate=height + 2 / c * sum(free[1:2], height * bound[0]) / free[0],
        )

    def _lommel(self) -> tuple[debye.Polynomial, debye.Polynomial]:
        """U and W with P_m = U(x^2) + W(x^2) (x V'): the recurrence applied to (1, 0) and (2 (nu + m), 1). All coefficients are positive."""
        if not self.shift:
            return (Fraction(1),), (Fraction(0),)
        below = (Fraction(1),), (Fraction(0),)
        here = (2 * (self.nu + self.shift),), (Fraction(1),)
        for k in range(1, self.shift):
            step = 2 * (self.nu + self.shift - k)
            lifted = [debye.plus(debye.product((step,), h), debye.product((0, 1), b)) for h, b in zip(here, below, strict=True)]
            below, here = here, tuple(lifted)
        free, bound = here
        return free[: self.shift // 2 + 1], bound[: (self.shift - 1) // 2 + 1]

    def __post_init__(self) -> None:
        # made at once, because a region under torch.compile cannot wait for a cached property
        object.__setattr__(self, "_floats", _convert(self.exact, TorchArithmetic()))
        object.__setattr__(self, "_series", self._odd_series(TorchArithmetic(), (_MOST_TERMS, _MOST_TERMS)))

    @property
    def numbers(self) -> Coefficients:
        """The constants as floats."""
        return self._floats  # type: ignore[attr-defined]

    def coefficients(self, ops: Arithmetic) -> Coefficients:
        """The constants in an arithmetic: kept for torch, made anew for arithmetics whose precision may have changed."""
        if isinstance(ops, TorchArithmetic):
            return self.numbers
        return _convert(self.exact, ops)

    def slope(self, ops: Arithmetic, x: Number) -> Number:
        """Derivative of the value; odd in x."""
        k = self.coefficients(ops)
        at = _point(ops, k, x)
        return self._slope_at(ops, k, at, _height(ops, k, at.t))

    def _slope_at(self, ops: Arithmetic, k: Coefficients, at: Point, height: Number) -> Number:
        return at.v * (self._shifted_height(ops, k, at, height) if self.shift else height)

    def _shifted_height(self, ops: Arithmetic, k: Coefficients, at: Point, height: Number) -> Number:
        """s times slope over x, of the shifted potential."""
        p, e = self._descend(ops, k, at, height)
        return height + 2 / k.centre * at.t * (e / p)

    def curvature(self, ops: Arithmetic, x: Number) -> Number:
        """Second derivative of the value; even in x."""
        k = self.coefficients(ops)
        at = _point(ops, k, x)
        curved = _curved_height(ops, k, at.t)
        if self.shift:
            first, second = self._log_derivatives(ops, k, at, _height(ops, k, at.t), curved)
            curved = curved + at.t / k.centre * (4 * second - 2 * first)
        return at.t / k.centre * curved

    def slope_complement_curvature(self, ops: Arithmetic, x: Number) -> tuple[Number, Number, Number]:
        """All three for x >= 0, from one evaluation of what they share; of a planned expansion (`economy` > 0)."""
        k = self.coefficients(ops)
        at = _point(ops, k, x)
        height, curved = _height(ops, k, at.t), _curved_height(ops, k, at.t)
        if self.shift:
            first, second = self._log_derivatives(ops, k, at, height, curved)
            scale = at.t / k.centre
            height, curved = height + 2 * scale * first, curved + scale * (4 * second - 2 * first)
        bend = at.t / k.centre * curved
        return at.v * height, self._complement_at(ops, k, x, bend), bend

    def complement(self, ops: Arithmetic, x: Number) -> Number:
        """1 - slope for x >= 0, without cancellation.

        A planned expansion (`economy` > 0) has a truncation below rounding, so R = slope obeys its Riccati equation, which is quadratic
        in 1 - R: with mu = nu + 1/2,

            1 - R = (x R' + 2 mu) / (x + mu + sqrt(x^2 (1 - R') + mu^2)).

        R' enters with the weight 1 / (2 x) for large x, exactly where it is hard to get. Other expansions use
        1 - x / (c + s) = t (1 + t / (1 + v)) / (1 + t) and subtract the rest of the slope; with a shift, the relative error then grows
        with m / (nu + 1/2).
        """
        k = self.coefficients(ops)
        x = ops.absolute(x)
        if self.economy:
            return self._complement_at(ops, k, x, self.curvature(ops, x))
        at = _point(ops, k, x)
        first = ops.polynomial(k.head[1:], at.t) * at.t
        rest = (at.t * (1 + at.t / (1 + at.v)) - at.v * first) / (1 + at.t)
        rest = rest - at.v * at.t * at.t * _tail(ops, k, k.tail, at.t)
        if self.shift:
            p, e = self._descend(ops, k, at, _height(ops, k, at.t))
            rest = rest - 2 / k.centre * at.v * at.t * (e / p)
        return rest

    def _complement_at(self, ops: Arithmetic, k: Coefficients, x: Number, bend: Number) -> Number:
        """The complement from R' = `bend`, for a planned expansion."""
        root = ops.radius(k.midpoint, x * ops.sqrt(1 - bend))
        return (x / 2 * bend + k.midpoint) / (x / 2 + k.midpoint / 2 + root / 2)  # halves: the sum must not overflow

    def increases(self) -> bool:
        """Whether the slope increases with x, looked up on a grid: at low order and small nu it does not."""
        x = float(self.centre) * torch.logspace(-3, 4, 200, dtype=torch.float64)
        return bool((self.curvature(TorchArithmetic(), x) > 0).all())

    def value(self, ops: Arithmetic, x: Number) -> Number:
        """V(x) - V(0), even in x, to relative accuracy: the increment from 0 with its constants known in advance."""
        k = self.coefficients(ops)
        at = _point(ops, k, x)
        return self._value_at(ops, k, at, _height(ops, k, at.t) if self.shift else None, x)

    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        """Value and slope, from one evaluation of what they share."""
        k = self.coefficients(ops)
        at = _point(ops, k, x)
        height = _height(ops, k, at.t)
        return self._value_at(ops, k, at, height, x), self._slope_at(ops, k, at, height)

    def _value_at(self, ops: Arithmetic, k: Coefficients, high: Point, height: Number | None, x: Number) -> Number:
        rise = x * (x / (k.centre + high.s))  # s - c
        tail = high.t * _tail(ops, k, k.value_quotient, high.t)
        total = rise - k.expanded * ops.log1p(rise / (2 * k.centre)) - ops.log1p(rise / k.centre) / 2 + rise * tail
        if self.shift:
            p, part, near = self._shifted_rise(ops, k, high, height, rise)
            far = ops.log(p / k.free[0]) - self.shift * ops.log(high.t)
            total = total + ops.choose(part <= _NEAR, near, far)
        return ops.choose(_vanishes(k, rise), k.rate * rise, total)

    def _shifted_rise(
        self, ops: Arithmetic, k: Coefficients, high: Point, height: Number | None, rise: Number
    ) -> tuple[Number, Number, Number]:
        """p_m, the relative increase 1 - P(0) / P of P since x = 0, and the logarithm of P / P(0) from it."""
        p, e = self._descend(ops, k, high, height, low_q=0)
        part = rise * ((1 + high.t) / high.s) * (e / p)
        return p, part, -ops.log1p(-ops.minimum(part, 0 * part + _NEAR))

    def deficit(self, ops: Arithmetic, x: Number) -> Number:
        """x - value(x) for x >= 0, the integral of the complement, without the cancellation of two numbers that are close for large x.

        x - (s - c) is c (x + s - c) / (x + s). With a shift, the logarithms that grow with x are those of order nu + m less m times log s; of their
        difference nu log((c + s) / 2 c) is left, and m log(2 s / (c + s)), which is bounded.
        """
        k = self.coefficients(ops)
        x = ops.absolute(x)
        at = _point(ops, k, x)
        rise = x * (x / (k.centre + at.s))
        grown = ops.log1p(rise / (2 * k.centre))
        tail = rise * at.t * _tail(ops, k, k.value_quotient, at.t)
        # halves: sums must not overflow
        total = k.centre * ((rise / 2 + x / 2) / (at.s / 2 + x / 2)) + ops.log1p(rise / k.centre) / 2 - tail
        if self.shift:
            p, part, near = self._shifted_rise(ops, k, at, _height(ops, k, at.t), rise)
            far = k.nu * grown - self.shift * ops.log1p(rise / (2 * k.centre + rise)) - ops.log(p / k.free[0])
            total = total + ops.choose(part <= _NEAR, k.expanded * grown - near, far)
        else:
            total = total + k.expanded * grown
        return ops.choose(_vanishes(k, rise), x, total)

    def difference(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        """value(b) - value(a), accurate relative to itself."""
        total, _, sign = self._increment(ops, a, b, per_unit=False)
        return sign * total

    def secant(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        """(value(b) - value(a)) / (b - a); the slope where a = b."""
        total, mean, _ = self._increment(ops, a, b, per_unit=True)
        return mean * total

    def _increment(self, ops: Arithmetic, a: Number, b: Number, *, per_unit: bool) -> tuple[Number, Number, Number]:
        """The increase of the value over D = |s_b - s_a|, or its quotient by D; then (s_b - s_a) / (b - a), and the sign of s_b - s_a.

        With u the smaller and w the larger of the two s, without shift,

            V_w - V_u = D - nu log1p(D / (c + u)) - log1p(D / u) / 2 + D t_u t_w Q[t_u, t_w],

        Q[.,.] the divided difference of Q (eqs. stable-delta and stable-f2 at order 2 of the paper's family). A shift adds log(P_w / P_u):
        from the divided difference of P in q = x^2, which obeys the same positive recurrence as its derivative, or from the
        two values of P where these are far apart.
        """
        k = self.coefficients(ops)
        mean = a / 2 + b / 2
        a, b = ops.absolute(a), ops.absolute(b)
        sa, sb = ops.radius(k.centre, a), ops.radius(k.centre, b)
        half_sum = sa / 2 + sb / 2
        size = ops.absolute((b - a) * ((a / 2 + b / 2) / half_sum))
        total = self._rise(ops, k, a, b, sa, sb, size, per_unit=per_unit)
        if not per_unit:
            total = ops.choose(_vanishes(k, size), k.rate * size, total)
        return total, mean / half_sum, ops.choose(b >= a, 1 + 0 * size, -1 + 0 * size)

    def _rise(
        self, ops: Arithmetic, k: Coefficients, a: Number, b: Number, sa: Number, sb: Number, size: Number, *, per_unit: bool
    ) -> Number:
        """|V_b - V_a|, or that over D, from D = |s_b - s_a| = `size` and a, b >= 0 with their s."""
        low, high = ops.minimum(sa, sb), ops.maximum(sa, sb)
        tu, tw = k.centre * ops.reciprocal(low), k.centre * ops.reciprocal(high)
        unit = 1 + 0 * size if per_unit else size

        def log_rise(weight: Number) -> Number:
            return weight * ops.log1p_over(size * weight) if per_unit else ops.log1p(size * weight)

        tail = tu * tw * _tail_difference(k, k.tail_integral, tu, tw)
        total = unit - k.expanded * log_rise(1 / (k.centre + low)) - log_rise(1 / low) / 2 + unit * tail
        if self.shift:
            low_x, high_x = ops.minimum(a, b), ops.maximum(a, b)
            upper, lower = Point(high, tw, high_x / high), Point(low, tu, low_x / low)
            height = _height(ops, k, tw)
            # divided difference of P_1 = 2 (nu + m) + x^2 (H / s), with that of H / s = t H / c
            lift = _lifted_difference(k, tu, tw)
            first = height - lower.v * lower.v * (low / (low + high)) * lift
            ratio = low_x / high
            low_height = _height(ops, k, tu)
            low_y = lower.v * lower.v * low_height
            p, e = self._descend(ops, k, upper, height, low_q=ratio * ratio, low_y=low_y * (low / high), first=first)
            p_low, _ = self._descend(ops, k, lower, low_height, low_q=0)
            weight = ((1 + low / high) / high) * (e / p)
            part = size * weight
            bounded = ops.minimum(part, 0 * part + _NEAR)
            near = weight * ops.log1p_over(-bounded) if per_unit else -ops.log1p(-bounded)
            far = ops.log(p / p_low) + self.shift * (ops.log(tu) - ops.log(tw))
            if per_unit:
                far = far / ops.maximum(size, low / 2**20)
            total = total + ops.choose(part <= _NEAR, near, far)
        return total

    def increment(self, ops: Arithmetic, a: Number, squared: Number, terms: tuple[int, int] | None = None) -> tuple[Number, Number]:
        """value(b) - value(a), and slope(b) / b, for a >= 0 and b^2 = a^2 + squared: what a score and its gradient need.

        Everything comes from one square root (eq. stable-delta): s_b^2 = s_a^2 + squared, D = s_b - s_a = squared / (s_a + s_b), and, with
        no division by a b that may be small, slope(b) / b = H(t_b) / s_b. Without shift, the logarithms of eq. stable-f2 are

            log((c + s_b) / (c + s_a)) = 2 artanh(D / (2 c + s_a + s_b)),      log(s_b / s_a) / 2 = artanh(D / (s_a + s_b)),

        odd series whose length can be fixed in advance where |b - a|, and with it |D|, is bounded: `terms`, from `series_terms`. The squares must not
        overflow: a up to 1e18 in float32.
        """
        k = self.coefficients(ops)
        square = once(a * a + k.centre * k.centre)
        low = once(ops.sqrt(square))
        if terms is not None and not self.shift:
            return self._by_series(ops, k, low, ops.sqrt(ops.at_least(square + squared, k.centre * k.centre)), squared, terms)
        high = ops.sqrt(ops.at_least(square + squared, k.centre * k.centre))
        zero = 0 * squared
        b = ops.sqrt(ops.maximum(a * a + squared, zero))
        size = ops.absolute(squared / (low + high))
        rise = self._rise(ops, k, a + zero, b, low + zero, high, size, per_unit=False)
        t = k.centre / high
        height = _height(ops, k, t)
        if self.shift:
            height = self._shifted_height(ops, k, Point(high, t, b / high), height)
        return ops.choose(squared >= 0, rise, -rise), height * (t / k.centre)

    def _by_series(
        self, ops: Arithmetic, k: Coefficients, low: Number, high: Number, squared: Number, terms: tuple[int, int]
    ) -> tuple[Number, Number]:
        """`increment` from s_a, s_b and b^2 - a^2, without logarithms. What is deleted early are the largest tensors of a training step."""
        t, t_low = k.centre / high, k.centre / low
        place = t if k.stretch == 1 else ops.multiply_add(k.stretch, t, -1)
        # H / s, with 1 / (s (1 + t)) = 1 / (s + c)
        square = t * t
        gain = (ops.multiply_add(k.head[2], square, k.head[0]) if k.head[1] == 0 else ops.polynomial(k.head, t)) / (high + k.centre)
        gain = ops.multiply_add(square, t * ops.polynomial(k.tail_over_centre, place), gain)
        del square
        tail = t * divided_difference(k.tail_integral, place, once(_place(k, t_low)), ops.multiply_add)
        del t, place
        both = low + high
        del high
        inverse = ops.reciprocal(both)
        size = squared * inverse
        if isinstance(ops, TorchArithmetic):
            outer, inner = self._series[0][: terms[0]], self._series[1][: terms[1]]  # type: ignore[attr-defined]
        else:
            outer, inner = self._odd_series(ops, terms)
        rest = inverse * ops.polynomial(inner, _square(size * inverse))
        inverse = ops.reciprocal(both + 2 * k.centre)
        del both
        rest = ops.multiply_add(inverse, ops.polynomial(outer, _square(size * inverse)), rest)
        del inverse
        return ops.multiply_add(size, ops.multiply_add(once(k.stretch * t_low), tail, rest), size), gain

    def _odd_series(self, ops: Arithmetic, terms: tuple[int, int]) -> tuple[Sequence[Number], Sequence[Number]]:
        """The coefficients in z^2 of -2 nu artanh(z) / z and of -artanh(z) / z, artanh(z) / z = 1 + z^2 / 3 + z^4 / 5 + ..."""
        outer = ops.constants([-2 * self.nu / (2 * i + 1) for i in range(terms[0])])
        return outer, ops.constants([Fraction(-1, 2 * i + 1) for i in range(terms[1])])

    def series_terms(self, reach: float, rounding: float) -> tuple[int, int] | None:
        """Terms of the two series of `increment` that are below `rounding` for |b - a| <= `reach`; None where logarithms are shorter."""
        if self.shift:
            return None
        counts = []
        for argument in (reach / (4 * float(self.centre)), reach / (2 * float(self.centre))):
            if argument > _LONGEST_REACH:
                return None
            counts.append(next(n for n in range(1, _MOST_TERMS) if argument ** (2 * n) / (2 * n + 1) <= rounding / 4))
        return counts[0], counts[1]

    def _descend(
        self,
        ops: Arithmetic,
        k: Coefficients,
        at: Point,
        height: Number,
        *,
        low_q: Number | None = None,
        low_y: Number = 0,
        first: Number | None = None,
        curved: Number | None = None,
    ) -> tuple[Number, Number]:
        """p_m and e_m at `at`: P and its derivative in q, scaled by powers of s, from the polynomials U and W.

        Between two points e_m is the divided difference of P: `low_q` is (x_a / s_b)^2, `low_y` is (x V')_a / s_b, and `first` the divided
        difference of P_1 (that is H where x_a = 0). `curved` is C, where it is known already.
        """
        q, square = at.v * at.v, at.t * at.t
        y = q * height
        if low_q is None:
            low_q, low_y, first = q, y, (height + (_curved_height(ops, k, at.t) if curved is None else curved)) / 2
        free, bound = homogeneous(k.free, q, square), homogeneous(k.bound, q, square)
        free_rise, bound_rise = homogeneous_difference(k.free, low_q, q, square), homogeneous_difference(k.bound, low_q, q, square)
        if self.shift % 2:  # the powers of t have the parity of m in U and of m - 1 in W
            free, free_rise = at.t * free, at.t * free_rise
        else:
            bound, bound_rise = at.t * bound, at.t * bound_rise
        return free + y * bound, free_rise + (height if first is None else first) * bound + low_y * bound_rise

    def _log_derivatives(
        self, ops: Arithmetic, k: Coefficients, at: Point, known: Number | None = None, curved: Number | None = None
    ) -> tuple[Number, Number]:
        """D log P_m / v^2 and D^2 log P_m / v^2 with D = q d/dq = (x / 2) d/dx; `known` and `curved` are H and C, where they are known already.

        P is a sum of positive terms u_j q^j and w_j q^j (x V'); D multiplies them by j and by j + eta, eta = D log(x V'). So D log P is the
        mean E of these exponents with the terms as weights, and D^2 log P their variance, plus D eta times the share of the second kind.
        Summed as squares of deviations it does not cancel, as P'' / P - (P' / P)^2 would for large x.
        """
        q, square = at.v * at.v, at.t * at.t
        height: Number = _height(ops, k, at.t) if known is None else known
        p, e = self._descend(ops, k, at, height, curved=curved)
        first = e / p
        mean = q * first
        eta = (1 + (_curved_height(ops, k, at.t) if curved is None else curved) / height) / 2
        d_eta = eta * (1 - eta) - q * _bent_height(ops, k, at.t) / (4 * height)
        free = [c * (j - mean) * (j - mean) for j, c in enumerate(k.free) if j]
        bound = [c * ((j + eta - mean) * (j + eta - mean) + d_eta) for j, c in enumerate(k.bound)]
        spread = homogeneous(free, q, square) if free else 0 * q
        still = k.free[0] * q * first * first
        for _ in range(len(k.free) - 1):
            still = still * square
        spread, bound_spread = spread + still, height * homogeneous(bound, q, square)
        odd = self.shift % 2
        return first, (at.t * spread + bound_spread if odd else spread + at.t * bound_spread) / p


@dataclass(frozen=True)
class UnnormalisedExpansion(Expansion):
    """An expansion without shift whose value keeps its own constant: V itself, eq. f2 at order 2 of the paper's family."""

    def _value_at(self, ops: Arithmetic, k: Coefficients, high: Point, height: Number | None, x: Number) -> Number:
        logarithms = k.expanded * ops.log(k.centre + high.s) + ops.log(high.s) / 2
        return high.s - logarithms - k.centre * _tail(ops, k, k.tail_integral, high.t)

    def deficit(self, ops: Arithmetic, x: Number) -> Number:
        """x - value(x) for x >= 0: x - s is -c^2 / (x + s)."""
        k = self.coefficients(ops)
        x = ops.absolute(x)
        at = _point(ops, k, x)
        logarithms = k.expanded * ops.log(k.centre + at.s) + ops.log(at.s) / 2
        return logarithms + k.centre * (_tail(ops, k, k.tail_integral, at.t) - k.centre / (x + at.s))


def _point(ops: Arithmetic, k: Coefficients, x: Number) -> Point:
    s, v = ops.polar(k.centre, x)
    return Point(s, k.centre * ops.reciprocal(s), v)


def _vanishes(k: Coefficients, rise: Number) -> Any:
    """Whether s has risen so little that the logarithms of a value would underflow. Where numbers have no least exponent, only if it has not risen at all."""
    return rise * (_UNDERFLOW / k.centre) == 0


def _place(k: Coefficients, t: Number) -> Number:
    """What the polynomials named "tail" or "quotient" are in."""
    return t if k.stretch == 1 else k.stretch * t - 1


def _tail(ops: Arithmetic, k: Coefficients, coefficients: Any, t: Number) -> Number:
    return ops.polynomial(coefficients, _place(k, t))


def _tail_difference(k: Coefficients, coefficients: Any, ta: Number, tb: Number) -> Number:
    difference = divided_difference(coefficients, _place(k, ta), _place(k, tb))
    return difference if k.stretch == 1 else k.stretch * difference


def _height(ops: Arithmetic, k: Coefficients, t: Number) -> Number:
    """H(t) = s V' / x."""
    return ops.polynomial(k.head, t) / (1 + t) + t * t * _tail(ops, k, k.tail, t)


def _curved_height(ops: Arithmetic, k: Coefficients, t: Number) -> Number:
    """C(t) = s V''."""
    return ops.polynomial(k.curved_head, t) / (1 + t) + t * t * _tail(ops, k, k.curved_tail, t)


def _bent_height(ops: Arithmetic, k: Coefficients, t: Number) -> Number:
    """d/dt [t (H + C)] = -4 s^3 d^2 (x V') / dq^2."""
    return ops.polynomial(k.bent_head, t) / ((1 + t) * (1 + t)) + t * t * _tail(ops, k, k.bent_tail, t)


def _square(z: Number) -> Number:
    return z * z


def _lifted_difference(k: Coefficients, ta: Number, tb: Number) -> Number:
    """Divided difference of t H(t) between t_a and t_b (midpoint family, where (1 + t) H = 1 - t^2 / (2 c) + ...)."""
    fraction = 1 / ((1 + ta) * (1 + tb))
    return fraction + k.head[2] * (ta + tb - 1 + fraction) + _tail_difference(k, k.lifted_tail, ta, tb)


def potential_at_zero(nu: Fraction) -> float:
    """Phi_nu(0) = -nu log 2 - log Gamma(nu + 1)."""
    return -as_float(nu) * math.log(2) - math.lgamma(as_float(nu) + 1)


def _convert(exact: Coefficients, ops: Arithmetic) -> Coefficients:
    return Coefficients(*(ops.constants(v) if isinstance(v, tuple) else ops.constant(v) for v in exact))


def _curved_numerator(n: debye.Polynomial) -> debye.Polynomial:
    """(1 + t) (g - t (1 - t^2) g') for g = N / (1 + t): N - t (1 - t^2) N' + t (1 - t) N."""
    return debye.plus(debye.product((1, 1, -1), n), debye.product((0, 1, 0, -1), debye.derivative(n)), -1)


def _curved_tail(tail: debye.Polynomial) -> debye.Polynomial:
    """(S - t (1 - t^2) S') / t^3 for S = t^3 T: T - (1 - t^2) (3 T + t T')."""
    inner = debye.plus(debye.product((3,), tail), debye.product((0, 1), debye.derivative(tail)))
    return debye.plus(tail, debye.product((1, 0, -1), inner), -1)
