r"""Before a run: what a step costs on D x C ranks, and which D and C to take.

D replicas of the class bank see different samples; the classes of each are shared out over C ranks. A rank then holds \(K_l = \lceil K / C \rceil\) classes and
scores \(B_c\) samples, those of its class group, so the scores of a rank are about \(V B K / (D C)\) in every layout: layouts differ in memory, which falls
with C, and in what goes over the wire.

The time of a step is that of its scores plus that of its collectives, one after the other:

    seconds = scores (4 p + elementwise) / flops + sum over calls (latency * messages + bytes sent / bandwidth).

Left out: the backbone; the bank's update, which reads and writes the rows of the batch's classes only, 2 D U p numbers beside 4 p for each of V B_c K_l scores;
waiting for a slower rank; overlap.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch

from pairgrad.distributed.calls import Call, wire_bytes
from pairgrad.distributed.collectives import EXCHANGES, INPUTS, call_seconds, expected_distinct, statistics_exchange, step_calls
from pairgrad.distributed.footprint import PROCESS, Memory, apart_views, footprint
from pairgrad.ground.checks import boolean, integer_at_least, one_of, real_number, wide_dtype

__all__ = ["SCHEMA", "Cluster", "Estimate", "Plan", "Workload", "estimate", "plan_layouts", "ranks_needed", "step_calls"]

SCHEMA = "pairgrad.plan/1"
# Elementwise work on a score (potential, exponential, masks, sums), in floating-point operations of a matrix product that take as long. One thread of a CPU,
# eager, a machine with other work: a line through dim 64 to 1024 gives 1900 to 2150, single measurements at dim 128 and 512 lie between 1580 and 2720, and at
# dim 32 between 2650 and 7110, where the expansion of the potential is longer. Not measured on a GPU. `calibrated` measures it where you are.
ELEMENTWISE = 2000.0
BANDWIDTH = 12.5e9  # bytes per second that a rank sends; assumed, a link of 100 Gbit/s
LATENCY = 2e-5  # seconds per message; assumed, not measured
_LEAST, _MOST = 1e-9, 1e30  # of bytes, seconds and operations
MOST_RANKS = 10**6  # every divisor of their number is a layout
FLOPS = 1e13  # per second; assumed, the order of float32 products on a GPU


@dataclass(frozen=True)
class Workload:
    """What is to be computed.

    Args:
        classes: K.
        dim: feature dimension p.
        batch: samples per step, of all ranks together.
        views: V, of each sample.
        dtype: of the bank.
        two_epochs: a bank with `memory="two-epochs"`.
        prior: whether there is a log prior.
        sample: share of the classes that is scored (partial softmax); 1: all.
        exchange: of the class statistics, as in `step_calls`; likewise `inputs`, `bounded` and `static`.
    """

    classes: int
    dim: int
    batch: int
    views: int = 1
    dtype: torch.dtype = torch.float32
    two_epochs: bool = False
    prior: bool = False
    sample: float = 1.0
    exchange: str = "auto"
    inputs: str = "sharded"
    bounded: bool = True
    static: bool = False

    def __post_init__(self) -> None:
        hints = {
            "classes": "the number of classes of the whole bank",
            "dim": "a direction needs at least two coordinates",
            "batch": "the samples of one step, of all ranks together",
            "views": "of each sample",
        }
        for name, hint in hints.items():  # as Python integers: those of numpy overflow
            object.__setattr__(self, name, integer_at_least(name, getattr(self, name), 2 if name == "dim" else 1, hint=hint))
        wide_dtype("dtype", self.dtype, hint="a bank has one of these")
        for name in ("two_epochs", "prior", "bounded", "static"):
            boolean(name, getattr(self, name))
        object.__setattr__(self, "sample", _number("sample", self.sample))
        if not 0 < self.sample <= 1:
            raise ValueError(f"sample must lie above 0 and be at most 1, got {self.sample!r}: it is the share of classes that is scored")
        one_of("exchange", self.exchange, EXCHANGES)
        one_of("inputs", self.inputs, INPUTS)

    @property
    def itemsize(self) -> int:
        """Bytes of a number of the bank."""
        return self.dtype.itemsize

    def to_dict(self) -> dict[str, Any]:
        """The workload as plain data, with the name of the dtype."""
        return {**self.__dict__, "dtype": str(self.dtype).removeprefix("torch.")}


@dataclass(frozen=True)
class Cluster:
    """What it is to be computed on.

    Args:
        ranks: processes, each with its share of a machine.
        bandwidth: bytes per second that a rank can send.
        latency: seconds that a message takes however short it is.
        flops: floating-point operations per second of a rank, in matrix products of the size of a tile.
        memory: bytes of a rank; None: not asked.
        elementwise: cost of the elementwise work on one score, in operations of a matrix product
            (`calibrated` measures both).
        process: bytes that a process has before there is a bank.
    """

    ranks: int
    bandwidth: float = BANDWIDTH
    latency: float = LATENCY
    flops: float = FLOPS
    memory: float | None = None
    elementwise: float = ELEMENTWISE
    process: int = PROCESS

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", integer_at_least("ranks", self.ranks, 1, most=MOST_RANKS))
        for name, unit in (("bandwidth", "bytes per second"), ("flops", "operations per second"), ("memory", "bytes per rank")):
            value = getattr(self, name)
            if value is None and name == "memory":
                continue
            object.__setattr__(self, name, _number(name, value))
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be a positive number, got {value!r}: it is given in {unit}")
            if not _LEAST <= getattr(self, name) <= _MOST:
                raise ValueError(f"{name} must be a positive number, from {_LEAST:g} to {_MOST:g}, got {value!r}: it is given in {unit}")
        for name, unit in (("latency", "seconds"), ("elementwise", "operations per score"), ("process", "bytes")):
            value = _number(name, getattr(self, name))
            if not 0 <= value <= _MOST:
                raise ValueError(f"{name} must not be negative, nor above {_MOST:g}, got {getattr(self, name)!r}: it is given in {unit}")
            object.__setattr__(
                self, name, int(value) if value.is_integer() and isinstance(getattr(self, name), numbers.Integral) else value
            )


@dataclass(frozen=True)
class Estimate:
    """A step in one layout, on its fullest rank.

    Attributes:
        data, classes: D and C.
        class_rows: classes held.
        local_rows: samples brought.
        scored_rows: samples scored, those of the class group.
        distinct: classes of the shard that occur among them.
        exchange: `"gather"`, `"reduce"`, or None where no other rank holds the same classes.
        memory: in bytes.
        matrix_flops, elementwise_flops: the second in operations of a matrix product that take as long.
        calls: the collectives.
        scoring, exchanging: seconds.
    """

    data: int
    classes: int
    class_rows: int
    local_rows: int
    scored_rows: int
    distinct: int
    exchange: str | None
    memory: Memory
    matrix_flops: float
    elementwise_flops: float
    calls: tuple[Call, ...]
    scoring: float
    exchanging: float

    @property
    def wire(self) -> Fraction:
        """Bytes that the rank sends."""
        return wire_bytes(list(self.calls))

    @property
    def flops(self) -> float:
        """Floating-point operations of the step, elementwise work included."""
        return self.matrix_flops + self.elementwise_flops

    @property
    def seconds(self) -> float:
        """Of the step."""
        return self.scoring + self.exchanging

    def fits(self, cluster: Cluster) -> bool:
        """Whether the peak of memory is within what a rank has; always, where that was not given."""
        return cluster.memory is None or self.memory.peak <= cluster.memory

    def to_dict(self, cluster: Cluster) -> dict[str, Any]:
        """The layout as plain data, a part of `Plan.to_dict`."""
        layout = ("data", "classes", "class_rows", "local_rows", "scored_rows", "distinct", "exchange")
        return {
            **{name: getattr(self, name) for name in layout},
            "fits": self.fits(cluster),
            "memory": self.memory.to_dict(),
            "flops": {"matrix": self.matrix_flops, "elementwise": self.elementwise_flops},
            "wire": float(self.wire),
            "seconds": {"scoring": self.scoring, "exchange": self.exchanging, "step": self.seconds},
            "calls": [
                {**call.__dict__, "wire": float(call.wire), "seconds": call_seconds(call, cluster.bandwidth, cluster.latency)}
                for call in self.calls
            ],
        }


@dataclass(frozen=True)
class Plan:
    """All layouts of a cluster.

    Attributes:
        workload, cluster: what was asked.
        layouts: those that fit first, each part by time, then by bytes.
        refused: (D, C, reason) of the others.
    """

    workload: Workload
    cluster: Cluster
    layouts: tuple[Estimate, ...]
    refused: tuple[tuple[int, int, str], ...]

    @property
    def best(self) -> Estimate | None:
        """The fastest that fits."""
        return next((layout for layout in self.layouts if layout.fits(self.cluster)), None)

    @cached_property
    def needed(self) -> Estimate | None:
        """Where nothing fits: the smallest number of ranks on which something would."""
        return None if self.best is not None else ranks_needed(self.workload, self.cluster)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, schema "pairgrad.plan/1"; bytes, seconds and operations, of one rank and one step."""
        best, needed = self.best, self.needed
        return {
            "schema": SCHEMA,
            "workload": self.workload.to_dict(),
            "cluster": dict(self.cluster.__dict__),
            "best": None if best is None else {"data": best.data, "classes": best.classes},
            "needed": None if needed is None else {"data": needed.data, "classes": needed.classes, "ranks": needed.data * needed.classes},
            "layouts": [layout.to_dict(self.cluster) for layout in self.layouts],
            "refused": [{"data": data, "classes": classes, "reason": reason} for data, classes, reason in self.refused],
        }


def plan_layouts(workload: Workload, cluster: Cluster) -> Plan:
    """Every layout D x C of the cluster's ranks, the fastest that fits first.

    Examples:
        >>> plan = plan_layouts(Workload(classes=10_000_000, dim=512, batch=8192), Cluster(ranks=64, memory=40e9))
        >>> plan.best.data, plan.best.classes, [(e.data, e.classes) for e in plan.layouts if not e.fits(plan.cluster)]
        (16, 4, [(64, 1)])
    """
    layouts, refused = [], []
    for classes in (number for number in range(1, cluster.ranks + 1) if cluster.ranks % number == 0):
        data = cluster.ranks // classes
        reason = refusal(workload, classes)
        if reason is None:
            layouts.append(estimate(workload, cluster, data=data, classes=classes))
        else:
            refused.append((data, classes, reason))
    layouts.sort(key=lambda layout: (not layout.fits(cluster), float(f"{layout.seconds:.9g}"), layout.wire, layout.memory.peak))
    return Plan(workload, cluster, tuple(layouts), tuple(refused))


def refusal(workload: Workload, classes: int) -> str | None:
    """Why the classes cannot be shared out over so many ranks, or None: all have ceil(K / C) but the last, which must have one at least."""
    rows = -(-workload.classes // classes)
    if (classes - 1) * rows >= workload.classes:
        return f"{workload.classes} classes in shards of {rows} leave the last of {classes} ranks without any"
    return None


def estimate(
    workload: Workload,
    cluster: Cluster,
    *,
    data: int,
    classes: int,
    local_rows: int | None = None,
    scored_rows: int | None = None,
    distinct: int | None = None,
) -> Estimate:
    """A step in the layout D x C, on its fullest rank.

    Args:
        data: D.
        classes: C.
        local_rows: samples of the rank; None: an even share of the batch.
        scored_rows: samples of its class group; None: an even share of the batch.
        distinct: classes of the shard that occur among them; None: as many as in random samples of equally frequent classes.

    Examples:
        >>> layout = estimate(Workload(classes=1000, dim=64, batch=32), Cluster(ranks=4), data=2, classes=2)
        >>> layout.class_rows, layout.local_rows, layout.scored_rows, layout.distinct, layout.exchange, float(layout.wire)
        (500, 8, 16, 8, 'gather', 6592.0)
    """
    integer_at_least("data", data, 1)
    reason = refusal(workload, integer_at_least("classes", classes, 1))
    if reason is not None:
        raise ValueError(f"classes must leave no rank empty, got {classes} ranks: {reason}; share them out over fewer ranks")
    replicated = workload.inputs == "replicated"
    if local_rows is None:
        local_rows = -(-workload.batch // (data if replicated else data * classes))
    if scored_rows is None:
        scored_rows = -(-workload.batch // data)
    class_rows = -(-workload.classes // classes)
    if workload.static:
        distinct = scored_rows
    elif distinct is None:
        distinct = expected_distinct(workload.classes, class_rows, scored_rows)
    shape = {"class_rows": class_rows, "dim": workload.dim, "itemsize": workload.itemsize, "views": workload.views}
    calls = step_calls(
        **shape,
        data=data,
        classes=classes,
        local_rows=local_rows,
        scored_rows=scored_rows,
        distinct=distinct,
        exchange=workload.exchange,
        inputs=workload.inputs,
        bounded=workload.bounded,
        static=workload.static,
    )
    exchange = statistics_exchange(workload.exchange, **shape, data=data, distinct=max(distinct, 1)) if data > 1 else None
    touched = {"gather": data * distinct, "reduce": class_rows, None: scored_rows}[exchange]
    sampled = math.ceil(workload.sample * class_rows)
    sampled = None if sampled >= class_rows else sampled
    memory = footprint(
        **shape,
        scored_rows=scored_rows,
        touched_rows=touched,
        calls=calls,
        sampled=sampled,
        prior=workload.prior,
        two_epochs=workload.two_epochs,
        process=cluster.process,
    )
    apart = apart_views(views=workload.views, class_rows=class_rows, touched_rows=touched, sampled=sampled)
    visited = class_rows if sampled is None else sampled
    scores = scored_rows * (workload.views * visited + apart * touched)
    matrix, elementwise = 4.0 * scores * workload.dim, scores * cluster.elementwise
    return Estimate(
        data=data,
        classes=classes,
        class_rows=class_rows,
        local_rows=local_rows,
        scored_rows=scored_rows,
        distinct=distinct,
        exchange=exchange,
        memory=memory,
        matrix_flops=matrix,
        elementwise_flops=elementwise,
        calls=tuple(calls),
        scoring=(matrix + elementwise) / cluster.flops,
        exchanging=sum(call_seconds(call, cluster.bandwidth, cluster.latency) for call in calls),
    )


def ranks_needed(workload: Workload, cluster: Cluster) -> Estimate | None:
    """The layout with the fewest ranks that fits the memory, of those with 1, 2, 4, ... replicas; None where what a step needs alone is too large.

    For each D the classes of a rank are halved until they fit, and then made as many as still do.

    Examples:
        >>> layout = ranks_needed(Workload(classes=10_000_000, dim=512, batch=8192), Cluster(ranks=1, memory=8e9))
        >>> layout.data, layout.classes
        (1, 6)
    """
    found: list[Estimate] = []
    data = 1
    while data <= workload.batch and not (found and data >= min(e.data * e.classes for e in found)):
        fitting = _fewest_shards(workload, cluster, data)
        if fitting is not None:
            found.append(fitting)
        data *= 2
    return min(found, key=lambda layout: (layout.data * layout.classes, layout.seconds), default=None)


def _fewest_shards(workload: Workload, cluster: Cluster, data: int) -> Estimate | None:
    def sharded(rows: int) -> Estimate:
        return estimate(workload, cluster, data=data, classes=-(-workload.classes // rows))

    fitting, too_many = workload.classes, workload.classes + 1  # classes of a rank
    while not sharded(fitting).fits(cluster):
        half = fitting // 2
        # with very many ranks, buffers for all of them outweigh the rest
        if half == 0 or sharded(half).memory.peak >= sharded(fitting).memory.peak:
            return None
        fitting, too_many = half, fitting
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        fitting, too_many = (middle, too_many) if sharded(middle).fits(cluster) else (fitting, middle)
    return sharded(fitting)


def _number(name: str, value: Any) -> float:
    try:
        return real_number(name, value, "a finite number")
    except ValueError as error:  # NaN and infinity are no numbers either
        raise TypeError(str(error)) from None
