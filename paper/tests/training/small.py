"""Small runs for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch

from pairgrad_paper.data import Benchmark
from pairgrad_paper.recipes import Recipe, changed, recipe_named
from pairgrad_paper.training import Arm, Trainer, load_data, make_trainer, run_directory


@cache
def digits() -> Benchmark:
    return load_data(recipe_named("digits-lt"), None)


def recipe(method: str = "patt", *settings: str) -> Recipe:
    """digits-lt with batches of 32: 8 updates in each of two epochs; PATT's loss, or ProCo's with a head and unit features."""
    proco = ("loss.method=proco", "loss.memory=two-epochs", "model.head=32,64", "model.normalize=true", "outlier_batch_size=0")
    base = ("epochs=2", "batch_size=32", "outlier_batch_size=16", *(proco if method == "proco" else ()))
    return changed(recipe_named("digits-lt"), (*base, *settings))


def trainer(method: str = "patt", realization: str = "arfr", seed: int = 1, *settings: str) -> Trainer:
    return Trainer(recipe(method, *settings), digits(), realization, seed)


def arm(method: str = "patt", realization: str = "arfr", seed: int = 1, *settings: str) -> Arm:
    return Arm(recipe(method, *settings), realization, seed)


def opened(path, given: Arm):
    """The context of a run's directory."""
    return run_directory(path, given, digits())


def made(given: Arm) -> Trainer:
    return make_trainer(given, digits())


def advanced(subject: Trainer, steps: int) -> Trainer:
    for _ in range(steps):
        subject.update(subject.batches.batch(subject.step))
    return subject


def tensors(tree, path: str = "") -> Mapping[str, torch.Tensor]:
    """Every tensor and number in a nested state, by its path."""
    if isinstance(tree, torch.Tensor):
        return {path: tree}
    if isinstance(tree, Mapping):
        items = tree.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        return {path: torch.tensor(tree, dtype=torch.float64)} if isinstance(tree, (int, float)) else {}
    return {name: tensor for key, value in items for name, tensor in tensors(value, f"{path}/{key}").items()}


def different(first, second) -> list[str]:
    """Paths at which two states do not have the same bits."""
    a, b = tensors(first), tensors(second)
    return [name for name in a | b if name not in a or name not in b or not torch.equal(a[name], b[name])]
