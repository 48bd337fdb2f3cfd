"""Batches as functions of their number: the n-th is the same whether or not the run was resumed before it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from pairgrad_paper.augment import Pipeline, pipeline, sample_keys
from pairgrad_paper.data import ArrayImages, Benchmark, DataError, Images
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.training.process import Process
from pairgrad_paper.training.seeds import generator


class Batch(NamedTuple):
    """What one process sees of an update."""

    step: int
    indices: torch.Tensor  # (b,), of the training images
    labels: torch.Tensor  # (b,)
    views: tuple[torch.Tensor, ...]  # three of (b, C, H, W): the classifier's, and the two of the vMF term
    outliers: torch.Tensor | None  # (o, C, H, W)


class _Drawn(NamedTuple):
    """A stream of images of a batch before what runs on the device."""

    images: torch.Tensor  # uint8 (b, C, H, W)
    keys: torch.Tensor


class Batches:
    """The augmented batches of a run.

    Order and augmentation follow from the seed, the epoch and the index of a sample, and from nothing else: not from the number of processes, nor from
    where a run was interrupted. Incomplete batches at the end of an epoch are dropped. Outliers are drawn anew in every epoch; where an epoch needs more than
    there are, they are gone through again in another order.
    """

    def __init__(
        self, benchmark: Benchmark, recipe: Recipe, seed: int, device: torch.device, process: Process | None = None, workers: int = 0
    ) -> None:
        self.process = Process() if process is None else process
        self.benchmark, self.seed, self.device, self.workers = benchmark, seed, device, workers
        labels = benchmark.train.labels
        if labels is None:
            raise DataError(f"the training images of {benchmark.name} have no labels")
        self.labels = labels
        self.size = recipe.batch_size
        self.per_epoch = len(benchmark.train) // self.size
        if not self.per_epoch:
            raise DataError(
                f"a batch of {self.size} is larger than the {len(benchmark.train)} training images of {benchmark.name}: set batch_size"
            )
        self.part = self.process.share("batch_size", self.size)
        self.views = (pipeline(recipe.views.regular), pipeline(recipe.views.contrast), pipeline(recipe.views.contrast))
        self.outliers: Images | None = None
        self.outlier_part, self.outlier_size = 0, 0
        if recipe.outlier_batch_size and recipe.views.outliers is not None:
            if benchmark.outliers is None:
                raise DataError(
                    f"recipe {recipe.name} exposes outliers, and none were found for {benchmark.name}: give data.outliers=FILE, or outlier_batch_size=0"
                )
            self.outliers = benchmark.outliers
            self.outlier_size = recipe.outlier_batch_size
            self.outlier_part = self.process.share("outlier_batch_size", self.outlier_size)
            self.outlier_view = pipeline(recipe.views.outliers)
        self._orders: dict[tuple[object, ...], torch.Tensor] = {}

    def place(self, step: int) -> tuple[int, int]:
        """Epoch, and the number of the batch in it."""
        return divmod(step, self.per_epoch)

    def batch(self, step: int) -> Batch:
        """The batch of one update."""
        return self._finished(step, self._drawn(step))

    def stream(self, start: int, stop: int) -> Iterator[Batch]:
        """Batches start .. stop - 1; with workers, other processes read images ahead."""
        loader: Any = DataLoader(
            _Steps(self),
            batch_size=None,
            sampler=range(start, stop),
            num_workers=self.workers,
            persistent_workers=False,
            prefetch_factor=2 if self.workers else None,
            multiprocessing_context="spawn" if self.workers else None,
            worker_init_fn=_leave_signals_to_the_parent,
            generator=generator(self.seed, "loader"),  # it would draw from the global one, which belongs to the network
        )
        for step, drawn in zip(range(start, stop), loader, strict=True):
            yield self._finished(step, [_Drawn(*pair) for pair in drawn])

    def indices(self, step: int) -> torch.Tensor:
        """Of the training images of this process, (b,)."""
        epoch, position = self.place(step)
        first = position * self.size + self.process.rank * self.part
        return self._order(len(self.benchmark.train), "order", epoch)[first : first + self.part]

    def outlier_indices(self, step: int) -> torch.Tensor:
        """Of the outliers of this process, (o,)."""
        assert self.outliers is not None
        epoch, position = self.place(step)
        first = position * self.outlier_size + self.process.rank * self.outlier_part
        number = torch.arange(first, first + self.outlier_part)
        lap, place = number // len(self.outliers), number % len(self.outliers)
        found = torch.zeros_like(number)
        for turn in range(int(lap[0]), int(lap[-1]) + 1):
            order = self._order(len(self.outliers), "outliers", epoch, turn)
            found = torch.where(lap == turn, order[place], found)
        return found

    def _order(self, size: int, *purpose: object) -> torch.Tensor:
        if purpose not in self._orders:
            if len(self._orders) > 3:
                self._orders.clear()
            self._orders[purpose] = torch.randperm(size, generator=generator(self.seed, *purpose))
        return self._orders[purpose]

    def _drawn(self, step: int) -> list[_Drawn]:
        epoch, _ = self.place(step)
        indices = self.indices(step)
        streams: list[_Drawn] = []
        for number, view in enumerate(self.views, 1):
            keys = sample_keys(self.seed, epoch, indices, f"view-{number}")
            streams.append(_Drawn(prepared(self.benchmark.train, indices, view, keys), keys))
        if self.outliers is not None:
            _, position = self.place(step)
            chosen = self.outlier_indices(step)
            # an outlier may come several times in an epoch, each time another draw
            keys = sample_keys(self.seed, epoch, chosen, f"outliers-{position}")
            streams.append(_Drawn(prepared(self.outliers, chosen, self.outlier_view, keys), keys))
        return streams

    def _finished(self, step: int, drawn: Sequence[_Drawn]) -> Batch:
        views = tuple(
            finished(view, stream.images, stream.keys, self.benchmark.train, self.device)
            for view, stream in zip(self.views, drawn, strict=False)
        )
        outliers = None
        if self.outliers is not None:
            outliers = finished(self.outlier_view, drawn[3].images, drawn[3].keys, self.outliers, self.device)
        indices = self.indices(step)
        return Batch(step, indices, self.labels[indices].to(self.device, non_blocking=True), views, outliers)


def prepared(images: Images, indices: torch.Tensor, view: Pipeline, keys: torch.Tensor) -> torch.Tensor:
    """Images of one size (b, C, H, W), uint8: as they are, or files read and brought to the size of the pipeline."""
    if isinstance(images, ArrayImages):
        return images.batch(indices)
    return torch.stack([view.prepare(images.image(int(i)), int(key)) for i, key in zip(indices, keys, strict=True)])


def finished(view: Pipeline, images: torch.Tensor, keys: torch.Tensor, source: Images, device: torch.device) -> torch.Tensor:
    """The rest of a pipeline, on the device."""
    apply = view if isinstance(source, ArrayImages) else view.after
    return apply(images.to(device, non_blocking=True), keys)


class _Steps(Dataset[Any]):
    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __getitem__(self, step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [tuple(stream) for stream in self.batches._drawn(step)]  # pyright: ignore[reportReturnType]


def _leave_signals_to_the_parent(_worker: int) -> None:
    """A terminal or a scheduler sends its signal to every process. Workers end when their parent has no more use for them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
