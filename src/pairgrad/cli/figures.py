"""`pairgrad figures`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from pairgrad.cli.output import prepare, report
from pairgrad.cli.show import progress
from pairgrad.experiments.catalogue import FIGURES, FigureRecipe, chosen
from pairgrad.experiments.figures.style import pyplot


def run(output: Path, only: Iterable[str] | None = None) -> None:
    """Draw the figures of those names; each with its data and its caption."""
    recipes = chosen(FIGURES, only, "figure")
    console = Console()
    report(console, make(console, recipes, output))


def make(console: Console, recipes: Mapping[str, FigureRecipe], output: Path) -> list[Path]:
    """Compute and draw, one figure after the other."""
    pyplot()  # if matplotlib is missing, say so before anything is computed
    prepare(output)
    paths = []
    for name, recipe in recipes.items():
        with progress(console, name, recipe.steps) as tick:
            table = recipe.data(tick)
        paths += recipe.save(table, output)
    return paths
