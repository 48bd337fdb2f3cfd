"""The one place where the library's own step is plugged in: `pairgrad.ProCoLoss`, eager and compiled."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

import pairgrad
from benchmarks.contestants import NotAvailable
from benchmarks.learning.step import Snapshot
from benchmarks.learning.workload import TEMPERATURE, Workload


class LibraryStep:
    """`ProCoLoss` with its banks filled as everybody's are; loss and backward are the step."""

    def __init__(self, workload: Workload, realization: str, *, compiled: bool) -> None:
        self._loss = _module(workload, realization, compiled=compiled)
        self._banks = _banks(self._loss)
        self._labels = workload.labels
        self.features = workload.features()
        self._snapshot = Snapshot(lambda: dict(self._loss.named_buffers()), workload.size.classes, self._labels)

    def run(self) -> torch.Tensor:
        value = self._loss(self.features, self._labels)
        value.backward()
        return value.detach()

    def restore(self) -> None:
        with ExitStack() as open_banks:
            for (
                bank
            ) in self._banks:  # their derived tensors are put back as well; else the next step would derive them again, for all classes
                open_banks.enter_context(bank.updating())
            self._snapshot.restore()
        self.features.grad = None


def _module(workload: Workload, realization: str, *, compiled: bool) -> torch.nn.Module:
    library: Any = pairgrad
    if not hasattr(library, "ProCoLoss"):
        raise NotAvailable("this version of pairgrad has no ProCoLoss")
    loss = library.ProCoLoss(
        num_classes=workload.size.classes,
        dim=workload.size.dim,
        temperature=TEMPERATURE,
        class_counts=workload.class_counts,
        memory="cumulative" if workload.streaming else "two-epochs",
        realization=realization,
        execution="compiled" if compiled else "eager",
    ).to(workload.device)
    for features, labels in workload.seen():
        for bank in _banks(loss):
            bank.update(features, labels)
    return loss


def _banks(loss: torch.nn.Module) -> list[Any]:
    library: Any = pairgrad
    return [module for module in loss.modules() if isinstance(module, library.ClassBank)]
