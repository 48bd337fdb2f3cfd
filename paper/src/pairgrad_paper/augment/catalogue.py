"""The pipelines by name: those of PATT and ProCo with the numbers of their public code, and small ones for the digits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pairgrad_paper.augment.pipeline import Pipeline
from pairgrad_paper.augment.policies import AutoAugmentCIFAR10, RandAugment
from pairgrad_paper.augment.sizing import CentreCrop, RandomCrop, RandomResizedCrop, Resize
from pairgrad_paper.augment.step import Step
from pairgrad_paper.augment.steps import Affine, ColorJitter, Cutout, Grayscale, HorizontalFlip, Noise, Normalize

CIFAR10 = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
IMAGENET = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
INATURALIST = Normalize((0.466, 0.471, 0.380), (0.195, 0.194, 0.192))
DIGITS = Normalize((0.305,), (0.376,))  # of the 1797 images of 8 x 8 pixels, with their levels 0 to 16 spread over 0 to 255

_FLIP = HorizontalFlip(0.5)
_COLOURS: tuple[Step, ...] = (ColorJitter(0.4, 0.4, 0.4, 0.1, probability=0.8), Grayscale(0.2))
_POLICY: tuple[Step, ...] = (AutoAugmentCIFAR10(), Cutout(16))
_RANDAUGMENT: tuple[Step, ...] = (ColorJitter(0.4, 0.4, 0.4, 0.0), RandAugment(count=2, magnitude=10, deviation=0.5))


def _contrast(size: int, last: Normalize, scale: tuple[float, float] = (0.08, 1.0)) -> tuple[Step, ...]:
    return RandomResizedCrop(size, scale), _FLIP, *_COLOURS, last


def _regular(last: Normalize) -> tuple[Step, ...]:
    return RandomResizedCrop(224), _FLIP, *_RANDAUGMENT, last


# PATT's regular view of CIFAR crops 32 of 32 pixels without padding, which changes nothing; ProCo's pads by 4. PATT normalises outliers, and what it
# calibrates on, with the mean and deviation of ImageNet, and everything else of CIFAR-10 and CIFAR-100 with those of CIFAR-10. Both are kept.
_STEPS: dict[str, tuple[int, tuple[Step, ...]]] = {
    "patt-cifar-regular": (32, (RandomCrop(32), _FLIP, *_POLICY, CIFAR10)),
    "patt-cifar-contrast": (32, _contrast(32, CIFAR10)),
    "patt-cifar-outliers": (32, (RandomCrop(32, padding=4), _FLIP, *_COLOURS, IMAGENET)),
    "patt-cifar-calibration": (32, (RandomCrop(32, padding=4), _FLIP, IMAGENET)),
    "proco-cifar-regular": (32, (RandomCrop(32, padding=4), _FLIP, *_POLICY, CIFAR10)),
    "proco-cifar-contrast": (32, _contrast(32, CIFAR10)),
    "cifar-cpu-regular": (32, (RandomCrop(32), _FLIP, *_POLICY, CIFAR10)),
    "cifar-test": (32, (Resize(32), CIFAR10)),
    "patt-imagenet-regular": (224, _regular(IMAGENET)),
    "patt-imagenet-contrast": (224, _contrast(224, IMAGENET)),
    "patt-imagenet-outliers": (224, _contrast(224, IMAGENET, scale=(0.2, 1.0))),
    "proco-imagenet-regular": (224, _regular(IMAGENET)),
    "proco-imagenet-contrast": (224, _contrast(224, IMAGENET)),
    "imagenet-test": (224, (CentreCrop(224, shorter=256), IMAGENET)),
    "inat-regular": (224, _regular(INATURALIST)),
    "inat-contrast": (224, _contrast(224, INATURALIST)),
    "inat-test": (224, (CentreCrop(224, shorter=256), INATURALIST)),
    "digits-regular": (8, (RandomCrop(8, padding=1), Affine(10, shear=0.1), ColorJitter(0.2, 0.0), DIGITS)),
    "digits-contrast": (8, (RandomResizedCrop(8, (0.6, 1.0)), ColorJitter(0.4, 0.4, probability=0.8), Noise(0.03), DIGITS)),
    "digits-outliers": (8, (RandomCrop(8, padding=1), ColorJitter(0.4, 0.4, probability=0.8), DIGITS)),
    "digits-test": (8, (Resize(8), DIGITS)),
}

PIPELINES: Mapping[str, Pipeline] = MappingProxyType({name: Pipeline(name, size, steps) for name, (size, steps) in _STEPS.items()})


def pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Examples:
        >>> pipeline("patt-cifar-calibration").describe()
        'patt-cifar-calibration: crop of 32 pixels after padding 4, flip (p 0.5), normalise by (0.485, 0.456, 0.406) / (0.229, 0.224, 0.225)'
    """
    if name not in PIPELINES:
        raise ValueError(f"name must be one of {', '.join(map(repr, PIPELINES))}, got {name!r}")
    return PIPELINES[name]
