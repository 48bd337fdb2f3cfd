"""Processes that run one function each, joined in a gloo group on this machine.

Every test that needs a process group gets it here. No port is chosen and released for another process to bind: the ranks of `run` meet in a file, those of
`agent` at a port on which this process listens already, and `alone` needs neither.
"""

from __future__ import annotations

import datetime
import multiprocessing
import pickle
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pairgrad.distributed import RankError

LIMIT = 600.0  # seconds after which ranks that do not answer have failed: a safety net that no busy machine reaches
AFTERWARDS = 60.0  # seconds for the others, when one has failed
FOREVER = 10 * LIMIT  # timeout of collectives: a rank that waits for another in vain does not answer, and `run` fails
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "pairgrad", "pairgrad.distributed"])


class Failed(AssertionError):
    """What went wrong on which rank."""

    def __init__(self, errors: dict[int, str]) -> None:
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in sorted(errors.items())))
        self.errors = errors


def run(world: int, function: Callable[..., Any], *args: Any, expect: tuple[int, ...] | None = None) -> list[Any]:
    """`function(*args)` on every rank of a gloo group; results by rank. A rank that raises makes this raise `Failed`.

    Args:
        expect: the ranks that answer, each of which then leaves at once; the others may be killed. None: all, and they leave together.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(world):
            mine, theirs = _context.Pipe(duplex=False)
            process = _context.Process(target=_rank, args=(rank, world, folder, theirs, expect is None, function, args))
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        awaited = {pipe: rank for rank, pipe in enumerate(pipes) if expect is None or rank in expect}
        results: dict[int, Any] = {}
        errors: dict[int, str] = {}
        try:
            while awaited:
                patience = AFTERWARDS if errors else LIMIT
                ready = connection.wait(list(awaited), patience)
                if not ready:
                    errors |= dict.fromkeys(awaited.values(), f"no answer in {patience:g} s")
                    break
                for pipe in ready:
                    rank = awaited.pop(pipe)
                    try:
                        good, value = pickle.loads(pipe.recv_bytes())
                    except (EOFError, ConnectionResetError):
                        good, value = False, "ended without a word"
                    (results if good else errors)[rank] = value
        finally:
            for rank, process in enumerate(processes):
                if awaited or errors or (expect is not None and rank not in expect):
                    process.kill()  # it may be stopped, or wait for one that has failed
            for process in processes:
                process.join(AFTERWARDS)
                if process.is_alive():
                    process.kill()
                    process.join()
        if errors:
            raise Failed(errors)
        return [results.get(rank) for rank in range(world)]


@contextmanager
def agent() -> Iterator[dict[str, str]]:
    """What torchrun sets in the environment of its processes for `env://`, with a store that lives in this process as it lives in the agent of torchrun."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # the system chooses the port, and this listens on it
    yield {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}


@contextmanager
def alone() -> Iterator[None]:
    """A gloo group of this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def error_of(function: Callable[[], Any]) -> tuple[str, str]:
    """The kind and the text of what a call raises that may raise, for comparison between ranks; empty if nothing."""
    try:
        function()
    except (RankError, ValueError, TypeError) as error:
        return type(error).__name__, str(error)
    return "", ""


def all_are_here(name: str) -> None:
    """Wait, without a collective, until every rank has called this with `name`: then none is inside an earlier collective any more.

    A rank that has its part of a collective may be ahead of others that still read theirs. If it dies then, what they read is lost, and it is the earlier
    collective that fails.
    """
    store, world = dist.distributed_c10d._get_default_store(), dist.get_world_size()
    store.set(f"here-{name}-{dist.get_rank()}", "")
    store.wait([f"here-{name}-{rank}" for rank in range(world)], datetime.timedelta(seconds=LIMIT))


def shorten_timeout(seconds: float) -> None:
    """Of collectives from now on. A group made with a short one would fail wherever its processes start slowly."""
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=seconds))


def _rank(rank: int, world: int, folder: str, pipe: Any, together: bool, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1000 + rank)  # ranks differ in what they draw
    try:
        if world > 1:
            # a store that outlives any rank, as that of torchrun does
            store = dist.FileStore(str(Path(folder) / "meet"), world)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=FOREVER))
            all_are_here("the beginning")  # one that leaves at once would end others that still connect to it
        answer = (True, function(*args))
    except BaseException as error:
        answer = (False, "".join(traceback.format_exception(error)))
    pipe.send_bytes(pickle.dumps(answer))  # not send: torch would pass its tensors as files that end with this process
    pipe.close()
    if dist.is_initialized():
        if together:
            all_are_here("the end")
        dist.destroy_process_group()
