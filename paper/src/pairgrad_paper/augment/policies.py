"""AutoAugment's policy for CIFAR-10, and RandAugment: random choices among the operations."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch

from pairgrad_paper.augment.draws import integers, uniforms
from pairgrad_paper.augment.operations import Action, perform
from pairgrad_paper.augment.step import Step

# The 25 sub-policies found on CIFAR-10 (Cubuk et al. 2019, appendix): two operations, each with its probability and a magnitude from 0 to 9.
CIFAR10_POLICY = (
    (("Invert", 0.1, 7), ("Contrast", 0.2, 6)),
    (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
    (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
    (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.5, 8), ("Equalize", 0.9, 2)),
    (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
    (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
    (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
    (("Equalize", 0.6, 5), ("Equalize", 0.5, 1)),
    (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
    (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
    (("Equalize", 0.3, 7), ("AutoContrast", 0.4, 8)),
    (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
    (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
    (("Solarize", 0.5, 2), ("Invert", 0.0, 3)),
    (("Equalize", 0.2, 0), ("AutoContrast", 0.6, 0)),
    (("Equalize", 0.2, 8), ("Equalize", 0.6, 4)),
    (("Color", 0.9, 9), ("Equalize", 0.6, 6)),
    (("AutoContrast", 0.8, 4), ("Solarize", 0.2, 8)),
    (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
    (("Solarize", 0.4, 5), ("AutoContrast", 0.9, 3)),
    (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.9, 2), ("Solarize", 0.8, 3)),
    (("Equalize", 0.8, 8), ("Invert", 0.1, 3)),
    (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, 1)),
)

_ENHANCEMENTS = ("Brightness", "Color", "Contrast", "Sharpness")


@dataclass(frozen=True)
class AutoAugmentCIFAR10(Step):
    """One of the 25 sub-policies that AutoAugment found on CIFAR-10, drawn uniformly; each of its two operations is done with its probability.

    Magnitude 9 is a shear of 0.3, a shift of 150/331 of the side, a turn of 30 degrees, a factor of 1 + 0.9, 4 bits, or the threshold 0; magnitude 0 is
    no change. Shears, shifts and factors get a random sign. As in the code that PATT and ProCo use, a turn has none: it is always counter-clockwise.
    There, too, a shear leaves the upper (or left) edge where it is and is bicubic, turns and shifts take the nearest pixel, and what comes from outside is
    grey (128).
    """

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        policy = [CIFAR10_POLICY[i] for i in integers(keys, 0, len(CIFAR10_POLICY)).tolist()]
        draws = uniforms(keys, 1, 4).tolist()  # for each of the two operations: whether, and the sign
        for turn in range(2):
            actions = []
            for pair, numbers in zip(policy, draws, strict=True):
                name, probability, magnitude = pair[turn]
                sign = 1 if numbers[2 * turn + 1] < 0.5 else -1
                actions.append(self.action(name, magnitude, sign) if numbers[2 * turn] < probability else None)
            images = perform(images, actions, fill=(128,) * images.shape[1])
        return images

    @staticmethod
    def action(name: str, magnitude: int, sign: int) -> Action:
        """What an operation of magnitude 0 to 9 does."""
        share = magnitude / 9
        if name in _ENHANCEMENTS:
            return Action(name, 1 + sign * 0.9 * share)
        if name in ("ShearX", "ShearY"):
            return Action(name, sign * 0.3 * share, "bicubic")
        if name in ("TranslateX", "TranslateY"):
            return Action(name, sign * 150 / 331 * share)
        if name == "Rotate":
            return Action(name, 30 * share)
        if name == "Posterize":
            return Action(name, round(8 - 4 * share))
        if name == "Solarize":
            return Action(name, 256 * (9 - magnitude) / 9)
        return Action(name)

    def words(self) -> str:
        return "AutoAugment (CIFAR-10 policy)"


RANDAUGMENT_OPERATIONS = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "Rotate",
    "Posterize",
    "Solarize",
    "SolarizeAdd",
    "Color",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
)


@dataclass(frozen=True)
class RandAugment(Step):
    """`count` operations of fifteen, drawn with replacement; each is done with probability 1/2, at a magnitude that is normal and clipped to [0, 10].

    Magnitude 10 is a turn of 30 degrees, a shear of 0.3, a shift of 0.45 of the side (each with a random sign), a factor of 1.9, 4 bits, the threshold
    256 or an addition of 110. At magnitude 0 the factor is 0.1, the bits are 0 and the threshold is 0: for these, as in the code that PATT and ProCo use
    ("rand-n2-m10-mstd0.5"), a larger magnitude is not a stronger change. Interpolation is bilinear or bicubic, at random; `fill` comes from outside.
    """

    count: int = 2
    magnitude: float = 10.0
    deviation: float = 0.5
    fill: tuple[int, ...] = (124, 116, 104)  # the mean of ImageNet

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        for turn in range(self.count):
            names = integers(keys, 5 * turn, len(RANDAUGMENT_OPERATIONS)).tolist()
            draws = uniforms(keys, 5 * turn + 1, 4).tolist()
            actions = [
                self.action(RANDAUGMENT_OPERATIONS[k], self._drawn_magnitude(u[1]), 1 if u[2] < 0.5 else -1, u[3] < 0.5)
                if u[0] < 0.5
                else None
                for k, u in zip(names, draws, strict=True)
            ]
            images = perform(images, actions, self.fill)
        return images

    def _drawn_magnitude(self, number: float) -> float:
        normal = NormalDist().inv_cdf(min(max(number, 2.0**-53), 1 - 2.0**-53))
        return min(10.0, max(0.0, self.magnitude + self.deviation * normal))

    @staticmethod
    def action(name: str, magnitude: float, sign: int, bilinear: bool) -> Action:
        """What an operation of magnitude 0 to 10 does."""
        share = magnitude / 10
        how = "bilinear" if bilinear else "bicubic"
        if name in _ENHANCEMENTS:
            return Action(name, 0.1 + 1.8 * share)
        if name in ("ShearX", "ShearY"):
            return Action(name, sign * 0.3 * share, how)
        if name in ("TranslateX", "TranslateY"):
            return Action(name, sign * 0.45 * share, how)
        if name == "Rotate":
            return Action(name, sign * 30 * share, how)
        wholes = {"Posterize": 4, "Solarize": 256, "SolarizeAdd": 110}
        return Action(name, int(wholes[name] * share)) if name in wholes else Action(name)

    def words(self) -> str:
        return f"RandAugment ({self.count} operations, magnitude {self.magnitude:g} +- {self.deviation:g})"
