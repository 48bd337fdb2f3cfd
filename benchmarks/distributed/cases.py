"""What is measured: a step of one size in one layout, its batches, its collectives and its bank."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import pairgrad as pg
from pairgrad.distributed import Call, shard, step_calls

SEED = 0
BATCHES = 4  # which the steps take in turn


@dataclass(frozen=True)
class Case:
    """A training step.

    Attributes:
        layout: `"classes"`: the ranks share the classes out; `"data"`: every rank has all classes and a part of the batch.
        ranks: how many; one is a plain loss, without a process group.
        classes: K.
        dim: p.
        batch: samples of all ranks together.
        views: V.
        exchange: of class statistics, with the layout `"data"`.
    """

    layout: str
    ranks: int
    classes: int
    dim: int
    batch: int
    views: int = 1
    exchange: str = "auto"

    def __post_init__(self) -> None:
        if self.batch % self.ranks:
            raise ValueError(f"batch must be a multiple of the ranks, got {self.batch} samples on {self.ranks} ranks")

    @property
    def shape(self) -> tuple[int, int]:
        """Replicas of the bank, and ranks that share its classes out."""
        return (self.ranks, 1) if self.layout == "data" else (1, self.ranks)

    @property
    def contest(self) -> tuple[str, int, int, int, int, str]:
        """What cases have in common that differ in their ranks alone."""
        return self.layout, self.classes, self.dim, self.batch, self.views, self.exchange

    def batches(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Features (V, B, p) and labels (B,) of all ranks, the same in every layout."""
        generator = torch.Generator().manual_seed(SEED)
        shape = (self.views, self.batch, self.dim)
        return [
            (torch.randn(shape, generator=generator), torch.randint(self.classes, (self.batch,), generator=generator))
            for _ in range(BATCHES)
        ]

    def part(self, rank: int) -> slice:
        """The samples that a rank brings."""
        size = self.batch // self.ranks
        return slice(rank * size, (rank + 1) * size)

    def planned_calls(self, labels: torch.Tensor, rank: int) -> list[Call]:
        """The collectives of a rank in the step with these labels of all ranks, by `step_calls`."""
        data, classes = self.shape
        first, last = shard(self.classes, classes, rank if classes > 1 else 0)
        distinct = max(len(part[(part >= first) & (part < last)].unique()) for part in labels.chunk(data))
        return step_calls(
            data=data,
            classes=classes,
            class_rows=last - first,
            dim=self.dim,
            itemsize=4,
            local_rows=self.batch // self.ranks,
            scored_rows=self.batch // data,
            distinct=distinct,
            views=self.views,
            exchange=self.exchange,
        )

    @property
    def bank(self) -> int:
        """Bytes of the class bank of the fullest rank."""
        return sum(buffer.nbytes for buffer in pg.ClassBank(-(-self.classes // self.shape[1]), self.dim, device="meta").buffers())


@dataclass(frozen=True)
class Sizes:
    """Of a whole run.

    Attributes:
        contests: what is timed on every number of ranks; turns of so many steps.
        ranks: the numbers of ranks.
        rounds: in which all numbers of ranks take their turn.
        payloads: bytes that a rank hands to the collectives that are timed, and how often.
        repeats: of a collective.
        wire_steps: over which bytes are counted.
        memory: what is trained in fresh processes, for `memory_steps`.
    """

    contests: tuple[tuple[Case, int], ...]
    ranks: tuple[int, ...]
    rounds: int
    payloads: tuple[int, ...]
    repeats: int
    wire_steps: int
    memory: tuple[Case, ...]
    memory_steps: int


def sizes(*, quick: bool) -> Sizes:
    """Those of the page, or small ones that show that everything runs."""
    if quick:
        return Sizes(
            contests=((Case("classes", 1, 600, 8, 16, 2), 1), (Case("data", 1, 20, 8, 16, exchange="reduce"), 1)),
            ranks=(1, 2),
            rounds=2,
            payloads=(64, 4096),
            repeats=3,
            wire_steps=5,
            memory=(Case("classes", 1, 2000, 8, 16), Case("classes", 2, 2000, 8, 16)),
            memory_steps=2,
        )
    return Sizes(
        contests=(
            (Case("classes", 1, 100_000, 128, 64, 1), 3),
            (Case("classes", 1, 100_000, 128, 64, 2), 2),
            (Case("data", 1, 1000, 128, 512, 1, "gather"), 15),
            (Case("data", 1, 1000, 128, 512, 1, "reduce"), 15),
        ),
        ranks=(1, 2, 4),
        rounds=15,
        payloads=(64, 1024, 16_384, 131_072, 524_288, 2_097_152),
        repeats=50,
        wire_steps=40,
        memory=(Case("classes", 1, 1_000_000, 128, 64), Case("classes", 2, 1_000_000, 128, 64)),
        memory_steps=50,
    )
