"""A set of images: in memory or mapped from one file, or as files that are decoded when asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from pairgrad.ground import describe
from pairgrad_paper.data.pictures import decode


class Images(Protocol):
    """A set of images, with or without labels.

    Attributes:
        name: what the set is called in messages and records.
        labels: int64 (N,), or None.
        note: what was found or left out, in one sentence; empty if there is nothing to say.
    """

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> torch.Tensor | None: ...

    @property
    def note(self) -> str: ...

    def __len__(self) -> int: ...

    def image(self, index: int) -> torch.Tensor:
        """One image, uint8 (C, H, W)."""
        ...

    def subset(self, indices: torch.Tensor | Sequence[int]) -> Images:
        """The images at `indices`, in that order, with their labels."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class ArrayImages:
    """Images of one size in one uint8 tensor (N, C, H, W), which may be a view of a mapped file.

    Examples:
        >>> pair = ArrayImages("grey", torch.tensor([[[[0]]], [[[255]]]], dtype=torch.uint8))
        >>> len(pair), pair.image(1).tolist(), pair.batch(torch.tensor([1, 1])).shape
        (2, [[[255]]], torch.Size([2, 1, 1, 1]))
    """

    name: str
    images: torch.Tensor
    labels: torch.Tensor | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.images, torch.Tensor) or self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(f"images must be a uint8 tensor (N, C, H, W), got {_brief(self.images)}")
        _check_labels(self.labels, len(self.images))

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> torch.Tensor:
        return self.images[_position(index, len(self))]

    def batch(self, indices: torch.Tensor) -> torch.Tensor:
        """The images at `indices` (int64 (B,)), uint8 (B, C, H, W)."""
        return self.images.index_select(0, indices)

    def subset(self, indices: torch.Tensor | Sequence[int]) -> ArrayImages:
        chosen = _indices(indices, len(self))
        return replace(self, images=self.batch(chosen), labels=None if self.labels is None else self.labels[chosen])

    def __repr__(self) -> str:
        return f"ArrayImages({self.name!r}, {len(self)} images of shape {tuple(self.images.shape[1:])})"


@dataclass(frozen=True, eq=False, repr=False)
class FileImages:
    """Images in files under one folder, decoded to three channels one at a time; their sizes may differ.

    Attributes:
        root: the folder.
        paths: the files, relative to it, with forward slashes.
    """

    name: str
    root: Path
    paths: tuple[str, ...]
    labels: torch.Tensor | None = None
    note: str = ""

    def __post_init__(self) -> None:
        _check_labels(self.labels, len(self.paths))

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, index: int) -> torch.Tensor:
        """One image, uint8 (3, H, W); a DataError names the file if it cannot be decoded."""
        return decode(os.path.join(self.root, self.paths[_position(index, len(self))]))

    def subset(self, indices: torch.Tensor | Sequence[int]) -> FileImages:
        chosen = _indices(indices, len(self))
        paths = tuple(self.paths[i] for i in chosen.tolist())
        return replace(self, paths=paths, labels=None if self.labels is None else self.labels[chosen])

    def __repr__(self) -> str:
        return f"FileImages({self.name!r}, {len(self)} files)"


def _check_labels(labels: Any, count: int) -> None:
    if labels is None:
        return
    if not isinstance(labels, torch.Tensor) or labels.dtype != torch.int64 or labels.shape != (count,):
        raise ValueError(f"labels must be None or an int64 tensor of shape ({count},), got {_brief(labels)}")


def _brief(value: Any) -> str:
    return describe(value) if isinstance(value, torch.Tensor) else f"an object of type {type(value).__name__}"


def _position(index: int, count: int) -> int:
    # A negative position would silently be another image, and a loop over the sequence protocol needs the IndexError.
    if not 0 <= index < count:
        raise IndexError(f"index must be from 0 to {count - 1}, got {index}")
    return int(index)


def _indices(indices: torch.Tensor | Sequence[int], count: int) -> torch.Tensor:
    chosen = torch.as_tensor(indices)
    if chosen.numel() == 0:
        return torch.zeros(0, dtype=torch.int64)
    if chosen.ndim != 1 or chosen.dtype in (torch.bool, torch.uint8) or chosen.is_floating_point():
        raise ValueError(f"indices must be integers of shape (M,), got {_brief(chosen)}: use mask.nonzero().flatten() for a mask")
    if chosen.min() < 0 or chosen.max() >= count:
        raise IndexError(f"indices must be from 0 to {count - 1}, got values from {int(chosen.min())} to {int(chosen.max())}")
    return chosen.to("cpu", torch.int64)
