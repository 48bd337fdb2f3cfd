"""A contestant in a process of its own.

Time depends on what the C library's allocator has at hand (`allocator`), and that on who else has run in the process. So each contestant has its
own, on one thread, with the allocator as it is; they are prepared one after the other and take turns when told.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.learning.contender import Local, Prepared, Time
from benchmarks.learning.workload import Workload

_CONTEXT = multiprocessing.get_context("spawn")


class Isolated:
    """A `Local` contender at the other end of a pipe."""

    def __init__(self, name: str, workload: Workload, warmups: int) -> None:
        self._name = name
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, name, workload, warmups), daemon=True)
        self._process.start()
        theirs.close()
        self.prepared: Prepared = self._receive()

    def take(self, *, rehearse: bool) -> Time:
        return self._ask("take", rehearse=rehearse)

    def peak(self) -> int:
        return self._ask("peak")

    def close(self) -> None:
        """Ends the process, which gives its memory back."""
        self._pipe.close()
        self._process.join()

    def _ask(self, method: str, **arguments: Any) -> Any:
        self._pipe.send((method, arguments))
        return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(
                f"the process of {self._name} ended with code {self._process.exitcode}; a negative one is a signal"
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(pipe: Connection, name: str, workload: Workload, warmups: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends, and closes the pipe
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compiling processes for each contestant
    torch.set_num_threads(1)
    try:
        contender = Local(name, workload, warmups)
        pipe.send(contender.prepared)
        while True:
            method, arguments = pipe.recv()
            pipe.send(getattr(contender, method)(**arguments))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        pipe.send(RuntimeError(f"{name} at {workload.size}: {type(error).__name__}: {error}"))
