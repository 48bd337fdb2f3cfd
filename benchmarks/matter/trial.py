"""What an experiment consists of: measurements of one arm with one seed, to be made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Trial:
    """One arm with one seed in one setting of an experiment; `measure` returns numbers by their names, NaN or infinite where learning diverged."""

    experiment: str
    setting: str
    arm: str
    seed: int
    measure: Callable[[], dict[str, float]]


Experiment = Callable[[int, bool, Path | None], Iterator[Trial]]
"""The number of seeds, whether to make few and small trials, for a test, and where the real data are, to the trials."""
