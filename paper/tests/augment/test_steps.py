"""Steps that keep the size: what they do to an image, and how often."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats

from pairgrad_paper.augment import (
    Affine,
    ColorJitter,
    Cutout,
    Grayscale,
    HorizontalFlip,
    Noise,
    Normalize,
    colour,
    sample_keys,
    steps,
)
from paper.tests.augment.samples import images

FALSE_ALARM = 1e-6
KEYS = sample_keys(4, 0, torch.arange(20_000), "steps")


def assert_share(hits: torch.Tensor, probability: float) -> None:
    assert stats.binomtest(int(hits.sum()), hits.numel(), probability).pvalue > FALSE_ALARM


@pytest.mark.parametrize("probability", [0.5, 0.2])
def test_flip_flips(probability: float) -> None:
    given = torch.tensor([[[[1, 2]]]], dtype=torch.uint8).expand(20_000, 1, 1, 2)
    got = HorizontalFlip(probability)(given, KEYS).view(-1, 2)
    flipped = got[:, 0] == 2
    assert bool((got.sum(1) == 3).all())
    assert_share(flipped, probability)
    some = images(40)
    result = HorizontalFlip()(some, KEYS[:40])
    assert all(torch.equal(r, i) or torch.equal(r, i.flip(2)) for r, i in zip(result, some, strict=True))


@pytest.mark.parametrize("probability", [0.0, 0.2, 1.0])
def test_grey_is_grey(probability: float) -> None:
    given = torch.tensor([200, 20, 60], dtype=torch.uint8).view(1, 3, 1, 1).expand(20_000, 3, 1, 1)
    got = Grayscale(probability)(given, KEYS).view(-1, 3)
    grey = (got == round(0.299 * 200 + 0.587 * 20 + 0.114 * 60)).all(1)
    assert bool((grey | (got == given[0].view(3)).all(1)).all())
    assert_share(grey, probability)


def test_jitter_happens_with_its_probability() -> None:
    given = images(12)[4:5, :, :2, :2].expand(20_000, -1, -1, -1)
    got = ColorJitter(0.4, 0.4, 0.4, 0.1, probability=0.8)(given, KEYS)
    changed = (got != given).flatten(1).any(1)
    assert abs(changed.float().mean() - 0.8) < 0.02  # a few jitters change no level of four pixels; 1e-6 of 20000 is 0.014


def test_jitter_is_one_of_the_24_orders_of_its_operations() -> None:
    """Replayed with the factors it draws; each image must be one of the orders, and over many images all orders must be met."""
    given, keys = images(200)[4::2, :, :6, :6], KEYS[:98]
    step = ColorJitter(0.4, 0.5, 0.6, 0.1)
    from pairgrad_paper.augment.draws import uniform

    factors = [uniform(keys, 1, 0.6, 1.4), uniform(keys, 2, 0.5, 1.5), uniform(keys, 3, 0.4, 1.6), uniform(keys, 4, -0.1, 0.1)]
    operations = [colour.brightness, colour.contrast, colour.saturation, colour.hue]
    got = step(given, keys).float()
    met = set()
    matched = torch.zeros(98, dtype=torch.bool)
    for order in itertools.permutations(range(4)):
        work = given.float()
        for k in order:
            work = operations[k](work, factors[k].float())
        same = (work == got).flatten(1).all(1)
        matched |= same
        met |= {order} if bool(same.any()) else set()
    assert bool(matched.all())
    assert len(met) == 24


def test_jitter_leaves_out_what_has_strength_zero() -> None:
    level = torch.full((20_000, 1, 1, 1), 200, dtype=torch.uint8)
    brighter = ColorJitter(0.25, 0.0)(level, KEYS).flatten()
    assert 150 <= brighter.min() <= 151
    assert 248 <= brighter.max() <= 250
    counts = torch.bincount(brighter.long(), minlength=256)[150:250]
    assert stats.chisquare(counts.numpy()).pvalue > FALSE_ALARM
    assert torch.equal(ColorJitter(0.0, 0.4)(level, KEYS), level)  # a flat image is its own mean


def test_cutout_is_a_black_square_around_a_uniform_pixel() -> None:
    given = torch.full((20_000, 1, 8, 8), 9, dtype=torch.uint8)
    hole = Cutout(4)(given, KEYS)[:, 0] == 0
    rows, columns = hole.any(2), hole.any(1)
    assert torch.equal(hole, rows.unsqueeze(2) & columns.unsqueeze(1))
    middles = []
    for side in (rows, columns):
        first, last = side.int().argmax(1), 7 - side.flip(1).int().argmax(1)
        assert torch.equal(last - first + 1, side.sum(1))  # no gaps
        middles.append(torch.where(last < 7, last - 1, first + 2))  # the middle is the third of the four pixels
    assert stats.chisquare(torch.bincount(middles[0] * 8 + middles[1], minlength=64).numpy()).pvalue > FALSE_ALARM
    area = hole.sum((1, 2))
    assert area.max() == 16
    assert area.min() == 4  # a quarter, in the upper left corner


def test_cutout_keeps_the_rest() -> None:
    given = images(30).clamp(min=1)
    got = Cutout(16)(given, KEYS[:30])
    hole = got == 0
    assert torch.equal(got[~hole], given[~hole])
    assert torch.equal(hole[:, 0], hole[:, 1])
    assert hole[:, 0].sum((1, 2)).max() == 256


def test_affine_turns_and_shears_about_the_middle() -> None:
    given = images(40, channels=1, height=9, width=9)
    still = Affine(0.0)(given, KEYS[:40])
    assert torch.equal(still, given)
    turned = Affine(30, shear=0.2)(given, KEYS[:40])
    assert not torch.equal(turned, given)
    middle = (turned[:, 0, 4, 4].int() - given[:, 0, 4, 4].int()).abs()
    assert middle.max() <= 1  # the middle of the middle pixel stays, and levels are rounded down


def test_affine_draws_its_turn_and_shear(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Affine(10, shear=0.1)
    seen: list = []
    monkeypatch.setattr(steps, "warp", lambda images, matrices, *rest: seen.extend(matrices))
    step(torch.zeros(20_000, 1, 8, 8, dtype=torch.uint8), KEYS)
    a, b, _, d, e, _ = torch.tensor(seen, dtype=torch.float64).unbind(1)
    turn = torch.atan2(-d, a)
    lean = (b - turn.sin()) / turn.cos()
    assert torch.allclose(a * e - b * d, torch.ones_like(a))  # areas are kept
    for number, largest in ((turn, math.radians(10)), (lean, 0.1)):
        assert stats.kstest((number / largest).numpy(), "uniform", args=(-1, 2)).pvalue > FALSE_ALARM
    assert abs(torch.corrcoef(torch.stack([turn, lean]))[0, 1]) < 0.035  # five deviations of 1/sqrt(20000)
    quarter = step._matrix(8, 8, 1.0, 0.0)
    assert quarter[:2] == pytest.approx((0.98480775, 0.17364818))
    assert step._matrix(8, 8, 0.0, 1.0) == pytest.approx((1, 0.1, -0.4, 0, 1, 0))
    assert step._matrix(8, 8, 0.0, -1.0) == pytest.approx((1, -0.1, 0.4, 0, 1, 0))


def test_noise_has_its_deviation() -> None:
    given = torch.full((300, 1, 8, 8), 100, dtype=torch.uint8)
    noise = Noise(0.03)(given, KEYS[:300]).double() - 100
    expected = ((0.03 * 255) ** 2 + 1 / 12) ** 0.5  # rounding to levels adds a twelfth to the variance
    assert noise.std().item() == pytest.approx(expected, rel=0.02)  # 5 deviations of the estimate from 19200 numbers
    assert abs(noise.mean()) < 5 * expected / 19200**0.5
    assert noise.abs().max() <= 0.03 * 255 * 3.47 + 0.5
    black = Noise(0.03)(torch.zeros_like(given), KEYS[:300])
    assert black.max() < 30  # clamped, not wrapped around


def test_normalize() -> None:
    given = images(4)
    got = Normalize((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))(given, KEYS[:4])
    expected = (given.double() / 255 - torch.tensor([0.4, 0.5, 0.6]).double().view(3, 1, 1)) / torch.tensor([0.2, 0.25, 0.3]).double().view(
        3, 1, 1
    )
    assert got.dtype == torch.float32
    assert (got - expected).abs().max() < 4 * 2**-23  # three roundings of numbers up to 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HorizontalFlip(1.5), r"probability must lie in \[0, 1\], got 1.5"),
        (lambda: Grayscale(-0.1), r"probability must lie in \[0, 1\], got -0.1"),
        (lambda: ColorJitter(-0.1, 0), "brightness must lie in"),
        (lambda: ColorJitter(0, 0, 0, 0.6), r"hue must lie in \[0, 0.5\], got 0.6"),
        (lambda: ColorJitter(0, 0, probability=2), "probability must lie in"),
    ],
)
def test_bad_arguments(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
