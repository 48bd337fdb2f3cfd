"""What was measured, as data and as JSON, so that page and figure can be made again without measuring."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.distributed.cases import Case
from benchmarks.timing import Samples
from pairgrad.ground.files import write_atomically

FORMAT = 2


@dataclass
class Timing:
    """Seconds of a step, round by round; of the slowest rank.

    Attributes:
        case: what was timed.
        loss: of the whole batch, in the last step of the first round.
    """

    case: Case
    seconds: list[float] = field(default_factory=list)
    loss: float = 0.0

    @property
    def samples(self) -> Samples:
        return Samples(self.seconds)


@dataclass(frozen=True)
class Collective:
    """Of `payload` bytes from each rank: seconds of one, or bytes on loopback of one."""

    operation: str
    payload: int
    ranks: int
    value: float


@dataclass(frozen=True)
class Traffic:
    """What some steps sent, all ranks together.

    Attributes:
        case: what ran.
        steps: how many.
        calls: collectives of one rank and step, recorded and by `step_calls` alike.
        planned: bytes, by `step_calls`.
        found: bytes on loopback.
    """

    case: Case
    steps: int
    calls: int
    planned: float
    found: int


@dataclass(frozen=True)
class Resident:
    """Memory of fresh processes, by rank, in bytes, and seconds of every step, of the slowest rank.

    Attributes:
        before: in memory before there was a bank.
        peak: the most until the last step.
    """

    case: Case
    before: list[int]
    peak: list[int]
    seconds: list[float]


@dataclass
class Record:
    """Of a run, or of several on one machine; empty lists for what was not measured.

    Attributes:
        command: that measured it.
        date: of the last.
        machine: facts that times depend on.
        cores: that the processes could use.
        quick: whether the sizes mean nothing.
        kept_memory: whether times are those of an allocator that keeps what it has.
        others: the share of the machine that other processes took, by round.
        network: seconds of collectives.
        bytes: bytes of collectives on loopback.
        idle: bytes per second on loopback while nothing was measured.
    """

    command: str
    date: str
    machine: dict[str, str]
    cores: int
    quick: bool = False
    kept_memory: bool = False
    others: list[float] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    network: list[Collective] = field(default_factory=list)
    bytes: list[Collective] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)
    idle: float = 0.0
    memory: list[Resident] = field(default_factory=list)

    def contests(self) -> list[list[Timing]]:
        """Timings that differ in their ranks alone, together."""
        found: dict[Any, list[Timing]] = {}
        for timing in self.timings:
            found.setdefault(timing.case.contest, []).append(timing)
        return list(found.values())


PARTS = {"scaling": ("timings", "network", "kept_memory", "others"), "wire": ("bytes", "traffic", "idle"), "memory": ("memory",)}


def faster(one: Timing, several: Timing) -> float:
    """The median of the quotients within a round."""
    return statistics.median(a / b for a, b in zip(one.seconds, several.seconds, strict=True))


def dumps(record: Record) -> str:
    """One line per item, so that a new run is a readable change."""
    fields: dict[str, Any] = {"format": FORMAT, **asdict(record)}
    lines = []
    for name, value in fields.items():
        items = [json.dumps(_rounded(item)) for item in value] if isinstance(value, list) else None
        text = json.dumps(_rounded(value)) if items is None else "[\n  " + ",\n  ".join(items) + "\n ]" if items else "[]"
        lines.append(f' "{name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rounded(value: Any) -> Any:
    """Five digits of every measurement."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def loads(text: str) -> Record:
    stored = json.loads(text)
    if stored.pop("format", None) != FORMAT:
        raise ValueError(f"records must have format {FORMAT}: measure again with this version")
    for name, kind in (("timings", Timing), ("traffic", Traffic), ("memory", Resident)):
        stored[name] = [kind(**{**item, "case": Case(**item["case"])}) for item in stored[name]]
    for name in ("network", "bytes"):
        stored[name] = [Collective(**item) for item in stored[name]]
    return Record(**stored)


def read(path: Path) -> Record | None:
    return loads(path.read_text()) if path.exists() else None


def write(path: Path, record: Record) -> Path:
    return write_atomically(path, dumps(record))
