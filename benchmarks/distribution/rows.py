"""Measuring a row: every contestant's result is judged, then all of them are timed in turns."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.distribution.contestants import CHEAPER, PAIRGRAD, SCIPY, calls, numbers
from benchmarks.distribution.judges import Verdict, judge
from benchmarks.distribution.places import SAMPLE, Place, given
from benchmarks.timing import Call, Measurement, Samples, interleaved, once

_LONGEST = 2.0  # seconds; a call of a peer that takes longer is made once
_FEWEST = 3  # repetitions of a call that takes long


@dataclass(frozen=True)
class Effort:
    """How much time goes into a row: repetitions, seconds of one (calls are repeated until they fill it), and seconds in all per contestant."""

    repeats: int
    seconds: float
    most: float
    quick: bool  # without calls that take half a minute; the fastest repetition counts, which says more on a busy machine than the median

    @property
    def description(self) -> str:
        length, which = f"{1000 * self.seconds:g} ms", "The fastest" if self.quick else "Medians"
        once = "" if self.quick else f" A call of scipy that takes more than {_LONGEST:g} s is made once."
        return (
            f"Contestants of a row take turns, each with as many calls in a row as take {length}. {which} of {self.repeats} turns, "
            f"of at least {_FEWEST} where a call takes long.{once}"
        )


FULL = Effort(15, 0.004, 0.6, False)
QUICK = Effort(12, 0.001, 0.1, True)


@dataclass
class Cell:
    """What one contestant does in one row: times, what its result is worth, or why there is nothing."""

    samples: Samples = field(default_factory=Samples)
    verdict: Verdict | None = None
    note: str = ""

    @property
    def wrong(self) -> bool:
        return self.verdict is not None and self.verdict.wrong


@dataclass
class Row:
    place: Place
    cells: dict[str, Cell]

    def ratio(self, peer: str) -> float | None:
        """A peer's time over pairgrad's; None where the peer was not timed."""
        cell = self.cells.get(peer)
        return cell.samples.median / self.cells[PAIRGRAD].samples.median if cell is not None and cell.samples.seconds else None


def measure(place: Place, effort: Effort) -> Row:
    data = given(place)
    row, measurements = Row(place, {}), {}
    with _quiet():
        for name, call in calls(place, data).items():
            cell = row.cells[name] = Cell()
            if isinstance(call, str):
                cell.note = call
            elif effort.quick and (place.quantity, name) == (SAMPLE, SCIPY) and place.dim > 1000:
                cell.note = "20 s and more"  # it rotates by a dense matrix, in time proportional to p^3
            else:
                first: list[Any] = []
                seconds = once(lambda c=call, r=first: r.append(c()))
                if name not in CHEAPER:
                    cell.verdict = judge(place, data, numbers(first[0]))
                if name == SCIPY and seconds > _LONGEST:
                    cell.samples.seconds.append(seconds)
                else:
                    measurements[name] = _planned(call, effort)
        interleaved(measurements, {name: cell.samples for name, cell in row.cells.items()})
    if effort.quick:
        for name in measurements:
            row.cells[name].samples = Samples([min(row.cells[name].samples.seconds)])
    return row


def _planned(call: Call, effort: Effort) -> Measurement:
    """With so many calls in a row that they take as long as the effort says, and fewer repetitions of what takes longer."""
    number, seconds = 1, once(call)
    while number * seconds < effort.seconds / 2:
        number = max(2 * number, min(10 * number, int(effort.seconds / max(seconds, 1e-9))))
        seconds = once(call, number)
    repeats = max(_FEWEST, min(effort.repeats, int(effort.most / (number * seconds))))
    return Measurement(call, repeats, 0, number)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of a peer about its own overflow, for the table has them, and without garbage collection between calls."""
    gc.collect()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def record(rows: list[Row]) -> list[dict[str, Any]]:
    """As plain data, times with four digits."""
    entries = [asdict(row) for row in rows]
    for entry in entries:
        for cell in entry["cells"].values():
            cell["samples"]["seconds"] = [float(f"{seconds:.4g}") for seconds in cell["samples"]["seconds"]]
    return entries


def rows_of(records: list[dict[str, Any]]) -> list[Row]:
    """The rows of a record."""
    return [Row(Place(**entry["place"]), {name: _cell(**cell) for name, cell in entry["cells"].items()}) for entry in records]


def _cell(samples: dict[str, list[float]], verdict: dict[str, Any] | None, note: str) -> Cell:
    return Cell(Samples(**samples), None if verdict is None else Verdict(**verdict), note)
