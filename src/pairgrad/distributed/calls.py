"""Collective calls as facts: what is moved, between how many ranks, and what of it goes over the wire.

What a step really called ([`Communicator.calls`][pairgrad.distributed.Communicator]) and what a plan says that it will call are lists of these, so that the
two can be compared entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pairgrad.ground.checks import one_of

OPERATIONS = ("all-gather", "all-reduce", "reduce-scatter", "broadcast")


@dataclass(frozen=True)
class Call:
    """One collective.

    Attributes:
        name: what it is for, e.g. `"data: statistics"`.
        operation: `"all-gather"`, `"all-reduce"`, `"reduce-scatter"` or `"broadcast"`.
        payload: bytes that one rank hands in.
        ranks: how many take part.
    """

    name: str
    operation: str
    payload: int
    ranks: int

    def __post_init__(self) -> None:
        one_of("operation", self.operation, OPERATIONS)

    @property
    def wire(self) -> Fraction:
        """Bytes that one rank sends, by the ring algorithms that NCCL and gloo use for large tensors [patarasuk2009allreduce].

        With W ranks and n bytes handed in by each, an all-gather sends (W - 1) n, a reduce-scatter (W - 1) n / W, and an all-reduce, which is both in
        turn, 2 (W - 1) n / W. A broadcast passes n on, once per rank but the last.
        """
        others = self.ranks - 1
        if self.operation == "all-gather":
            return Fraction(others * self.payload)
        if self.operation == "broadcast":
            return Fraction(others * self.payload, self.ranks)
        once = Fraction(others * self.payload, self.ranks)
        return once if self.operation == "reduce-scatter" else 2 * once


def wire_bytes(calls: list[Call]) -> Fraction:
    """What one rank sends in all of them."""
    return sum((call.wire for call in calls), start=Fraction(0))
