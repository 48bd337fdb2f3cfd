"""What a run has measured, as data and as JSON, so that the page can be made again without measuring."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.learning.workload import Size
from pairgrad.ground.files import write_atomically

FORMAT = 1


@dataclass
class Row:
    """One contestant at one size: its times, round by round; its peak increment in bytes; its loss; or in `note` why there is nothing."""

    setting: str
    size: Size
    contestant: str
    seconds: list[float] = field(default_factory=list)
    system_seconds: float = 0.0
    peak: int | None = None
    loss: float | None = None
    note: str = ""

    @property
    def measured(self) -> bool:
        return bool(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def system_share(self) -> float:
        """The part of the CPU time that the operating system took."""
        return self.system_seconds / sum(self.seconds)

    @property
    def spread(self) -> float:
        """Interquartile range over median; 0 for a single sample."""
        if len(self.seconds) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (third - first) / self.median


@dataclass
class Run:
    """One protocol on one machine."""

    protocol: str
    command: str
    date: str
    machine: dict[str, str]
    device: str
    seed: int
    warmups: int
    repeats: int
    budget: float | None  # seconds of all runs of a contestant, None: no limit
    quick: bool = False
    interrupted: bool = False
    kept_memory: bool = False  # whether growth was measured with an allocator that keeps what it has
    rows: list[Row] = field(default_factory=list)
    growth: list[Row] = field(default_factory=list)

    def find(self, setting: str, contestant: str) -> Row | None:
        return next((r for r in self.rows if (r.setting, r.contestant) == (setting, contestant) and r.measured), None)


def ratio(above: Row | None, below: Row | None) -> float | None:
    """The median, over the rounds that both took part in, of the quotient of their times."""
    if above is None or below is None or not (above.measured and below.measured):
        return None
    return statistics.median(a / b for a, b in zip(above.seconds, below.seconds, strict=False))


def dumps(runs: dict[str, Run]) -> str:
    return json.dumps({"format": FORMAT, "runs": {name: asdict(run) for name, run in runs.items()}}, indent=1) + "\n"


def loads(text: str) -> dict[str, Run]:
    stored = json.loads(text)
    if stored.get("format") != FORMAT:
        raise ValueError(f"records must have format {FORMAT}, got {stored.get('format')!r}: measure again with this version")
    return {name: _run(fields) for name, fields in stored["runs"].items()}


def _run(fields: dict[str, Any]) -> Run:
    rows = {kind: [Row(**{**row, "size": Size(**row["size"])}) for row in fields[kind]] for kind in ("rows", "growth")}
    return Run(**{**fields, **rows})


def read(path: Path) -> dict[str, Run]:
    """By protocol; nothing where there is no file."""
    return loads(path.read_text()) if path.exists() else {}


def write(path: Path, runs: dict[str, Run]) -> Path:
    return write_atomically(path, dumps(runs))
