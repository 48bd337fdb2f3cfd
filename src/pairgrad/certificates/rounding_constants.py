"""Exact constants and the floats that stand for them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, lru_cache, partialmethod
from typing import Any

import numpy as np
import torch

from pairgrad.certificates.curves import ball

UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
SMALLEST_NORMAL = {torch.float64: 2.0**-1022, torch.float32: 2.0**-126}

Ball = Any  # a flint.arb


class Constant:
    """An exact rational, and the float with which Python computes in its place until a tensor is met."""

    def __init__(self, exact: Fraction, held: float) -> None:
        self.exact, self.held = exact, held

    @staticmethod
    @lru_cache(maxsize=256)
    def _of(value: Fraction | float) -> Constant:
        return Constant(Fraction(value), float(value))

    @staticmethod
    def of(value: Any) -> Constant:
        return value if isinstance(value, Constant) else Constant._of(value)

    @cached_property
    def ball(self) -> Ball:
        return ball(self.exact)

    def error(self, dtype: torch.dtype) -> Ball:
        """|c - exact| for the c that a tensor of `dtype` meets; if c is subnormal, enough for c = 0 as well."""
        met = Fraction(self.held if dtype == torch.float64 else float(np.float32(self.held)))
        lost = abs(met - self.exact)
        return ball(max(lost, abs(self.exact)) if abs(met) < SMALLEST_NORMAL[dtype] else lost)

    @cached_property
    def scales(self) -> bool:
        """Whether it is exact and a power of two, up to its sign: products with it are exact."""
        return self.exact == Fraction(self.held) and abs(math.frexp(self.held)[0]) == 0.5

    def is_exactly(self, value: int) -> bool:
        return self.held == value and self.exact == value

    def _with(self, operation: Callable[[Any, Any], Any], other: Any) -> Any:
        if not isinstance(other, (Constant, Fraction, float, int)):
            return NotImplemented
        other = Constant.of(other)
        return Constant(operation(self.exact, other.exact), operation(self.held, other.held))

    __add__ = __radd__ = partialmethod(_with, operator.add)
    __mul__ = __rmul__ = partialmethod(_with, operator.mul)
    __truediv__ = partialmethod(_with, operator.truediv)

    def __rtruediv__(self, other: Any) -> Constant:
        return Constant.of(other) / self

    def __neg__(self) -> Constant:
        return Constant(-self.exact, -self.held)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Constant, Fraction, float, int)):
            return NotImplemented
        other = Constant.of(other)
        return self.held == other.held and self.exact == other.exact

    def __hash__(self) -> int:
        return hash(self.held)
