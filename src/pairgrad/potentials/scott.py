"""`"scott"`: averaged ratio bounds and their integral [Scott_2021_ICCV], the coherent comparator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch

from pairgrad.ground.arithmetic import Arithmetic, Number
from pairgrad.potentials.protocol import Potential


@dataclass(frozen=True)
class ScottFormulas:
    """With a = nu + 1/2 and s_b = sqrt(b^2 + x^2): the mean over b in {a, a + 1} of s_b - a log(a + s_b), with slope x / (a + s_b).

    b = a gives an upper and b = a + 1 a lower bound of R [amos1974computation].
    """

    a: float

    def _mean(self, ops: Arithmetic, term: Callable[[Number, Number], Number]) -> Number:
        a = ops.constant(self.a)
        return term(a, a) / 2 + term(a, a + 1) / 2

    def value(self, ops: Arithmetic, x: Number) -> Number:
        def term(a: Number, b: Number) -> Number:
            s = ops.radius(b, x)
            return s - a * ops.log(a + s)

        return self._mean(ops, term)

    def slope(self, ops: Arithmetic, x: Number) -> Number:
        return self._mean(ops, lambda a, b: x / (a + ops.radius(b, x)))

    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        return self.value(ops, x), self.slope(ops, x)

    def curvature(self, ops: Arithmetic, x: Number) -> Number:
        """d/dx x / (a + s) = (a + b^2 / s) / (a + s)^2."""

        def term(a: Number, b: Number) -> Number:
            s = ops.radius(b, x)
            return (a / (a + s) + (b / s) * (b / (a + s))) / (a + s)

        return self._mean(ops, term)

    def complement(self, ops: Arithmetic, x: Number) -> Number:
        """1 - x / (a + s) = (a + b^2 / (s + x)) / (a + s)."""
        x = ops.absolute(x)

        def term(a: Number, b: Number) -> Number:
            s = ops.radius(b, x)
            return a / (a + s) + (b / (s + x)) * (b / (a + s))

        return self._mean(ops, term)

    def deficit(self, ops: Arithmetic, x: Number) -> Number:
        """x - s is -b^2 / (s + x)."""
        x = ops.absolute(x)

        def term(a: Number, b: Number) -> Number:
            s = ops.radius(b, x)
            return a * ops.log(a + s) - b * (b / (s + x))

        return self._mean(ops, term)

    def difference(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        a, b = ops.absolute(a), ops.absolute(b)

        def term(c: Number, centre: Number) -> Number:
            sa, sb = ops.radius(centre, a), ops.radius(centre, b)
            rise = (b - a) * ((a / 2 + b / 2) / (sa / 2 + sb / 2))
            return rise - c * ops.log1p(rise / (c + sa))

        return self._mean(ops, term)

    def secant(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        def term(c: Number, centre: Number) -> Number:
            sa, sb = ops.radius(centre, a), ops.radius(centre, b)
            mean = (a / 2 + b / 2) / (sa / 2 + sb / 2)
            low = ops.minimum(sa, sb)
            return mean * (1 - c / (c + low) * ops.log1p_over((ops.maximum(sa, sb) - low) / (c + low)))

        return self._mean(ops, term)


class Scott(Potential):
    """Coherent at the mathematical level, with the error of the bounds it averages."""

    realization = "scott"
    summary = "mean of two ratio bounds and its integral (Scott et al. 2021)"
    to_rounding = False
    trade = "coherent and cheap; error falls only like 1/nu"

    def __init__(self, nu: Fraction) -> None:
        super().__init__(nu)
        self._formulas = ScottFormulas(float(nu + Fraction(1, 2)))

    def formulas(self, dtype: torch.dtype = torch.float64) -> ScottFormulas:
        return self._formulas

    @property
    def offset(self) -> float:
        """-log(2 pi) / 2, the limit of Phi - value at infinity."""
        return -math.log(2 * math.pi) / 2
