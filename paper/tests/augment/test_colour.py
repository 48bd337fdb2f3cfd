"""Operations on levels against Pillow and colorsys, which know nothing of batches."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from pairgrad_paper.augment import colour
from paper.tests.augment.samples import images

Image = pytest.importorskip("PIL.Image")
from PIL import ImageEnhance, ImageOps  # noqa: E402

GIVEN = images(24)


def by_pillow(operation: Callable) -> torch.Tensor:
    """What Pillow makes of each of the images."""
    done = [operation(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in GIVEN]
    return torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in done])


def same_for_all(value: float) -> torch.Tensor:
    return torch.full((len(GIVEN),), value)


@pytest.mark.parametrize("factor", [0.0, 0.1, 0.37, 1.0, 1.63, 1.9])
@pytest.mark.parametrize(
    ("operation", "enhancer"),
    [
        (colour.brightness, ImageEnhance.Brightness),
        (colour.contrast, ImageEnhance.Contrast),
        (colour.saturation, ImageEnhance.Color),
        (colour.sharpness, ImageEnhance.Sharpness),
    ],
)
def test_enhancements_are_those_of_pillow(operation, enhancer, factor: float) -> None:
    got = operation(GIVEN.float(), same_for_all(factor))
    assert torch.equal(got, by_pillow(lambda image: enhancer(image).enhance(factor)).float())


def test_factors_belong_to_their_images() -> None:
    factors = torch.linspace(0.2, 1.8, len(GIVEN))
    for operation in (colour.brightness, colour.contrast, colour.saturation, colour.sharpness):
        each = [operation(GIVEN[i : i + 1].float(), factors[i : i + 1]) for i in range(len(GIVEN))]
        assert torch.equal(operation(GIVEN.float(), factors), torch.cat(each))


def test_equalize_and_invert_are_those_of_pillow() -> None:
    assert torch.equal(colour.equalize(GIVEN.float()), by_pillow(ImageOps.equalize).float())
    assert torch.equal(colour.invert(GIVEN.float()), by_pillow(ImageOps.invert).float())


def test_equalize_of_few_pixels_changes_nothing() -> None:
    """Fewer than 255 pixels below the highest level: Pillow's step is 0."""
    small = GIVEN[:, :, :8, :8].float()
    assert torch.equal(colour.equalize(small), small)


@pytest.mark.parametrize("bits", range(1, 9))
def test_posterize_is_that_of_pillow(bits: int) -> None:
    got = colour.posterize(GIVEN.float(), torch.full((len(GIVEN),), bits))
    assert torch.equal(got, by_pillow(lambda image: ImageOps.posterize(image, bits)).float())


@pytest.mark.parametrize("threshold", [0, 113.78, 128, 200, 256])
def test_solarize_is_that_of_pillow(threshold: float) -> None:
    got = colour.solarize(GIVEN.float(), same_for_all(threshold))
    assert torch.equal(got, by_pillow(lambda image: ImageOps.solarize(image, threshold)).float())


def test_solarize_add() -> None:
    table = torch.tensor([min(255, level + 110) if level < 128 else level for level in range(256)])
    assert torch.equal(colour.solarize_add(GIVEN.float(), same_for_all(110)), table[GIVEN.long()].float())


def test_autocontrast_is_exact_and_within_a_level_of_pillow() -> None:
    got = colour.autocontrast(GIVEN.float())
    assert (got - by_pillow(ImageOps.autocontrast).float()).abs().max() <= 1
    for channels, results in zip(GIVEN, got, strict=True):
        for channel, result in zip(channels, results, strict=True):
            low, high = int(channel.min()), int(channel.max())
            expected = channel if low == high else (channel.long() - low) * 255 // (high - low)
            assert torch.equal(result, expected.float())


def test_grey_is_that_of_pillow() -> None:
    expected = [np.array(Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")) for image in GIVEN]
    assert torch.equal(colour.grey(GIVEN.float())[:, 0], torch.from_numpy(np.stack(expected)).float())
    one = GIVEN[:, :1].float()
    assert torch.equal(colour.grey(one), one)


def test_contrast_of_one_channel() -> None:
    got = colour.contrast(GIVEN[:, :1].float(), same_for_all(1.4))
    for image, result in zip(GIVEN[:, 0], got[:, 0], strict=True):
        expected = ImageEnhance.Contrast(Image.fromarray(image.numpy())).enhance(1.4)
        assert torch.equal(result, torch.from_numpy(np.array(expected)).float())


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.03, 0.25, 1 / 3])
def test_hue_is_that_of_colorsys(turn: float) -> None:
    """Half a level for rounding to levels, and 1e-3 for float32 (levels up to 255, a dozen roundings of 2**-24 relative)."""
    some = GIVEN[[0, 1, 5, 7], :, :12, :12]
    got = colour.hue(some.float(), torch.full((4,), turn))
    for image, result in zip(some.double() / 255, got, strict=True):
        for y in range(12):
            for x in range(12):
                h, s, v = colorsys.rgb_to_hsv(*image[:, y, x].tolist())
                expected = torch.tensor(colorsys.hsv_to_rgb((h + turn) % 1, s, v)) * 255
                assert (result[:, y, x] - expected).abs().max() <= 0.501, (x, y, result[:, y, x], expected)


def test_hue_of_no_turn_and_of_a_full_one_changes_nothing() -> None:
    for turn in (0.0, 1.0, -1.0):
        assert torch.equal(colour.hue(GIVEN.float(), same_for_all(turn)), GIVEN.float())
