"""The ranks of one process group and what they do together: every collective has a name, is counted, and says who is to blame when it fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from pairgrad.distributed.calls import Call
from pairgrad.distributed.watch import RankError, Watch
from pairgrad.ground.checks import describe
from pairgrad.ground.devices import backend_moves, kind, on_host

Group = Any  # a ProcessGroup, a DeviceMesh with one dimension, or None for a single process

# torch 2.13 renames these; the old names warn
_gather = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
_scatter = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)


class Communicator:
    """The ranks of a process group. Without one there is a single rank, every collective returns what it was given, and nothing is counted.

    Args:
        name: what the group shares, `"data"` or `"classes"`; the first word of every call.
        group: a `ProcessGroup`, a `DeviceMesh` with one dimension, or None.

    Attributes:
        size: number of ranks.
        rank: of this process in the group.
        calls: the collectives since `calls` was last cleared, or None (the default): not kept.
    """

    def __init__(self, name: str, group: Group = None) -> None:
        self.name = name
        self.group = _process_group(name, group)
        self.size = 1 if self.group is None else dist.get_world_size(self.group)
        self.rank = 0 if self.group is None else dist.get_rank(self.group)
        if self.rank < 0:
            raise ValueError(f"{name} must be a process group that this process belongs to, got one without rank {dist.get_rank()}")
        self.ranks = (0,) if self.group is None else tuple(dist.get_process_group_ranks(self.group))
        self.calls: list[Call] | None = None
        self._watch = Watch.here() if self.size > 1 else None

    def check_device(self, device: torch.device) -> None:
        """A ValueError if the backend of the group cannot move tensors of this device."""
        if self.group is None or not kind(device).values:
            return
        backend = str(dist.get_backend(self.group))
        if not backend_moves(backend, device):
            raise ValueError(
                f"the class bank is on {device}, and the group {self.name!r} has the backend nccl, which moves tensors of GPUs alone: move the loss first, "
                "give distribute(..., device=...) one, or use a group with gloo"
            )

    @contextmanager
    def recorded(self) -> Iterator[list[Call]]:
        """Keep the calls that are made in this context."""
        before, self.calls = self.calls, []
        try:
            yield self.calls
        finally:
            self.calls = before

    def gather(self, what: str, rows: torch.Tensor) -> torch.Tensor:
        """The tensors (n, ...) of all ranks, of one shape, behind one another: (size * n, ...)."""
        if self.size == 1:
            return rows
        rows = rows.contiguous()
        found = rows.new_empty((self.size * rows.shape[0], *rows.shape[1:])) if rows.dim() else rows.new_empty(self.size)
        with self._counted(what, "all-gather", rows):
            _gather(found, rows, group=self.group)  # pyright: ignore[reportOptionalCall]
        return found

    def total(self, what: str, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, written over a contiguous `tensor`; the same bits on all of them."""
        if self.size > 1:
            with self._counted(what, "all-reduce", tensor):
                dist.all_reduce(tensor, group=self.group)
        return tensor

    def total_of_parts(self, what: str, parts: torch.Tensor) -> torch.Tensor:
        """Of the sum over the ranks of parts (size * n, ...), the n that belong to this one."""
        if self.size == 1:
            return parts
        parts = parts.contiguous()
        found = parts.new_empty((parts.shape[0] // self.size, *parts.shape[1:]))
        with self._counted(what, "reduce-scatter", parts):
            _scatter(found, parts, group=self.group)  # pyright: ignore[reportOptionalCall]
        return found

    def of_first(self, what: str, tensor: torch.Tensor) -> torch.Tensor:
        """What the first rank of the group has, written over `tensor`."""
        if self.size > 1:
            with self._counted(what, "broadcast", tensor):
                dist.broadcast(tensor, src=self.ranks[0], group=self.group)
        return tensor

    @contextmanager
    def _counted(self, what: str, operation: str, tensor: torch.Tensor) -> Iterator[None]:
        call = f"{self.name}: {what}"
        if self.calls is not None:
            self.calls.append(Call(call, operation, tensor.numel() * tensor.element_size(), self.size))
        if self._watch is not None:
            self._watch.enter(call)
        met: tuple[int, ...] = ()
        try:
            yield
            if operation != "broadcast" and on_host(tensor):  # else a rank may leave before the others come
                met = self.ranks
        except RuntimeError as error:
            if self._watch is None:
                raise
            raise self._watch.explain(call, tuple(r for r in self.ranks if r != self._watch.rank), error) from error
        finally:
            if self._watch is not None:
                self._watch.leave(met)

    def headers(self, what: str, header: Sequence[int], device: torch.device) -> list[list[int]]:
        """A few integers of every rank, by rank; this waits for the device."""
        if self.size == 1:
            return [list(header)]
        found = self.gather(what, torch.tensor(header, dtype=torch.int64, device=device))
        return found.view(self.size, len(header)).tolist()

    def require_equal(self, what: str, values: Sequence[Sequence[Any]], names: Sequence[str]) -> None:
        """A `RankError` that names the rank and the argument, on every rank, if `values` differ from those of the first rank."""
        for place, name in enumerate(names):
            for rank, row in zip(self.ranks, values, strict=True):
                if row[place] != values[0][place]:
                    raise RankError(
                        f"{name} must be the same on all ranks of the group {self.name!r}: rank {rank} has {row[place]}, rank {self.ranks[0]} has "
                        f"{values[0][place]} (found in '{self.name}: {what}', before anything changed)",
                        f"{self.name}: {what}",
                        (rank,),
                    )

    def __deepcopy__(self, _memo: Any) -> Communicator:
        """A copy of a module belongs to the same group."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self.group is not None:
            raise TypeError(
                "what belongs to a process group cannot be pickled: save state_dict(), with torch.distributed.checkpoint where classes are shared out, "
                "and distribute anew"
            )
        return self.__dict__

    def __repr__(self) -> str:
        return f"Communicator({self.name!r}, rank {self.rank} of {self.size})"


def _process_group(name: str, group: Group) -> Any:
    if group is None:
        return None
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            f"{name} was given as {describe(group)}, and torch.distributed has no process group: call init_process_group, or give None"
        )
    if group is dist.group.WORLD or isinstance(group, dist.ProcessGroup):
        return group
    with contextlib.suppress(ImportError):
        from torch.distributed.device_mesh import DeviceMesh

        if isinstance(group, DeviceMesh):
            if group.ndim != 1:
                raise ValueError(f"{name} must be a mesh with one dimension, got {group!r}: take one of it, e.g. mesh['data']")
            return group.get_group()
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"{name} must be a process group that this process belongs to, got one that it does not")
    raise TypeError(f"{name} must be a torch.distributed process group, a mesh with one dimension, or None, got {describe(group)}")
