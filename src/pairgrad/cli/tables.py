"""`pairgrad tables`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from pairgrad.cli.output import prepare, report
from pairgrad.cli.show import progress, show
from pairgrad.experiments.catalogue import TABLES, TableRecipe, chosen
from pairgrad.experiments.writers import write


def run(output: Path, only: Iterable[str] | None = None) -> None:
    """Print the tables of those names and write each as CSV and Markdown."""
    recipes = chosen(TABLES, only, "table")
    console = Console()
    report(console, make(console, recipes, output))


def make(console: Console, recipes: Mapping[str, TableRecipe], output: Path) -> list[Path]:
    """Compute, print and write, one table after the other: what is done stays if a later one fails."""
    prepare(output)
    paths = []
    for name, recipe in recipes.items():
        with progress(console, name, recipe.steps) as tick:
            table = recipe.make(tick)
        show(console, table)
        paths += write(table, output)
    return paths
