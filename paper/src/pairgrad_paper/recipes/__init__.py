"""What is trained, on what, and how: `recipe` has every recipe by name, `settings` changes one by `key=value`, `values` says what each setting can be."""

from pairgrad_paper.recipes.recipe import RECIPES, Data, Loss, Model, Optimizer, Recipe, Schedule, UnknownName, Views

__all__ = ["RECIPES", "Data", "Loss", "Model", "Optimizer", "Recipe", "Schedule", "UnknownName", "Views"]
