"""What every contestant is given: a state of class banks, two views of a batch, labels and class counts, all made from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn.functional import normalize

SEED = 3407
TEMPERATURE = 0.1
CAP = 1e5  # largest concentration
MOST_SEEN, IMBALANCE = 1280, 100  # class counts fall from the first to the first over the second
_SPREAD = 0.75  # length of the noise added to a class direction of length 1: mean resultant lengths around 0.9
_CHUNK = 8192  # classes whose samples exist at one time


@dataclass(frozen=True)
class Size:
    """Images per batch (each in two views), classes, and feature dimension."""

    batch: int
    classes: int
    dim: int

    def __str__(self) -> str:
        return f"({self.batch}, {self.classes:,}, {self.dim})"


@dataclass(frozen=True)
class Workload:
    """`streaming`: one cumulative bank, and no (B, K) matrix; otherwise the two banks of the public code."""

    size: Size
    seed: int = SEED
    device: str = "cpu"
    streaming: bool = False

    @property
    def banks(self) -> int:
        return 1 if self.streaming else 2

    def _generator(self, *salt: int) -> torch.Generator:
        mixed = self.seed
        for number in salt:
            mixed = mixed * 1_000_003 + number + 1
        return torch.Generator().manual_seed(mixed)

    @cached_property
    def class_counts(self) -> torch.Tensor:
        """Long-tailed training counts, (K,) int64."""
        places = torch.linspace(0, 1, self.size.classes, dtype=torch.float64)
        return (MOST_SEEN * IMBALANCE**-places).long().clamp(min=1).to(self.device)

    @cached_property
    def log_prior(self) -> torch.Tensor:
        counts = self.class_counts.double()
        return torch.log(counts / counts.sum())  # (K,)

    @cached_property
    def labels(self) -> torch.Tensor:
        return torch.randint(self.size.classes, (self.size.batch,), generator=self._generator(0)).to(self.device)  # (B,)

    def seen(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What the banks have seen before the step: two unit features of every class, in chunks of classes."""
        for directions, labels, generator in self._classes():
            for _ in range(2):
                yield _around(directions, generator).to(self.device), labels.to(self.device)

    def _classes(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Generator]]:
        for first in range(0, self.size.classes, _CHUNK):
            labels = torch.arange(first, min(first + _CHUNK, self.size.classes))
            generator = self._generator(1, first)
            yield normalize(torch.randn(len(labels), self.size.dim, generator=generator), dim=1), labels, generator

    @cached_property
    def _views(self) -> torch.Tensor:
        """Unit features of the labelled classes, (2, B, p) float32."""
        labels = self.labels.cpu()
        chosen = torch.zeros(self.size.batch, self.size.dim)
        for directions, members, _ in self._classes():
            here = (labels >= members[0]) & (labels <= members[-1])
            chosen[here] = directions[labels[here] - members[0]]
        return _around(chosen.expand(2, -1, -1), self._generator(2)).to(self.device)

    def features(self) -> torch.Tensor:
        """A leaf of its own for each contestant: the two views, with a gradient."""
        return self._views.clone().requires_grad_()


def _around(directions: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = normalize(torch.randn(directions.shape, generator=generator), dim=-1)
    return normalize(directions + _SPREAD * noise, dim=-1)
