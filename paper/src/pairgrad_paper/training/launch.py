"""From a recipe to a trainer and a run's directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from pairgrad_paper.data import ArrayImages, Benchmark, FileImages, Images, load_benchmark
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.recipes.settings import as_data
from pairgrad_paper.runs import RunDirectory, RunMismatch, environment
from pairgrad_paper.training.process import Process
from pairgrad_paper.training.trainer import Trainer

_HASHED = 1000
_SHARED = ("processes", "sharing")  # facts that may change with --reshare


@dataclass(frozen=True)
class Arm:
    """One run: a recipe with one realization of the potential and one seed."""

    recipe: Recipe
    realization: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.recipe.name}-{self.realization}-seed{self.seed}"

    def facts(self, benchmark: Benchmark, process: Process | None = None) -> dict[str, Any]:
        """What the run is: two runs of equal facts end with equal weights. Test images and wording are not among them."""
        process = Process() if process is None else process
        return {
            "recipe": {key: value for key, value in as_data(self.recipe).items() if key not in ("summary", "notes")},
            "realization": self.realization,
            "seed": self.seed,
            "processes": process.world,  # batch normalisation has the statistics of each one's part
            **({"sharing": process.sharing.facts()} if process.world > 1 else {}),
            "data": {
                "class_counts": list(benchmark.class_counts),
                "train": _fingerprint(benchmark.train),
                "outliers": _fingerprint(benchmark.outliers) if self.recipe.outlier_batch_size else None,
            },
        }


def _fingerprint(images: Images | None) -> str | None:
    """A hash of the labels and of the paths of files, or of a thousand images evenly spread over an array."""
    if images is None:
        return None
    digest = hashlib.sha256(str(len(images)).encode())
    if images.labels is not None:
        digest.update(images.labels.numpy().tobytes())
    if isinstance(images, FileImages):
        digest.update("\n".join(map(str, images.paths)).encode())
    elif isinstance(images, ArrayImages):
        chosen = torch.linspace(0, len(images) - 1, min(len(images), _HASHED)).round().long()
        digest.update(images.batch(chosen).contiguous().numpy().tobytes())
    return digest.hexdigest()


def load_data(recipe: Recipe, root: str | os.PathLike[str] | None, *, verify: bool = True) -> Benchmark:
    """The data of a recipe."""
    data = recipe.data
    return load_benchmark(data.benchmark, root, imbalance=data.imbalance, rule=data.rule, outliers=data.outliers, verify=verify)


def make_trainer(
    arm: Arm, benchmark: Benchmark, device: torch.device | str = "cpu", process: Process | None = None, workers: int = 0
) -> Trainer:
    """A trainer for one arm: its recipe, realization and seed."""
    return Trainer(arm.recipe, benchmark, arm.realization, arm.seed, device, process, workers)


@contextmanager
def run_directory(
    path: Path, arm: Arm, benchmark: Benchmark, device: torch.device | str = "cpu", process: Process | None = None
) -> Iterator[RunDirectory]:
    """The directory of an arm, locked by the first process and open for reading in the others."""
    process = Process() if process is None else process
    with ExitStack() as stack:
        with process.together("opening the run's directory"):
            if process.first:
                found = {"notes": list(benchmark.notes), "files": [asdict(fact) for fact in benchmark.files]}
                run = stack.enter_context(_created(path, arm.facts(benchmark, process), {**environment(device), "data": found}, process))
        if not process.first:
            run = stack.enter_context(RunDirectory.open(path))
        yield run  # pyright: ignore[reportPossiblyUnboundVariable]


def would_go_on(differences: Sequence[str], process: Process) -> bool:
    """Whether a run with these differences is gone on with: there are none, or only in how it is shared, and that may change."""
    return not differences or (process.sharing.reshare and all(line.startswith(_SHARED) for line in differences))


def _created(path: Path, facts: dict[str, Any], found: dict[str, Any], process: Process) -> RunDirectory:
    try:
        return RunDirectory.create(path, facts, found, may_change=_SHARED if process.sharing.reshare else ())
    except RunMismatch as error:
        if process.sharing.reshare or not all(line.startswith(_SHARED) for line in error.differences):
            raise
        raise RunMismatch(
            f"{error}. With --reshare it resumes with the options given now, and rounds differently from then on", error.differences
        ) from None
