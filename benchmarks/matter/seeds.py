"""Means, standard deviations and paired differences over seeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean, stdev

import scipy.stats

Found = Mapping[str, float | None]
SEPARATOR = " | "


class Results:
    """The measurements by experiment, setting and arm; those of an arm by seed."""

    def __init__(self, trials: Mapping[str, Found]) -> None:
        self._by: dict[tuple[str, str], dict[str, dict[int, Found]]] = defaultdict(lambda: defaultdict(dict))
        for key, found in trials.items():
            experiment, setting, arm, seed = key.split(SEPARATOR)
            self._by[experiment, setting][arm][int(seed)] = found

    def settings(self, experiment: str) -> list[str]:
        return [setting for name, setting in self._by if name == experiment]

    def arms(self, experiment: str, setting: str) -> list[str]:
        return list(self._by.get((experiment, setting), {}))

    def values(self, experiment: str, setting: str, arm: str, what: str) -> list[float]:
        """In the order of seeds; NaN where learning diverged."""
        found = self._by[experiment, setting][arm]
        return [math.nan if (value := found[seed].get(what)) is None else value for seed in sorted(found)]

    def differences(self, experiment: str, setting: str, arm: str, what: str, base: str = "paired") -> list[float]:
        """From another arm, seed by seed."""
        pairs = zip(*(self.values(experiment, setting, each, what) for each in (arm, base)), strict=True)
        return [one - other for one, other in pairs]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half of its 95 % confidence interval, by Student's t."""
    return mean(values), float(scipy.stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation, as the paper prints them."""
    if any(math.isnan(value) for value in values):
        return _diverged(values)
    return f"{mean(values):,.{digits}f} ± {stdev(values):,.{digits}f}"


def change(values: Sequence[float], digits: int) -> str:
    """A mean difference and its 95 % confidence interval; bold where the interval does not hold 0."""
    if any(math.isnan(value) for value in values):
        return _diverged(values)
    middle, half = interval(values)
    if f"{middle:.{digits}f}".lstrip("-") == f"{half:.{digits}f}" == f"{0:.{digits}f}":
        return "0"
    text = f"{middle:+,.{digits}f} ± {half:,.{digits}f}"
    return f"**{text}**" if abs(middle) > half else text


def _diverged(values: Sequence[float]) -> str:
    return f"diverged ({sum(math.isnan(value) for value in values)} of {len(values)})"
