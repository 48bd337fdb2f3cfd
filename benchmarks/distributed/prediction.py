"""What the planner says of a case, with the rates that the record has."""

from __future__ import annotations

from benchmarks.distributed.cases import Case
from benchmarks.distributed.network import FITTED, Line, fitted
from benchmarks.distributed.record import Record
from pairgrad.distributed import Call
from pairgrad.distributed.calibration import Rate
from pairgrad.distributed.plan import Cluster, Estimate


def line(record: Record, ranks: int) -> Line | None:
    """Latency and bandwidth of loopback between so many ranks; None where nothing was measured."""
    calls = [
        (Call("", found.operation, found.payload, ranks), found.value)
        for found in record.network
        if found.ranks == ranks and found.operation in FITTED
    ]
    return fitted(calls) if calls else None


def rate(record: Record, rows: int, dim: int) -> Rate | None:
    """The rate of one process, of the round in which a score took the median time; of the nearest number of rows that was measured."""
    if not record.rates:
        return None
    nearest = min(record.rates, key=lambda measured: abs(measured - rows))
    rates = sorted((Rate(*found) for found in record.rates[nearest]), key=lambda found: (4 * dim + found.elementwise) / found.flops)
    return rates[len(rates) // 2]


def predicted(record: Record, case: Case) -> Estimate | None:
    """A step as planned; where there are more ranks than cores, with as much less of the rate for each. None where the rates are not known."""
    speed, network = rate(record, case.scored_rows, case.dim), line(record, case.ranks)
    if speed is None or (network is None and case.ranks > 1):
        return None
    shared = min(1.0, record.cores / case.ranks)
    wire = {} if network is None else {"latency": network.latency, "bandwidth": network.bandwidth}
    return case.estimate(Cluster(case.ranks, flops=speed.flops * shared, elementwise=speed.elementwise, **wire))
