"""What the shell can complete: names of recipes, tables and figures."""

from __future__ import annotations


def recipes(incomplete: str) -> list[tuple[str, str]]:
    """What can be trained."""
    from pairgrad_paper.recipes import RECIPES

    return [(name, recipe.summary) for name, recipe in RECIPES.items() if name.startswith(incomplete)]


def tables(incomplete: str) -> list[str]:
    """Tables of the paper, and ours."""
    from pairgrad_paper.catalogue import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


def figures(incomplete: str) -> list[str]:
    """Figures of the paper, and ours."""
    from pairgrad_paper.catalogue import FIGURES

    return [name for name in FIGURES if name.startswith(incomplete)]
