"""Before a collective that depends on sizes: every rank says what it brings, and learns what the others do.

A header is eight integers. Ranks that disagree, or one that refuses its batch, are found there, on all ranks and before anything changed; a collective of
tensors whose sizes do not match would hang, or mix up numbers without a word.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from pairgrad.distributed.communicator import Communicator
from pairgrad.distributed.layout import Layout
from pairgrad.distributed.watch import RankError
from pairgrad.ground.checks import DTYPES

_FORMAT = 1  # of headers and packed rows
_GOOD, _REFUSED = 0, 1
SCORES, TRAINING, UPDATE, COUNT = range(4)  # what a bank or a loss asks for; other calls have larger numbers


class Samples(NamedTuple):
    """The samples that the ranks of a class group score together."""

    views: torch.Tensor  # (V, B, p)
    labels: torch.Tensor  # (B,), of all classes
    sizes: tuple[int, ...]  # by rank of the class group; one entry where all bring the same
    first: int  # of this rank's own
    gradient: bool  # whether any of them needs a gradient


class Meeting:
    """How the ranks of a layout find out about each other's batches.

    Args:
        layout: who has what.
        dim: feature dimension p.
        dtype: of the class state.
        static: batch sizes never change: they are compared once and remembered.

    Attributes:
        further: rows of another term of the loss that this rank brings with its batch, such as outliers; None: it has no such term. Headers carry it.
        further_total: of all ranks, after the headers of a step.
    """

    def __init__(self, layout: Layout, dim: int, dtype: torch.dtype, *, static: bool = False) -> None:
        self.layout, self.dim, self.dtype, self.static = layout, dim, dtype, bool(static)
        self._known: dict[tuple[Any, ...], list[list[int]]] = {}
        self.further: int | None = None
        self.further_total = 0
        self._further_here = 0  # of this rank, and once they are known of its class group

    @contextmanager
    def bringing(self, further: int | None) -> Iterator[None]:
        """A step with this many `further` rows."""
        self.further = further
        try:
            yield
        finally:
            self.further = None

    @contextmanager
    def refusing(self, device: torch.device) -> Iterator[None]:
        """Tell the other ranks, which wait for this one's batch, that it was refused."""
        try:
            yield
        except RankError:
            raise
        except Exception:
            if not self.static:  # then nobody listens, and the others find out when they have waited long enough
                for group in (self.layout.classes, self.layout.data):
                    group.headers("header", self._header(_REFUSED, number=group.ranks[group.rank]), device)
            raise

    def together(self, views: torch.Tensor, labels: torch.Tensor, *, gradient: bool, asked: int = 0) -> Samples:
        """The samples that the class group scores together: views (V, B, p) and labels (B,) of its ranks one behind the other.

        Args:
            asked: stands for what will be done with them, the same on all ranks.
        """
        group, size = self.layout.classes, len(labels)
        self._further_here = self.further_total = self.further or 0
        replicated = self.layout.inputs == "replicated"
        mark = int(labels.sum()) if replicated and group.size > 1 and not self.static else 0
        try:
            rows = self._compared(group, self._header(_GOOD, len(views), size, int(gradient) + 2 * asked, mark, views.dtype), labels.device)
        except RankError as error:  # the ranks that hold the same classes elsewhere wait to hear of it
            blamed = (*error.ranks, group.ranks[group.rank])[0]
            self.layout.data.headers("header", self._header(_REFUSED, number=blamed), labels.device)
            raise
        gradient = any(row[4] % 2 for row in rows)
        if group.size == 1 or replicated:
            return Samples(views, labels, (size,), 0, gradient)
        sizes = tuple(_size(row) for row in rows)
        views, labels = self._shown(views, labels, sizes)
        return Samples(views, labels, sizes, sum(sizes[: group.rank]), gradient)

    def _shown(self, views: torch.Tensor, labels: torch.Tensor, sizes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and labels of the class group in one collective."""
        capacity, (number, size, dim) = max(sizes), views.shape
        words = words_of(views.dtype)
        packed = views.new_zeros(capacity, number * dim + words)
        packed[:size, :-words] = views.transpose(0, 1).reshape(size, number * dim)
        packed[:size, -words:] = labels.contiguous().view(views.dtype).view(size, words)
        found = self.layout.classes.gather("inputs", packed).view(len(sizes), capacity, number * dim + words)
        rows = torch.cat([found[rank, :n] for rank, n in enumerate(sizes)])
        labels = rows[:, -words:].contiguous().view(torch.int64).view(-1)
        return rows[:, :-words].reshape(len(rows), number, dim).transpose(0, 1).contiguous(), labels

    def total(self, views: int, size: int, device: torch.device) -> int:
        """Samples of all ranks, where this class group has `size`."""
        rows = self._compared(self.layout.data, self._header(_GOOD, views, size), device)
        return sum(map(_size, rows))

    def count(self, size: int, device: torch.device) -> int:
        """Rows of all ranks, where this one has `size`, outside of a step."""
        for group in (self.layout.classes, self.layout.data):
            if group is self.layout.data or self.layout.inputs != "replicated":
                size = sum(map(_size, self._compared(group, self._header(_GOOD, 0, size, 2 * COUNT, COUNT), device)))
        return size

    def sizes(self, views: int, size: int, rows: int, device: torch.device) -> tuple[list[int], int]:
        """How many rows each of the ranks that hold the same classes wants to exchange, and the samples of all ranks."""
        headers = self._compared(self.layout.data, self._header(_GOOD, views, size, rows, 1), device)
        return [header[4] for header in headers], sum(map(_size, headers))

    def _header(
        self, status: int, views: int = 0, size: int = 0, number: int = 0, mark: int = 0, dtype: torch.dtype | None = None
    ) -> list[int]:
        kind = DTYPES.index(self.dtype if dtype is None else dtype)
        further = 0 if self.further is None else self._further_here + 1
        return [_FORMAT, status, views, further * 2**32 + size, number, mark, self.layout.num_classes, kind * 2**32 + self.dim]

    def _compared(self, group: Communicator, header: list[int], device: torch.device) -> list[list[int]]:
        """The headers of the group; a `RankError` if a rank refused its batch or the headers do not fit together."""
        key = (group.name, *header[2:6])
        if self.static and key in self._known:
            self._add_up(group, self._known[key])
            return self._known[key]
        rows = group.headers("header", header, device)
        refused = tuple(dict.fromkeys(row[4] for row in rows if row[1] == _REFUSED))  # not who passes it on
        if refused:
            call = f"{group.name}: header"
            raise RankError(f"rank {refused[0]} refused its batch, and says why; nothing changed on any rank ({call!r})", call, refused)
        names = (
            "the format of messages (is this another version of pairgrad?)",
            "the number of views",
            "the number of classes",
            "the dtype",
            "the dimension",
        )
        facts = [[row[0], row[2], row[6], DTYPES[row[7] // 2**32], row[7] % 2**32] for row in rows]
        group.require_equal("header", facts, names)
        group.require_equal("header", [[row[3] >= 2**32] for row in rows], ("whether there are outliers",))
        if group is self.layout.classes:
            what = "what is asked for (which function, training or evaluation, options such as temperature)"
            group.require_equal("header", [[row[4] // 2] for row in rows], (what,))
            if self.static:  # what is remembered of one must be what is remembered of all
                group.require_equal("header", [[row[4] % 2] for row in rows], ("whether features need a gradient, with static=True,",))
        same = self.layout.inputs == "replicated" and group is self.layout.classes
        what = "the sum of the labels, with inputs='replicated'," if same else "what is asked for (an update, or scores alone)"
        group.require_equal("header", [[row[5]] for row in rows], (what,))
        if same or self.static:
            why = "inputs='replicated'" if same else "static=True"
            group.require_equal("header", [[_size(row)] for row in rows], (f"the number of samples, with {why},",))
        if self.static:
            self._known[key] = rows
        self._add_up(group, rows)
        return rows

    def _add_up(self, group: Communicator, rows: list[list[int]]) -> None:
        """The further rows; a class group that brings the same samples brings the same of them."""
        if self.further is None:
            return
        if group is self.layout.data:
            self.further_total = sum(row[3] // 2**32 - 1 for row in rows)
        elif self.layout.inputs != "replicated":
            self._further_here = self.further_total = sum(row[3] // 2**32 - 1 for row in rows)


def _size(row: list[int]) -> int:
    return row[3] % 2**32


def number_of(*asked: Any) -> int:
    """A number for a call and its options, which ranks compare in a header."""
    return COUNT + 1 + zlib.crc32(repr(asked).encode())


def words_of(dtype: torch.dtype) -> int:
    """How many numbers of this dtype take the place of one of eight bytes."""
    return 64 // torch.finfo(dtype).bits
