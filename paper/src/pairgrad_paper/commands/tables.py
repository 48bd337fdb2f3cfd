"""`pairgrad tables`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pairgrad.cli import Console, prepare, progress
from pairgrad_paper import catalogue
from pairgrad_paper.catalogue import RecordedTable, SummaryTable, TableRecipe, chosen
from pairgrad_paper.commands.output import records_in, report
from pairgrad_paper.commands.show import say_not_run, show
from pairgrad_paper.records import Records
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.writers import write, write_not_run


def run(output: Path, only: Iterable[str] | None = None, records: Path | None = None) -> None:
    """Print the tables of those names and write each as CSV and Markdown."""
    recipes = chosen(catalogue.TABLES, only, "table")
    known = records_in(records)
    console = Console()
    report(console, make(console, recipes, output, known))


def make(
    console: Console, recipes: Mapping[str, TableRecipe | RecordedTable | SummaryTable], output: Path, records: Records | None = None
) -> list[Path]:
    """Compute or read, print and write, one table after the other: what is done stays if a later one fails."""
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
        show(console, table)
        paths += write(table, output)
    return paths
