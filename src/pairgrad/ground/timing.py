"""Medians of interleaved measurements, on one thread, and a description of the machine they were made on."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

Call = Callable[[], object]


def median_seconds(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """The median time of each call; the calls take turns, so that a change of the machine's speed meets all of them alike."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in samples.items()}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch on so many threads, and as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def machine() -> dict[str, str]:
    """What measured times depend on."""
    return {
        "CPU": f"{processor()}, {os.cpu_count()} logical cores",
        "instruction set used by torch": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def machine_line() -> str:
    """The same in one line."""
    facts = machine()
    torch_facts = f"torch {facts['torch']} ({facts['instruction set used by torch']}, threads: {facts['threads']})"
    return ", ".join((facts["CPU"], torch_facts, f"Python {facts['Python']}", facts["system"]))


def processor() -> str:
    """The name of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
