"""The table of local costs: time and memory of one training step of the vMF term with its class statistics, as public code computes it and as ProCoLoss does.

The first rows have the layout of the public code: class means through a (B, K, p) product, radii as norms of (B, K, p) resultants, the potential in
float64. Commands of the repository measure the same with more care: `python -m benchmarks.learning`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy, normalize, one_hot

import pairgrad as pg
from pairgrad.cli.commands import BenchOptions
from pairgrad.ground.devices import kind, peak_bytes, wait_for
from pairgrad.losses.fused.triton import runs_on, what_lacks

_TEMPERATURE, _CAP = 0.1, 1e5
_SLOW = 0.2  # seconds, from which on three repetitions must do
_FEW = 3
_DENSE = {
    "Original recurrence": ("original", {}),
    "Consistent recurrence": ("consistent", {"derivative": "autograd"}),
    "Log-domain Miller": ("log-miller", {}),
    "AR/FR": ("arfr", {}),
}
BASE = "Original recurrence"
ROWS = len(_DENSE) + 4
PAPER_SIZE = (32, 1000, 1024)  # batch, classes, dim
Step = Callable[[], object]


@dataclass(frozen=True)
class Cost:
    """Median seconds and the peak of additional bytes of a step; None, with a note, where it was not measured."""

    name: str
    seconds: float | None
    bytes: int | None
    note: str = ""


def local_costs(workload: BenchOptions, tick: Callable[[], None]) -> list[Cost]:
    """A row for each way to compute the step."""
    costs = []
    for name, make in _steps(workload).items():
        costs.append(_measured(name, make, workload))
        tick()
    return costs


def _steps(workload: BenchOptions) -> dict[str, Callable[[], Step] | str]:
    """By row, what makes a step that is ready to run, or the reason why there is none."""
    batch = _Batch(workload)
    steps: dict[str, Callable[[], Step] | str] = {}
    for name, (realization, options) in _DENSE.items():
        reason = missing(realization, workload.dim, batch.device) or ("" if kind(batch.device).float64 else "no float64")
        steps[name] = reason or (lambda realization=realization, options=options: _Dense(batch, realization, **options).step)
    for realization, title in (("arfr", "AR/FR"), ("paired", "paired")):
        name = f"Structure-aware {title}"
        reason = missing(realization, workload.dim, batch.device)
        steps[f"{name}, eager"] = reason or (lambda realization=realization: _library(batch, realization, "eager"))
        compiled = reason or ("" if workload.compiled else "--compile")
        steps[name] = compiled or (lambda realization=realization: _library(batch, realization, "compiled"))
        if kind(batch.device).triton and runs_on(batch.device):
            lacking = reason or (
                "float32" if batch.dtype != torch.float32 else what_lacks(pg.potential(workload.dim, realization)) and "dim >= 30"
            )
            steps[f"{name}, triton"] = lacking or (lambda realization=realization: _library(batch, realization, "triton"))
    return steps


def missing(realization: str, dim: int, device: torch.device) -> str:
    """Why a realization cannot be computed at a dimension on a device; empty if it can."""
    if realization in ("original", "consistent", "log-miller"):
        return "no float64" if not kind(device).float64 else "" if dim >= 4 and dim % 2 == 0 else "even dim"
    return "dim > 2" if realization == "arfr" and dim == 2 else ""


def _measured(name: str, make: Callable[[], Step] | str, workload: BenchOptions) -> Cost:
    if isinstance(make, str):
        return Cost(name, None, None, make)
    device = torch.device(workload.device)
    try:
        step = make()
        _seconds(step, device)  # plans, compiles, fills caches
        first = _seconds(step, device)
        repeats = min(workload.repeats, _FEW) if first > _SLOW else workload.repeats
        seconds = statistics.median(_seconds(step, device) for _ in range(repeats))
        return Cost(name, seconds, peak_bytes(device, step))
    except (MemoryError, torch.OutOfMemoryError):
        return Cost(name, None, None, "no memory")


def _seconds(step: Step, device: torch.device) -> float:
    wait_for(device)
    start = time.perf_counter()
    step()
    wait_for(device)
    return time.perf_counter() - start


class _Batch:
    """Two views of a batch near the directions of its classes, long-tailed class counts, and two samples of every class for the banks."""

    def __init__(self, workload: BenchOptions) -> None:
        generator = torch.Generator().manual_seed(0)
        self.device, self.dim, self.classes = torch.device(workload.device), workload.dim, workload.classes
        self.dtype = torch.float64 if workload.dtype == "float64" else torch.float32

        def near(directions: torch.Tensor) -> torch.Tensor:
            noise = normalize(torch.randn(directions.shape, generator=generator), dim=-1)
            return normalize(directions + 0.75 * noise, dim=-1).to(self.device, self.dtype)

        directions = normalize(torch.randn(self.classes, self.dim, generator=generator), dim=1)
        self.labels = torch.randint(self.classes, (workload.batch,), generator=generator)
        self.features = near(directions[self.labels].expand(2, -1, -1)).requires_grad_()
        self.labels = self.labels.to(self.device)
        self.seen = (near(directions), near(directions))
        self.counts = (1280 * 0.01 ** torch.linspace(0, 1, self.classes)).long().clamp_min(1)


class _Dense:
    """The step as public code has it. Statistics are not put back between steps: what they cost does not depend on their values."""

    def __init__(self, batch: _Batch, realization: str, **options: Any) -> None:
        self._batch, self._potential, self._recorded = batch, pg.potential(batch.dim, realization, **options), bool(options)
        counts = torch.full((2, batch.classes), 2.0, device=batch.device, dtype=batch.dtype)
        self._banks = [((batch.seen[0] + batch.seen[1]) / 2, count) for count in counts]  # one that is scored, and one for the next epoch
        prior = torch.log(batch.counts / batch.counts.sum())
        self._prior = prior.to(batch.device, torch.float64)

    @torch.no_grad()
    def _update(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for place, (mean, count) in enumerate(self._banks):
            assigned = one_hot(self._batch.labels, self._batch.classes).to(features.dtype)
            new = assigned.sum(0)
            ours = (features[:, None, :] * assigned[:, :, None]).sum(0) / new.clamp_min(1)[:, None]
            weight = (new / (new + count))[:, None]
            self._banks[place] = (1 - weight) * mean + weight * ours, count + new
        mean, _ = self._banks[0]
        length = mean.norm(dim=1)
        concentration = self._batch.dim * length / (1 - length.square())
        return normalize(mean, dim=1), torch.where((concentration < 0) | (concentration > _CAP), _CAP, concentration)

    def _value(self, radius: torch.Tensor) -> torch.Tensor:
        """With the slope from the same run, except where backward goes through the recorded recurrence."""
        return self._potential.value(radius) if self._recorded else self._potential.pair(radius).value

    def step(self) -> None:
        loss, self._batch.features.grad = 0, None
        for view in self._batch.features:
            directions, concentration = self._update(view)
            radius = ((concentration[:, None] * directions)[None] + view[:, None, :] / _TEMPERATURE).norm(dim=2).double()
            value = self._value(radius) - self._potential.value(concentration.double())
            loss = loss + cross_entropy(value + self._prior, self._batch.labels) / 2
        assert isinstance(loss, torch.Tensor)
        loss.backward()


def _library(batch: _Batch, realization: str, execution: str) -> Step:
    loss = pg.ProCoLoss(
        batch.classes,
        batch.dim,
        temperature=_TEMPERATURE,
        class_counts=batch.counts,
        memory="two-epochs",
        realization=realization,
        execution=execution,
        device=batch.device,
        dtype=batch.dtype,
    )
    for features in batch.seen:
        loss.bank.update(features, torch.arange(batch.classes, device=batch.device))

    def step() -> None:
        batch.features.grad = None
        loss(batch.features, batch.labels).backward()

    return step
