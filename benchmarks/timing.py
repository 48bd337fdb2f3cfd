"""Measuring: interleaved repetitions, medians and quartiles."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], object]


@dataclass
class Samples:
    """Repeated measurements of one thing, in seconds."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile; both are the only sample where there is one."""
        if len(self.seconds) == 1:
            return self.seconds[0], self.seconds[0]
        first, _, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return first, third


@dataclass(frozen=True)
class Measurement:
    """A call, how often it is measured, how often it is made before, and how many calls one measurement is the mean of."""

    call: Call
    repeats: int
    warmups: int
    number: int = 1


def once(call: Call, number: int = 1) -> float:
    """Seconds that one call takes; the mean of `number` calls in a row."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def interleaved(measurements: Mapping[Key, Measurement], samples: Mapping[Key, Samples]) -> None:
    """Adds to `samples`, one measurement of each call per round, so that a change of the machine's speed meets all of them alike.

    What was measured before an exception, KeyboardInterrupt included, stays in `samples`.
    """
    for measurement in measurements.values():
        for _ in range(measurement.warmups):
            measurement.call()
    for i in range(max((m.repeats for m in measurements.values()), default=0)):
        for key, measurement in measurements.items():
            if i < measurement.repeats:
                samples[key].seconds.append(once(measurement.call, measurement.number))


def affordable_size(make: Callable[[int], Call], most: int, seconds: float, *, proportional: bool, least: int = 1000) -> int:
    """A number of elements between `least` and `most` at which a call takes about `seconds` or less.

    Where time is `proportional` to the number of elements, one small call tells. Otherwise, where small calls are mostly overhead, the
    number is quadrupled as long as a call stays within `seconds`.
    """
    size = min(least, most)
    if proportional:
        return max(size, min(most, int(size * seconds / once(make(size)))))
    while size < most:
        bigger = min(4 * size, most)
        if once(make(bigger)) > seconds:
            break
        size = bigger
    return size
