"""What differs between a CPU and a GPU: the clock, and replaying a step as a CUDA graph."""

from __future__ import annotations

import time

import torch

from benchmarks.learning.step import Step

_WARM_UP = 3  # runs on a side stream before a graph is captured, which torch asks for


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def seconds(device: str) -> float:
    """CPU time of this process, all threads, user and system; on CUDA, where the CPU only waits, the time when all work is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


class Replayed:
    """A step as one CUDA graph, captured once.

    The pool of a captured graph is its own as long as it lives, so `persistent_bytes` counts what the capture reserves. Restoring drops the
    name of the gradient; every replay writes it again at the same place.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                step.run()
                step.restore()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = step.run()
        torch.cuda.synchronize()
        self.persistent_bytes = torch.cuda.memory_reserved() - before
        step.restore()

    def run(self) -> torch.Tensor | None:
        self._graph.replay()
        return self._loss

    def restore(self) -> None:
        self._step.restore()
