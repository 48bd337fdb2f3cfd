"""Pipelines by name: what they consist of, and what they say to wrong arguments."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
import torch
from scipy import stats

from pairgrad_paper.augment import (
    PIPELINES,
    AutoAugmentCIFAR10,
    ColorJitter,
    Cutout,
    Grayscale,
    HorizontalFlip,
    Normalize,
    Pipeline,
    RandAugment,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    pipeline,
    sample_keys,
)
from paper.tests.augment.samples import images

CIFAR = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
INAT = Normalize((0.466, 0.471, 0.380), (0.195, 0.194, 0.192))
JITTER, GREY, FLIP = ColorJitter(0.4, 0.4, 0.4, 0.1, probability=0.8), Grayscale(0.2), HorizontalFlip(0.5)


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["patt-cifar-regular", "cifar-cpu-regular"], (RandomCrop(32), FLIP, AutoAugmentCIFAR10(), Cutout(16), CIFAR)),
        (["proco-cifar-regular"], (RandomCrop(32, padding=4), FLIP, AutoAugmentCIFAR10(), Cutout(16), CIFAR)),
        (["patt-cifar-contrast", "proco-cifar-contrast"], (RandomResizedCrop(32, (0.08, 1.0), (3 / 4, 4 / 3)), FLIP, JITTER, GREY, CIFAR)),
        (["patt-cifar-outliers"], (RandomCrop(32, padding=4), FLIP, JITTER, GREY, IMAGENET)),
        (["patt-cifar-calibration"], (RandomCrop(32, padding=4), FLIP, IMAGENET)),
        (["cifar-test"], (Resize(32), CIFAR)),
        (
            ["patt-imagenet-regular", "proco-imagenet-regular"],
            (
                RandomResizedCrop(224, (0.08, 1.0)),
                FLIP,
                ColorJitter(0.4, 0.4, 0.4, 0.0),
                RandAugment(2, 10, 0.5, (124, 116, 104)),
                IMAGENET,
            ),
        ),
        (["patt-imagenet-contrast", "proco-imagenet-contrast"], (RandomResizedCrop(224, (0.08, 1.0)), FLIP, JITTER, GREY, IMAGENET)),
        (["patt-imagenet-outliers"], (RandomResizedCrop(224, (0.2, 1.0)), FLIP, JITTER, GREY, IMAGENET)),
        (["inat-contrast"], (RandomResizedCrop(224, (0.08, 1.0)), FLIP, JITTER, GREY, INAT)),
    ],
)
def test_the_steps_are_the_published_ones(names: list[str], steps: tuple) -> None:
    for name in names:
        assert pipeline(name).steps == steps


def test_names_sizes_and_channels() -> None:
    assert len(PIPELINES) == 21
    for name, chosen in PIPELINES.items():
        assert chosen.name == name
        assert chosen.size == (8 if "digits" in name else 32 if "cifar" in name else 224)
        assert chosen.channels == (1 if "digits" in name else 3)
        assert not ("digits" in name and any(isinstance(step, HorizontalFlip) for step in chosen.steps))
        assert chosen.describe().startswith(f"{name}: ")
        assert "\n" not in chosen.describe()
        assert chosen.describe().count("normalise by") == 1


def test_cifar_test_images_are_only_normalised() -> None:
    given = images(3)
    expected = (given.float() / 255 - torch.tensor(CIFAR.mean).view(3, 1, 1)) / torch.tensor(CIFAR.deviation).view(3, 1, 1)
    assert torch.equal(pipeline("cifar-test")(given, torch.zeros(3, dtype=torch.int64)), expected)


def test_pipelines_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        pipeline("cifar-test").size = 64  # type: ignore[misc]
    with pytest.raises(TypeError):
        PIPELINES["mine"] = pipeline("cifar-test")  # type: ignore[index]


def test_pipelines_go_to_worker_processes() -> None:
    for chosen in PIPELINES.values():
        assert pickle.loads(pickle.dumps(chosen)) == chosen


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"name must be one of 'patt-cifar-regular', .*'digits-test', got 'cifar'"):
        pipeline("cifar")


KEYS = sample_keys(0, 0, torch.arange(4), "view-1")


@pytest.mark.parametrize(
    ("given", "keys", "error", "message"),
    [
        (torch.rand(4, 3, 32, 32), KEYS, TypeError, r"images must be a uint8 tensor of shape \(B, 3, H, W\).*got a float32 tensor"),
        (None, KEYS, TypeError, "images must be a uint8 tensor"),
        (images(4)[0], KEYS, ValueError, r"images must have shape \(B, 3, H, W\).*got a uint8 tensor of shape \(3, 32, 32\)"),
        (images(4, channels=1), KEYS, ValueError, r"images must have shape \(B, 3, H, W\).*repeated with .expand"),
        (images(4)[..., :0], KEYS, ValueError, "images must have shape"),
        (images(4), KEYS[:3], ValueError, r"keys must be an int64 tensor of shape \(4,\).*got a int64 tensor of shape \(3,\).*sample_keys"),
        (images(4), KEYS.int(), ValueError, "keys must be an int64 tensor"),
        (images(4), KEYS.tolist(), ValueError, "keys must be an int64 tensor"),
    ],
)
def test_bad_arguments_of_a_call(given, keys, error, message: str) -> None:
    with pytest.raises(error, match=message):
        pipeline("patt-cifar-contrast")(given, keys)


def test_bad_arguments_of_prepare_and_after() -> None:
    chosen = pipeline("patt-imagenet-contrast")
    with pytest.raises(ValueError, match=r"images must be 224 x 224 after prepare"):
        chosen.after(images(4), KEYS)
    with pytest.raises(ValueError, match=r"image must have shape \(3, H, W\)"):
        chosen.prepare(images(4), 1)
    with pytest.raises(TypeError, match="image must be a uint8 tensor"):
        chosen.prepare(images(4)[0].float(), 1)
    for key in (2**63, -(2**63) - 1):
        with pytest.raises(ValueError, match="key must be an"):
            chosen.prepare(images(4)[0], key)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((), "must begin with those that give images their size"),
        ((FLIP, CIFAR), "must begin with those that give images their size"),
        ((Resize(32), FLIP, Resize(8), CIFAR), "must begin with those that give images their size"),
        ((Resize(32), FLIP), "must have one Normalize, at the end"),
        ((Resize(32), CIFAR, FLIP), "must have one Normalize, at the end"),
    ],
)
def test_bad_steps(steps: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline("mine", 32, steps)


def test_steps_draw_independently() -> None:
    """Two flips in a row: half of the images end flipped. If both had the same draw, none would."""
    twice = Pipeline("twice", 2, (Resize(2), HorizontalFlip(), HorizontalFlip(), Normalize((0.0,), (1.0,))))
    given = torch.tensor([[0, 255], [0, 255]], dtype=torch.uint8).expand(4000, 1, 2, 2)
    flipped = twice(given, sample_keys(0, 0, torch.arange(4000), "view-1"))[:, 0, 0, 0] == 1
    assert stats.binomtest(int(flipped.sum()), 4000).pvalue > 1e-6


def test_images_of_any_size_are_prepared() -> None:
    chosen = pipeline("patt-imagenet-outliers")
    for height, width in ((10, 30), (300, 200), (224, 224)):
        image = images(1, height=height, width=width)[0]
        prepared = chosen.prepare(image, -5)
        assert prepared.shape == (3, 224, 224)
        assert torch.equal(prepared, chosen.prepare(image, -5))
        assert not torch.equal(prepared, chosen.prepare(image, -4))
