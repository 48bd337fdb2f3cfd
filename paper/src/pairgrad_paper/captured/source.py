"""A run to look at: its recipe, its data, and trainers at its checkpoints."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from pairgrad_paper.data import Benchmark
from pairgrad_paper.evaluation import Trained
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.runs import RunDirectory, RunError
from pairgrad_paper.runs.listing import step_of
from pairgrad_paper.training import Trainer


@dataclass(frozen=True)
class Source:
    """A run's directory and its data.

    Attributes:
        run: the directory, open for reading.
        recipe: what was trained.
        realization: with which potential.
        seed: of the run.
        benchmark: its data.
    """

    run: RunDirectory
    recipe: Recipe
    realization: str
    seed: int
    benchmark: Benchmark

    @classmethod
    def open(cls, path: str | os.PathLike[str], data_root: str | os.PathLike[str] | None = None, *, verify: bool = True) -> Source:
        """The run in a directory, with the training images that it saw.

        Raises:
            RunError: there is no run of pairgrad train, it has no checkpoint, or the images are others.
            DataError: they are not found.
        """
        trained = Trained.open(path)
        return cls(trained.run, trained.recipe, trained.realization, trained.seed, trained.data(data_root, verify=verify))

    @property
    def steps(self) -> tuple[int, ...]:
        """Of the checkpoints, in order."""
        return tuple(sorted({step for step in map(step_of, self.run.checkpoints()) if step is not None}))

    def check_step(self, step: int) -> None:
        """A RunError unless a trainer can be made there: at a checkpoint, or at the untrained start."""
        if step != 0 and step not in self.steps:
            raise RunError(f"{self.run.path} has no checkpoint of update {step}; it has {', '.join(map(str, self.steps))}")

    def trainer(self, step: int, realization: str | None = None) -> Trainer:
        """As the run was after `step` updates; with its own realization, or with another from there on."""
        self.check_step(step)
        trainer = Trainer(self.recipe, self.benchmark, realization or self.realization, self.seed)
        if step != 0:
            trainer.load(Trained.open(self.run.path, step).state)
        return trainer

    @property
    def short_name(self) -> str:
        """Of the data, as in the names of records: `cifar10` for CIFAR-10-LT."""
        return self.recipe.data.benchmark.removesuffix("-lt")

    def facts(self) -> dict[str, Any]:
        """What a record says about the run."""
        known = self.run.facts
        return {
            "recipe": known["recipe"],
            "realization": self.realization,
            "seed": self.seed,
            "data": {"class_counts": known["data"]["class_counts"]},
        }
