"""The same numbers in other places of memory: what a kernel that takes every tensor for contiguous misreads."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

Layout = Callable[[torch.Tensor], torch.Tensor]


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a buffer, from the second on."""
    buffer = tensor.new_zeros((*tensor.shape, 2))
    buffer[..., 1] = tensor
    return buffer[..., 1]


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The first dimension is the one whose elements lie next to each other."""
    return tensor.movedim(0, -1).contiguous().movedim(-1, 0) if tensor.ndim > 1 else strided(tensor)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """A part of a larger tensor, in every dimension."""
    buffer = tensor.new_full([size + 2 for size in tensor.shape], 3.0)
    part = buffer[tuple(slice(1, -1) for _ in tensor.shape)]
    part.copy_(tensor)
    return part


def offset(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous, but not at the beginning of its storage."""
    buffer = tensor.new_full((tensor.numel() + 3,), 3.0)
    part = buffer[3:].view(tensor.shape)
    part.copy_(tensor)
    return part


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """The memory format of images and volumes."""
    return tensor.contiguous(memory_format=torch.channels_last if tensor.ndim == 4 else torch.channels_last_3d)


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """One number for all elements, which do not move in memory: what sum() sends back. Only for tensors whose elements are equal."""
    return tensor.reshape(-1)[:1].clone().reshape(()).expand(tensor.shape)


def swapped(tensor: torch.Tensor) -> torch.Tensor:
    """Matrices stored by columns."""
    return tensor.mT.contiguous().mT


def expanded_along(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Its first slice for all others, which do not move in memory: what a sum or mean over one dimension sends back."""
    return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)


def layouts_of(ndim: int, chosen: Collection[str] | None = None) -> dict[str, Layout]:
    """By what a message calls them, for a tensor of this many dimensions: all of them, or those chosen."""
    known: dict[str, Layout] = {"an offset": offset, "a strided": strided} if ndim else {"an offset": offset}
    if ndim > 1:
        known |= {"a transposed": transposed, "a sliced": sliced}
    if ndim > 2:
        known["a column-major"] = swapped
    known |= {"a channels-last": channels_last} if ndim in (4, 5) else {}
    return {name: layout for name, layout in known.items() if chosen is None or name in chosen}
