"""Depth against accuracy: the recurrence grows deeper with the dimension while the certificate tightens (Corollary complexity-certificate).

Times are read from a record, as everything that cannot be computed again to the same digits. A record of kind `times` has lines

    {"kind": "time", "dim": 64, "realization": "original" or "paired", "seconds": 0.0025}

of value and slope together; its facts are `elements`, `repeats` and `threads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

import pairgrad as pg
from pairgrad.ground import median_seconds, threads
from pairgrad_paper.records import Line, Record, RecordError, Records, origin
from pairgrad_paper.runs.facts import environment
from pairgrad_paper.tables import published
from pairgrad_paper.tables.fidelity import certificate, proven_bound
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.published import DIMENSIONS
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick, compared, compared_columns, same_digits

RECORD = "times"
NAME = "complexity-times"
TITLE = "Depth, certificate and measured time"
LABEL = "cor:complexity-certificate"
COMMAND = f"pairgrad times --output records/{NAME}.jsonl"
ELEMENTS = 4096
REPEATS = 11
REALIZATIONS = ("original", "paired")


def measure(
    tick: Tick = lambda: None,
    dimensions: Sequence[int] = DIMENSIONS,
    *,
    elements: int = ELEMENTS,
    repeats: int = REPEATS,
    name: str = NAME,
    command: Sequence[str] | None = None,
) -> Record:
    """Times of value and slope together on this machine, on one thread; one tick per dimension."""
    lines: list[Line] = []
    with threads(1):
        where = origin(environment(), command)
        for dim in dimensions:
            x = (dim / 2 - 1) * torch.logspace(-2, 2, elements, dtype=torch.float64)
            calls = {each: partial(pg.potential(dim, each).pair, x) for each in REALIZATIONS}
            for realization, seconds in median_seconds(calls, repeats).items():
                lines.append({"kind": "time", "dim": dim, "realization": realization, "seconds": seconds})
            tick()
    title = "Times of value and slope together, by dimension"
    return Record(name, RECORD, title, {"elements": elements, "repeats": repeats, "threads": 1}, where, tuple(lines))


def complexity(records: Records) -> Table:
    """Depth, certificate and measured times of value and slope together; one row per dimension of the record.

    Raises:
        NotRun: there is no record of times.
        RecordError: there are two, or a line is missing.
    """
    record = _times(records)
    elements, repeats = record.facts["elements"], record.facts["repeats"]
    rows = tuple(_row(record, dim) for dim in dict.fromkeys(line["dim"] for line in record.of("time")))
    return Table(
        name="complexity",
        title=TITLE,
        caption=(
            "The recurrence takes dim - 2 dependent steps; the paper's certificate of AR/FR is nu^-3 = 8/(dim - 2)^3. "
            f"Times are of value and slope together on the same {elements} float64 numbers, x/nu from 1e-2 to 1e2."
        ),
        label=LABEL,
        columns=(
            Column("dim", "dim", "d"),
            Column("depth", "sequential depth", "d"),
            *compared_columns("certificate", "certificate 8/(dim - 2)^3", ".2e"),
            Column("proven", "proven here", ".2e", upwards=True),
            Column("recurrence_milliseconds", "recurrence, ms", ".2f"),
            Column("paired_milliseconds", "paired, ms", ".3f"),
            Column("time_ratio", "recurrence / paired", ".0f"),
        ),
        rows=rows,
        checks=(
            same_digits("certificate", rows, "certificate"),
            Check("the recurrence takes longer and the certificate gets tighter with every row", _reversal(rows)),
        ),
        notes=(
            f"Medians of {repeats} interleaved repetitions in one run, one thread, eager: the realizations `original` and `paired`, method `pair`. "
            f"Measured on: {_machine(record)}. Measured by `{record.command}`.",
            f"The published certificates are those of `{published.RATIO_CERTIFICATE.label}`. The paper times a whole local forward and backward pass on an "
            "H100 (`app:h100-local`), which is another quantity and is not set beside these.",
        ),
    )


def _times(records: Records) -> Record:
    found = records.of(RECORD)
    if not found:
        raise NotRun(TITLE, LABEL, [COMMAND], "Seconds on an idle CPU")
    if len(found) > 1:
        raise RecordError(
            f"{records.directory} must have one record of times, got {', '.join(each.name for each in found)}: move the others to another directory"
        )
    return found[0]


def _row(record: Record, dim: int) -> Row:
    seconds = {line["realization"]: float(line["seconds"]) for line in record.of("time") if line["dim"] == dim}
    if set(seconds) != set(REALIZATIONS):
        raise RecordError(f"record {record.name} must have times of {' and '.join(REALIZATIONS)} at dim {dim}, got {', '.join(seconds)}")
    if dim not in published.RATIO_CERTIFICATE.texts:
        raise RecordError(f"record {record.name} has times at dim {dim}; the paper has {', '.join(map(str, DIMENSIONS))}")
    return {
        "dim": dim,
        "depth": dim - 2,
        **compared("certificate", certificate(dim), published.RATIO_CERTIFICATE[dim]),
        "proven": proven_bound(dim),
        "recurrence_milliseconds": 1e3 * seconds["original"],
        "paired_milliseconds": 1e3 * seconds["paired"],
        "time_ratio": seconds["original"] / seconds["paired"],
    }


def _machine(record: Record) -> str:
    """CPU and versions in one line."""
    cpu, versions = record.environment["cpu"], record.environment["versions"]
    torch_facts = f"torch {versions['torch']} ({cpu['instruction_set']}, threads: {cpu['threads']})"
    return ", ".join((cpu["model"], torch_facts, f"Python {versions['python']}", cpu["system"]))


def _reversal(rows: tuple[Row, ...]) -> bool:
    times, bounds = ([float(str(row[key])) for row in rows] for key in ("recurrence_milliseconds", "certificate"))
    return times == sorted(times) and bounds == sorted(bounds, reverse=True)
