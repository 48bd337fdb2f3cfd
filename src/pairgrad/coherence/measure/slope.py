"""The derivative of the value at the state itself: short differences decide what the gradient there has to be, whatever segments around it say.

The value along a curve through the state, less what the gradient supplied at the state accounts for, must be flat there. Its central differences with steps
h, h/2, ... are the defect, once they have converged; what is left of the even part tells a kink. The displacement is taken as it is after rounding, so the
state is not moved by a bit, and nothing but the value is called away from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pairgrad.coherence.measure.differences import richardson
from pairgrad.coherence.measure.limits import TELLING
from pairgrad.coherence.measure.path import Path, Pullable, contracted, fits, guarded
from pairgrad.coherence.subject.subject import Evaluation

# Exponents of the shortest step, over the size of the argument: near the cube root of the rounding unit, and shorter where that does not settle it.
SHORTEST = {torch.float64: (18, 22, 26, 30), torch.float32: (8, 10, 12, 14, 16, 18), torch.float16: (3,), torch.bfloat16: (2,)}
SETTLED = {
    torch.float64: 1e-6,
    torch.float32: 1e-2,
    torch.float16: 1.0,
    torch.bfloat16: 1.0,
}  # limits below which nothing shorter is looked at
_LEVELS = 3  # steps that are looked at, each half of the one before
_CERTAIN = 8.0  # standard errors of the noise; its estimate comes from few numbers
_CONVERGED = 0.1  # how far two steps may disagree, over the defect
_GRID = 4  # points to each side of the state from which the noise of the value is estimated
_ORDERS = (4, 5, 6)  # of the differences that leave nothing but noise
_ROUNDING = 0.3  # units in the last place of the value: the least noise it has


class Probe:
    """The value along a curve through a state, less what the gradient supplied there accounts for. The state is at `at` of the curve, places count from it."""

    def __init__(
        self,
        subject: Pullable,
        path: Path,
        cotangent: Sequence[torch.Tensor],
        epsilon: float,
        at: float = 0.0,
        known: Evaluation | None = None,
        inside: float = 0.0,
    ) -> None:
        self._subject, self._path, self.epsilon, self._at = subject, path, epsilon, at
        self._weights = tuple(weight.double() for weight in cotangent)
        self._start = tuple(tensor.double() for tensor in path.point(at))
        pulled = subject.pull(path.point(at), cotangent) if known is None else known
        self._gradients = tuple(gradient.double() for gradient in pulled.gradients)
        self._value, size = contracted(pulled.outputs, self._weights)
        self.value_size = max(size, inside)  # its rounding goes by the largest number on the way to it
        self.work, self.size = contracted(pulled.gradients, path.velocity(at))
        self.finite = math.isfinite(self._value) and math.isfinite(self.work)
        self._values = {self._value}
        self._known: dict[float, float | None] = {0.0: 0.0 if self.finite else None}

    def residual(self, t: float) -> float | None:
        """Value at t - value at 0 - <gradient at 0, displacement>; None outside the domain."""
        if t not in self._known:
            point = self._path.point(self._at + t)
            outputs = guarded(self._subject, lambda: self._subject.outputs_at(point))
            found = math.nan
            if fits(outputs, self._weights):
                moved = sum(float(((p.double() - s) * g).sum()) for p, s, g in zip(point, self._start, self._gradients, strict=True))
                value = contracted(outputs, self._weights)[0]
                self._values.add(value)
                found = value - self._value - moved
            self._known[t] = found if math.isfinite(found) else None
        return self._known[t]

    def residuals(self, places: Sequence[float]) -> np.ndarray | None:
        """At several places; None if any is outside the domain."""
        found = [self.residual(t) for t in places]
        return None if None in found else np.array(found, dtype=float)

    @property
    def stands_still(self) -> bool:
        """Whether the value has taken three values at most so far, as one that is lost to rounding does."""
        return len(self._values) <= 3

    def noise(self, spacing: float, middle: float = 0.0) -> float:
        """Standard deviation of the value about any smooth curve, from high differences on a fine grid around a place; infinite outside the domain."""
        values = self.residuals([middle + k * spacing for k in range(-_GRID, _GRID + 1)])
        if values is None:
            return math.inf
        largest = float(np.abs(values).max()) or 1.0  # squares neither overflow nor vanish
        found = [
            largest * math.sqrt(float(np.mean(np.diff(values / largest, order) ** 2)) / math.comb(2 * order, order)) for order in _ORDERS
        ]
        return max(*found, _ROUNDING * self.epsilon * self.value_size)


@dataclass(frozen=True)
class Slope:
    """The defect at a state along a curve: supplied derivative - that of the value, per unit of the parameter.

    Attributes:
        defect, error: infinite error where the differences do not converge.
        supplied: the derivative that the backward supplies.
        size: of the gradient along the curve.
        shortest: the smallest step that was looked at.
        kink: half of the difference of the slopes on the two sides, where it is above its noise; else 0.
    """

    defect: float
    error: float
    supplied: float
    size: float
    shortest: float
    kink: float = 0.0

    @property
    def true(self) -> float:
        """The derivative of the value."""
        return self.supplied - self.defect

    @property
    def scale(self) -> float:
        """What a defect is relative to: the derivative that the value has, unless the gradient that cancels in it is larger."""
        return max(self.size, abs(self.true))

    @property
    def relative(self) -> float:
        return abs(self.defect) / self.scale if self.scale > 0 else 0.0

    @property
    def limit(self) -> float:
        """The smallest relative defect that would have been seen."""
        return self.error / self.scale if self.scale > 0 else math.inf

    @property
    def significant(self) -> bool:
        return abs(self.defect) > self.error


def slope_at(probe: Probe, dtype: torch.dtype) -> Slope | None:
    """The slope at the state by short differences; None outside the domain.

    Where they see something, or nothing for noise, shorter ones are looked at, as long as they tell anything: the shortest decides. A kink or a bend nearby is
    left behind by that.
    """
    found: list[Slope] = []
    for k in SHORTEST[dtype]:
        slope = _look(probe, k)
        if slope is None:
            break
        found.append(slope)
        if not slope.significant and (slope.limit <= SETTLED[dtype] or (not slope.kink and _is_noise(probe, k))):
            break
    telling = [slope for slope in found if slope.limit <= TELLING]
    if not telling:
        return found[0] if found else None
    last = telling[-1]
    agreeing = [slope for slope in telling if abs(slope.defect - last.defect) <= slope.error + last.error]
    return replace(min(agreeing, key=lambda slope: slope.error), shortest=last.shortest)


def _is_noise(probe: Probe, k: int) -> bool:
    """Whether what hides the slope is beside the state too, and at shorter distances: noise, and no bend of the value."""
    spacing = 2.0 ** -(k + 2)
    here, beside = probe.noise(spacing), min(probe.noise(spacing, sign * 16 * spacing) for sign in (-1, 1))
    return beside > 0.1 * here and probe.noise(spacing / 16) > 0.1 * here


def _look(probe: Probe, k: int) -> Slope | None:
    """Steps down to 2**-k. Where two of them disagree, what remains in the even part is a kink, whose derivative has no single value."""
    noise = probe.noise(2.0 ** -(k + 2))
    steps = [2.0**-level for level in range(k - _LEVELS + 1, k + 1)]
    above, below = probe.residuals(steps), probe.residuals([-step for step in steps])
    if above is None or below is None:
        return None
    odd, even = (below - above) / (2 * np.array(steps)), (above + below) / (2 * np.array(steps))
    noisy = _CERTAIN * noise / steps[-1]
    defect = float(4 * odd[-1] - odd[-2]) / 3
    error = 2 * abs(defect - float(odd[-1])) + 5 / 3 * noisy + 4 * probe.epsilon * probe.size
    sharp = abs(even[-1]) > max(noisy, 0.75 * abs(even[-2]))  # of a smooth curve it halves with the step
    kink = abs(float(even[-1])) if sharp else 0.0
    if sharp or abs(odd[-1] - odd[-2]) > noisy + _CONVERGED * abs(odd[-1]):
        error = max(error, abs(float(odd[-1] - odd[-2])) + abs(float(even[-1])) + noisy)
    return Slope(defect, error, probe.work, probe.size, steps[-1], kink)


_LONG = {torch.float64: (2, 10), torch.float32: (0, 7), torch.float16: (0, 4), torch.bfloat16: (0, 4)}  # exponents of longer steps


def sharpened(probe: Probe, slope: Slope, dtype: torch.dtype) -> Slope:
    """The same with more digits, from longer steps, where these agree with the short ones."""
    if slope.kink or slope.limit > TELLING:
        return slope
    first, last = _LONG[dtype]
    steps = [2.0**-k for k in range(first, last)]
    above, below = probe.residuals(steps), probe.residuals([-step for step in steps])
    if above is None or below is None:
        return slope
    odd = (below - above) / (2 * np.array(steps))
    noise = probe.noise(2.0 ** -(SHORTEST[dtype][0] + 2))
    best = richardson(odd.tolist(), steps[-1], noise, 4 * probe.epsilon * probe.size)
    if best is None or best[1] >= slope.error or abs(best[0] - slope.defect) > best[1] + slope.error:
        return slope
    return replace(slope, defect=best[0], error=best[1])


_SEVERAL = 6  # leaps of one size make steps; a single one is a jump
_CELLS, _TRIED, _HALVINGS = 128, 12, 6


def moves_in_steps(probe: Probe, slope: Slope) -> float | None:
    """The size of the steps in which the value moves around the state, if it does: several leaps of about one size.

    Leaps do not shrink with the distance over which they are seen. Whether the steps account for a defect, segments that are longer than many of them tell.
    """
    drift = -slope.defect
    lengths = (slope.shortest * 2.0**k for k in range(40))
    step = next((h for h in lengths if h <= 1 and _departure(probe, slope, h) > 0.25 * slope.scale * h), None)
    if step is None or drift == 0:
        return None
    step = min(1.0, max(step, _departure(probe, slope, step) / slope.scale))  # a leap may be near, and the next one far
    places = [step / 2 * k for k in range(-_CELLS // 2, _CELLS // 2 + 1)]
    values = probe.residuals(places)
    if values is None:
        return None
    order = np.argsort(-np.abs(np.diff(values) - drift * np.diff(places)))
    leaps = [_leap(probe, drift, places[i], places[i + 1]) for i in order[:_TRIED].tolist()]
    real = sorted(leap for leap in leaps if leap is not None)
    if len(real) < _SEVERAL or real[-1] > 8 * real[len(real) // 2]:
        return None
    return real[len(real) // 2]


def _departure(probe: Probe, slope: Slope, step: float) -> float:
    """How far the residual at this distance is from what the drift at the state would make it, on the side where that is more."""
    sides = [(sign * step, probe.residual(sign * step)) for sign in (1, -1)]
    return max((abs(side + slope.defect * t) for t, side in sides if side is not None), default=0.0)


def _leap(probe: Probe, drift: float, low: float, high: float) -> float | None:
    """The size of the leap between two places, if what lies between them is one: it is the same when the places come close."""
    sizes = []
    for _ in range(_HALVINGS):
        places = [low, (low + high) / 2, high]
        values = probe.residuals(places)
        if values is None:
            return None
        parts = np.abs(np.diff(values) - drift * np.diff(places))
        sizes.append(float(parts.sum()))
        low, high = places[int(parts.argmax())], places[int(parts.argmax()) + 1]
    return sizes[-1] if sizes[-1] > 0.25 * sizes[0] else None
