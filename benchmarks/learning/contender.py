"""One contestant at one size: built and warmed up, ready to take turns."""

from __future__ import annotations

import gc
import resource
from typing import NamedTuple, Protocol

from benchmarks.contestants import NotAvailable
from benchmarks.learning.contestants import COMPILED, LIBRARY, MAKERS
from benchmarks.learning.device import Replayed, seconds
from benchmarks.learning.memory import peak_increment
from benchmarks.learning.step import Step
from benchmarks.learning.workload import Workload


class Prepared(NamedTuple):
    """What is known before the rounds: loss, and seconds of the last warm-up; or in `note` why there is nothing."""

    loss: float | None = None
    expected: float = 0.0
    note: str = ""


class Time(NamedTuple):
    """Seconds of one run, and what the operating system took of them."""

    total: float
    system: float


class Contender(Protocol):
    prepared: Prepared

    def take(self, *, rehearse: bool) -> Time:
        """One timed run from the restored state. With `rehearse`, another just before it, untimed."""
        ...

    def peak(self) -> int:
        """Peak increment in bytes. After the rounds: what the profiler leaves with the allocator would change the times."""
        ...

    def close(self) -> None: ...


class Local:
    """In this process."""

    def __init__(self, name: str, workload: Workload, warmups: int) -> None:
        self._device = workload.device
        self._step: Step | None = None
        try:
            self._step = _built(name, workload)
        except NotAvailable as reason:
            self.prepared = Prepared(note=str(reason))
        except Exception as error:
            if name not in LIBRARY:  # only what the library does is allowed to fail
                raise
            self.prepared = Prepared(note=f"fails: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        else:
            self.prepared = Prepared(*_warm(name, self._step, self._device, warmups))

    def take(self, *, rehearse: bool) -> Time:
        assert self._step is not None
        gc.collect()
        gc.disable()
        try:
            if rehearse:
                self._step.restore()
                self._step.run()
            self._step.restore()
            system, start = resource.getrusage(resource.RUSAGE_SELF).ru_stime, seconds(self._device)
            self._step.run()
            total = seconds(self._device) - start
            return Time(total, resource.getrusage(resource.RUSAGE_SELF).ru_stime - system)
        finally:
            gc.enable()

    def peak(self) -> int:
        assert self._step is not None
        return peak_increment(self._step, self._device)

    def close(self) -> None:
        self._step = None


def _built(name: str, workload: Workload) -> Step:
    """The step, run once, which compiles it."""
    step = MAKERS[name](workload)
    if workload.device.startswith("cuda") and name in COMPILED:
        step = Replayed(step)
    step.run()
    return step


def _warm(name: str, step: Step, device: str, runs: int) -> tuple[float | None, float]:
    """The loss, and what the last of several runs took. From a restored state they give the same loss, bit for bit on a CPU."""
    value, taken = None, 0.0
    for _ in range(max(runs, 1)):
        step.restore()
        start = seconds(device)
        loss = step.run()
        taken = seconds(device) - start
        if loss is None:
            continue
        before, value = value, float(loss)
        if device == "cpu" and before not in (None, value):
            raise RuntimeError(f"the loss of {name} was {before!r} and is now {value!r}: its state is not restored")
    return value, taken
