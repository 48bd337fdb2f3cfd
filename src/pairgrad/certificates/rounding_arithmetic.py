"""An arithmetic that differentiates a formula by its own roundings, and so proves how far they can move its result.

The floating-point value of a formula is the exact value of a perturbed one. An operation returns (a op b) exp(e) with |e| <= h = u / (1 - u), so
what is computed is F(x, e_1, ..., e_N) where F(x, 0, ..., 0) is exact, and by the mean value theorem

    |log F(x, e) - log F(x, 0)| <= sum_i sup |d log F / d e_i| sup |e_i|,

the suprema over everything that can occur. They are taken in ball arithmetic: `RoundingArithmetic` runs the formula over a box of arguments
and over all roundings at once, keeps a record, and goes through it backwards. Nothing of second order is left out, and a rounding that
reaches the result on several ways (that of s, through t and through v) is counted once, with its signs: this keeps the bound sharp. The sum,
over h, is the *condition* of the formula, in roundings.

Backwards, a number z carries two derivatives, and d log F / d log z = l + a z:

    l   through products, quotients and roots, which pass relative changes on (z = b c: l_b += l_z and l_c += l_z), so that x = 0 is harmless;
    a   through sums, which pass absolute changes on (z = b + c: a_b += a_z + l_z / z), so that a zero of a polynomial is.

A rounding is at most h, and at most h 2^k / |z| where |z| < 2^(k+1) in the whole box: the floats of a binade are equally spaced. A square root
is given twice that, one unit in the last place: torch on the CPU takes it from a vector library that does not round to nearest. Below the smallest
normal number, that number is added to the error, which covers subnormal results and those flushed to zero.

The same operation on the same operands is one number with one rounding. A product that goes into a sum is the exception: a compiler may fuse
the two, and not everywhere alike, so its rounding is counted for each sum by itself; e = 0 is among the cases, so the bound holds with and
without contraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch

from pairgrad.certificates.rounding_constants import SMALLEST_NORMAL, UNIT_ROUNDOFF, Ball, Constant
from pairgrad.ground.arithmetic import TorchArithmetic
from pairgrad.ground.balls import flint

FAR = 2.0**60  # `TorchArithmetic.polar` takes every |x| up to here as it is, in every dtype

_SQRT = 2  # roundings in a square root

_POWER, _PRODUCT, _SUM = range(3)


def above(ball: Ball) -> float:
    """A float that is not below |ball|; infinity if there is no bound."""
    return math.nextafter(float(ball.abs_upper()), math.inf) if ball.is_finite() else math.inf


def _below(ball: Ball) -> float:
    """A float that is not above |ball|."""
    return math.nextafter(float(ball.abs_lower()), 0.0) if ball.is_finite() else 0.0


def _rounding(ball: Ball, least: float) -> float:
    """One rounding of a number in the ball that is not below `least`, as a multiple of h."""
    top = above(ball)
    spacing = math.ldexp(1.0, math.frexp(top)[1] - 1) if top < math.inf else math.inf
    return math.nextafter(spacing / least, math.inf) if spacing < least else 1.0


class Rounded:
    """A number of `RoundingArithmetic`: all values it can take, where it came from, and its own error.

    Args:
        raw: contains the result of the operation for all arguments in the box and all roundings, before it is itself rounded.
        edges: (operand, kind, factor); `RoundingArithmetic.condition` says what they mean.
        rounds: how many roundings the operation makes of its result.
        units: relative error beside that rounding, as a multiple of h.
        stray: absolute error beside it.
        least: a lower bound of |raw|, if a better one is known than that of the ball.
        fusible: whether it is a product that a compiler may fuse into a sum.
    """

    __slots__ = ("absolute", "ball", "edges", "fusible", "least", "ops", "relative", "stray", "summed", "units")

    def __init__(
        self,
        ops: RoundingArithmetic,
        raw: Ball,
        edges: tuple[tuple[Rounded, int, Any], ...],
        *,
        rounds: int = 1,
        units: Ball = 0,
        stray: Ball = 0,
        least: float = 0.0,
        fusible: bool = False,
    ) -> None:
        least = max(least, _below(raw))
        if rounds:
            units = units + rounds * _rounding(raw, least)
            raw = raw * (ops.one_rounding if rounds == 1 else ops.widening(rounds))
            least *= ops.least_rounding
        if edges and least < ops.tiny:
            raw, stray, least = raw + ops.around_zero, stray + ops.tiny, 0.0
        self.ops, self.ball, self.edges, self.units, self.stray, self.least, self.fusible = ops, raw, edges, units, stray, least, fusible
        self.relative = self.absolute = self.summed = None  # l; a through products; a through sums, if fusible
        ops.record.append(self)

    def __neg__(self) -> Rounded:
        if not self.fusible:
            return self.ops.product(self, -1)
        edges = tuple((operand, kind, -factor) for operand, kind, factor in self.edges)  # -b c, which may be fused as b c may
        return Rounded(self.ops, -self.ball, edges, rounds=0, units=self.units, stray=self.stray, least=self.least, fusible=True)

    def __add__(self, other: Any) -> Rounded:
        return self.ops.sum(self, other)

    def __sub__(self, other: Any) -> Rounded:
        return self.ops.sum(self, -other)

    def __rsub__(self, other: Any) -> Rounded:
        return self.ops.sum(-self, other)

    def __mul__(self, other: Any) -> Any:
        return self.ops.product(self, other)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Rounded):
            return self.ops.quotient(self, other)
        return self.ops.product(self, 1 / Constant.of(other), units=1)  # one more rounding: some devices multiply by the reciprocal

    def __rtruediv__(self, other: Any) -> Any:
        return self.ops.product(self.ops.quotient(None, self), other)  # as torch does

    __radd__, __rmul__ = __add__, __mul__


class RoundingArithmetic:
    """What `Expansion.slope` asks of an arithmetic, rounded as `TorchArithmetic` rounds.

    Args:
        dtype: float32 or float64.
        box: (a, b) with 0 < a <= b <= infinity; `argument` stands for every x between them.
        kept: constants of an earlier arithmetic, to be used again.
    """

    name = "rounding"

    def __init__(self, dtype: torch.dtype, box: tuple[float, float], kept: dict[Any, Any] | None = None) -> None:
        self.arb, self.dtype, self.box = flint().arb, dtype, box
        self.unit = self.arb(UNIT_ROUNDOFF[dtype])
        self.log_unit = self.unit / (1 - self.unit)  # h
        self.one_rounding = self.widening(1)
        self.least_rounding = 1 - 8 * UNIT_ROUNDOFF[dtype]  # well below exp(-2 h): a product of floats with it may be rounded, too
        self.tiny = SMALLEST_NORMAL[dtype]
        self.around_zero = self.arb(0, self.tiny)
        self.record: list[Rounded] = []
        self._kept = {} if kept is None else kept
        self._known: dict[Any, Any] = {}
        self.argument = Rounded(self, self._hull(*map(self.arb, box)), (), rounds=0, least=box[0])

    def widening(self, units: Ball) -> Ball:
        """exp(e) for all |e| <= h units."""
        return self.arb(0, units * self.log_unit).exp()

    def _hull(self, low: Ball, high: Ball) -> Ball:
        return low.union(high) if high.is_finite() else self.arb(0, math.inf)

    def constant(self, value: Fraction | float) -> Constant:
        return Constant.of(value)

    def constants(self, values: Sequence[Fraction]) -> tuple[Constant, ...]:
        if id(values) not in self._kept:
            self._kept[id(values)] = values, tuple(map(Constant.of, values))  # kept with its key: no other tuple can take the identity
        return self._kept[id(values)][1]

    def _constant_error(self, c: Constant) -> tuple[Ball, Ball | None, Ball]:
        """The error of a constant: absolute, as a multiple of h or None where all digits may be lost, and the widening that belongs to it."""
        if ("error", c) not in self._kept:
            error = c.error(self.dtype)
            share = error / abs(c.ball)
            units = share / (1 - share) / self.log_unit if share < 0.5 else None
            self._kept["error", c] = error, units, self.widening(units or 0)
        return self._kept["error", c]

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """One number for the same operation on the same operands."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def sum(self, a: Rounded, b: Any) -> Rounded:
        if not isinstance(b, Rounded):
            b = Constant.of(b)
            if b.is_exactly(0):
                return a
        if a.fusible or (isinstance(b, Rounded) and b.fusible):
            return self._sum(a, b)
        return self._once((_SUM, a, b), lambda: self._sum(a, b))

    def _sum(self, a: Rounded, b: Rounded | Constant) -> Rounded:
        if isinstance(b, Rounded):
            return Rounded(self, a.ball + b.ball, ((a, _SUM, self.one_rounding), (b, _SUM, self.one_rounding)))
        error = self._constant_error(b)[0]
        return Rounded(self, a.ball + b.ball + self.arb(0, error), ((a, _SUM, self.one_rounding),), stray=error * self.one_rounding)

    def product(self, a: Rounded, b: Any, *, units: int = 0) -> Any:
        if not isinstance(b, Rounded):
            b = Constant.of(b)
            if b.is_exactly(0) or b.is_exactly(1):
                return a if b.held else b
        return self._once((_PRODUCT, a, b, units), lambda: self._product(a, b, units))

    def _product(self, a: Rounded, b: Rounded | Constant, units: int) -> Rounded:
        raw = a.ball * b.ball
        if isinstance(b, Rounded):
            edges = ((a, _PRODUCT, b.ball * self.one_rounding), (b, _PRODUCT, a.ball * self.one_rounding))
            return Rounded(self, raw, edges, least=math.nextafter(a.least * b.least, 0.0), fusible=True)
        least = math.nextafter(a.least * _below(b.ball) / 2, 0.0)  # the half is room for the errors below
        if b.scales:
            return Rounded(self, raw, ((a, _PRODUCT, b.ball),), rounds=0, least=least)
        error, more, widening = self._constant_error(b)
        widening = widening * self.widening(units) if units else widening
        if more is None:
            edges = ((a, _PRODUCT, (b.ball + self.arb(0, error)) * widening * self.one_rounding),)
            stray = abs(a.ball) * error * widening * self.one_rounding
            return Rounded(self, raw * widening + self.arb(0, stray), edges, units=units, stray=stray, fusible=True)
        edges = ((a, _PRODUCT, b.ball * widening * self.one_rounding),)
        return Rounded(self, raw * widening, edges, units=units + more, least=least, fusible=True)

    def quotient(self, a: Rounded | None, b: Rounded) -> Rounded:
        """a / b, or 1 / b. Where b is unbounded, |1 / b| <= 1 / least is all that is known of it."""
        inverse = 1 / b.ball if b.ball.is_finite() else self.arb(0, 1 / self.arb(b.least))
        if a is None:
            return self._once((_POWER, b), lambda: Rounded(self, inverse, ((b, _POWER, -1),)))
        least = math.nextafter(a.least * _below(inverse), 0.0)
        edges = ((a, _PRODUCT, inverse * self.one_rounding), (b, _POWER, -1))
        return self._once((_POWER, a, b), lambda: Rounded(self, a.ball * inverse, edges, least=least))

    def reciprocal(self, x: Rounded) -> Rounded:
        return 1 / x

    def sqrt(self, a: Rounded) -> Rounded:
        return self._once((_POWER, "sqrt", a), lambda: Rounded(self, a.ball.sqrt(), ((a, _POWER, self.arb(0.5)),), rounds=_SQRT))

    def polar(self, c: Constant, x: Rounded) -> tuple[Rounded, Rounded]:
        """(s, x / s) at the argument.

        The root is taken of (x^2 (1 + d) + c^2 (1 + d')) (1 + d''), that is s^2 (1 + v^2 d + t^2 d') (1 + d''); one number carries all of it. The
        larger of root and |x| is at least as near to s as the root is: s exp(f e) with some 0 <= f <= 1 if the root is s exp(e), and f = 1
        where the root is surely the larger. Beyond `FAR`, the clamp of x moves v and s by less than (c / FAR)^2.
        """
        if x is not self.argument:
            raise NotImplementedError("polar is bounded at the argument itself")
        centre = c.ball
        (s_low, v_low, t_high), (s_high, v_high, _) = (self._at(centre, self.arb(y)) for y in self.box)
        spread = v_high**2 * self.unit + t_high**2 * (c * c).error(self.dtype) / centre**2 + self.tiny / centre**2
        before_root = (1 + spread / (1 - spread) / self.log_unit) / 2
        clamp = (centre / FAR) ** 2 / self.log_unit if self.box[1] > FAR else 0
        around = self.widening(before_root + _SQRT + clamp)
        size, least = self._hull(s_low, s_high) * around, _below(s_low * around)
        root = Rounded(self, size, (), rounds=0, units=before_root + _SQRT * _rounding(size, least), least=least)
        kept = 1 if v_high * around < 1 else self._hull(self.arb(0), self.arb(1))
        s = Rounded(self, size, ((root, _POWER, kept),), rounds=0, units=clamp, least=root.least)
        v = Rounded(self, self._hull(v_low, v_high) * around, ((root, _POWER, -1),), units=clamp, least=_below(v_low * around))
        return s, v

    def _at(self, c: Ball, x: Ball) -> tuple[Ball, Ball, Ball]:
        """s, v and t."""
        if not x.is_finite():
            return x, self.arb(1), self.arb(0)
        s = (c * c + x * x).sqrt()
        return s, x / s, c / s

    def polynomial(self, coefficients: Sequence[Constant], t: Rounded) -> Any:
        """The lines of `TorchArithmetic`, on the branch that keeps no buffer; the other branch does the same operations."""
        with torch.enable_grad():
            return TorchArithmetic().polynomial(coefficients, t)  # type: ignore[arg-type]

    def condition(self, result: Rounded) -> Ball:
        """sum_i sup |d log result / d e_i| sup |e_i| / h, absolute errors included. To be called once.

        An edge leads from z to one of its operands b, with a factor f that contains the rounding of z. Power, d log z / d log b = f:
        l_b += f (l_z + a_z z). Product, dz / db = f and d log z / d log b = 1: l_b += l_z, a_b += f a_z. Sum, dz / db = f:
        a_b += f (a_z + l_z / z). With an absolute error z is not a pure product any more, so what it passes on is absolute.
        """
        result.relative = self.arb(1)
        total = self.arb(0)
        for z in reversed(self.record):
            l, a = z.relative, z.absolute
            if z.stray and l is not None:
                l, a = None, _plus(a, l / z.ball)
            total += self._charge(z, l, a)
            a = _plus(a, z.summed)
            logarithmic = _plus(l, _times(a, z.ball))
            for operand, kind, factor in z.edges if logarithmic is not None else ():
                if kind == _POWER:
                    operand.relative = _plus(operand.relative, factor * logarithmic)
                elif kind == _PRODUCT:
                    operand.relative = _plus(operand.relative, l)
                    operand.absolute = _plus(operand.absolute, _times(a, factor))
                else:
                    change = _plus(a, None if l is None else l / z.ball) * factor
                    if operand.fusible:
                        total += self._charge(operand, None, change)
                        operand.summed = _plus(operand.summed, change)
                    else:
                        operand.absolute = _plus(operand.absolute, change)
        return total

    def _charge(self, z: Rounded, l: Ball | None, a: Ball | None) -> Ball:
        """What the error of z itself adds to the condition; l is None where it has an absolute part."""
        if a is None:
            return 0 if l is None else l.abs_upper() * z.units
        total = _plus(l, a * z.ball).abs_upper() * z.units
        return total + a.abs_upper() * z.stray / self.log_unit if z.stray else total


def _plus(a: Ball | None, b: Ball | None) -> Ball:
    """The sum, where None is zero: a product of zero with an unbounded ball would be unbounded."""
    return b if a is None else a if b is None else a + b


def _times(a: Ball | None, b: Ball) -> Ball:
    return None if a is None else a * b
