"""What one rank does, told through `ranks`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist

import pairgrad as pg
from benchmarks.distributed.cases import SEED, Case
from benchmarks.learning.allocator import keep_memory
from pairgrad.distributed import Call, Communicator, distribute


class Job:
    """The loss of a case, its steps, and what else is measured in the same processes."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def keep_memory(self) -> bool:
        """From now on, no page faults for memory that was taken once."""
        return keep_memory()

    def prepare(self, case: Case) -> None:
        """Make the loss; one step warms everything up."""
        self.case = case
        self.loss: Any = None  # before the new one is made
        if case.ranks == 1:
            self.loss = pg.ProCoLoss(case.classes, case.dim, generator=torch.Generator().manual_seed(SEED))
        else:
            groups = {"data": None, "classes": dist.group.WORLD} if case.layout == "classes" else {}
            empty = pg.ProCoLoss(case.classes, case.dim, device="meta")
            self.loss = distribute(empty, **groups, exchange=case.exchange, seed=SEED, device="cpu")
        self.labels = [labels for _, labels in case.batches()]
        own = case.part(self.rank)
        self.batches = [(views[:, own].contiguous(), labels[own]) for views, labels in case.batches()]
        self.steps = 0

    def take(self, steps: int, rehearsals: int = 0) -> tuple[float, float]:
        """Seconds of a step, on average, and the loss of the last: forward, backward and the bank's update."""
        for _ in range(rehearsals):
            self._step()
        self._meet()
        start = time.perf_counter()
        for _ in range(steps):
            value = self._step()
        return (time.perf_counter() - start) / steps, float(value)

    def take_each(self, steps: int) -> list[float]:
        """Seconds of every step."""
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            self._step()
            seconds.append(time.perf_counter() - start)
        return seconds

    def counted(self) -> tuple[list[Call], list[Call]]:
        """The collectives of the next step as they were made, in groups of more than one rank, and as they were planned."""
        planned = self.case.planned_calls(self.labels[self.steps % len(self.labels)], self.rank)
        made: list[Call] = []
        with ExitStack() as stack:
            if self.ranks > 1:
                layout = self.loss.bank.layout
                group = layout.classes if layout.classes.size > 1 else layout.data
                made = stack.enter_context(group.recorded())
            self._step()
        return made, planned

    def collective(self, operation: str, payload: int, repeats: int) -> float:
        """Seconds of one of `repeats` collectives behind one another."""
        group = Communicator("data", dist.group.WORLD)
        call = {"all-gather": group.gather, "all-reduce": group.total, "reduce-scatter": group.total_of_parts}[operation]
        tensor = torch.zeros(payload // 4)
        call("rehearsal", tensor)
        start = time.perf_counter()
        for _ in range(repeats):
            call("measured", tensor)
        return (time.perf_counter() - start) / repeats

    def cpu_seconds(self) -> float:
        """Of this process since it began, all threads together."""
        return time.process_time()

    def resident(self) -> tuple[int, int]:
        """Bytes of this process that are in memory, now and at the most since it began."""
        with open("/proc/self/status") as file:
            found = dict(line.split(":", 1) for line in file)
        return 1024 * int(found["VmRSS"].split()[0]), 1024 * int(found["VmHWM"].split()[0])

    def _step(self) -> torch.Tensor:
        views, labels = self.batches[self.steps % len(self.batches)]
        self.steps += 1
        value = self.loss(views.detach().requires_grad_(), labels)
        value.backward()
        return value.detach()

    def _meet(self) -> None:
        if self.ranks > 1:
            dist.barrier()
