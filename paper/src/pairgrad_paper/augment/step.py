"""What a step of a pipeline is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch


class Step(ABC):
    """One augmentation, applied to a batch with one key per image.

    A step is a frozen dataclass. Its parameters are drawn on the host from the keys alone, and what it does to an image depends on the image and its
    key alone: not on its place in the batch, and not on the other images.
    """

    sizing: ClassVar[bool] = False  # whether it takes images of any size and gives images of the size of the pipeline
    random: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """uint8 (B, C, H, W) on any device and int64 (B,) on the host -> uint8 (B, C, h, w); `Normalize` gives float32. B is at least 1."""

    @abstractmethod
    def words(self) -> str:
        """What it does, in a few words."""


def check_range(name: str, value: float, low: float = 0.0, high: float = 1.0) -> None:
    """A ValueError unless `value` lies in [low, high]."""
    if not low <= value <= high:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {value!r}")
