"""Depth against accuracy: the recurrence grows deeper with the dimension while the certificate tightens (Corollary complexity-certificate)."""

from __future__ import annotations

import torch

import pairgrad as pg
from pairgrad.experiments import published
from pairgrad.experiments.fidelity import certificate, proven_bound
from pairgrad.experiments.published import DIMENSIONS
from pairgrad.experiments.table import Check, Column, Row, Table, Tick, compared, compared_columns, same_digits
from pairgrad.experiments.timing import machine_line, median_seconds, one_thread

ELEMENTS = 4096
REPEATS = 11


def complexity(
    tick: Tick = lambda: None, dimensions: tuple[int, ...] = DIMENSIONS, *, elements: int = ELEMENTS, repeats: int = REPEATS
) -> Table:
    """Depth, certificate and measured times of value and slope together; one row and one tick per dimension."""
    rows: list[Row] = []
    with one_thread():
        where = machine_line()
        for dim in dimensions:
            x = (dim / 2 - 1) * torch.logspace(-2, 2, elements, dtype=torch.float64)
            recurrence, paired = pg.potential(dim, "original"), pg.potential(dim)
            seconds = median_seconds(
                {"recurrence": lambda x=x, pot=recurrence: pot.pair(x), "paired": lambda x=x, pot=paired: pot.pair(x)}, repeats
            )
            rows.append(
                {
                    "dim": dim,
                    "depth": dim - 2,
                    **compared("certificate", certificate(dim), published.RATIO_CERTIFICATE[dim]),
                    "proven": proven_bound(dim),
                    "recurrence_milliseconds": 1e3 * seconds["recurrence"],
                    "paired_milliseconds": 1e3 * seconds["paired"],
                    "time_ratio": seconds["recurrence"] / seconds["paired"],
                }
            )
            tick()
    table = tuple(rows)
    return Table(
        name="complexity",
        title="Depth, certificate and measured time",
        caption=(
            "The recurrence takes dim - 2 dependent steps; the paper's certificate of AR/FR is nu^-3 = 8/(dim - 2)^3. "
            f"Times are of value and slope together on the same {elements} float64 numbers, x/nu from 1e-2 to 1e2."
        ),
        label="cor:complexity-certificate",
        columns=(
            Column("dim", "dim", "d"),
            Column("depth", "sequential depth", "d"),
            *compared_columns("certificate", "certificate 8/(dim - 2)^3", ".2e"),
            Column("proven", "proven here", ".2e", upwards=True),
            Column("recurrence_milliseconds", "recurrence, ms", ".2f"),
            Column("paired_milliseconds", "paired, ms", ".3f"),
            Column("time_ratio", "recurrence / paired", ".0f"),
        ),
        rows=table,
        checks=(
            same_digits("certificate", table, "certificate"),
            Check("the recurrence grows deeper and the certificate tighter with every row", _reversal(table)),
        ),
        notes=(
            f"Medians of {repeats} interleaved repetitions in one run, one thread, eager: the realizations `original` and `paired`, method `pair`. "
            f"Measured on: {where}.",
            f"The published certificates are those of `{published.RATIO_CERTIFICATE.label}`. The paper times a whole local forward and backward pass on an "
            "H100 (`app:h100-local`), which is another quantity and is not set beside these.",
        ),
    )


def _reversal(rows: tuple[Row, ...]) -> bool:
    depths, bounds = ([float(str(row[key])) for row in rows] for key in ("depth", "certificate"))
    return depths == sorted(depths) and bounds == sorted(bounds, reverse=True)
