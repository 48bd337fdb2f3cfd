"""A pipeline: steps in order, from 8-bit images to a normalised batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pairgrad.ground import describe, integer_at_least
from pairgrad_paper.augment.draws import checked_keys, step_keys
from pairgrad_paper.augment.step import Step
from pairgrad_paper.augment.steps import Normalize


@dataclass(frozen=True)
class Pipeline:
    """Augmentations as one function of images and keys: what comes out for a sample depends on its image and its key, and on nothing else.

    A sample has the same bits alone, in any batch, at any place in it, and on any rank.

    All parameters are drawn on the host. Keep the keys on the CPU: images on another device are then augmented there without waiting for it. Keys that
    live on a device are copied to the host first.

    Args:
        name: how to ask for it.
        size: of the result, height and width.
        steps: first those that give images their size, then the others; `Normalize` is the last.

    Examples:
        >>> import torch
        >>> from pairgrad_paper.augment import pipeline, sample_keys
        >>> images = torch.arange(2 * 3 * 32 * 32).remainder(251).to(torch.uint8).view(2, 3, 32, 32)
        >>> keys = sample_keys(0, 0, torch.tensor([7, 8]), "view-1")
        >>> contrast = pipeline("patt-cifar-contrast")
        >>> torch.equal(contrast(images, keys)[1:], contrast(images[1:], keys[1:]))
        True
    """

    name: str
    size: int
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        kinds = [step.sizing for step in self.steps]
        if not self.steps or not kinds[0] or kinds != sorted(kinds, reverse=True):
            raise ValueError(f"steps of {self.name!r} must begin with those that give images their size, got {self.describe()}")
        if [isinstance(step, Normalize) for step in self.steps] != [False] * (len(kinds) - 1) + [True]:
            raise ValueError(f"steps of {self.name!r} must have one Normalize, at the end, got {self.describe()}")

    @property
    def random(self) -> bool:
        """Whether the keys matter."""
        return any(step.random for step in self.steps)

    @property
    def channels(self) -> int:
        """How many channels the images must have."""
        last = self.steps[-1]
        assert isinstance(last, Normalize)
        return len(last.mean)

    def __call__(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """The augmented batch: `after` of the `prepare` of each image.

        Args:
            images: uint8, (B, C, H, W), levels from 0 to 255.
            keys: int64, (B,), from `sample_keys`, best on the CPU.

        Returns:
            float32, (B, C, size, size), on the device of the images.
        """
        self._check(images, 4)
        keys = checked_keys(keys, len(images))
        return self._after(self._sized(images, keys), keys)

    def prepare(self, image: torch.Tensor, key: int) -> torch.Tensor:
        """The steps that need the original size, for one image: uint8 (C, H, W) -> uint8 (C, size, size). For loaders of images of many sizes."""
        self._check(image, 3)
        key = integer_at_least("key", key, -(1 << 63), hint="a key is an int64, as sample_keys makes them")
        if key >= 1 << 63:
            raise ValueError(f"key must be an int64, as sample_keys makes them, got {key}")
        return self._sized(image.unsqueeze(0), torch.tensor([key])).squeeze(0)

    def after(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """The steps after `prepare`, for a batch: uint8 (B, C, size, size), int64 (B,) -> float32 (B, C, size, size)."""
        self._check(images, 4)
        if images.shape[2:] != (self.size, self.size):
            raise ValueError(
                f"images must be {self.size} x {self.size} after prepare, got {describe(images)}: call prepare on each, or the pipeline itself"
            )
        return self._after(images, checked_keys(keys, len(images)))

    def describe(self) -> str:
        """The steps in words, on one line."""
        return f"{self.name}: {', '.join(step.words() for step in self.steps)}"

    def _sized(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        if not len(images):
            return images.new_zeros(0, images.shape[1], self.size, self.size)
        for position, step in enumerate(self.steps):
            if step.sizing:
                images = step(images, step_keys(keys, position))
        return images

    def _after(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        if not len(images):
            return images.float()
        for position, step in enumerate(self.steps):
            if not step.sizing:
                images = step(images, step_keys(keys, position))
        return images

    def _check(self, images: torch.Tensor, dims: int) -> None:
        name, shape = ("images", f"(B, {self.channels}, H, W)") if dims == 4 else ("image", f"({self.channels}, H, W)")
        if not isinstance(images, torch.Tensor) or images.dtype != torch.uint8:
            raise TypeError(
                f"{name} must be a uint8 tensor of shape {shape} with levels from 0 to 255, got {describe(images)}: augmentation comes before scaling"
            )
        if images.dim() != dims or images.shape[-3] != self.channels or 0 in images.shape[-3:]:
            hint = "; grey images can be repeated with .expand" if images.dim() == dims and images.shape[-3] == 1 else ""
            raise ValueError(f"{name} must have shape {shape} for pipeline {self.name!r}, got {describe(images)}{hint}")
