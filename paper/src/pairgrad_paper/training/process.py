"""One process, or one of several that torchrun started, and what these do together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
from torch import distributed

from pairgrad.distributed import EXCHANGES, Communicator, RankError, Watch, shard
from pairgrad_paper.training.meeting import meet

WRAPS = ("ddp", "fsdp")
TIMEOUT = 600.0  # seconds
_NETWORK = ("gloo", "nccl", "connection", "broken pipe", "timed out", "timeout", "socket", "process group", "store")  # words of backends


class ProcessError(RuntimeError):
    """The processes cannot share this run."""


class Elsewhere(RuntimeError):
    """Another process had to stop, and reports why; this one stops with it."""


@dataclass(frozen=True)
class Sharing:
    """How several processes share a run.

    Attributes:
        class_parallel: processes that share the classes of the bank out; the others hold the same classes and see other samples.
        exchange: how banks are synchronized, see [`distribute`][pairgrad.distributed.distribute].
        wrap: `"ddp"`, every process has all weights; `"fsdp"`, they share the weights out too.
        timeout: seconds after which a process that waits for another gives up.
        reshare: whether a run may resume with another number of processes or other options.
    """

    class_parallel: int = 1
    exchange: str = "auto"
    wrap: str = "ddp"
    timeout: float = TIMEOUT
    reshare: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (("exchange", self.exchange, EXCHANGES), ("wrap", self.wrap, WRAPS)):
            if value not in known:
                raise ProcessError(f"--{name} must be one of {', '.join(known)}, got {value!r}")
        if not 0 < self.timeout < 1e9:
            raise ProcessError(f"--timeout must be a positive number of seconds, got {self.timeout:g}")

    def facts(self) -> dict[str, Any]:
        """What changes bits: sums are taken in another order."""
        return {key: value for key, value in asdict(self).items() if key not in ("timeout", "reshare")}

    def without_effect(self) -> str | None:
        """A sentence for a single process that was given options for several."""
        given = [
            f"--{key.replace('_', '-')}" for key, value in asdict(self).items() if value != getattr(Sharing(), key) and key != "reshare"
        ]
        if not given:
            return None
        return f"{', '.join(given)} without effect: there is one process. torchrun --nproc-per-node N -m pairgrad train ... starts several"


@dataclass(frozen=True)
class Process:
    """Which of how many. Without torchrun: the only one."""

    rank: int = 0
    world: int = 1
    local: int = 0
    sharing: Sharing = field(default_factory=Sharing)

    @classmethod
    def here(cls, sharing: Sharing | None = None) -> Process:
        """From what torchrun sets in the environment. A ProcessError if the processes cannot share a run in this way."""
        sharing = Sharing() if sharing is None else sharing
        read = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        if read["RANK"] is None or read["WORLD_SIZE"] is None:
            found = cls(sharing=sharing)
        else:
            found = cls(int(read["RANK"]), int(read["WORLD_SIZE"]), int(read["LOCAL_RANK"] or 0), sharing)
        if found.world % sharing.class_parallel:
            there = "there is one process" if found.world == 1 else f"there are {found.world} processes"
            raise ProcessError(
                f"--class-parallel must divide the number of processes, got {sharing.class_parallel} and {there}: "
                "use another number, or start others with torchrun --nproc-per-node N -m pairgrad train ..."
            )
        return found

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, name: str, size: int) -> int:
        """What one process takes of `size`."""
        if size % self.world:
            raise ProcessError(
                f"{name} must be a multiple of the {self.world} processes, got {size}: use --set {name}=... or other --nproc-per-node"
            )
        return size // self.world

    def check_classes(self, number: int) -> None:
        """A ProcessError if sharing the classes out leaves a process without any."""
        ranks = self.sharing.class_parallel
        first, last = shard(number, ranks, ranks - 1)
        if first == last:
            raise ProcessError(
                f"--class-parallel {ranks} leaves a process without any of the {number} classes, in shards of {-(-number // ranks)}: "
                "use a smaller number"
            )

    def device(self, asked: str | None, dtype: torch.dtype = torch.float32) -> torch.device:
        """The device of this process: as asked, else a GPU if there is one, else the CPU. A ProcessError if it cannot compute in `dtype`."""
        name = asked if asked is not None else ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(name)
            if device.type == "cuda" and device.index is None:
                device = torch.device("cuda", self.local)
            torch.zeros(1, dtype=dtype, device=device).item()  # the device "meta" has no numbers
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ProcessError(f"device {name!r} cannot be used here: {reason}. Leave --device away, or give cpu") from None
        return device

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        """With the process group, where there are several processes. After an error it is left as it is: closing it could wait for what failed."""
        if self.world == 1:
            yield
            return
        from torch.distributed.rendezvous import rendezvous

        if device.type == "cuda":
            torch.cuda.set_device(device)
        limit = timedelta(seconds=self.sharing.timeout)
        try:
            store, _, _ = next(rendezvous("env://", self.rank, self.world, timeout=limit))
            store = meet(store, self.rank, self.world, self.sharing.timeout)
            backend = "nccl" if device.type == "cuda" else "gloo"
            distributed.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=limit)
        except RankError:
            raise
        except RuntimeError as error:
            call = "run: joining"
            raise RankError(
                f"rank {self.rank} of {self.world}, in {call!r}: the processes could not be connected. The backend said: {str(error).splitlines()[0]}",
                call,
            ) from error
        watch = Watch.here()
        try:
            yield
        except (RankError, Elsewhere):
            raise
        except BaseException as error:
            self.say(f"stopped with {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            raise
        if watch is not None:
            watch.stop()
        distributed.destroy_process_group()

    def say(self, why: str) -> None:
        """Leave word for the processes that will miss this one."""
        watch = Watch.here() if self.world > 1 else None
        if watch is not None:
            watch.leave_word((self.rank,), f"rank {self.rank} {why}")

    @cached_property
    def groups(self) -> tuple[Any, Any]:
        """The processes that hold the same classes, and those that share the classes out, next to one another; None: this process alone.

        All processes must ask for them alike, once.
        """
        if self.world == 1:
            return None, None
        ranks, limit = self.sharing.class_parallel, timedelta(seconds=self.sharing.timeout)  # groups do not inherit it
        if ranks == 1:
            return distributed.group.WORLD, None
        if ranks == self.world:
            return None, distributed.group.WORLD
        rows = torch.arange(self.world).view(-1, ranks)
        with self.watched("making groups"):
            data, _ = distributed.new_subgroups_by_enumeration(rows.T.tolist(), timeout=limit)
            classes, _ = distributed.new_subgroups_by_enumeration(rows.tolist(), timeout=limit)
        self.barrier("making groups")  # one that is ready and dies would otherwise leave others connecting, until the timeout
        return data, classes

    def __getstate__(self) -> dict[str, Any]:
        """Without groups: processes that read ahead have none."""
        return {"rank": self.rank, "world": self.world, "local": self.local, "sharing": self.sharing}

    def everyone(self) -> Communicator:
        return Communicator("run", distributed.group.WORLD if self.world > 1 else None)

    def any(self, flag: bool, what: str = "a question") -> bool:
        """Whether the flag is set anywhere."""
        return flag if self.world == 1 else bool(self.everyone().total(what, self._number(int(flag))))

    def barrier(self, what: str = "waiting") -> None:
        self.any(False, what)

    def mean(self, tensor: torch.Tensor, what: str = "a mean") -> torch.Tensor:
        """Over the processes; detached."""
        if self.world == 1:
            return tensor.detach()
        return self.everyone().total(what, tensor.detach().clone()) / self.world

    def require_equal(self, what: str, name: str, value: int) -> None:
        """A RankError on every process if one has another value."""
        if self.world > 1:
            everyone = self.everyone()
            everyone.require_equal(what, everyone.headers(what, [value], self._number(0).device), [name])

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """A block that may fail in one process and must succeed in all: where it fails, the others raise `Elsewhere`."""
        try:
            yield
        except RankError:
            raise
        except Exception:
            self.any(True, what)
            raise
        if self.any(False, what):
            raise Elsewhere(f"another process failed in 'run: {what}', and says why")

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Around collectives that torch makes by itself: if one fails, a `RankError` says who is missing."""
        watch = Watch.here() if self.world > 1 else None
        if watch is None:
            yield
            return
        call = f"run: {what}"
        watch.enter(call)
        try:
            yield
        except RankError:
            raise
        except RuntimeError as error:
            if not _of_the_network(error):
                raise
            raise watch.explain(call, tuple(rank for rank in range(self.world) if rank != self.rank), error) from error
        finally:
            watch.leave()

    def _number(self, value: int) -> torch.Tensor:
        on_gpu = distributed.get_backend() == "nccl"
        return torch.tensor(value, device=torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu"))


def _of_the_network(error: RuntimeError) -> bool:
    """Whether a collective failed, and not a computation beside it."""
    return isinstance(error, distributed.DistError) or any(word in str(error).lower() for word in _NETWORK)
