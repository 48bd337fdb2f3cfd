"""Branches that make their own updates on shared tensors, measured on the way; and resumed like a training run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pairgrad_paper.data import Benchmark
from pairgrad_paper.forks.distance import Place
from pairgrad_paper.forks.probing import SUPPLIED, probe
from pairgrad_paper.forks.start import Start
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.recipes.settings import SettingError
from pairgrad_paper.runs import CheckpointError, RunDirectory, environment
from pairgrad_paper.training import Trainer
from pairgrad_paper.training.chance import random_state, restore_random_state
from pairgrad_paper.training.launch import Arm
from pairgrad_paper.training.signals import StopRequest

BRANCHES = ("original", "consistent", "arfr", "paired")
PROBES = 43  # of the paper, per fork
EARLY = (1, 2, 5, 10, 20)  # updates after which distances are measured besides the probes
LOSS_EVERY = 10
CONTROLS = (
    ("consistent", "arfr"),
    ("arfr", "paired"),
)  # coherent branches: how far apart is what differs far less than the two backward rules
ForkDirectory = RunDirectory


@dataclass(frozen=True)
class Plan:
    """What a fork does.

    Attributes:
        updates: that each branch makes.
        probes: how many local probes, evenly spread from before the first update to after the last.
        branches: realizations; the first is the one that distances are measured from, and at whose state the probes are.
        minutes: no checkpoint gets older than this.
    """

    updates: int = 1000
    probes: int = PROBES
    branches: tuple[str, ...] = BRANCHES
    minutes: float = 5.0

    def __post_init__(self) -> None:
        if len(set(self.branches)) != len(self.branches) or len(self.branches) < 2 or self.branches[0] != SUPPLIED:
            raise SettingError(f"--branch must name two realizations or more, each once, {SUPPLIED} first, got {', '.join(self.branches)}")
        if not 2 <= self.probes <= self.updates + 1:
            raise SettingError(f"--probes must be from 2 to the number of updates plus 1, {self.updates + 1}, got {self.probes}")

    def probed(self) -> list[int]:
        """Updates after which a probe is made."""
        return [round(self.updates * k / (self.probes - 1)) for k in range(self.probes)]

    def measured(self) -> list[int]:
        """Updates after which distances are measured."""
        return sorted({step for step in (*self.probed(), *EARLY) if 0 < step <= self.updates})


@dataclass(frozen=True)
class Outcome:
    """`finished`, or why not; after `step` updates."""

    step: int
    stopped: str | None = None

    @property
    def finished(self) -> bool:
        return self.stopped is None


class ForkRun:
    """Branches from one start.

    Args:
        recipe: of the system. benchmark: its data. seed: of the order and augmentation of the batches, which all branches see.
        start: the shared state.
        plan: what is done.
        device: where.
    """

    def __init__(
        self, recipe: Recipe, benchmark: Benchmark, seed: int, start: Start, plan: Plan, device: torch.device | str = "cpu"
    ) -> None:
        self.recipe, self.benchmark, self.seed, self.start, self.plan = recipe, benchmark, seed, start, plan
        self.branches = {name: Trainer(recipe, benchmark, name, seed, device) for name in plan.branches}
        for trainer in self.branches.values():
            try:
                trainer.load(start.state)
            except ValueError as error:
                raise SettingError(f"a fork cannot start from this state: {error}") from error
        if not same_start(list(self.branches.values())):
            raise RuntimeError("the branches of a fork do not begin at the same state")
        last = start.step + plan.updates
        if last >= self.first.steps:
            raise SettingError(
                f"a fork of {plan.updates} updates after update {start.step} goes beyond the {self.first.steps} updates of {recipe.name}: "
                f"--set epochs={last // self.first.batches.per_epoch + 1} or more, or fewer --updates"
            )
        self.step = 0

    @property
    def first(self) -> Trainer:
        return self.branches[self.plan.branches[0]]

    @property
    def name(self) -> str:
        return f"fork-{self.recipe.name}-seed{self.seed}-{self.start.kind}"

    def facts(self) -> dict[str, Any]:
        """What the fork is."""
        arm = Arm(self.recipe, "", self.seed).facts(self.benchmark)
        return {
            "recipe": arm["recipe"],
            "seed": self.seed,
            "start": self.start.kind,
            "start_step": self.start.step,
            "start_weights": self.start.fingerprint(),
            "updates": self.plan.updates,
            "branches": list(self.plan.branches),
            "probes": self.plan.probes,
            "data": arm["data"],
        }

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "branches": {name: trainer.state() for name, trainer in self.branches.items()}}

    def load(self, state: dict[str, Any]) -> None:
        for name, trainer in self.branches.items():
            trainer.load(state["branches"][name])
        self.step = state["step"]

    def directory(self, output: Path) -> ForkDirectory:
        """Its directory in `output`, made or resumed, and locked."""
        found = {"notes": list(self.benchmark.notes)}
        return RunDirectory.create(output / self.name, self.facts(), {**environment(self.first.device), "data": found})

    def run(
        self,
        directory: ForkDirectory,
        tick: Callable[[int, dict[str, Any] | None], object] = lambda step, measured: None,
        said: Callable[[str], object] = lambda message: None,
    ) -> Outcome:
        """Make the updates that are still to be made, and write what is measured into the record of the directory.

        Args:
            directory: see `directory`.
            tick: is called after every update, with its number and what a probe or distances found.
            said: is told what a user should know.
        """
        found = directory.resume(lambda error: _damaged(said, error))
        if found is None:
            directory.check_space([self.state(), *(t for trainer in self.branches.values() for t in trainer.still_to_come())])
            self._measure(directory, tick)
            directory.save(0, self.state())
        else:
            self.load(found.state)
            if self.step < self.plan.updates:
                said(f"resuming after update {self.step} of {self.plan.updates}")
        saved = time.monotonic()
        with StopRequest() as request:
            while self.step < self.plan.updates:
                self._update(directory)
                self._measure(directory, tick)
                over = self.step == self.plan.updates
                if over or request.wanted is not None or time.monotonic() - saved > 60 * self.plan.minutes:
                    directory.save(self.step, self.state())
                    saved = time.monotonic()
                if request.wanted is not None and not over:
                    return Outcome(self.step, request.wanted)
        return Outcome(self.step)

    def _update(self, directory: ForkDirectory) -> None:
        batch = self.first.batches.batch(self.start.step + self.step)
        chance = random_state()
        updates = {}
        for name, trainer in self.branches.items():
            restore_random_state(chance)
            updates[name] = trainer.update(batch)
        self.step += 1
        if self.step % LOSS_EVERY == 0 or self.step == self.plan.updates:
            for name, update in updates.items():
                measures = update.read()
                directory.log.write(
                    "loss", self.step, time=time.time(), branch=name, **{key: measures[key] for key in ("total", "vmf", "accuracy")}
                )

    def _measure(self, directory: ForkDirectory, tick: Callable[[int, dict[str, Any] | None], object]) -> None:
        seen: dict[str, Any] = {}
        if self.step in self.plan.measured():
            places = {name: Place.of(trainer) for name, trainer in self.branches.items()}
            for name in self.plan.branches[1:]:
                distance = places[name].distance(places[self.plan.branches[0]])
                directory.log.write("distance", self.step, time=time.time(), branch=name, **distance)
                seen[name] = distance["parameter"]
            for pair in CONTROLS:
                if all(name in places for name in pair):
                    apart = places[pair[1]].distance(places[pair[0]])
                    directory.log.write("control", self.step, time=time.time(), between=list(pair), **apart)
        if self.step in self.plan.probed():
            found = probe(self.first, self.first.batches.batch(self.start.step + self.step))
            directory.log.write("probe", self.step, time=time.time(), **found)
            seen["probe"] = found
        tick(self.step, seen or None)


def _damaged(said: Callable[[str], object], error: CheckpointError) -> None:
    said(f"{error}; the checkpoint before it is used")


def same_start(branches: Sequence[Trainer]) -> bool:
    """Whether all branches have the same weights, class banks and optimizer states, in every bit."""
    first, *others = (trainer.state() for trainer in branches)
    return all(_equal(first[key], other[key]) for other in others for key in ("network", "objective", "derived", "optimizer"))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b
