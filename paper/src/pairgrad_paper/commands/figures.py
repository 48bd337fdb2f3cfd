"""`pairgrad figures`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pairgrad.cli import Console, prepare, progress
from pairgrad_paper.catalogue import FIGURES, FigureRecipe, RecordedFigure, chosen
from pairgrad_paper.commands.output import records_in, report
from pairgrad_paper.commands.show import say_not_run
from pairgrad_paper.records import Records
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.writers import write_not_run


def run(output: Path, only: Iterable[str] | None = None, records: Path | None = None) -> None:
    """Draw the figures of those names; each with its data and its caption."""
    recipes = chosen(FIGURES, only, "figure")
    known = records_in(records)
    console = Console()
    report(console, make(console, recipes, output, known))


def make(
    console: Console, recipes: Mapping[str, FigureRecipe | RecordedFigure], output: Path, records: Records | None = None
) -> list[Path]:
    """Compute or read, and draw, one figure after the other."""
    prepare(output)
    records = Records() if records is None else records
    paths = []
    for name, recipe in recipes.items():
        try:
            with progress(console, name, recipe.steps) as tick:
                table = recipe.table(tick, records)
        except NotRun as missing:
            say_not_run(console, missing)
            paths += write_not_run(missing, name, output)
            continue
        paths += recipe.save(table, output)
    return paths
