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

    def _mean(self, ops: Arithmetic, term: Callable[..., Number], *points: Number) -> Number:
        """Of term(a, b, s_b), with an s_b for each point."""
        a = ops.constant(self.a)
        upper, lower = (term(a, b, *(ops.radius(b, x) for x in points)) for b in (a, a + 1))
        return upper / 2 + lower / 2

    def value(self, ops: Arithmetic, x: Number) -> Number:
        return self._mean(ops, lambda a, b, s: s - a * ops.log(a + s), x)

    def slope(self, ops: Arithmetic, x: Number) -> Number:
        return self._mean(ops, lambda a, b, s: x / (a + s), x)

    def pair(self, ops: Arithmetic, x: Number) -> tuple[Number, Number]:
        return self.value(ops, x), self.slope(ops, x)

    def curvature(self, ops: Arithmetic, x: Number) -> Number:
        """d/dx x / (a + s) = (a + b^2 / s) / (a + s)^2."""
        return self._mean(ops, lambda a, b, s: (a / (a + s) + (b / s) * (b / (a + s))) / (a + s), x)

    def complement(self, ops: Arithmetic, x: Number) -> Number:
        """1 - x / (a + s) = (a + b^2 / (s + x)) / (a + s)."""
        x = ops.absolute(x)
        return self._mean(ops, lambda a, b, s: a / (a + s) + (b / (s + x)) * (b / (a + s)), x)

    def deficit(self, ops: Arithmetic, x: Number) -> Number:
        """x - s is -b^2 / (s + x)."""
        x = ops.absolute(x)
        return self._mean(ops, lambda a, b, s: a * ops.log(a + s) - b * (b / (s + x)), x)

    def difference(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        a, b = ops.absolute(a), ops.absolute(b)

        def term(c: Number, _: Number, sa: Number, sb: Number) -> Number:
            rise = (b - a) * ((a / 2 + b / 2) / (sa / 2 + sb / 2))
            return rise - c * ops.log1p(rise / (c + sa))

        return self._mean(ops, term, a, b)

    def secant(self, ops: Arithmetic, a: Number, b: Number) -> Number:
        def term(c: Number, _: Number, sa: Number, sb: Number) -> Number:
            mean = (a / 2 + b / 2) / (sa / 2 + sb / 2)
            low = ops.minimum(sa, sb)
            return mean * (1 - c / (c + low) * ops.log1p_over((ops.maximum(sa, sb) - low) / (c + low)))

        return self._mean(ops, term, a, b)


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
