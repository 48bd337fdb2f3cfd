"""The angle to the mean direction, independently of the library: its density on grids, in extended precision and in ball arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import flint
import numpy as np
from scipy.integrate import cumulative_simpson

from tests.truth import working_precision

LONG = np.longdouble


def mode_and_spread(dim: int, kappa: float) -> tuple[float, float]:
    """Where kappa cos + (p - 2) log sin is largest, and one over the root of its curvature there."""
    n = dim - 2
    cosine = 0.0 if kappa == 0 else 2 * kappa / (n + math.hypot(n, 2 * kappa))
    mode = math.atan2(math.sqrt(n * cosine / kappa) if kappa else 1.0, cosine)
    bend = kappa * cosine + (n / math.sin(mode) ** 2 if n else 0.0)
    return mode, 1 / math.sqrt(max(bend, 0.1))


@dataclass(frozen=True)
class Grid:
    """The distribution function of the angle on a grid over all that counts, and moments of 1 - cos."""

    angles: np.ndarray
    below: np.ndarray
    mean: float  # of 1 - cos
    variance: float
    fourth: float  # fourth central moment

    @classmethod
    def of(cls, dim: int, kappa: float, points: int = 20_001) -> Grid:
        mode, spread = mode_and_spread(dim, kappa)
        low, high = max(0.0, mode - 12 * spread), min(math.pi, mode + 16 * spread)
        angles = np.linspace(low, high, points)
        with np.errstate(divide="ignore"):
            rise = -2 * kappa * np.sin((angles + mode) / 2) * np.sin((angles - mode) / 2)
            if dim > 2:
                rise = rise + (dim - 2) * (np.log(np.sin(angles)) - math.log(math.sin(mode)))
        density = np.exp(rise)
        below = cumulative_simpson(density, x=angles, initial=0)
        rest = 2 * np.sin(angles / 2) ** 2

        def moment(values: np.ndarray) -> float:
            return float(cumulative_simpson(values * density, x=angles, initial=0)[-1] / below[-1])

        mean = moment(rest)
        return cls(angles, below / below[-1], mean, moment((rest - mean) ** 2), moment((rest - mean) ** 4))

    def distance(self, angles: np.ndarray) -> float:
        """The Kolmogorov-Smirnov statistic of a sample."""
        places = np.interp(np.sort(angles.astype(np.float64)), self.angles, self.below)
        steps = np.arange(len(places) + 1) / len(places)
        return float(max((steps[1:] - places).max(), (places - steps[:-1]).max()))


def side_integrals(dim: int, angle: np.ndarray, kappa: np.ndarray, side: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integrals of f and of (R - cos) f over the angles beyond `angle` on one side, over f(angle), in extended precision; `rest` is 1 - R.

    Sixty-four panels of sixteen points over twenty-five spreads of the point itself: a panel is 0.4 of a spread, on which the rule is exact to 1e-19.
    """
    angle, kappa, side, rest = (np.asarray(v, dtype=LONG)[..., None] for v in np.broadcast_arrays(angle, kappa, side, rest))
    spread = LONG(1) / np.sqrt(np.maximum(np.abs(kappa * np.cos(angle)) + ((dim - 2) / np.sin(angle) ** 2 if dim > 2 else 0), LONG("0.01")))
    room = np.where(side < 0, angle, LONG(np.pi) - angle)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    panels = (np.arange(64)[:, None] + (LONG(1) + nodes) / 2) / 64
    length = np.minimum(room, 25 * spread)
    distance = panels.reshape(-1) * length
    scaled = np.tile(weights / LONG(2) / 64, 64) * length
    half = np.sin(distance / 2)
    rise = -2 * side * kappa * np.sin(angle + side * distance / 2) * half
    if dim > 2:
        rise = rise + (dim - 2) * np.log(np.sin(angle + side * distance) / np.sin(angle))
    mass = np.exp(rise) * scaled
    excess = 2 * np.sin((angle + side * distance) / 2) ** 2 - rest
    return mass.sum(-1), (excess * mass).sum(-1)


class BallAngle:
    """The distribution function in ball arithmetic, with rigorous integrals."""

    def __init__(self, dim: int, bits: int = 192) -> None:
        self.dim, self.bits = dim, bits

    def _density(self, kappa: flint.arb, at: flint.arb):
        """Over the density at `at`: integrals of it are not small numbers, and the tolerance of the integration is absolute."""
        n, sine, cosine = self.dim - 2, at.sin(), at.cos()
        return lambda z, _: (kappa * (z.cos() - cosine)).exp() * ((z.sin() / sine) ** n if n else 1)

    def _integral(self, kappa: flint.arb, low: flint.arb, high: flint.arb, at: flint.arb) -> flint.arb:
        return flint.acb.integral(self._density(kappa, at), low, high).real

    def quantile(self, share: float, kappa: flint.arb, start: float) -> flint.arb:
        """The angle with `share` of the probability below it, by Newton's method from `start`."""
        with working_precision(self.bits):
            at = flint.arb(start)
            zero, pi = flint.arb(0), flint.arb.pi()
            goal = flint.arb(share) * self._integral(kappa, zero, pi, at)
            angle = flint.arb(start)
            for _ in range(6):
                value = self._integral(kappa, zero, angle, at)
                step = (goal - value) / self._density(kappa, at)(flint.acb(angle), False).real
                angle = flint.arb((angle + step).mid())
                if abs(float(step)) < 1e-24:
                    return angle
        raise ArithmeticError(f"no quantile at {share} for p = {self.dim}, kappa = {kappa}")
