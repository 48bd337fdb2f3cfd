"""Processes that stay, one per rank, joined in a gloo group on loopback, and do what they are told together."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.distributed.job import Job

LIMIT = 600.0  # seconds after which an answer is no longer waited for
_QUICKLY = multiprocessing.get_context("forkserver")
_QUICKLY.set_forkserver_preload(["benchmarks.distributed.job"])
_FRESH = multiprocessing.get_context("spawn")


class Ranks:
    """So many processes with one thread each; a context manager, which ends them.

    Args:
        number: of ranks; one has no process group.
        fresh: new interpreters, whose memory is theirs alone; else forks of one that has imported everything.
    """

    def __init__(self, number: int, *, fresh: bool = False) -> None:
        self.number, context = number, _FRESH if fresh else _QUICKLY
        self._folder = tempfile.TemporaryDirectory()
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for rank in range(number):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, number, self._folder.name), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def all(self, method: str, *args: Any) -> list[Any]:
        """What a method of `Job` returns on every rank, by rank."""
        for pipe in self._pipes:
            pipe.send((method, args))
        return [self._answer(rank) for rank in range(self.number)]

    def _answer(self, rank: int) -> Any:
        try:
            if not self._pipes[rank].poll(LIMIT):
                raise RuntimeError(f"rank {rank} of {self.number} has not answered in {LIMIT:g} s")
            good, value = self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            raise RuntimeError(f"rank {rank} of {self.number} ended without a word") from None
        if not good:
            raise RuntimeError(f"rank {rank} of {self.number}: {value}")
        return value

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _serve(pipe: Connection, rank: int, ranks: int, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends, and closes the pipe
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        if ranks > 1:
            store = dist.FileStore(str(Path(folder) / "meet"), ranks)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=LIMIT))
        job = Job(rank, ranks)
        while True:
            method, args = pipe.recv()
            pipe.send((True, getattr(job, method)(*args)))
    except (EOFError, BrokenPipeError):
        if ranks > 1:
            dist.destroy_process_group()
    except Exception as error:
        pipe.send((False, "".join(traceback.format_exception(error))))
