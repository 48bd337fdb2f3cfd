"""Measuring: groups of 1, 2 and 4 ranks that stay and take turns; bytes on loopback; memory of fresh processes."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.distributed.cases import Case, Sizes
from benchmarks.distributed.network import OPERATIONS, loopback_bytes
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.record import Collective, Record, Resident, Timing, Traffic
from pairgrad.distributed import wire_bytes

# Banks of the same samples in float32, whose sums are added up in another order, and the mean of 1e2 losses of them.
LOSS_TOL = 1e-5
_CPU = Path("/proc/stat")


def scaling(record: Record, sizes: Sizes) -> None:
    """Time of a step on every number of ranks, in turns; the time of collectives."""
    with ExitStack() as stack:
        groups = {number: stack.enter_context(Ranks(number)) for number in sizes.ranks}
        record.kept_memory = all(kept for ranks in groups.values() for kept in ranks.all("keep_memory"))
        for contest, steps in sizes.contests:
            timings = [Timing(dataclasses.replace(contest, ranks=number)) for number in sizes.ranks]
            record.timings += timings
            for timing in timings:
                groups[timing.case.ranks].all("prepare", timing.case)
            for number in range(sizes.rounds):
                before = _clocks(groups)
                for timing in timings:
                    found = groups[timing.case.ranks].all("take", steps, 1)
                    timing.seconds.append(max(seconds for seconds, _ in found))
                    if number == 0:
                        timing.loss = sum(loss for _, loss in found) / len(found)
                record.others.append(_others(before, _clocks(groups)))
            for timing in timings:
                say(f"{described(timing.case)}: {1e3 * timing.samples.median:.4g} ms")
            _require_equal_losses(timings)
        for number in sizes.ranks[1:]:
            for operation in OPERATIONS:
                for payload in sizes.payloads:
                    seconds = max(groups[number].all("collective", operation, payload, sizes.repeats))
                    record.network.append(Collective(operation, payload, number, seconds))


def _clocks(groups: dict[int, Ranks]) -> tuple[float, float, float]:
    """Seconds that all cores have worked, that these ranks have, and that all cores could have."""
    own = sum(seconds for ranks in groups.values() for seconds in ranks.all("cpu_seconds"))
    if not _CPU.exists():
        return own, own, 1.0
    ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in _CPU.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], own, sum(ticks)  # the fourth and fifth: idle, and waiting for a disk


def _others(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """The share of the machine that other processes took."""
    worked, own, possible = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, (worked - own) / max(possible, 1e-9))


def _require_equal_losses(timings: list[Timing]) -> None:
    for timing in timings:
        if abs(timing.loss - timings[0].loss) > LOSS_TOL * abs(timings[0].loss):
            raise AssertionError(f"{described(timing.case)} has the loss {timing.loss}, one rank has {timings[0].loss}")


def wire(record: Record, sizes: Sizes) -> None:
    """Bytes of collectives and of steps on loopback; that ranks call what was planned."""
    before = loopback_bytes()
    if before is None:
        say("this system does not count the bytes on loopback: bytes are not measured")
        return
    pause = 0.2 if record.quick else 5.0
    time.sleep(pause)
    record.idle = (_loopback() - before) / pause
    with ExitStack() as stack:
        groups = {number: stack.enter_context(Ranks(number)) for number in sizes.ranks if number > 1}
        for number, ranks in groups.items():
            for operation in OPERATIONS:
                for payload in sizes.payloads:
                    ranks.all("collective", operation, payload, 1)  # connections are made
                    before = _loopback()
                    ranks.all("collective", operation, payload, sizes.repeats - 1)
                    record.bytes.append(
                        Collective(operation, payload, number, (_loopback() - before) / sizes.repeats)
                    )  # with the rehearsal
            for contest, _ in sizes.contests:
                record.traffic.append(_traffic(ranks, dataclasses.replace(contest, ranks=number), sizes.wire_steps))


def _traffic(ranks: Ranks, case: Case, steps: int) -> Traffic:
    ranks.all("prepare", case)
    ranks.all("counted")
    planned, calls = 0.0, 0
    before = _loopback()
    for _ in range(steps):
        for made, wanted in ranks.all("counted"):
            if made != wanted:
                raise AssertionError(f"{described(case)}: the ranks called {made}, planned were {wanted}")
            planned, calls = planned + float(wire_bytes(made)), len(made)
    found = _loopback() - before
    say(f"{described(case)}: {calls} calls as planned, {found / steps:.4g} bytes on loopback per step, {found / planned:.3f} of the plan")
    return Traffic(case, steps, calls, planned, found)


def _loopback() -> int:
    found = loopback_bytes()
    assert found is not None
    return found


def memory(record: Record, sizes: Sizes) -> None:
    """The peak of resident memory of processes that do nothing else, and the time of their steps."""
    for case in sizes.memory:
        with Ranks(case.ranks, fresh=True) as ranks:
            before = [now for now, _ in ranks.all("resident")]
            ranks.all("prepare", case)
            each = ranks.all("take_each", sizes.memory_steps)
            peak = [most for _, most in ranks.all("resident")]
        record.memory.append(Resident(case, before, peak, [max(seconds) for seconds in zip(*each, strict=True)]))
        say(f"{described(case)}: {', '.join(f'{bytes_ / 1e9:.3f} GB' for bytes_ in peak)}")


def described(case: Case) -> str:
    exchange = f", {case.exchange}" if case.layout == "data" else ""
    return f"{case.layout} of K = {case.classes:,}, B = {case.batch}, V = {case.views}{exchange} on {case.ranks} ranks"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
