"""Ranks that run out of samples at different times: those that have none left go on with empty batches, until the last one is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from pairgrad.distributed.communicator import Communicator, Group
from pairgrad.distributed.watch import RankError
from pairgrad.ground.devices import HOST, device_of_backend


def until_all_are_done(loader: Iterable[Any], group: Group = None, *, empty: Callable[[Any], Any] | None = None) -> Iterator[Any]:
    """The batches of this rank's loader, then empty ones, as many as the rank with the most has batches.

    Forward, backward and the class bank are collectives, so all ranks must make the same number of steps. A rank without samples contributes nothing: its loss
    is 0 and its gradients are zeros, and a loss that was distributed divides by the samples that there are.

    Args:
        loader: yields batches: tensors, or tuples, lists and dicts of them, with samples along the first dimension.
        group: the ranks that go together; None: all of them, if there is a process group.
        empty: makes an empty batch of one that this rank has seen; by default every tensor is cut to no samples, and what has no dimension stays.

    Raises:
        RankError: on all ranks, if one has no batch at all, of which an empty one could be made.

    Examples:
        >>> for batch in until_all_are_done([torch.ones(2), torch.ones(1)]):
        ...     print(len(batch))
        2
        1
    """
    if group is None and dist.is_available() and dist.is_initialized():
        group = dist.group.WORLD
    ranks = Communicator("data", group)
    cut = _cut if empty is None else empty
    batches, seen = iter(loader), None
    while True:
        batch = next(batches, None)
        there = ranks.headers("batches", [int(batch is not None), int(seen is not None)], _device_of(ranks))
        if not any(row[0] for row in there):
            return
        without = tuple(rank for rank, row in zip(ranks.ranks, there, strict=True) if not any(row))
        if without:
            raise RankError(f"rank {without[0]} has no batch at all: give every rank one sample at least", "data: batches", without)
        seen = seen if batch is None else batch
        yield cut(seen) if batch is None else batch


def _device_of(ranks: Communicator) -> torch.device:
    """Where the group's backend has its tensors."""
    return HOST if ranks.group is None else device_of_backend(str(dist.get_backend(ranks.group)))


def _cut(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[:0] if batch.dim() else batch
    if isinstance(batch, dict):
        return {key: _cut(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_cut(value) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(_cut(value) for value in batch)
    return batch
