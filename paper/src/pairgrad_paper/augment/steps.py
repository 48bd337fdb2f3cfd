"""Steps that keep the size: flip, colour jitter, grey, cutout, noise, small affine maps, and the normalisation that ends a pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from pairgrad_paper.augment import colour
from pairgrad_paper.augment.draws import bells, integers, permutations, uniform, uniforms
from pairgrad_paper.augment.host import on, where
from pairgrad_paper.augment.step import Step, check_range
from pairgrad_paper.augment.warp import Matrix, warp

_JITTERS: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...]
_JITTERS = (colour.brightness, colour.contrast, colour.saturation, colour.hue)


@dataclass(frozen=True)
class HorizontalFlip(Step):
    """Left and right exchanged, with a probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_range("probability", self.probability)

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        flipped = on(images.device, uniform(keys, 0) < self.probability)
        return torch.where(flipped.view(-1, 1, 1, 1), images.flip(3), images)

    def words(self) -> str:
        return f"flip (p {self.probability:g})"


@dataclass(frozen=True)
class ColorJitter(Step):
    """Brightness, contrast and saturation by factors uniform in [1 - s, 1 + s] (not below 0), and hue by a turn uniform in [-h, h], in random order.

    All four with `probability`, or none. An entry of 0 leaves its operation out. Saturation and hue need three channels.
    """

    brightness: float
    contrast: float
    saturation: float = 0.0
    hue: float = 0.0
    probability: float = 1.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            check_range(name, getattr(self, name), 0, math.inf)
        check_range("hue", self.hue, 0, 0.5)
        check_range("probability", self.probability)

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        some = where(uniform(keys, 0) < self.probability)
        if not some.numel():
            return images
        keys, indices = keys[some], on(images.device, some)
        strengths = (self.brightness, self.contrast, self.saturation, self.hue)
        factors = [uniform(keys, 1 + k, max(0.0, 1 - s), 1 + s) for k, s in enumerate(strengths[:3])]
        factors.append(uniform(keys, 4, -self.hue, self.hue))
        order = permutations(keys, 5, 4)
        work = images.index_select(0, indices).float()
        for turn in range(4):
            for k, operation in enumerate(_JITTERS):
                mine = where(order[:, turn] == k)
                if strengths[k] > 0 and mine.numel():
                    there = on(images.device, mine)
                    work.index_copy_(0, there, operation(work.index_select(0, there), on(images.device, factors[k][mine], torch.float32)))
        return images.index_copy(0, indices, work.to(torch.uint8))

    def words(self) -> str:
        strengths = ", ".join(f"{s:g}" for s in (self.brightness, self.contrast, self.saturation, self.hue))
        return f"colour jitter ({strengths}; p {self.probability:g})"


@dataclass(frozen=True)
class Grayscale(Step):
    """All channels replaced by the luma, with a probability."""

    probability: float = 0.2

    def __post_init__(self) -> None:
        check_range("probability", self.probability)

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        indices = on(images.device, where(uniform(keys, 0) < self.probability))
        some = images.index_select(0, indices)
        return images.index_copy(0, indices, colour.grey(some.float()).to(torch.uint8).expand_as(some))

    def words(self) -> str:
        return f"grey (p {self.probability:g})"


@dataclass(frozen=True)
class Cutout(Step):
    """A black square of `length` pixels; its middle is uniform over the image, and what hangs over the border is lost."""

    length: int = 16

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        inside = []
        for slot, side in enumerate(images.shape[2:]):
            first = integers(keys, slot, side).unsqueeze(1) - self.length // 2
            places = torch.arange(side)
            inside.append(on(images.device, (places >= first) & (places < first + 2 * (self.length // 2))))
        rows, columns = inside
        return images.masked_fill((rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1), 0)

    def words(self) -> str:
        return f"cutout ({self.length} pixels)"


@dataclass(frozen=True)
class Affine(Step):
    """A turn uniform in [-degrees, degrees] and a horizontal shear uniform in [-shear, shear], about the middle; bilinear, black outside."""

    degrees: float
    shear: float = 0.0

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[2:]
        matrices = [self._matrix(height, width, *(2 * u - 1 for u in row)) for row in uniforms(keys, 0, 2).tolist()]
        return warp(images, matrices, "bilinear", (0,) * images.shape[1])

    def _matrix(self, height: int, width: int, turn: float, lean: float) -> Matrix:
        cos, sin = math.cos(math.radians(turn * self.degrees)), math.sin(math.radians(turn * self.degrees))
        a, b, d, e = cos, cos * lean * self.shear + sin, -sin, cos - sin * lean * self.shear
        return a, b, width / 2 - a * width / 2 - b * height / 2, d, e, height / 2 - d * width / 2 - e * height / 2

    def words(self) -> str:
        return f"turn up to {self.degrees:g} degrees, shear up to {self.shear:g}"


@dataclass(frozen=True)
class Noise(Step):
    """Bell-shaped noise of standard deviation `deviation` (1 is the whole range of levels), drawn for every pixel and rounded to a level."""

    deviation: float

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        drawn = bells(on(images.device, keys), 0, images[0].numel()).view(images.shape)
        return (images + drawn.mul_(255 * self.deviation)).add_(0.5).floor_().clamp_(0, 255).to(torch.uint8)

    def words(self) -> str:
        return f"noise ({self.deviation:g})"


@dataclass(frozen=True)
class Normalize(Step):
    """Levels divided by 255, less the mean, over the standard deviation, for each channel: float32. The last step of every pipeline."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    random: ClassVar[bool] = False

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        mean, deviation = (on(images.device, values, torch.float32).view(1, -1, 1, 1) for values in (self.mean, self.deviation))
        return images.float().div_(255).sub_(mean).div_(deviation)

    def words(self) -> str:
        mean, deviation = (", ".join(f"{v:g}" for v in values) for values in (self.mean, self.deviation))
        return f"normalise by ({mean}) / ({deviation})"
