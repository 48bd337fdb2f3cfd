"""What a run is trained and tested on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pairgrad_paper.data.files import FileFact
from pairgrad_paper.data.images import Images


@dataclass(frozen=True, eq=False, repr=False)
class OODSource:
    """Test images from elsewhere.

    Attributes:
        name: of the source, unique in a benchmark.
        images: all of them.
        semantic_id: bool (N,), True where an image shows one of the benchmark's own classes and counts as in-distribution (`sc_label` >= 0); None if
            every image is out of distribution.
    """

    name: str
    images: Images
    semantic_id: torch.Tensor | None = None

    def __post_init__(self) -> None:
        mask = self.semantic_id
        if mask is not None and (mask.dtype != torch.bool or mask.shape != (len(self.images),)):
            raise ValueError(
                f"semantic_id must be a bool tensor of shape ({len(self.images)},), got {mask.dtype} of shape {tuple(mask.shape)}"
            )

    def __repr__(self) -> str:
        return f"OODSource({self.name!r}, {len(self.images)} images)"


@dataclass(frozen=True, eq=False, repr=False)
class Benchmark:
    """Training images with labels, test images, outliers to train against, and sources to tell apart.

    Attributes:
        name: "digits-lt", "cifar10-lt", "cifar100-lt", "imagenet-lt" or "inat18".
        train: labelled, after the long-tail subsampling.
        test: labelled, balanced.
        outliers: for outlier exposure; None if there are none.
        ood: the out-of-distribution test sources.
        class_names: one per class.
        class_counts: images of each class in `train`.
        notes: everything that deviates from the published data set, for the record of a run.
        files: the files that were read.
        validation: labelled images apart from `train` and `test`, where the data set has them.
    """

    name: str
    train: Images
    test: Images
    outliers: Images | None
    ood: tuple[OODSource, ...]
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    notes: tuple[str, ...] = ()
    files: tuple[FileFact, ...] = ()
    validation: Images | None = None

    def __repr__(self) -> str:
        return f"Benchmark({self.name!r}, {len(self.class_names)} classes, {len(self.train)} training and {len(self.test)} test images)"

    def summary(self) -> str:
        """What was found, on a few lines."""
        counts = self.class_counts
        lines = [
            f"{self.name}: {len(counts)} classes",
            f"  train      {len(self.train)} images, {max(counts)} to {min(counts)} per class",
            f"  test       {len(self.test)} images",
        ]
        if self.validation is not None:
            lines.append(f"  validation {len(self.validation)} images")
        lines.append("  outliers   none" if self.outliers is None else f"  outliers   {len(self.outliers)} images, {self.outliers.name}")
        for source in self.ood:
            inside = "" if source.semantic_id is None else f", {int(source.semantic_id.sum())} of them semantically in-distribution"
            lines.append(f"  ood        {len(source.images)} images, {source.name}{inside}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])
