"""One process, or one of several that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed


class ProcessError(RuntimeError):
    """The processes cannot share this run."""


@dataclass(frozen=True)
class Process:
    """Which of how many. Without torchrun: the only one."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @classmethod
    def here(cls) -> Process:
        """From what torchrun sets in the environment."""
        read = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        if read["RANK"] is None or read["WORLD_SIZE"] is None:
            return cls()
        return cls(int(read["RANK"]), int(read["WORLD_SIZE"]), int(read["LOCAL_RANK"] or 0))

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

    def device(self, asked: str | None, dtype: torch.dtype = torch.float32) -> torch.device:
        """The device of this process: as asked, else a GPU if there is one, else the CPU. A ProcessError if it cannot compute in `dtype`."""
        name = asked or ("cuda" if torch.cuda.is_available() else "cpu")
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
        """With the process group, where there are several processes."""
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=self.rank, world_size=self.world)
        try:
            yield
        finally:
            distributed.destroy_process_group()

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set anywhere."""
        if self.world == 1:
            return flag
        value = torch.tensor(int(flag), device=device)
        distributed.all_reduce(value, op=distributed.ReduceOp.MAX)
        return bool(value)

    def barrier(self) -> None:
        if self.world > 1:
            distributed.barrier()

    def gathered(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """The tensors of all processes behind one another; derivatives flow to this one's own."""
        if self.world == 1:
            return tensor
        parts = [torch.zeros_like(tensor) for _ in range(self.world)]
        distributed.all_gather(parts, tensor.detach().contiguous())
        parts[self.rank] = tensor
        return torch.cat(parts, dim)

    def mean(self, tensor: torch.Tensor) -> torch.Tensor:
        """Over the processes; detached."""
        if self.world == 1:
            return tensor.detach()
        total = tensor.detach().clone()
        distributed.all_reduce(total)
        return total / self.world
