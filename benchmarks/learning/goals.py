"""The goals, and whether the measurements reach them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.learning.contestants import COMPILED, EAGER, FLOOR, LIBRARY, ORIGINAL, SETTINGS
from benchmarks.learning.record import Run, ratio

MIB = 2**20


@dataclass(frozen=True)
class Goal:
    """A limit on the worst of several contestants, and what they measured."""

    text: str
    limit: float
    unit: str
    measured: dict[str, float]
    at_least: bool = False

    @property
    def worst(self) -> tuple[str, float] | None:
        if not self.measured:
            return None
        place = (min if self.at_least else max)(self.measured, key=self.measured.__getitem__)
        return place, self.measured[place]

    def verdict(self) -> tuple[str, str]:
        """The worst of what was measured and whose it is, and whether it is enough."""
        if self.worst is None:
            return "", "not measured"
        place, worst = self.worst
        enough = worst >= self.limit if self.at_least else worst <= self.limit
        return f"{worst:.3g}{self.unit} ({place})", "reached" if enough else "missed"


def goals(run: Run) -> list[Goal]:
    """Where a goal speaks of several contestants, the worst of them counts. A smoke run measures other sizes, so it reaches none."""

    def over_floor(setting: str, names: Iterable[str]) -> dict[str, float]:
        return _known({name: ratio(run.find(setting, name), run.find(setting, FLOOR)) for name in names})

    def speed_up(names: Iterable[str]) -> dict[str, float]:
        return _known({name: ratio(run.find("paper", ORIGINAL), run.find("paper", name)) for name in names})

    def peaks(setting: str, names: Iterable[str]) -> dict[str, float]:
        rows = [run.find(setting, name) for name in names]
        return {row.contestant: row.peak / MIB for row in rows if row is not None and row.peak is not None}

    def at(setting: str) -> str:
        return f"at {SETTINGS[setting].size}"

    if run.quick:
        return []
    return [
        Goal(f"compiled within 1.45× of the floor, {at('paper')}", 1.45, "×", over_floor("paper", COMPILED)),
        Goal(f"compiled at least 220× faster than the original, {at('paper')}", 220, "×", speed_up(COMPILED), at_least=True),
        Goal(f"eager within 3× of the floor, {at('paper')}", 3, "×", over_floor("paper", EAGER)),
        Goal(f"compiled: peak increment of at most 1 MiB, {at('paper')}", 1, " MiB", peaks("paper", COMPILED)),
        Goal(f"eager: peak increment of at most 3 MiB, {at('paper')}", 3, " MiB", peaks("paper", EAGER)),
        Goal(f"compiled within 1.3× of the floor, {at('large')}", 1.3, "×", over_floor("large", COMPILED)),
        Goal(f"eager within 6× of the floor, {at('small')}", 6, "×", over_floor("small", EAGER)),
        Goal(f"streaming, compiled: within 2× of its tiled floor, {at('streaming')}", 2, "×", over_floor("streaming", COMPILED)),
        Goal(f"streaming: peak increment of at most 4 MiB, {at('streaming')}", 4, " MiB", peaks("streaming", LIBRARY)),
    ]


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
