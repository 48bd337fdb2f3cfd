"""A benchmark, a network and a run that take a second, for the tests of evaluation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from pairgrad_paper.data import ArrayImages, Benchmark
from pairgrad_paper.models import Network, build
from pairgrad_paper.recipes import Recipe, changed, recipe_named
from pairgrad_paper.training import Arm, Options, load_data, make_trainer, run_directory, train


@cache
def digits() -> Benchmark:
    return load_data(recipe_named("digits-lt"), None)


def recipe(*settings: str) -> Recipe:
    """digits-lt with 4 updates in each of two epochs."""
    return changed(recipe_named("digits-lt"), ("epochs=2", *settings))


def network(seed: int = 0, **options: Any) -> Network:
    return build("tiny8", 7, channels=1, seed=seed, **options)


def train_run(folder: Path, *settings: str, realization: str = "arfr", seed: int = 1) -> Path:
    """Train in a directory under `folder`; it has the checkpoints of updates 4 and 8."""
    arm = Arm(recipe(*settings), realization, seed)
    benchmark = load_data(arm.recipe, None) if settings else digits()
    with run_directory(folder / arm.name, arm, benchmark) as run:
        train(run, make_trainer(arm, benchmark), Options(monitor_every=0))
    return folder / arm.name


class Untouchable:
    """Images that nobody may look at."""

    name = "untouchable"

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} of images that are none of its business was looked at")

    def __len__(self) -> NoReturn:
        raise AssertionError("images that are none of its business were counted")


def labelled(labels: torch.Tensor) -> ArrayImages:
    """Images of one pixel, for tests in which only labels and positions matter."""
    return ArrayImages("pixels", torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), labels)


class Linear(nn.Module):
    """A network for which only the classifier matters."""

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(dim, num_classes)
