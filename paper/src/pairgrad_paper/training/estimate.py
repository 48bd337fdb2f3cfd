"""How long a run takes and what memory it needs, from two of its updates."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from pairgrad_paper.data import Benchmark
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.recipes.settings import SettingError
from pairgrad_paper.training.launch import Arm, make_trainer


@dataclass(frozen=True)
class Estimate:
    """Attributes:

    updates: of the whole run.
    images: that go through the network of a process in an update, all views and the outliers together.
    seconds: of an update, its data being there.
    loading: seconds to read and to augment the data of an update, by `workers` processes or by this one.
    flops: counted operations of the matrix products and convolutions of an update, forward and backward.
    memory: bytes: on a GPU what torch had allocated at the most, on a CPU what the whole process had.
    """

    updates: int
    images: int
    seconds: float
    loading: float
    flops: int
    memory: int


def estimate(arm: Arm, benchmark: Benchmark, device: torch.device, processes: int = 1, workers: int = 0) -> Estimate:
    """Make two updates, the first to warm up and to count, of what one of several equal processes would do; nothing is written.

    Raises:
        SettingError: the processes cannot share the batches equally.
    """
    part = make_trainer(replace(arm, recipe=_part(arm.recipe, processes)), benchmark, device, workers=workers)
    gpu = device.type != "cpu"
    if gpu:
        torch.accelerator.reset_peak_memory_stats(device)
    stream = part.batches.stream(0, 2)
    with FlopCounterMode(display=False) as counter:
        part.update(next(stream))
    began = _now(device)
    batch = next(stream)
    loaded = _now(device)
    part.update(batch)
    ended = _now(device)
    most = torch.accelerator.max_memory_allocated(device) if gpu else _resident()
    images = sum(map(len, batch.views)) + (0 if batch.outliers is None else len(batch.outliers))
    updates = arm.recipe.epochs * (len(benchmark.train) // arm.recipe.batch_size)
    return Estimate(updates, images, ended - loaded, loaded - began, counter.get_total_flops(), most)


def _part(recipe: Recipe, processes: int) -> Recipe:
    sizes = {name: getattr(recipe, name) for name in ("batch_size", "outlier_batch_size")}
    for name, size in sizes.items():
        if size % processes:
            raise SettingError(f"--estimate must divide {name}, got {processes} for {size}")
    return replace(recipe, **{name: size // processes for name, size in sizes.items()})


def _now(device: torch.device) -> float:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()


def _resident() -> int:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
