"""`pairgrad demo`."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import pairgrad as pg
from pairgrad.cli import figures, tables
from pairgrad.cli.output import report
from pairgrad.experiments.catalogue import FIGURES, TABLES
from pairgrad.experiments.figures.style import pyplot
from pairgrad.ground.balls import flint

_FIGURE = "value-and-slope"


def run(output: Path) -> None:
    """Print the demonstration and write its tables and its picture into `output`."""
    flint()  # what is missing is said before anything is computed
    pyplot()
    console = Console()
    _two_slopes(console)
    picture = figures.make(console, {_FIGURE: FIGURES[_FIGURE]}, output)
    report(console, tables.make(console, TABLES, output) + picture)


def _two_slopes(console: Console) -> None:
    original, consistent = pg.potential(128, "original"), pg.potential(128, "consistent")
    x = torch.tensor([64 * 63.0], dtype=torch.float64)
    console.print("[bold]Same value, different slopes[/bold]  (dim 128, x/nu = 64)")
    table = Table("realization", "value it reports", "slope it supplies", "derivative of its value")
    for pot in (original, consistent, pg.potential(128)):
        value, slope = pot.pair(x)
        derivative = (consistent if pot is original else pot).slope(x)
        table.add_row(pot.realization, f"{value.item() + pot.offset:.10f}", f"{slope.item():.6f}", f"{derivative.item():.6f}")
    console.print(table)
    same = torch.equal(original.value(x), consistent.value(x))
    defect = (original.slope(x) - consistent.slope(x)).item()
    console.print(
        f"original and consistent: values equal bit for bit: {'yes' if same else 'NO'}; coherence defect of original: {defect:.3e}\n"
    )
