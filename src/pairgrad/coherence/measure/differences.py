"""The derivative of the value at one point, from values alone: central differences, extrapolated, with an error that includes the rounding of the value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pairgrad.coherence.measure.limits import CONFIRMATION_RATE, student_quantile
from pairgrad.coherence.measure.path import Line

LEVELS = 6


@dataclass(frozen=True)
class Difference:
    """gamma - phi' at a point of a line, per unit of the parameter, by differences of the value, and the error it may have."""

    middle: float
    defect: float
    allowance: float
    size: float

    @property
    def significant(self) -> bool:
        return abs(self.defect) > self.allowance

    @property
    def limit(self) -> float:
        return self.allowance / self.size if self.size > 0 else math.inf

    @property
    def relative(self) -> float:
        return abs(self.defect) / self.size if self.size > 0 else 0.0


def difference(line: Line, middle: float, half: float, noise: float, gradient_noise: float = 0.0) -> Difference | None:
    """Richardson's extrapolation of central differences with steps half, half/2, ... [ridders1982accurate].

    Each entry of the tableau has the error |entry - the ones it came from| plus what the noise of the values, of standard deviation `noise`, can do to it:
    the weights of an entry are known, so that part is exact. The entry with the smallest sum is taken. The estimate of truncation alone can vanish by
    coincidence; the noise never does. The supplied derivative has noise too, `gradient_noise`.
    """
    here = line.at(middle)
    if here is None:
        return None
    quantile = student_quantile(CONFIRMATION_RATE, 13)
    noise = max(noise, 0.3 * line.epsilon * here.value_size)
    floor = 2 * line.epsilon * here.gradient_size + quantile * gradient_noise
    quotients = []
    for level in range(LEVELS):
        step = half * 2.0**-level
        above, below = line.value(middle + step), line.value(middle - step)
        if above is None or below is None:
            quotients = []
            continue
        quotients.append((above - below) / (2 * step))
    best = richardson(quotients, half * 2.0 ** -(LEVELS - 1), noise, floor)
    if best is None:
        return None
    defect = here.work - best[0]
    return Difference(middle, defect, best[1], max(here.gradient_size, abs(best[0])))


def richardson(quotients: Sequence[float], shortest: float, noise: float, floor: float) -> tuple[float, float] | None:
    """The best entry of the tableau over central differences of halved steps, down to `shortest`, and its error; None if there are fewer than two."""
    quantile = student_quantile(CONFIRMATION_RATE, 13)
    columns: list[float] = []
    spreads: list[list[float]] = []  # weights of the first-column entries in each entry of the last row
    best: tuple[float, float] | None = None
    steps = [shortest * 2.0**k for k in range(len(quotients) - 1, -1, -1)]
    for count, quotient in enumerate(quotients, 1):
        row = [quotient]
        weights = [[0.0] * (count - 1) + [1.0]]
        for k in range(len(columns)):
            factor = 4.0 ** (k + 1)
            row.append((factor * row[k] - columns[k]) / (factor - 1))
            weights.append([(factor * new - old) / (factor - 1) for new, old in zip(weights[k], [*spreads[k], 0.0], strict=True)])
        for k in range(1, len(row)):
            truncation = max(abs(row[k] - row[k - 1]), abs(row[k] - columns[k - 1]))
            random = noise * math.sqrt(sum((w / s) ** 2 for w, s in zip(weights[k], steps[:count], strict=True)) / 2)
            error = truncation + quantile * random + floor
            if best is None or error < best[1]:
                best = (row[k], error)
        columns, spreads = row, weights
    return best
