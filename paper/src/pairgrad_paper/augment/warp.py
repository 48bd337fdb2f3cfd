"""Affine maps of images as Pillow does them. Points are float64 sums of products, one operation at a time: the same on every device and in every batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pairgrad.ground import widest
from pairgrad_paper.augment.host import on

Matrix = tuple[float, float, float, float, float, float]
_BITS = 32  # of the fraction of a coordinate


def warp(images: torch.Tensor, matrices: Sequence[Matrix], interpolation: str, fill: Sequence[int]) -> torch.Tensor:
    """The images seen through affine maps: uint8 (B, C, H, W) -> the same shape.

    The pixel in column x and row y shows the point (a u + b v + c, d u + e v + f) of the input, where u = x + 1/2 and v = y + 1/2 are the middle of the
    pixel. Points outside of the input show `fill`. Bicubic interpolation is the cubic convolution with parameter -1, and both interpolations round
    down, as in Pillow. The nearest pixels are Pillow's; interpolated levels, which Pillow computes in double precision, are within one level of its own.

    Args:
        images: uint8, (B, C, H, W).
        matrices: (a, b, c, d, e, f) for each image, on the host.
        interpolation: `"nearest"`, `"bilinear"` or `"bicubic"`.
        fill: one grey level for each channel.
    """
    _, channels, height, width = images.shape
    place = images.device if widest(images.device) is torch.float64 else torch.device("cpu")
    maps = torch.tensor([_as_pillow(matrix, interpolation) for matrix in matrices], dtype=torch.float64)
    a, b, c, d, e, f = on(place, maps).view(-1, 6, 1, 1).unbind(1)
    u = torch.arange(width, device=place, dtype=torch.float64) + 0.5
    v = torch.arange(height, device=place, dtype=torch.float64).unsqueeze(1) + 0.5
    x, y = _fixed(a * u + b * v + c).to(images.device), _fixed(d * u + e * v + f).to(images.device)  # (B, H, W)
    inside = (x >= 0) & (x >> _BITS < width) & (y >= 0) & (y >> _BITS < height)
    if interpolation == "nearest":
        seen = take(images, y >> _BITS, x >> _BITS)
    else:
        half = 1 << (_BITS - 1)
        seen = (_bilinear if interpolation == "bilinear" else _bicubic)(images, y - half, x - half)
    outside = on(images.device, fill, torch.uint8).view(1, channels, 1, 1)
    return torch.where(inside.unsqueeze(1), seen, outside)


def _as_pillow(matrix: Matrix, interpolation: str) -> Matrix:
    """For the nearest pixel of a map that turns or shears, Pillow rounds the map to 16 bits of fraction."""
    a, b, c, d, e, f = matrix
    if interpolation != "nearest" or (b == 0 and d == 0):
        return matrix
    a, b, start_x = (_rounded(step) for step in (a, b, c + a * 0.5 + b * 0.5))
    d, e, start_y = (_rounded(step) for step in (d, e, f + d * 0.5 + e * 0.5))
    return a, b, start_x - (a + b) / 2, d, e, start_y - (d + e) / 2


def _rounded(step: float) -> float:
    return math.floor(step * 2.0**16 + 0.5) / 2.0**16


def _fixed(coordinate: torch.Tensor) -> torch.Tensor:
    return (coordinate * 2.0**_BITS).floor().to(torch.int64)


def take(images: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """images[b, c, rows[b, y, x], columns[b, y, x]], with rows and columns moved to the nearest that exist."""
    batch, channels, height, width = images.shape
    index = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    flat = index.reshape(batch, 1, -1).expand(batch, channels, -1)
    return images.reshape(batch, channels, height * width).gather(2, flat).view(batch, channels, *index.shape[1:])


def _fraction(coordinate: torch.Tensor) -> torch.Tensor:
    """What lies behind the point, (B, 1, H, W), float32 of 24 bits."""
    return ((coordinate & ((1 << _BITS) - 1)) >> (_BITS - 24)).float().mul_(2.0**-24).unsqueeze(1)


def _bilinear(images: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows, columns, dx = y >> _BITS, x >> _BITS, _fraction(x)
    lines = []
    for i in range(2):
        left, right = (take(images, rows + i, columns + j).float() for j in range(2))
        lines.append(left + (right - left) * dx)
    return (lines[0] + (lines[1] - lines[0]) * _fraction(y)).to(torch.uint8)


def _bicubic(images: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows, columns, dx = y >> _BITS, x >> _BITS, _fraction(x)
    lines = [_cubic([take(images, rows + i, columns + j).float() for j in range(-1, 3)], dx) for i in range(-1, 3)]
    return _cubic(lines, _fraction(y)).clamp_(0, 255).to(torch.uint8)


def _cubic(points: Sequence[torch.Tensor], t: torch.Tensor) -> torch.Tensor:
    """The cubic that has the values of the two middle points at t = 0 and 1, and there the slopes p2 - p0 and p3 - p1."""
    p0, p1, p2, p3 = points
    return p1 + t * ((p2 - p0) + t * ((2 * (p0 - p1) + p2 - p3) + t * (p1 - p0 + p3 - p2)))
