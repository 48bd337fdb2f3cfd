"""What is measured: a step that can be run, and put back to where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch


class Step(Protocol):
    """`run` is the boundary of every measurement; `restore` happens outside of it."""

    def run(self) -> torch.Tensor | None:
        """Update the banks with each view, score it, and send the gradient of the loss to the features; returns the loss, if there is one."""
        ...

    def restore(self) -> None:
        """State and gradient as they were before `run`."""
        ...


class Snapshot:
    """The part of a state that a step changes: of tensors with one row per class, the rows of the labels; of others everything.

    `tensors` looks the state up by name each time, so that tensors may be replaced as well as written to.
    """

    def __init__(self, tensors: Callable[[], Mapping[str, torch.Tensor]], num_classes: int, labels: torch.Tensor) -> None:
        self._tensors = tensors
        self._num_classes = num_classes
        self._rows = labels.unique()
        self._kept = {name: self._part(tensor).clone() for name, tensor in tensors().items()}

    def _by_class(self, tensor: torch.Tensor) -> bool:
        return tensor.ndim > 0 and tensor.shape[0] == self._num_classes

    def _part(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()[self._rows] if self._by_class(tensor) else tensor.detach()

    @torch.no_grad()
    def restore(self) -> None:
        for name, tensor in self._tensors().items():
            if self._by_class(tensor):
                tensor[self._rows] = self._kept[name]
            else:
                tensor.copy_(self._kept[name])
