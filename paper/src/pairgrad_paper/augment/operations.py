"""The operations that policies choose from, done to the images of a batch that want them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from pairgrad_paper.augment import colour
from pairgrad_paper.augment.host import on
from pairgrad_paper.augment.warp import Matrix, warp


class Action(NamedTuple):
    """One operation on one image."""

    name: str
    value: float = 0.0  # the factor, angle in degrees, shear, shift as a share of the side, threshold or number of bits
    interpolation: str = "nearest"  # of the geometric ones


_LEVELS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "AutoContrast": lambda images, value: colour.autocontrast(images),
    "Brightness": colour.brightness,
    "Color": colour.saturation,
    "Contrast": colour.contrast,
    "Equalize": lambda images, value: colour.equalize(images),
    "Invert": lambda images, value: colour.invert(images),
    "Posterize": lambda images, value: colour.posterize(images, value.long()),
    "Sharpness": colour.sharpness,
    "Solarize": colour.solarize,
    "SolarizeAdd": colour.solarize_add,
}


def _rotation(degrees: float, height: int, width: int) -> Matrix:
    """Counter-clockwise, about the middle."""
    cos, sin = (round(function(math.radians(degrees)), 15) for function in (math.cos, math.sin))  # so that quarter turns are exact
    x, y = width / 2, height / 2
    return cos, -sin, x - (cos * x - sin * y), sin, cos, y - (sin * x + cos * y)


_MATRICES: dict[str, Callable[[float, int, int], Matrix]] = {
    "Rotate": _rotation,
    "ShearX": lambda value, height, width: (1, value, 0, 0, 1, 0),
    "ShearY": lambda value, height, width: (1, 0, 0, value, 1, 0),
    "TranslateX": lambda value, height, width: (1, 0, value * width, 0, 1, 0),
    "TranslateY": lambda value, height, width: (1, 0, 0, 0, 1, value * height),
}

OPERATIONS = tuple(sorted([*_LEVELS, *_MATRICES]))


def perform(images: torch.Tensor, actions: Sequence[Action | None], fill: Sequence[int]) -> torch.Tensor:
    """Each image after its action, or as it was: uint8 (B, C, H, W). Images with the same operation are done together."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, action in enumerate(actions):
        if action is not None:
            groups[action.name, action.interpolation].append(i)
    result = images.clone() if groups else images
    height, width = images.shape[2:]
    for (name, interpolation), members in groups.items():
        values = [action.value for action in map(actions.__getitem__, members) if action is not None]
        indices = on(images.device, members, torch.int64)
        some = images.index_select(0, indices)
        if name in _MATRICES:
            done = warp(some, [_MATRICES[name](value, height, width) for value in values], interpolation, fill)
        else:
            done = _LEVELS[name](some.float(), on(images.device, values, torch.float32)).to(torch.uint8)
        result.index_copy_(0, indices, done)
    return result
