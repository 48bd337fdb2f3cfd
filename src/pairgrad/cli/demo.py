"""`pairgrad demo`."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import pairgrad as pg
from pairgrad.experiments import fidelity, figures
from pairgrad.ground.files import write_atomically


def run(output: Path) -> None:
    """Print the demonstration and write its table and picture into `output`."""
    console = Console()
    _two_slopes(console)
    rows = _measure(console)
    table = write_atomically(output / "ratio-fidelity.csv", _csv(rows))
    pictures = figures.value_and_supplied_slope(output)
    _certificate(console, rows)
    console.print("\nWritten: " + ", ".join(str(path) for path in (table, *pictures)))


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


def _measure(console: Console) -> list[fidelity.RatioFidelity]:
    rows: list[fidelity.RatioFidelity] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring against ball arithmetic", total=len(fidelity.DIMENSIONS))
        for row in fidelity.ratio_fidelity():
            rows.append(row)
            progress.advance(task)
    table = Table(
        title="Largest error of the Bessel ratio, 61 concentrations, x/nu from 1e-3 to 1e3", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for column in (
        "dim",
        "AR/FR",
        "AR/FR\nprinted",
        "proven\nbound",
        "log-\nbessel",
        "CUSF\nprinted",
        "paired\nfloat64*",
        "paired\nfloat32*",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(str(row.dim), *("" if value is None else f"{value:.2e}" for value in row.row()[1:]))
    console.print(table)
    console.print("printed: in the paper; proven bound: nu^-3 = 8/(p-2)^3; * relative, the others are absolute\n")
    return rows


def _certificate(console: Console, rows: list[fidelity.RatioFidelity]) -> None:
    held = all(row.arfr <= row.certificate for row in rows)
    console.print("[bold]Certificate[/bold] (AR/FR, order 2): |R(x) - A_R(x)| <= nu^-3 for all x >= 0, nu >= 10/9")
    console.print(f"  held at all {len(rows) * fidelity.POINTS} points measured: {'yes' if held else 'NO'}")
    published = max(abs(row.arfr / row.arfr_published - 1) for row in rows if row.arfr_published)
    console.print(f"  AR/FR errors agree with the published ones to {published:.1%}")


def _csv(rows: list[fidelity.RatioFidelity]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(fidelity.RatioFidelity.HEADER)
    writer.writerows(row.row() for row in rows)
    return buffer.getvalue()
