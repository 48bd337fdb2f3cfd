"""Contestants that take turns: one timed run of each per round, so that a change of the machine's speed meets all of them alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.learning.contender import Contender

_REHEARSED = 0.1  # seconds; a shorter run is made once more, untimed, just before, so that it does not pay for caches its neighbour emptied


@dataclass
class Turn:
    """A contestant, how often it is timed, and its times so far; round i is sample i, for everybody."""

    contender: Contender
    repeats: int
    seconds: list[float] = field(default_factory=list)
    system_seconds: float = 0.0

    def take(self) -> None:
        time = self.contender.take(rehearse=self.contender.prepared.expected < _REHEARSED)
        self.seconds.append(time.total)
        self.system_seconds += time.system


def interleaved(turns: Mapping[str, Turn]) -> None:
    """Fills in the times. What was measured before an exception stays."""
    for i in range(max((turn.repeats for turn in turns.values()), default=0)):
        for turn in turns.values():
            if i < turn.repeats:
                turn.take()
