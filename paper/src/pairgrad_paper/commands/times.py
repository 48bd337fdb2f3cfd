"""`pairgrad times`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.text import Text

from pairgrad.cli import Console, prepare, progress
from pairgrad.ground import printable
from pairgrad_paper.records import write
from pairgrad_paper.tables.complexity import ELEMENTS, REPEATS, measure
from pairgrad_paper.tables.published import DIMENSIONS


def run(output: Path, elements: int | None = None, repeats: int | None = None) -> None:
    """Measure value and slope together by dimension, and write the record behind the table `complexity`."""
    prepare(output.parent)
    console = Console()
    with progress(console, "times", len(DIMENSIONS)) as tick:
        record = measure(tick, elements=elements or ELEMENTS, repeats=repeats or REPEATS)
    path = write(output, replace(record, name=output.stem))
    console.print(
        Text(printable(f"Written to {path}. To see it: pairgrad tables --only complexity --records {output.parent}")), soft_wrap=True
    )
