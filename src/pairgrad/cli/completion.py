"""What the shell can complete beside commands and options: names of realizations, recipes, tables and figures."""

from __future__ import annotations


def realizations(incomplete: str) -> list[tuple[str, str]]:
    """Ways to compute the potential."""
    import pairgrad

    return [(r.name, r.summary) for r in pairgrad.realizations() if r.name.startswith(incomplete)]


def recipes(incomplete: str) -> list[tuple[str, str]]:
    """What can be trained."""
    from pairgrad.experiments.recipes import RECIPES

    return [(name, recipe.summary) for name, recipe in RECIPES.items() if name.startswith(incomplete)]


def tables(incomplete: str) -> list[str]:
    """Tables of the paper, and ours."""
    from pairgrad.experiments.catalogue import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


def figures(incomplete: str) -> list[str]:
    """Figures of the paper, and ours."""
    from pairgrad.experiments.catalogue import FIGURES

    return [name for name in FIGURES if name.startswith(incomplete)]
