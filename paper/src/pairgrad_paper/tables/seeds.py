"""Means over seeds, their standard deviations, and confidence intervals of paired differences."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pairgrad_paper.records import Record, Records

LEVEL = 0.95
PERCENT = f"{100 * LEVEL:.0f} %"


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in their seed alone, made by one version of the code.

    Attributes:
        version: of the code, in words.
        runs: by seed, in order; the first by name where a seed was run twice.
    """

    version: str
    runs: Mapping[int, Record]

    @property
    def first(self) -> Record:
        return next(iter(self.runs.values()))

    @property
    def words(self) -> str:
        return " ".join(map(str, self.runs))

    def over(self, value: Callable[[Record], float | None]) -> Spread:
        return Spread.of(value(record) for record in self.runs.values())


@dataclass(frozen=True)
class Spread:
    """A mean, and the standard deviation of a sample (n - 1); None of no value, and None of one."""

    mean: float | None
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread:
        known = [value for value in values if value is not None]
        return cls(statistics.fmean(known) if known else None, statistics.stdev(known) if len(known) > 1 else None)

    def cells(self, key: str) -> dict[str, float | None]:
        """Of a column and of its column of deviations."""
        return {key: self.mean, f"{key}_deviation": self.deviation}


def by_seed(records: Records, runs: Iterable[Record]) -> list[Seeds]:
    """The runs in groups of equal settings and versions, in the order in which these come; a mean is over one group, never over two."""
    groups: dict[tuple[str, str], dict[int, Record]] = {}
    for record in runs:
        version = records.version(record)
        groups.setdefault((_settings(record), version), {}).setdefault(record.facts["seed"], record)
    return [Seeds(version, dict(sorted(group.items()))) for (_, version), group in groups.items()]


def _settings(record: Record) -> str:
    """What was run, without its seed and what follows from it."""
    kept = {key: record.facts.get(key) for key in ("realization", "start", "start_step", "updates", "branches")}
    recipe = {key: value for key, value in record.facts["recipe"].items() if key != "seed"}
    return json.dumps([kept, recipe], sort_keys=True)


def system_of(group: Seeds) -> str:
    """The settings without the realization: what runs that are compared share."""
    recipe: dict[str, Any] = {key: value for key, value in group.first.facts["recipe"].items() if key != "seed"}
    return json.dumps(recipe, sort_keys=True)


def half_width(values: Sequence[float]) -> float | None:
    """Half the confidence interval of the mean, of Student's t with n - 1 degrees of freedom; None of fewer than two values."""
    if len(values) < 2:
        return None
    return t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


@cache
def t_quantile(degrees: int, level: float = LEVEL) -> float:
    """The t below which |T| stays with probability `level`, for a whole number of degrees of freedom.

    Examples:
        >>> [round(t_quantile(degrees), 3) for degrees in (1, 2, 3, 30)]
        [12.706, 4.303, 3.182, 2.042]
    """
    low, high = 0.0, math.pi / 2  # of the angle atan(t / sqrt(degrees))
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """P(|T| < t), in closed form: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    odd = degrees % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= math.cos(angle) ** 2 * k / (k + 1)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def versions_note(systems: Mapping[str, Sequence[Seeds]]) -> str:
    """The versions of the code behind the runs of each system, and that nothing is averaged over two."""
    versions = {name: list(dict.fromkeys(group.version for group in groups)) for name, groups in systems.items()}
    different = list(dict.fromkeys(version for each in versions.values() for version in each))
    if len(different) == 1:
        return f"All runs were made by {different[0]}."
    several = any(len(each) > 1 for each in versions.values())
    refused = (
        " Where there are several, their numerics can differ: no mean and no difference is over two of them, and their rows stand apart."
        if several
        else ""
    )
    return f"Versions of the code: {'; '.join(f'{name}: {_listed(each)}' for name, each in versions.items())}.{refused}"


def _listed(versions: Sequence[str]) -> str:
    return ", ".join(versions)
