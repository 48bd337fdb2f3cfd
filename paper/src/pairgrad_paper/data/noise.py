"""Noise in the place of data that are not there, as many images and as large as published: enough to measure time and memory with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pairgrad_paper.data.benchmark import Benchmark
from pairgrad_paper.data.cifar import CIFAR10, CIFAR100
from pairgrad_paper.data.images import ArrayImages, FileImages, Images
from pairgrad_paper.data.listed import IMAGENET_LT, INAT18
from pairgrad_paper.data.long_tail import long_tail_counts

_CIFAR = {"cifar10-lt": CIFAR10, "cifar100-lt": CIFAR100}
_LISTS = {each.name: each for each in (IMAGENET_LT, INAT18)}
_OUTLIERS = 300_000  # of Tiny Images; those of ImageNet are more, and none is read twice within an epoch either
_PICTURE = (500, 375)  # columns and rows, usual on ImageNet


@contextmanager
def noise(name: str, imbalance: float | None) -> Iterator[Benchmark]:
    """A benchmark of the published numbers of images; those of ImageNet and iNaturalist are one JPEG file in a temporary folder, decoded each time."""
    with tempfile.TemporaryDirectory() as folder:
        if name in _CIFAR:
            which = _CIFAR[name]
            classes, test = which.num_classes, 10_000
            counts = (which.per_class,) * classes if imbalance is None else long_tail_counts(which.per_class, classes, imbalance)
        else:
            lists = _LISTS[name]
            classes, test, train = lists.num_classes, lists.sizes["test"], lists.sizes["train"]
            counts = tuple(train // classes + (label < train % classes) for label in range(classes))  # balanced: time does not depend on it

        def images(count: int, labels: torch.Tensor | None = None) -> Images:
            if name in _CIFAR:
                return ArrayImages(f"noise for {name}", pixels.expand(count, 3, 32, 32), labels)
            return FileImages(f"noise for {name}", Path(folder), ("noise.jpg",) * count, labels)

        pixels = torch.from_numpy(np.random.default_rng(0).integers(256, size=(1, 3, 32, 32), dtype=np.uint8))
        smooth = Image.fromarray(pixels[0].permute(1, 2, 0).numpy()).resize(_PICTURE)  # takes as long to decode as a photograph
        smooth.save(Path(folder) / "noise.jpg")
        yield Benchmark(
            name=name,
            train=images(sum(counts), torch.repeat_interleave(torch.tensor(counts))),
            test=images(test, torch.arange(test) % classes),
            outliers=images(_OUTLIERS),
            ood=(),
            class_names=tuple(map(str, range(classes))),
            class_counts=counts,
            notes=(f"noise stands in for the images of {name}",),
        )
