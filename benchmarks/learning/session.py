"""Measuring one size: contestants are prepared one after the other, take turns, and at the end have their peaks taken."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from benchmarks.learning.contender import Contender
from benchmarks.learning.record import Row
from benchmarks.learning.rounds import Turn, interleaved
from benchmarks.learning.workload import Workload


@dataclass(frozen=True)
class Protocol:
    """`repeats` timed runs after `warmups`; fewer, but at least `least`, for a contestant whose runs would take more than `budget` seconds."""

    warmups: int
    repeats: int
    least: int
    budget: float | None = None

    def times(self, expected: float) -> int:
        if self.budget is None or expected * self.repeats <= self.budget:
            return self.repeats
        return max(self.least, int(self.budget / expected))


PROTOCOLS = {"interleaved": Protocol(warmups=3, repeats=31, least=5, budget=15.0), "paper": Protocol(warmups=3, repeats=7, least=7)}
QUICK = Protocol(warmups=1, repeats=3, least=1, budget=1.0)
GROWTH = Protocol(warmups=1, repeats=15, least=3, budget=2.0)

Entrance = Callable[[str, Workload, int], Contender]


def measure(setting: str, workload: Workload, names: Iterable[str], protocol: Protocol, rows: list[Row], enter: Entrance) -> None:
    """Appends a row per name; also when interrupted, with what was measured until then. `enter` is `Local` or `Isolated`."""
    torch._dynamo.reset()  # frees the compiled code of the size before
    turns: dict[str, Turn] = {}
    own = [Row(setting, workload.size, name) for name in names]
    rows += own
    try:
        for row in own:
            start = time.perf_counter()
            contender = enter(row.contestant, workload, protocol.warmups)
            row.loss, expected, row.note = contender.prepared
            if row.note:
                contender.close()
                say(f"{row.size} {row.contestant}: {row.note}")
                continue
            turns[row.contestant] = Turn(contender, protocol.times(expected))
            if (taken := time.perf_counter() - start) > 1:
                say(f"{row.size} {row.contestant}: prepared in {taken:.1f} s")
        interleaved(turns)
        for row in own:
            if row.contestant in turns:
                row.peak = turns[row.contestant].contender.peak()
    finally:
        for row in own:
            if row.contestant in turns:
                turn = turns[row.contestant]
                turn.contender.close()
                row.seconds, row.system_seconds = turn.seconds, turn.system_seconds
            if row.measured:
                peak = "" if row.peak is None else f", peak {row.peak / 2**20:.2f} MiB"
                say(f"{row.size} {row.contestant}: {1e3 * row.median:.4g} ms, {len(row.seconds)} runs{peak}")
        gc.collect()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
