"""Resizing with the triangle filter in integers: every pixel is a sum of the same integers in the same order, whatever else is in the batch.

Pillow's rule for 8-bit images: horizontally, then vertically, with an 8-bit image between the two; weights rounded to 22 bits; the filter widens when
the image shrinks. The results are Pillow's, bit for bit; recent versions of Pillow go vertically first for some sizes, which moves levels by one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from pairgrad_paper.augment.host import on

_BITS = 22  # of a weight; 255 * 2**22 fits in an int32
_HALF = 1 << (_BITS - 1)
_LARGE = 128 * 128  # pixels of an image from which a batch is resized image by image, reading only what a crop needs


class Taps(NamedTuple):
    """For each output position, which input positions it reads and with which weights."""

    places: torch.Tensor  # (B, size, K), int64
    weight: torch.Tensor  # (B, size, K), int32, in units of 2**-22

    def of(self, i: int) -> Taps:
        """Those of one image, without the first dimension."""
        return Taps(self.places[i], self.weight[i])


def taps(start: torch.Tensor, length: torch.Tensor, size: int, first: int = 0, count: int | None = None) -> Taps:
    """Taps that resize the positions start, ..., start + length - 1 to `size` positions; of those, `count` from `first` on.

    Args:
        start: (B,), int64, on the host.
        length: (B,), int64, >= 1. Nothing outside of the part is read.
        size: of the whole result.
        first: leave out the positions before.
        count: how many positions; None for all.
    """
    scale = length.double().unsqueeze(1) / size  # (B, 1)
    centre = (torch.arange(first, first + (size if count is None else count)).double() + 0.5) * scale  # (B, count)
    support = scale.clamp(min=1.0)
    low = (centre - support + 0.5).clamp(min=0).floor()
    high = torch.minimum((centre + support + 0.5).floor(), length.double().unsqueeze(1))
    parts, total = [], torch.zeros_like(centre)
    for k in range(int((high - low).max())):
        part = (1 - ((low + k - centre + 0.5) * (1 / support)).abs()).clamp(min=0)
        part = torch.where(low + k < high, part, 0.0)
        parts.append(part)
        total = total + part
    weight = torch.stack([(part / total * 2.0**_BITS + 0.5).floor() for part in parts], -1)
    position = low.unsqueeze(-1) + torch.arange(len(parts))
    inside = torch.minimum(position, length.double().view(-1, 1, 1) - 1)  # positions past the end have weight 0
    return Taps(start.view(-1, 1, 1) + inside.long(), weight.int())


def resample(images: torch.Tensor, rows: Taps, columns: Taps) -> torch.Tensor:
    """uint8 (B, C, H, W) -> uint8 (B, C, number of rows, number of columns)."""
    batch, _, height, width = images.shape
    if batch == 1 or height * width > _LARGE:
        return torch.stack([_one(image, rows.of(i), columns.of(i)) for i, image in enumerate(images)])
    return _along(_along(images, columns, 3), rows, 2)


def _along(images: torch.Tensor, taps: Taps, dim: int) -> torch.Tensor:
    """Resize one dimension of a batch, 2 (rows) or 3 (columns)."""
    full, small = list(images.shape), [len(images), 1, 1, 1]
    full[dim] = small[dim] = taps.places.shape[1]
    places, weight = on(images.device, taps.places), on(images.device, taps.weight)
    total: torch.Tensor | int = _HALF
    for k in range(places.shape[2]):
        read = images.gather(dim, places[:, :, k].reshape(small).expand(full))
        total = read.int().mul_(weight[:, :, k].reshape(small)).add_(total)
    return _levels(total)


def _one(image: torch.Tensor, rows: Taps, columns: Taps) -> torch.Tensor:
    """Resize one image, (C, H, W), reading only what is needed, and whole lines of memory at a time."""
    down, across = _span(rows), _span(columns)
    lines = image[:, down, across].permute(2, 0, 1).contiguous()  # (W, C, H)
    lines = _lines(lines, columns, across.start).permute(2, 1, 0).contiguous()  # (H, C, number of columns)
    return _lines(lines, rows, down.start).permute(1, 0, 2)


def _lines(lines: torch.Tensor, taps: Taps, first: int) -> torch.Tensor:
    """Weighted sums of lines: uint8 (n, ., .) -> uint8 (size, ., .); the first line has the place `first`."""
    places, weight = on(lines.device, taps.places - first), on(lines.device, taps.weight)
    total: torch.Tensor | int = _HALF
    for k in range(places.shape[1]):
        total = lines.index_select(0, places[:, k]).int().mul_(weight[:, k].view(-1, 1, 1)).add_(total)
    return _levels(total)


def _span(taps: Taps) -> slice:
    return slice(int(taps.places.min()), int(taps.places.max()) + 1)


def _levels(total: torch.Tensor | int) -> torch.Tensor:
    assert isinstance(total, torch.Tensor)
    return (total >> _BITS).clamp_(0, 255).to(torch.uint8)
