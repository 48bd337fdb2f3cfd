"""Evaluating the newest checkpoint of a run, from what its directory says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pairgrad.ground import write_atomically
from pairgrad_paper.data import Benchmark
from pairgrad_paper.evaluation.evaluate import SCORES, Evaluation, evaluate
from pairgrad_paper.models import Network
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.recipes.settings import from_data
from pairgrad_paper.runs import Checkpoint, CheckpointError, RunDirectory, RunError, environment, load_checkpoint
from pairgrad_paper.runs.listing import step_of
from pairgrad_paper.training.launch import load_data
from pairgrad_paper.training.trainer import network_of


@dataclass(frozen=True)
class Trained:
    """A run at one of its checkpoints."""

    run: RunDirectory
    recipe: Recipe
    realization: str
    seed: int
    step: int
    state: dict[str, Any]

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], step: int | None = None, on_damage: Callable[[CheckpointError], None] | None = None
    ) -> Trained:
        """The run in a directory, at the checkpoint of `step` or the newest whole one.

        Raises:
            RunError: there is no run of pairgrad train, or it has no intact checkpoint.
            SettingError: this version of pairgrad does not know its recipe.
        """
        run = RunDirectory.open(path)
        facts = run.facts
        match facts:
            case {"recipe": dict(), "realization": str(), "seed": int(), "data": {"class_counts": list()}}:
                recipe = from_data(facts["recipe"])
            case _:
                raise RunError(f"{run.run_path} does not say which recipe was trained, on what: is it of pairgrad train?")
        found = _checkpoint(run, step, on_damage)
        return cls(run, recipe, facts["realization"], facts["seed"], found.step, found.state)

    def data(self, root: str | os.PathLike[str] | None, *, verify: bool = True) -> Benchmark:
        """Its data; a RunError if the training images are not those of the run."""
        benchmark = load_data(self.recipe, root, verify=verify)
        self.check_data(benchmark)
        return benchmark

    def check_data(self, benchmark: Benchmark) -> None:
        """A RunError if these are not the numbers of training images that the run saw."""
        trained, found = self.run.facts["data"]["class_counts"], list(benchmark.class_counts)
        if trained != found:
            raise RunError(
                f"{self.run.path} was trained on {_in_words(trained)}, and {_in_words(found)} are found now: give the --data-root of that run"
            )

    def changed_files(self, benchmark: Benchmark) -> tuple[str, ...]:
        """A sentence for each file that is not what it was when the run began."""
        before = {fact["path"]: fact["md5"] for fact in self.run.environment.get("data", {}).get("files", [])}
        return tuple(
            f"{fact.path} is not the file it was when the run began: md5 {fact.md5}, then {before[fact.path]}"
            for fact in benchmark.files
            if before.get(fact.path, fact.md5) != fact.md5
        )

    def network(self, benchmark: Benchmark, device: torch.device | str = "cpu") -> Network:
        """Its network with the weights of the checkpoint; a RunError if they do not fit."""
        network = network_of(self.recipe, benchmark, self.seed)
        try:
            network.load_state_dict(self.state["network"])
        except (RuntimeError, KeyError, TypeError) as error:
            raise RunError(
                f"the checkpoint of update {self.step} in {self.run.path} has not the weights of its recipe's network "
                f"({' '.join(str(error).split())}): "
                "use the version of pairgrad that wrote it"
            ) from error
        return network.to(device)


def evaluate_run(
    trained: Trained,
    benchmark: Benchmark,
    *,
    scores: Sequence[str] = SCORES,
    shots: str | None = None,
    device: torch.device | str = "cpu",
    tick: Callable[[str, int, int], object] | None = None,
) -> tuple[Evaluation, Path]:
    """Evaluate, and write the result into the directory of the run.

    The file is `evaluation-<step>.json`; if not all scores were asked for, it has their names in its own, so that the whole is not replaced by a part.
    """
    network = trained.network(benchmark, device)
    result = evaluate(network, benchmark, trained.recipe, scores=scores, seed=trained.seed, shots=shots, tick=tick)
    result = replace(result, notes=(*result.notes, *trained.changed_files(benchmark)))
    content = {
        "recipe": trained.recipe.name,
        "realization": trained.realization,
        "seed": trained.seed,
        "step": trained.step,
        "environment": environment(device),
        **result.to_dict(),
    }
    part = "" if set(SCORES) <= set(scores) else "".join(f"-{name}" for name in SCORES if name in scores)
    path = trained.run.path / f"evaluation-{trained.step:08}{part}.json"
    try:
        return result, write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror or error}): make its directory writable, or free space") from error


def _in_words(class_counts: Sequence[int]) -> str:
    return f"{sum(class_counts)} images of {len(class_counts)} classes ({', '.join(map(str, class_counts[:10]))}{', ...' if len(class_counts) > 10 else ''})"


def _checkpoint(run: RunDirectory, step: int | None, on_damage: Callable[[CheckpointError], None] | None) -> Checkpoint:
    if step is None:
        found = run.latest(on_damage or (lambda _: None))
        if found is None:
            raise RunError(f"{run.path} has no intact checkpoint: train it, or resume training")
        return found
    names = {step_of(path): path for path in run.checkpoints()}
    if step not in names:
        raise RunError(f"{run.path} has no checkpoint of update {step}; it has {', '.join(map(str, names)) or 'none'}")
    return load_checkpoint(names[step])
