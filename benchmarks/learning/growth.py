"""How time and memory grow with each of the three sizes: points around the paper's, and exponents fitted to them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.learning.contestants import EAGER, FLOOR, ORIGINAL, SETTINGS
from benchmarks.learning.record import Row
from benchmarks.learning.workload import Size

CONTESTANTS = (FLOOR, EAGER[0], ORIGINAL)
VARIABLES = {"classes": "K", "dim": "p", "batch": "B"}
_FACTORS = (1 / 4, 1 / 2, 1, 2)


def centre(*, quick: bool) -> Size:
    return SETTINGS["paper"].quick if quick else SETTINGS["paper"].size


def sizes(middle: Size) -> list[Size]:
    """The middle, and it with one of its sizes changed; dimensions stay even, as the recurrence wants them."""
    changed = {
        replace(middle, **{variable: max(2, 2 * round(getattr(middle, variable) * factor / 2))})
        for variable in VARIABLES
        for factor in _FACTORS
    }
    return sorted(changed | {middle}, key=lambda size: (size.batch, size.classes, size.dim))


@dataclass(frozen=True)
class Series:
    """Measurements along one variable, in its order."""

    variable: str
    contestant: str
    places: list[int]
    seconds: list[float]
    peaks: list[int]

    @property
    def time_exponent(self) -> float:
        return exponent(self.places, self.seconds)

    @property
    def peak_exponent(self) -> float | None:
        """None for the floor, which allocates nothing."""
        return exponent(self.places, self.peaks) if all(self.peaks) else None


def series(rows: Iterable[Row], middle: Size, variable: str, contestant: str) -> Series | None:
    """None where fewer than two points were measured."""
    along = [
        row
        for row in rows
        if row.contestant == contestant and row.measured and replace(row.size, **{variable: getattr(middle, variable)}) == middle
    ]
    along.sort(key=lambda row: getattr(row.size, variable))
    if len(along) < 2:
        return None
    places = [getattr(row.size, variable) for row in along]
    return Series(variable, contestant, places, [row.median for row in along], [row.peak or 0 for row in along])


def exponent(places: Sequence[float], values: Sequence[float]) -> float:
    """The a of value = c * place^a, by least squares on logarithms.

    Examples:
        >>> round(exponent([1, 2, 4], [3, 12, 48]), 12)
        2.0
    """
    logs = [[math.log(value) for value in column] for column in (places, values)]
    return statistics.linear_regression(*logs).slope
