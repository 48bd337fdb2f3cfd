"""`"log-bessel"`: two logarithms of Bessel functions, each accurate on its own, combined afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch

from pairgrad.ground.arithmetic import Arithmetic, Number
from pairgrad.ground.checks import DTYPES, computing_dtype
from pairgrad.potentials.expansion import Expansion, potential_at_zero
from pairgrad.potentials.formulas import BySubtraction, odd
from pairgrad.potentials.plan import plan
from pairgrad.potentials.protocol import Potential


@dataclass(frozen=True)
class LogBesselFormulas(BySubtraction):
    """How a log-Bessel library is used: slope = exp(log I_{nu+1} - log I_nu), differences by subtraction.

    Each logarithm is the sum of Phi(x) - Phi(0), Phi(0) and nu log x, right to a few roundings of the largest of the three. What is lost is lost
    in combining them: the logarithms grow with nu and x, and so does the absolute rounding of their difference.
    """

    lower: Expansion
    upper: Expansion
    lower_at_zero: float  # Phi_nu(0)
    upper_at_zero: float

    def _log_bessel(self, ops: Arithmetic, expansion: Expansion, at_zero: float, x: Number) -> Number:
        """log I_nu(x) = Phi(x) + nu log x, for x > 0."""
        return expansion.value(ops, x) + ops.constant(at_zero) + expansion.coefficients(ops).nu * ops.log(x)

    def _positive(self, ops: Arithmetic, x: Number) -> Number:
        """|x|, kept off 0, where the logarithms are infinite and the combinations have reached their limits."""
        size = ops.absolute(x)
        return ops.maximum(size, 0 * size + ops.constant(2.0**-60))

    def value(self, ops: Arithmetic, x: Number) -> Number:
        x = self._positive(ops, x)
        nu = self.lower.coefficients(ops).nu
        return self._log_bessel(ops, self.lower, self.lower_at_zero, x) - nu * ops.log(x)

    def slope(self, ops: Arithmetic, x: Number) -> Number:
        size = self._positive(ops, x)
        upper = self._log_bessel(ops, self.upper, self.upper_at_zero, size)
        lower = self._log_bessel(ops, self.lower, self.lower_at_zero, size)
        return odd(ops, x, ops.exp(upper - lower) * (ops.absolute(x) / size))

    def consistent_slope(self, ops: Arithmetic, x: Number) -> Number:
        """Derivative of the value: the terms nu log x and nu / x cancel, and the slope of the expansion is left."""
        return self.lower.slope(ops, x)

    def consistent_curvature(self, ops: Arithmetic, x: Number) -> Number:
        return self.lower.curvature(ops, x)

    def curvature(self, ops: Arithmetic, x: Number) -> Number:
        """1 - R^2 - (2 nu + 1) R / x with its own R, as one would from log-Bessel values."""
        size = self._positive(ops, x)
        ratio = self.slope(ops, size)
        return 1 - ratio * ratio - 2 * self.lower.coefficients(ops).midpoint * ratio / size


class LogBessel(Potential):
    """Accurate values, assembled the way log-Bessel libraries such as CUSF [Plesner_2024] are used."""

    realization = "log-bessel"
    summary = "log I_nu and log I_{nu+1} separately; supplies the exponential of their difference"
    trade = "each logarithm exact to rounding; what cancels between them is lost"

    def __init__(self, nu: Fraction) -> None:
        super().__init__(nu)
        at_zero = (potential_at_zero(nu), potential_at_zero(nu + 1))
        self._formulas = {d: LogBesselFormulas(plan(nu, d), plan(nu + 1, d), *at_zero) for d in DTYPES}

    def formulas(self, dtype: torch.dtype = torch.float64) -> LogBesselFormulas:
        return self._formulas[computing_dtype("dtype", dtype)]

    @property
    def offset(self) -> float:
        """0: the value is Phi itself."""
        return 0.0
