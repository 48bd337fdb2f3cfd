r"""The coherence defect of the finite-start recurrence, to a relative accuracy however small it is.

Supplied is min(rho~_nu, 1), and the value has the derivative Phi~' (eqs. miller-three, defects, with epsilon = 0). Far below x = nu both agree with
the exact ratio R to thousands of digits, so their difference is not formed by subtraction but from the errors of the finite start,

    delta_j = rho~_j - rho_j,       lambda_j = l~_j - l_j,       l_j = x d/dx log(rho_j / x),

where rho_j = I_{j+1} / I_j is exact and the tilde marks the recurrence from rho~_M = 0. Both recurrences being the same,

    delta_{j-1}  = -rho~_{j-1} rho_{j-1} delta_j                                           (eq. miller-product),
    lambda_{j-1} = -rho~_{j-1} delta_j (1 - rho_{j-1} rho_j) (2 + l~_j) - rho_{j-1} rho_j lambda_j,

    E' = Phi~' - R = sum_{j < nu} lambda_j / x,       raw defect = rho~_nu - Phi~' = delta_nu - E'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from pairgrad.ground import TorchArithmetic, flint, working_precision
from pairgrad_paper.finite_start import FiniteStart

_BITS = 256


@dataclass(frozen=True)
class Defect:
    """At one argument, as balls: the raw ratio, the derivative of the finite potential, and what is supplied minus that derivative."""

    raw_ratio: Any
    derivative: Any
    supplied_minus_derivative: Any

    @property
    def absolute(self) -> float:
        """|supplied - derivative|; 0 if it is below the range of a float."""
        return float(abs(self.supplied_minus_derivative))

    @property
    def log10_absolute(self) -> float:
        return _log10(abs(self.supplied_minus_derivative))

    @property
    def log10_relative(self) -> float:
        """Of |supplied - derivative| / |derivative|."""
        return _log10(abs(self.supplied_minus_derivative / self.derivative))


def finite_start_defect(nu: int, start: int, x: float) -> Defect:
    """The defect of the recurrence for the order `nu` that starts at the order `start`, clipped at 1; enclosed to at least 50 bits."""
    with working_precision(_BITS):
        defect = _enclose(nu, start, flint().arb(x))
        accuracy = min(ball.rel_accuracy_bits() for ball in (defect.derivative, defect.supplied_minus_derivative))
    if accuracy < 50:
        raise ArithmeticError(f"the defect at nu = {nu}, start {start}, x = {x} is known to {accuracy} bits only")
    return defect


@cache
def clip_onset(nu: int) -> float:
    """The x from which on the supplied ratio of the recurrence from 2 nu is clipped at 1."""
    return FiniteStart(nu).clip_onset(TorchArithmetic()).item()


def _enclose(nu: int, start: int, x: Any) -> Defect:
    exact, l_exact = _exact_ratios(start, x)
    raw, delta = 0 * x, -exact[start]
    l = lam = 0 * x
    ratio = error = total = 0 * x
    for j in range(start, 0, -1):  # from index j to j - 1
        below = 1 / (2 * j / x + raw)
        product = exact[j - 1] * exact[j]
        if j == start:
            lam = -l_exact  # l~ = 0 at start - 1: the recurrence begins with a constant rho~ / x
        else:
            lam = -below * delta * (1 - product) * (2 + l) - product * lam
            l = -below * raw * (2 + l)
        delta = -below * exact[j - 1] * delta
        raw = below
        if j - 1 == nu:
            ratio, error = raw, delta
        if j - 1 < nu:
            total = total + lam
    slope_error = total / x
    derivative = exact[nu] + slope_error
    return Defect(ratio, derivative, 1 - derivative if ratio > 1 else error - slope_error)


def _exact_ratios(start: int, x: Any) -> tuple[list[Any], Any]:
    """rho_0 ... rho_start from rho_start downwards, the stable direction, and l_{start-1} = x / rho - x rho - 2 start (Riccati)."""
    top = x.bessel_i(flint().arb(start + 1), scaled=True) / x.bessel_i(flint().arb(start), scaled=True)
    ratios = [top]
    for j in range(start, 0, -1):
        ratios.append(1 / (2 * j / x + ratios[-1]))
    ratios.reverse()
    last = ratios[start - 1]
    return ratios, x / last - x * last - 2 * start


def _log10(ball: Any) -> float:
    return float(ball.log()) / math.log(10) if ball > 0 else -math.inf
