"""Affine maps against loops over pixels in exact arithmetic, and against Pillow."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from pairgrad_paper.augment.operations import Action, perform
from pairgrad_paper.augment.warp import warp
from paper.tests.augment.samples import images

GIVEN = images(6, height=9, width=11)
FILL = (10, 128, 250)
MATRICES = [
    (1.0, 0.25, -0.5, 0.0, 1.0, 0.0),
    (0.875, -0.3, 2.0, 0.3, 0.875, -1.25),
    (1.0, 0.0, -3.0, 0.0, 1.0, 2.0),
    (0.5, 0.0, 1.1, 0.0, 2.0, -0.7),
    (-1.0, 0.0, 11.0, 0.0, 1.0, 0.0),
    (1.0, 0.0, 0.4, 0.13, 1.0, 0.0),
]


def point(matrix, x: int, y: int) -> tuple[Fraction, Fraction]:
    a, b, c, d, e, f = map(Fraction, matrix)
    u, v = Fraction(2 * x + 1, 2), Fraction(2 * y + 1, 2)
    return a * u + b * v + c, d * u + e * v + f


def level(channel: torch.Tensor, row: int, column: int) -> int:
    height, width = channel.shape
    return int(channel[min(max(row, 0), height - 1), min(max(column, 0), width - 1)])


def cubic_weights(t: float) -> list[float]:
    """Cubic convolution with parameter -1, at the distances 1 + t, t, 1 - t and 2 - t."""

    def weight(s: float) -> float:
        return s**3 - 2 * s**2 + 1 if s <= 1 else -(s**3) + 5 * s**2 - 8 * s + 4

    return [weight(1 + t), weight(t), weight(1 - t), weight(2 - t)]


def slow(channel: torch.Tensor, matrix, x: int, y: int, interpolation: str, fill: int) -> float:
    height, width = channel.shape
    px, py = point(matrix, x, y)
    if not (0 <= px < width and 0 <= py < height):
        return fill
    if interpolation == "nearest":
        return level(channel, math.floor(py), math.floor(px))
    px, py = px - Fraction(1, 2), py - Fraction(1, 2)
    column, row = math.floor(px), math.floor(py)
    dx, dy = float(px - column), float(py - row)
    if interpolation == "bilinear":
        weights, first = ([1 - dx, dx], [1 - dy, dy]), 0
    else:
        weights, first = (cubic_weights(dx), cubic_weights(dy)), -1
    total = sum(
        wy * wx * level(channel, row + first + i, column + first + j) for i, wy in enumerate(weights[1]) for j, wx in enumerate(weights[0])
    )
    return min(255.0, max(0.0, total))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_every_pixel_is_the_one_of_a_loop(interpolation: str) -> None:
    """Interpolated levels are rounded down: at most one below, and 2e-3 of float32 (levels up to 8 * 255 in between, a dozen roundings) apart."""
    got = warp(GIVEN, MATRICES, interpolation, FILL)
    assert got.dtype == torch.uint8
    for image, result, matrix in zip(GIVEN, got, MATRICES, strict=True):
        for c in range(3):
            for y in range(9):
                for x in range(11):
                    expected = slow(image[c], matrix, x, y, interpolation, FILL[c])
                    if interpolation == "nearest":
                        assert result[c, y, x] == expected
                    else:
                        assert -2e-3 <= expected - int(result[c, y, x]) < 1 + 2e-3, (matrix, x, y, result[c, y, x], expected)


EXACT = {  # where points meet the seams between pixels, and rounding decides
    "Rotate": [0, 1e-9, 6.5, 20 / 3, 15, -29.3, 30, 45, 60, 90, -90, 180, 270, 359.9],
    "ShearX": [0, 0.1, 0.2, 0.25, 0.27, -0.3, 1 / 3, 0.5],
    "ShearY": [0, 0.1, 0.2, 0.25, 0.27, -0.3, 1 / 3, 0.5],
    "TranslateX": [0, 0.1, 0.4, -0.25, 150 / 331, 0.45],
    "TranslateY": [0, 0.1, 0.4, -0.25, 150 / 331, 0.45],
}


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("name", EXACT)
def test_operations_are_those_of_pillow(name: str, interpolation: str) -> None:
    """Within a level, since Pillow interpolates in double precision; all pixels of the nearest kind are equal."""
    Image = pytest.importorskip("PIL.Image")
    kind = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}[interpolation]
    values = EXACT[name] + (np.random.default_rng(0).uniform(-1, 1, 40) * (45 if name == "Rotate" else 0.5)).tolist()
    for height, width in ((32, 32), (31, 37)):
        given = images(len(values), height=height, width=width)
        got = perform(given, [Action(name, value, interpolation) for value in values], FILL)
        for image, result, value in zip(given, got, values, strict=True):
            picture = Image.fromarray(image.permute(1, 2, 0).numpy())
            if name == "Rotate":
                expected = picture.rotate(value, resample=kind, fillcolor=FILL)
            else:
                b, d = value * (name == "ShearX"), value * (name == "ShearY")
                c, f = value * width * (name == "TranslateX"), value * height * (name == "TranslateY")
                expected = picture.transform((width, height), Image.AFFINE, (1, b, c, d, 1, f), kind, fillcolor=FILL)
            distance = (torch.from_numpy(np.array(expected)).permute(2, 0, 1).int() - result.int()).abs()
            assert distance.max() <= (0 if interpolation == "nearest" else 1), (value, height, width)


def test_shifts_show_what_is_to_the_right_or_below() -> None:
    right = perform(GIVEN, [Action("TranslateX", 3 / 11)] * 6, FILL)
    assert torch.equal(right[..., :8], GIVEN[..., 3:])
    assert torch.equal(right[..., 8:], torch.tensor(FILL, dtype=torch.uint8).view(1, 3, 1, 1).expand(6, 3, 9, 3))
    below = perform(GIVEN, [Action("TranslateY", -2 / 9)] * 6, FILL)
    assert torch.equal(below[:, :, 2:], GIVEN[:, :, :7])


def test_actions_go_to_their_images() -> None:
    given = images(8)
    actions = [
        Action("Invert"),
        None,
        Action("Solarize", 100),
        Action("Invert"),
        Action("Brightness", 0.5),
        None,
        Action("Rotate", 9),
        Action("Rotate", -9),
    ]
    together = perform(given, actions, FILL)
    for i, action in enumerate(actions):
        assert torch.equal(together[i : i + 1], perform(given[i : i + 1], [action], FILL))
    assert torch.equal(together[1], given[1])
    assert torch.equal(together[3], 255 - given[3])
    assert not torch.equal(perform(given[6:7], actions[6:7], FILL), perform(given[6:7], actions[7:8], FILL))
