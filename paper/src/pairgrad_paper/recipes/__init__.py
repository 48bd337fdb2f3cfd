"""What is trained, on what, and how: `recipe` has every recipe by name, `settings` changes one by `key=value`, `values` says what each setting can be.

Names of `settings`, which needs torch, are loaded when they are used: the shell completes names of recipes without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pairgrad_paper.recipes.recipe import RECIPES, Data, Loss, Model, Optimizer, Recipe, Schedule, UnknownName, Views

if TYPE_CHECKING:
    from pairgrad_paper.recipes.settings import SettingError, as_data, changed, from_data, keys, recipe_named

__all__ = [
    "RECIPES",
    "Data",
    "Loss",
    "Model",
    "Optimizer",
    "Recipe",
    "Schedule",
    "SettingError",
    "UnknownName",
    "Views",
    "as_data",
    "changed",
    "from_data",
    "keys",
    "recipe_named",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pairgrad_paper.recipes import settings

    return getattr(settings, name)
