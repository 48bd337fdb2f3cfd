"""The page docs/distributed-benchmarks.md, from the record alone."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.distributed import figure
from benchmarks.distributed.cases import Case
from benchmarks.distributed.measure import LOSS_TOL
from benchmarks.distributed.network import FITTED, OPERATIONS, Line, fitted
from benchmarks.distributed.record import Record, Timing, faster
from benchmarks.markdown import table
from benchmarks.timing import Samples
from pairgrad.distributed import Call

FASTER = 1.5


@dataclass(frozen=True)
class Goal:
    """What was to be shown; `reached` is None where it was not measured."""

    text: str
    found: str
    reached: bool | None


def goals(record: Record) -> list[Goal]:
    """None for a smoke run, whose sizes say nothing."""
    if record.quick:
        return []
    found = []
    for timings in record.contests():
        one, two = (next((t for t in timings if t.case.ranks == number), None) for number in (1, 2))
        if one and two and one.case.layout == "classes":
            case, ratio = one.case, faster(one, two)
            text = f"two ranks at least {FASTER:g} times faster than one, classes shared out: K = {case.classes:,}, views: {case.views}"
            found.append(Goal(text, f"{ratio:.2f} times", ratio >= FASTER))
    if record.traffic:
        number = sum(traffic.steps for traffic in record.traffic)
        found.append(Goal("every collective of a step as `step_calls` has it, in order and in bytes", f"in all {number} steps", True))
    return found


def page(record: Record) -> str:
    parts = [
        "# Several ranks: time, bytes and memory",
        "This page is written by `python -m benchmarks.distributed --write` from `benchmarks/results/distributed.json`; edits are lost.",
        "[`ProCoLoss`][pairgrad.ProCoLoss] on ranks that are processes of one machine, with one thread each and gloo on loopback between them. A step is "
        "forward, backward and the bank's update, without a backbone.",
    ]
    if record.quick:
        parts.append("**A smoke run at other sizes: its numbers mean nothing.**")
    if found := goals(record):
        rows = [(goal.text, goal.found, "reached" if goal.reached else "**missed**") for goal in found]
        parts += ["## Goals", table(("goal", "measured", ""), rows, right=1)]
    if record.timings:
        parts += ["## Time", *_time(record)]
    if record.traffic:
        parts += ["## Bytes", *_bytes(record)]
    if record.memory:
        parts += ["## Memory", *_memory(record)]
    parts += ["## How it was measured", _method(record)]
    return "\n\n".join(parts) + "\n"


def _time(record: Record) -> list[str]:
    header = ("", "ranks", "ms per step", "quartiles", "fastest", "faster than one rank")
    rows = [_timed(timing, timings[0]) for timings in record.contests() for timing in timings]
    crowded = [ranks for ranks in sorted({timing.case.ranks for timing in record.timings}) if ranks > record.cores]
    parts = [table(header, rows, right=1)]
    if crowded:
        numbers = " and ".join(map(str, crowded))
        parts.append(f"{numbers} ranks share {record.cores} cores here, so they cannot be faster than {record.cores}.")
    parts.append(f"![Milliseconds per step by number of ranks](assets/{figure.NAME})")
    if record.network:
        parts.append(_loopback(record))
    return parts


def _timed(timing: Timing, one: Timing) -> list[str]:
    case, samples = timing.case, timing.samples
    low, high = samples.quartiles
    cells = [_named(case), str(case.ranks), _ms(samples.median), f"{_ms(low)} to {_ms(high)}", _ms(min(samples.seconds))]
    return [*cells, "" if timing is one else f"**{faster(one, timing):.2f}**"]


def _named(case: Case) -> str:
    layout = "classes shared out" if case.layout == "classes" else f"data parallel, {case.exchange}"
    return f"{layout}, K = {case.classes:,}, p = {case.dim}, B = {case.batch}, views: {case.views}"


def line(record: Record, ranks: int) -> Line:
    """Latency and bandwidth of loopback between so many ranks."""
    timed = [found for found in record.network if found.ranks == ranks and found.operation in FITTED]
    return fitted([(Call("", found.operation, found.payload, ranks), found.value) for found in timed])


def _loopback(record: Record) -> str:
    rows = []
    for ranks in sorted({found.ranks for found in record.network}):
        fit = line(record, ranks)
        rows.append([str(ranks), f"{1e6 * fit.latency:.0f} us", f"{fit.bandwidth / 1e9:.2f} GB/s"])
    return "\n\n".join(
        (
            "Latency per message and bandwidth of a rank, fitted to the times of all-gather and all-reduce of several sizes:",
            table(("ranks", "latency", "bandwidth"), rows, right=0),
        )
    )


def _bytes(record: Record) -> list[str]:
    rows = [
        [
            _named(t.case),
            str(t.case.ranks),
            str(t.calls),
            f"{t.planned / t.steps / 1e3:,.1f}",
            f"{t.found / t.steps / 1e3:,.1f}",
            f"{t.found / t.planned:.2f}",
        ]
        for t in record.traffic
    ]
    header = ("", "ranks", "collectives of a rank", "by `step_calls`, kB per step", "on loopback, kB per step", "ratio")
    parts = [
        "What the ranks recorded is equal to `step_calls`, call by call, in every step; a difference would end the run. The bytes of all ranks together, by "
        "the ring algorithms that `Call.wire` counts with, beside what passed the loopback interface, headers and acknowledgements of TCP included:",
        table(header, rows, right=1),
    ]
    if record.bytes:
        ranks = sorted({found.ranks for found in record.bytes})
        payloads = sorted({found.payload for found in record.bytes})
        kinds = [(operation, number) for operation in OPERATIONS for number in ranks]
        values = {(found.operation, found.ranks, found.payload): found.value for found in record.bytes}
        cells = [
            [
                f"{payload:,}",
                *(f"{values[kind, number, payload] / float(number * Call('', kind, payload, number).wire):.2f}" for kind, number in kinds),
            ]
            for payload in payloads
        ]
        parts += [
            "The same ratio for single collectives, by the bytes that a rank hands in:",
            table(("bytes", *(f"{kind}, {number} ranks" for kind, number in kinds)), cells, right=0),
            "Small messages are outweighed by headers. With gloo a reduce-scatter sends as much as an all-reduce, twice what `Call.wire` counts.",
        ]
    return parts


def _memory(record: Record) -> list[str]:
    rows = [
        [
            str(memory.case.ranks),
            ", ".join(_gb(value) for value in memory.peak),
            ", ".join(_gb(value) for value in memory.before),
            _gb(memory.case.bank),
            ", ".join(_gb(peak - before - memory.case.bank) for before, peak in zip(memory.before, memory.peak, strict=True)),
            f"{Timing(memory.case, memory.seconds).samples.median:#.3g}",
        ]
        for memory in record.memory
    ]
    case = record.memory[0].case
    return [
        f"K = {case.classes:,}, p = {case.dim}, B = {case.batch}, {len(record.memory[0].seconds)} steps in fresh processes. One process has a plain loss; "
        'ranks share its classes out and make their part alone, from a loss on the device "meta". The peak is that of resident memory as the system counts it, '
        "with the making of the bank, which takes most of the rest.",
        table(("ranks", "peak of each rank, GB", "process before the bank", "bank", "rest", "s per step"), rows, right=0),
    ]


def _method(record: Record) -> str:
    facts = [f"- **Command:** `{record.command}`, {record.date}.", *(f"- **{name}:** {value}" for name, value in record.machine.items())]
    if record.timings:
        rounds = len(record.timings[0].seconds)
        facts += [
            f"- **Time:** the groups of processes stay and take turns, {rounds} rounds of some steps each, so that a slow minute of the machine meets all "
            "alike. A step counts until its slowest rank has it. Medians of rounds; *faster* is the median of the quotients within a round.",
            *([_busy(record)] if record.others else []),
            *([_ALLOCATOR] if record.kept_memory else []),
            f"- **Same work:** all numbers of ranks have the same bank and batches, and losses that agree to {LOSS_TOL:g}.",
        ]
    if record.traffic:
        facts.append(f"- **Loopback:** {record.idle / 1e3:.2g} kB per second passed while nothing was measured.")
    return "\n".join(facts)


def _busy(record: Record) -> str:
    low, high = Samples(record.others).quartiles
    return (
        f"- **Other processes** took {Samples(record.others).median:.0%} of the machine in the median round (quartiles {low:.0%} and {high:.0%}). What they "
        "take is missing where all cores are used, and makes ranks wait for each other."
    )


_ALLOCATOR = (
    "- **Allocator:** of these processes, one that keeps the memory it has (`mallopt`): else what a step pays for page faults depends on "
    "what ran in the process before. Memory was measured with the allocator as it is."
)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:#.3g}".rstrip(".")


def _gb(number: float) -> str:
    return f"{number / 1e9:#.3g}".rstrip(".")
