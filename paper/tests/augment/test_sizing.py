"""Crops and resizing: which part is taken, and that the resized levels are Pillow's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from pairgrad_paper.augment import CentreCrop, RandomCrop, RandomResizedCrop, Resize, sample_keys
from pairgrad_paper.augment.resample import resample, taps
from paper.tests.augment.samples import images

FALSE_ALARM = 1e-6
KEYS = sample_keys(2, 0, torch.arange(20_000), "crops")


def pillow(image: torch.Tensor, box: tuple[int, int, int, int], height: int, width: int) -> torch.Tensor:
    """(top, left, height, width) of the image, cropped and resized by Pillow: the width first, then the height, whatever order the version prefers."""
    Image = pytest.importorskip("PIL.Image")
    top, left, h, w = box
    part = Image.fromarray(image.permute(1, 2, 0).numpy()).crop((left, top, left + w, top + h))
    resized = part.resize((width, h), Image.BILINEAR).resize((width, height), Image.BILINEAR)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)


@pytest.mark.parametrize(
    "size", [(32, 32), (20, 31), (9, 5), (31, 33), (60, 100), (64, 64), (130, 140), (1, 1), (3, 80), (33, 31), (100, 20)]
)
def test_resizing_is_that_of_pillow(size: tuple[int, int]) -> None:
    given = images(3, height=size[0], width=size[1])
    expected = torch.stack([pillow(image, (0, 0, *size), 32, 32) for image in given])
    assert torch.equal(Resize(32)(given, KEYS[:3]), expected)


def test_resizing_against_the_triangle_filter() -> None:
    """Each pass is a weighted mean rounded to a level, so two passes stay within one level (and the roundings of 22 bits) of the exact mean."""

    def weights(length: int, size: int) -> torch.Tensor:
        scale = length / size
        rows = [[max(0.0, 1 - abs((j + 0.5 - (i + 0.5) * scale) / max(scale, 1.0))) for j in range(length)] for i in range(size)]
        matrix = torch.tensor(rows, dtype=torch.float64)
        return matrix / matrix.sum(1, keepdim=True)

    given = images(4, height=50, width=23)
    exact = weights(50, 32) @ given.double() @ weights(23, 32).T
    assert (Resize(32)(given, KEYS[:4]) - exact).abs().max() <= 1.001


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (150, 200, 64)])
def test_resized_crops_are_those_of_pillow(height: int, width: int, size: int) -> None:
    given = images(12, height=height, width=width)
    step = RandomResizedCrop(size)
    got = step(given, KEYS[:12])
    for image, result, box in zip(given, got, step.boxes(KEYS[:12], height, width), strict=True):
        assert torch.equal(pillow(image, box, size, size), result)


def test_a_part_of_the_taps() -> None:
    start, length = torch.tensor([2, 5]), torch.tensor([17, 40])
    whole, part = taps(start, length, 20), taps(start, length, 20, first=3, count=9)
    assert torch.equal(part.places, whole.places[:, 3:12])
    assert torch.equal(part.weight, whole.weight[:, 3:12])
    assert whole.places[0].min() == 2
    assert whole.places[0].max() == 18
    given = images(2, height=50, width=50)
    assert torch.equal(resample(given, part, whole), resample(given, whole, whole)[:, :, 3:12])


def test_boxes_lie_inside_and_follow_their_law() -> None:
    """Large images, where nearly every draw fits and rounding is small: area and logarithm of the ratio are uniform, and so is the place."""
    boxes = torch.tensor(RandomResizedCrop(32, scale=(0.2, 0.5)).boxes(KEYS, 1000, 1000), dtype=torch.float64)
    top, left, height, width = boxes.unbind(1)
    assert bool(((top >= 0) & (left >= 0) & (top + height <= 1000) & (left + width <= 1000)).all())
    area = (height * width / 1e6 - 0.2) / 0.3
    ratio = (width / height).log() / (2 * math.log(4 / 3)) + 0.5
    for unit in (area, ratio, top / (1000 - height + 1), left / (1000 - width + 1)):
        assert (
            stats.kstest((unit + 1e-4).clamp(0, 1).numpy(), "uniform").statistic < 0.025
        )  # 1/sqrt(20000) * 2.7 has a rate of 1e-6; 0.005 for whole pixels


def test_boxes_of_the_published_scale() -> None:
    boxes = torch.tensor(RandomResizedCrop(32).boxes(KEYS[:10_000], 32, 32))
    assert boxes[:, 2:].min() >= 7  # sqrt(0.08 * 3/4) * 32 = 7.8
    assert boxes[:, 2:].amax(0).tolist() == [32, 32]
    areas = boxes[:, 2] * boxes[:, 3] / 1024
    assert 0.07 <= areas.min() < 0.09
    assert len({tuple(box) for box in boxes.tolist()}) > 4000
    for place, side in ((0, 2), (1, 3)):
        for length in range(20, 26):
            counts = torch.bincount(boxes[boxes[:, side] == length, place], minlength=33 - length)
            assert stats.chisquare(counts.numpy()).pvalue > FALSE_ALARM  # every place that fits, the last one too


def test_a_box_that_never_fits_is_the_middle() -> None:
    """Nothing with a ratio up to 4/3 covers all of an image ten times as wide as high."""
    step = RandomResizedCrop(8, scale=(1.0, 1.0))
    assert step.boxes(KEYS[:3], 10, 100) == [(0, 43, 10, 13)] * 3
    assert step.boxes(KEYS[:3], 100, 10) == [(43, 0, 13, 10)] * 3


def test_random_crop_shows_a_window_of_the_padded_image() -> None:
    given = images(120)
    got = RandomCrop(32, padding=4)(given, KEYS[:120])
    padded = torch.nn.functional.pad(given, [4] * 4)
    windows = padded.unfold(2, 32, 1).unfold(3, 32, 1)  # (B, C, 9, 9, 32, 32)
    matches = (windows == got[:, :, None, None]).all(dim=(1, 4, 5))
    noisy = torch.arange(0, 120, 2)
    assert bool((matches[noisy].sum((1, 2)) == 1).all())
    places = matches[noisy].nonzero()[:, 1:]
    assert places.unique(dim=0).shape[0] > 35


def test_random_crop_places_are_uniform() -> None:
    ramp = (torch.arange(3).view(1, 3) + 2 * torch.arange(3).view(3, 1) + 1).to(torch.uint8).expand(20_000, 1, 3, 3)
    corner = RandomCrop(1)(ramp, KEYS).flatten().long()
    counts = torch.bincount(corner, minlength=8)[1:]
    weights = torch.bincount(ramp[0].flatten().long(), minlength=8)[1:].double() / 9
    assert stats.chisquare(counts.numpy(), (weights * 20_000).numpy()).pvalue > FALSE_ALARM


def test_random_crop_without_padding_of_an_image_of_that_size() -> None:
    given = images(5)
    assert torch.equal(RandomCrop(32)(given, KEYS[:5]), given)


def test_random_crop_of_a_small_image() -> None:
    with pytest.raises(ValueError, match="sides of at least 24 pixels for a crop of 32 pixels after padding 4, got 20 x 40"):
        RandomCrop(32, padding=4)(images(2, height=20, width=40), KEYS[:2])


@pytest.mark.parametrize(("height", "width"), [(90, 120), (120, 90), (65, 65), (64, 200)])
def test_centre_crop_is_that_of_pillow(height: int, width: int) -> None:
    given = images(2, height=height, width=width)
    resized = 64 * height // min(height, width), 64 * width // min(height, width)
    top, left = (round((side - 48) / 2) for side in resized)
    got = CentreCrop(48, shorter=64)(given, KEYS[:2])
    for image, result in zip(given, got, strict=True):
        assert torch.equal(result, pillow(image, (0, 0, height, width), *resized)[:, top : top + 48, left : left + 48])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomResizedCrop(8, scale=(0.5, 0.4)), r"scale\[0\] must lie in \[0, 0.4\], got 0.5"),
        (lambda: RandomResizedCrop(8, scale=(0.5, 1.4)), r"scale\[1\] must lie in \[0, 1\], got 1.4"),
        (lambda: RandomResizedCrop(8, ratio=(0.0, 1.4)), r"ratio\[0\] must lie in"),
        (lambda: CentreCrop(8, shorter=7), r"size must lie in \[1, 7\], got 8"),
    ],
)
def test_bad_arguments(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
