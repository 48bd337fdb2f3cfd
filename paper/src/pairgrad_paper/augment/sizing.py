"""Steps that take images of any size and give images of one size: crops and resizing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from pairgrad_paper.augment.draws import integers, uniforms
from pairgrad_paper.augment.host import on
from pairgrad_paper.augment.resample import Taps, resample, taps
from pairgrad_paper.augment.step import Step, check_range
from pairgrad_paper.augment.warp import take

_ATTEMPTS = 10  # at a crop that fits, before the largest central one is taken


@dataclass(frozen=True)
class RandomCrop(Step):
    """A square window at a random place of the image, after padding it with black on all sides.

    Without padding, an image that already has the size stays as it is.
    """

    size: int
    padding: int = 0
    sizing: ClassVar[bool] = True

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        height, width = (side + 2 * self.padding for side in images.shape[2:])
        if min(height, width) < self.size:
            raise ValueError(
                f"images must have sides of at least {self.size - 2 * self.padding} pixels for a {self.words()}, "
                f"got {images.shape[2]} x {images.shape[3]}: resize them first"
            )
        if (height, width) == (self.size, self.size):
            return images
        within = torch.arange(self.size)
        rows = on(images.device, integers(keys, 0, height - self.size + 1).unsqueeze(1) + within)
        columns = on(images.device, integers(keys, 1, width - self.size + 1).unsqueeze(1) + within)
        shape = (len(keys), self.size, self.size)
        return take(F.pad(images, [self.padding] * 4), rows.unsqueeze(2).expand(shape), columns.unsqueeze(1).expand(shape))

    def words(self) -> str:
        return f"crop of {self.size} pixels" + (f" after padding {self.padding}" if self.padding else " without padding")


@dataclass(frozen=True)
class RandomResizedCrop(Step):
    """A random part of the image, resized to a square with the triangle filter.

    The part has a share of the area that is uniform in `scale`, and a ratio of width to height whose logarithm is uniform in `ratio`. Up to ten draws
    are made until one fits into the image; after that, the part is the largest one in the middle whose ratio is allowed.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    sizing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range("scale[1]", self.scale[1])
        check_range("scale[0]", self.scale[0], 0, self.scale[1])
        check_range("ratio[0]", self.ratio[0], math.ulp(0), self.ratio[1])

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        top, left, height, width = torch.tensor(self.boxes(keys, *images.shape[2:])).unbind(1)
        return resample(images, taps(top, height, self.size), taps(left, width, self.size))

    def boxes(self, keys: torch.Tensor, height: int, width: int) -> list[tuple[int, int, int, int]]:
        """(top, left, height, width) of the part, for each key."""
        draws = uniforms(keys, 0, 2 * _ATTEMPTS + 2).tolist()
        return [self._box(numbers, height, width) for numbers in draws]

    def _box(self, numbers: list[float], height: int, width: int) -> tuple[int, int, int, int]:
        small, large = self.scale
        low, high = (math.log(end) for end in self.ratio)
        for first in range(0, 2 * _ATTEMPTS, 2):
            area = height * width * (small + numbers[first] * (large - small))
            ratio = math.exp(low + numbers[first + 1] * (high - low))
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < h <= height and 0 < w <= width:
                return int(numbers[-2] * (height - h + 1)), int(numbers[-1] * (width - w + 1)), h, w
        h, w = min(height, max(1, round(width / self.ratio[0]))), min(width, max(1, round(height * self.ratio[1])))
        return (height - h) // 2, (width - w) // 2, h, w

    def words(self) -> str:
        low, high = self.scale
        return f"random resized crop to {self.size} (area {low:g} to {high:g}, ratio {self.ratio[0]:.3g} to {self.ratio[1]:.3g})"


@dataclass(frozen=True)
class Resize(Step):
    """Both sides to `size` pixels; an image that has the size stays as it is."""

    size: int
    sizing: ClassVar[bool] = True
    random: ClassVar[bool] = False

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[2:]
        if (height, width) == (self.size, self.size):
            return images
        zeros = torch.zeros_like(keys)
        return resample(images, taps(zeros, zeros + height, self.size), taps(zeros, zeros + width, self.size))

    def words(self) -> str:
        return f"resize to {self.size}"


@dataclass(frozen=True)
class CentreCrop(Step):
    """The shorter side resized to `shorter` pixels, keeping the ratio, then the square of `size` pixels in the middle."""

    size: int
    shorter: int
    sizing: ClassVar[bool] = True
    random: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_range("size", self.size, 1, self.shorter)

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        sides = images.shape[2:]
        zeros = torch.zeros_like(keys)
        rows, columns = (self._taps(zeros, side, self.shorter * side // min(sides)) for side in sides)
        return resample(images, rows, columns)

    def _taps(self, zeros: torch.Tensor, side: int, resized: int) -> Taps:
        return taps(zeros, zeros + side, resized, first=round((resized - self.size) / 2), count=self.size)

    def words(self) -> str:
        return f"shorter side to {self.shorter}, centre crop of {self.size}"
