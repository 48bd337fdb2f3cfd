"""Who has which classes and which samples: the two groups that a rank belongs to, and the rows of the class bank that it holds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from pairgrad.distributed.collectives import INPUTS
from pairgrad.distributed.communicator import Communicator, Group
from pairgrad.distributed.watch import RankError
from pairgrad.ground.checks import integer_at_least, one_of

_FACTS = 4096  # bytes of the settings that are compared
_REFUSED = "refused"


def shard(num_classes: int, ranks: int, rank: int) -> tuple[int, int]:
    """First class of a rank, and the one behind its last, by the rule of `torch.chunk` and of `DTensor`: ceil(K / ranks) each, the last ones fewer.

    Examples:
        >>> [shard(10, 4, rank) for rank in range(4)]
        [(0, 3), (3, 6), (6, 9), (9, 10)]
    """
    num_classes, ranks = integer_at_least("num_classes", num_classes, 1), integer_at_least("ranks", ranks, 1)
    rank = integer_at_least("rank", rank, 0, most=ranks - 1)
    each = -(-num_classes // ranks)
    return min(rank * each, num_classes), min((rank + 1) * each, num_classes)


class Layout:
    """How classes and samples are laid out over the ranks.

    Args:
        num_classes: K, of all ranks together.
        data: the ranks that hold the same classes and see different samples: a `ProcessGroup`, a `DeviceMesh` with one dimension, or None.
        classes: the ranks that share the classes out, likewise.
        inputs: `"sharded"`: the ranks of `classes` bring different samples, which each of them scores against its own classes; or `"replicated"`: they all
            bring the same.

    Attributes:
        first: the first class held here.
        last: the one behind the last.
    """

    def __init__(self, num_classes: int, *, data: Group = None, classes: Group = None, inputs: str = "sharded") -> None:
        self.num_classes = integer_at_least("num_classes", num_classes, 1)
        self.inputs = one_of("inputs", inputs, INPUTS)
        self.data, self.classes = Communicator("data", data), Communicator("classes", classes)
        self.first, self.last = shard(self.num_classes, self.classes.size, self.classes.rank)
        least = shard(self.num_classes, self.classes.size, self.classes.size - 1)
        if least[0] == least[1]:
            raise ValueError(
                f"{self.num_classes} classes in shards of {-(-self.num_classes // self.classes.size)} leave the last of {self.classes.size} ranks without any: "
                "share them out over fewer ranks"
            )
        self._compared = False
        shared = set(self.data.ranks) & set(self.classes.ranks)
        if self.data.size > 1 and self.classes.size > 1 and shared != {dist.get_rank()}:
            raise ValueError(
                f"data and classes must meet in this rank alone, as two dimensions of a mesh do, got the ranks {self.data.ranks} and {self.classes.ranks}"
            )

    @property
    def ranks(self) -> int:
        """Of both dimensions together."""
        return self.data.size * self.classes.size

    @property
    def rows(self) -> int:
        """Classes held here."""
        return self.last - self.first

    def facts(self) -> dict[str, Any]:
        """What all ranks must agree on."""
        return {"num_classes": self.num_classes, "data": self.data.size, "classes": self.classes.size, "inputs": self.inputs}

    def agree(self, what: str, facts: dict[str, Any], device: torch.device) -> None:
        """Compare settings over the ranks of both dimensions; on all of them a `RankError` names the rank and the setting that differs."""
        self._compared = True
        if self.ranks == 1:
            return
        rank = dist.get_rank()
        text = json.dumps([rank, facts], sort_keys=True, default=str).encode()
        if len(text) > _FACTS:
            raise ValueError(f"facts must fit in {_FACTS} bytes, got {len(text)}")
        rows = torch.tensor(list(text.ljust(_FACTS)), dtype=torch.uint8, device=device)
        for group in (self.classes, self.data):  # what a class group found goes on to the others: where two differ, all know
            rows = group.gather(what, rows)
        found = [json.loads(row.numpy().tobytes()) for row in rows.view(-1, _FACTS).cpu()]
        (first, wanted), *others = sorted(found, key=lambda row: row[0])
        call = f"{(self.classes if self.data.size == 1 else self.data).name}: {what}"
        for other, given in [(first, wanted), *others]:
            if _REFUSED in given and other != rank:
                raise RankError(f"rank {other} could not begin, and says why ({call!r}): {given[_REFUSED]}", call, (other,))
        for other, given in others:
            for key in sorted({*wanted, *given}):
                if given.get(key) != wanted.get(key):
                    raise RankError(
                        f"{key} must be the same on all ranks: rank {other} has {given.get(key)!r}, rank {first} has {wanted.get(key)!r} ({call!r})",
                        call,
                        (other,),
                    )

    @contextmanager
    def beginning(self, what: str, device: torch.device) -> Iterator[None]:
        """Around what a rank may refuse before its settings are compared: the others, which wait for them, hear of it."""
        try:
            yield
        except RankError:
            raise
        except Exception as error:
            if not self._compared:
                with contextlib.suppress(Exception):  # what others refused, or a device on which nothing can be said
                    self.agree(what, {_REFUSED: f"{type(error).__name__}: {error}"[:400]}, device)
            raise

    def __repr__(self) -> str:
        return (
            f"Layout({self.num_classes} classes, rank {self.data.rank} of {self.data.size} for data and {self.classes.rank} of {self.classes.size} "
            f"for classes, which holds {self.first} to {self.last - 1})"
        )
