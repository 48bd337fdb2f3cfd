"""Loopback: how long collectives take there, as a latency and a bandwidth, and how many bytes have passed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy

from pairgrad.distributed import Call

OPERATIONS = ("all-gather", "all-reduce", "reduce-scatter")
FITTED = OPERATIONS[:2]  # with gloo a reduce-scatter sends as much as an all-reduce, which `Call.wire` does not count
_COUNTERS = Path("/proc/net/dev")


class Line(NamedTuple):
    """Seconds per message and bytes per second."""

    latency: float
    bandwidth: float


def ring_steps(call: Call) -> int:
    """Messages that follow each other in a ring of W ranks: W - 1, and twice as many in an all-reduce, which is a reduce-scatter and an all-gather."""
    return (2 if call.operation == "all-reduce" else 1) * (call.ranks - 1)


def fitted(calls: list[tuple[Call, float]]) -> Line:
    """Latency and bandwidth with which the times of rings come nearest to measured ones, by the sum of squares of relative errors.

    Examples:
        >>> calls = [Call("", "all-reduce", n, 2) for n in (64, 10_000, 10**6)]
        >>> fitted([(call, 2 * 3e-5 + float(call.wire) / 1e9) for call in calls])
        Line(latency=3e-05, bandwidth=1000000000.0)
    """
    rows = numpy.array([(ring_steps(call) / seconds, float(call.wire) / seconds) for call, seconds in calls])
    scale = numpy.abs(rows).max(axis=0)
    (latency, per_byte), *_ = numpy.linalg.lstsq(rows / scale, numpy.ones(len(rows)), rcond=None)
    return Line(float(f"{max(latency / scale[0], 0.0):.4g}"), float(f"{scale[1] / max(per_byte, 1e-9):.4g}"))


def loopback_bytes() -> int | None:
    """Bytes that have gone through the loopback interface since the machine began; None where the system does not tell."""
    if not _COUNTERS.exists():
        return None
    lines = [line.split(":", 1) for line in _COUNTERS.read_text().splitlines() if ":" in line]
    return next((int(counters.split()[8]) for name, counters in lines if name.strip() == "lo"), None)
