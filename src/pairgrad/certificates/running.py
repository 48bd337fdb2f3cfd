"""Running error analysis: a formula evaluated at given tensors together with a bound of what rounding can do to it.

`RunningArithmetic` is one more arithmetic a formula can be evaluated in (`ground.arithmetic`). Its numbers are pairs (middle, error) of float64 tensors with

    |exact - middle| <= error      and      |computed - exact| <= error,

where *exact* is the same formula of real numbers with its exact coefficients, and *computed* is what any evaluation in `dtype` gives that obeys `HYPOTHESIS`.
Each operation passes the errors of its operands on, to first order and beyond, and adds its own. Unlike `rounding_arithmetic`, which proves a bound for all
arguments at once, this takes the state at hand, and errors of the arguments themselves (of a matrix product, say) go in with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch

from pairgrad.certificates.rounding_constants import SMALLEST_NORMAL, UNIT_ROUNDOFF
from pairgrad.ground.arithmetic import horner
from pairgrad.ground.devices import HOST

HYPOTHESIS = (
    "+ - * / round to nearest, sqrt is within one unit in the last place, exp, log and log1p within two, what is subnormal may be flushed to zero; sums and "
    "matrix products are added up in the working dtype, in any order (no TF32), and products may be fused into sums"
)
SQRT = 2  # roundings, for one unit in the last place
FUNCTION = 4  # roundings of exp, log, log1p


class Condition(NamedTuple):
    """Where a comparison holds at the middles, and where rounding may turn it."""

    holds: torch.Tensor
    unsure: torch.Tensor


@dataclass(frozen=True, eq=False)
class Running:
    """A number with the bound of its error, and where one is known, a positive lower bound of exact and computed."""

    middle: torch.Tensor
    error: torch.Tensor
    ops: RunningArithmetic
    floor: torch.Tensor | None = None

    @property
    def size(self) -> torch.Tensor:
        """At least |exact|, |computed| and |middle|."""
        return self.middle.abs() + 2 * self.error

    @property
    def least(self) -> torch.Tensor:
        """At most |exact| and |computed|, or 0."""
        least = (self.middle.abs() - 2 * self.error).clamp_min(0)
        return least if self.floor is None else torch.maximum(least, self.floor)

    def relative(self) -> torch.Tensor:
        """error / |exact|, at most."""
        return torch.where(self.error == 0, 0.0, self.error / self.least)

    def plus(self, roundings: int) -> Running:
        """After so many roundings more. What is not a number has no bound."""
        error = torch.nan_to_num(self.error + self.ops.rounding(self.size, roundings), nan=torch.inf, posinf=torch.inf)
        floor = None if self.floor is None else self.floor * (1 - 2 * roundings * self.ops.unit)
        return Running(self.middle, error, self.ops, floor)

    def __add__(self, other: Any) -> Running:
        other = self.ops.number(other)
        floor = _floor(self, other, torch.add)
        return Running(self.middle + other.middle, self.error + other.error, self.ops, floor).plus(1)

    def __mul__(self, other: Any) -> Running:
        other = self.ops.number(other)
        error = self.size * other.error + other.size * self.error
        return Running(self.middle * other.middle, error, self.ops).plus(0 if _scales(self) or _scales(other) else 1)

    def __truediv__(self, other: Any) -> Running:
        """A number over a tensor is a reciprocal and a product in torch, so two roundings are allowed for."""
        other = self.ops.number(other)
        error = (self.error + self.size / other.least * other.error) / other.least
        return Running(self.middle / other.middle, error, self.ops).plus(2)

    def __rtruediv__(self, other: Any) -> Running:
        return self.ops.number(other) / self

    def __neg__(self) -> Running:
        return Running(-self.middle, self.error, self.ops)

    def __sub__(self, other: Any) -> Running:
        return self + -self.ops.number(other)

    def __rsub__(self, other: Any) -> Running:
        return self.ops.number(other) + -self

    def __le__(self, other: Any) -> Condition:
        other = self.ops.number(other)
        return Condition(self.middle <= other.middle, (self.middle - other.middle).abs() <= 2 * (self.error + other.error))

    def __ge__(self, other: Any) -> Condition:
        return -self <= -self.ops.number(other)

    def __eq__(self, other: object) -> bool:
        """Of constants: whether it is exactly this number."""
        if not isinstance(other, (int, float, Fraction)) or self.middle.dim():
            return NotImplemented
        return self.error.item() == 0 and self.middle.item() == other

    __hash__ = None  # type: ignore[assignment]
    __radd__, __rmul__ = __add__, __mul__


class RunningArithmetic:
    """What the formulas of an increment ask for, with the errors of evaluation in `dtype`."""

    name = "running"

    def __init__(self, dtype: torch.dtype, device: torch.device | str = HOST) -> None:
        self.dtype, self.device = dtype, device
        self.unit, self.tiny = UNIT_ROUNDOFF[dtype], SMALLEST_NORMAL[dtype]
        self.largest = torch.finfo(dtype).max
        self.polynomial = horner
        self._constants: dict[Fraction | float, Running] = {}

    def rounding(self, size: torch.Tensor, roundings: int) -> torch.Tensor:
        """Of a result of at most `size`; infinite where it may overflow."""
        if not roundings:
            return torch.zeros_like(size)
        return torch.where(size < self.largest, (roundings * self.unit) * size + self.tiny, torch.inf)

    def number(self, value: Any) -> Running:
        """A number as it is, a tensor taken for exact, or an exact constant rounded to the dtype."""
        if isinstance(value, Running):
            return value
        if isinstance(value, torch.Tensor):
            return Running(value.double(), torch.zeros_like(value, dtype=torch.float64), self)
        return self.constant(value)

    def constant(self, value: Fraction | float) -> Running:
        if value not in self._constants:
            exact = Fraction(value)
            met = float(exact) if self.dtype == torch.float64 else float(np.float32(float(exact)))
            lost = abs(Fraction(met) - exact) + abs(Fraction(float(exact)) - exact)
            middle, error = torch.tensor([float(exact), float(lost) * (1 + 2.0**-50)], dtype=torch.float64, device=self.device)
            self._constants[value] = Running(middle, error, self)
        return self._constants[value]

    def constants(self, values: Sequence[Fraction]) -> tuple[Running, ...]:
        return tuple(self.constant(value) for value in values)

    def multiply_add(self, a: Any, b: Running, c: Any) -> Running:
        return self.number(a) * b + c

    def absolute(self, x: Running) -> Running:
        return Running(x.middle.abs(), x.error, self)

    def maximum(self, a: Running, b: Running) -> Running:
        return Running(torch.maximum(a.middle, b.middle), torch.maximum(a.error, b.error), self, _floor(a, b, torch.maximum))

    def minimum(self, a: Running, b: Running) -> Running:
        return Running(torch.minimum(a.middle, b.middle), torch.maximum(a.error, b.error), self, _floor(a, b, torch.minimum))

    def at_least(self, x: Running, least: Any) -> Running:
        least = self.number(least)
        larger = self.maximum(x, least)
        return Running(larger.middle, larger.error, self, torch.where(least.middle > 0, least.least, 0.0))

    def choose(self, condition: Condition, yes: Running, no: Running) -> Running:
        """Where rounding may turn the condition, the error covers either branch."""
        either = 3 * torch.maximum(yes.error, no.error) + (yes.middle - no.middle).abs()
        error = torch.where(condition.unsure, either, torch.where(condition.holds, yes.error, no.error))
        return Running(torch.where(condition.holds, yes.middle, no.middle), error, self)

    def reciprocal(self, x: Running) -> Running:
        return 1 / x

    def sqrt(self, x: Running) -> Running:
        """|sqrt y - sqrt z| = |y - z| / (sqrt y + sqrt z), and at most sqrt |y - z|."""
        error = torch.minimum(x.error / (2 * x.least.sqrt()), x.error.sqrt())
        floor = None if x.floor is None else x.floor.sqrt()
        return Running(x.middle.clamp_min(0).sqrt(), torch.where(x.error == 0, 0.0, error), self, floor).plus(SQRT)

    def log(self, x: Running) -> Running:
        return Running(x.middle.log(), x.relative(), self).plus(FUNCTION)

    def log1p(self, x: Running) -> Running:
        return Running(x.middle.log1p(), x.error / (1 + x.middle - 2 * x.error).clamp_min(0), self).plus(FUNCTION)


def _floor(a: Running, b: Running, operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """Of the sum, the larger or the smaller of two numbers, if one of them has a floor."""
    if a.floor is None and b.floor is None:
        return None
    lowest = [x.middle - 2 * x.error if x.floor is None else torch.maximum(x.middle - 2 * x.error, x.floor) for x in (a, b)]
    return operation(*lowest).clamp_min(0)


def _scales(x: Running) -> bool:
    """Whether it is one exact power of two, up to its sign, or zero: products with it are exact."""
    if x.middle.dim() or x.error.item():
        return False
    return math.frexp(abs(x.middle.item()))[0] in (0.0, 0.5)
