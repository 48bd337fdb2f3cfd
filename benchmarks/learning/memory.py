"""The peak of what a step allocates, above what was allocated before it.

On the CPU, torch's profiler reports every allocation and deallocation of torch's CPU allocator with the running total: those of operators, of
backward and of code that torch.compile made. Scratch space that libraries such as MKL take from the system themselves is not in it. On CUDA
it is the allocator's own peak counter.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.learning.step import Step

_BOUNDARY = "learning step"
os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # else the profiler reports its stages on stderr


def peak_increment(step: Step, device: str = "cpu") -> int:
    """Bytes. The step must be warm; it is restored afterwards."""
    step.restore()
    peak = _on_cuda(step) if device.startswith("cuda") else _on_cpu(step)
    step.restore()
    return peak


def _on_cuda(step: Step) -> int:
    """With what a captured graph holds for good, if there is one."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step.run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before + getattr(step, "persistent_bytes", 0)


def _on_cpu(step: Step) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step.run()  # what the measured step replaces is then known to the profiler, which cannot size what was there before it
        step.restore()
        with record_function(_BOUNDARY):
            step.run()
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    totals: list[tuple[int, int]] = []
    start = end = 0
    pending = list(profiler.profiler.kineto_results.experimental_event_tree())
    while pending:
        event = pending.pop()
        pending += event.children
        if event.tag == _EventType.Allocation:
            allocation: Any = event.extra_fields
            if allocation.device.type == "cpu":
                totals.append((event.start_time_ns, allocation.total_allocated))
        elif event.name == _BOUNDARY:
            start, end = event.start_time_ns, event.end_time_ns
    totals.sort()
    before = [total for time, total in totals if time < start][-1:] or [0]
    return max([total for time, total in totals if start <= time <= end], default=before[0]) - before[0]
