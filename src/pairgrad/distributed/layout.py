"""Who has which classes and which samples: the two groups that a rank belongs to, and the rows of the class bank that it holds."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from pairgrad.distributed.collectives import INPUTS
from pairgrad.distributed.communicator import Communicator, Group
from pairgrad.ground.checks import integer_at_least, one_of


def shard(num_classes: int, ranks: int, rank: int) -> tuple[int, int]:
    """First class of a rank, and the one behind its last, by the rule of `torch.chunk` and of `DTensor`: ceil(K / ranks) each, the last ones fewer.

    Examples:
        >>> [shard(10, 4, rank) for rank in range(4)]
        [(0, 3), (3, 6), (6, 9), (9, 10)]
    """
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
        return {"num_classes": self.num_classes, "data": self.data.size, "classes": self.classes.size, "inputs": self.inputs}

    def __repr__(self) -> str:
        return (
            f"Layout({self.num_classes} classes, rank {self.data.rank} of {self.data.size} for data and {self.classes.rank} of {self.classes.size} "
            f"for classes, which holds {self.first} to {self.last - 1})"
        )
