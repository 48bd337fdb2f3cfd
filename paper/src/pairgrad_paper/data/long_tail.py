"""Long-tailed subsets of a balanced data set: how many images each class keeps, and which."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import numpy as np
import torch

from pairgrad.ground import describe, integer_at_least, one_of
from pairgrad_paper.data.files import DataError
from pairgrad_paper.data.images import ArrayImages

RULES = ("first", "shuffled")


def long_tail_counts(n_max: int, num_classes: int, imbalance: float) -> tuple[int, ...]:
    r"""The number of images of each class, \(n_k = \lfloor n_{max}\, \rho^{k/(K-1)} \rfloor\) with \(\rho = 1 /\) `imbalance`.

    The power is taken in float64 and cut to an integer, as in the published code, so that the totals are the published ones.

    Args:
        n_max: images of class 0.
        num_classes: K.
        imbalance: n_max over the smallest class, >= 1; 1 leaves the classes balanced.

    Raises:
        DataError: a class is left without images.

    Examples:
        >>> long_tail_counts(5000, 10, 100)
        (5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50)
    """
    n_max = integer_at_least("n_max", n_max, 1)
    num_classes = integer_at_least("num_classes", num_classes, 1)
    if isinstance(imbalance, bool) or not isinstance(imbalance, numbers.Real):
        raise TypeError(f"imbalance must be a number >= 1, got {describe(imbalance)}")
    if not 1 <= imbalance < math.inf:
        raise ValueError(f"imbalance must be a finite number >= 1 (1 leaves the classes balanced), got {imbalance!r}")
    ratio = 1 / float(imbalance)
    counts = tuple(int(n_max * ratio ** (k / (num_classes - 1))) if k else n_max for k in range(num_classes))
    if counts[-1] == 0:
        raise DataError(
            f"imbalance {imbalance:g} leaves class {counts.index(0)} without images, since the largest class has {n_max}: take a smaller one"
        )
    return counts


def long_tail_indices(labels: torch.Tensor | np.ndarray | Sequence[int], counts: Sequence[int], rule: str = "first") -> torch.Tensor:
    """Positions of the images that a long-tailed subset keeps, class after class.

    Args:
        labels: integers (N,), in the order of the files.
        counts: how many images each class keeps.
        rule: "first" takes the first of each class (PATT). "shuffled" shuffles the positions of each class first, with one numpy RandomState of
            seed 0 for all classes in turn (ProCo).

    Returns:
        int64 (sum of counts,).

    Raises:
        DataError: a class has fewer images than it should keep.

    Examples:
        >>> long_tail_indices([1, 0, 1, 0, 0], [2, 1])
        tensor([1, 3, 0])
    """
    one_of("rule", rule, RULES)
    values = np.asarray(labels.cpu() if isinstance(labels, torch.Tensor) else labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(f"labels must be integers of shape (N,), got {values.dtype} of shape {values.shape}")
    generator = np.random.RandomState(0)
    kept = []
    for label, count in enumerate(counts):
        count = integer_at_least(f"counts[{label}]", count, 0)
        positions = np.flatnonzero(values == label)
        if len(positions) < count:
            raise DataError(
                f"class {label} has {len(positions)} images, expected at least {count}: keep fewer, or fetch the rest of the data set"
            )
        if rule == "shuffled":
            generator.shuffle(positions)
        kept.append(positions[:count])
    return torch.from_numpy(np.concatenate(kept).astype(np.int64)) if kept else torch.zeros(0, dtype=torch.int64)


def long_tail(
    images: ArrayImages, num_classes: int, imbalance: float | None, rule: str, n_max: int | None = None
) -> tuple[ArrayImages, tuple[int, ...]]:
    """The long-tailed subset of labelled images, and its class counts.

    Args:
        images: with labels 0 to `num_classes` - 1.
        num_classes: K.
        imbalance: see `long_tail_counts`; None keeps all images.
        rule: see `long_tail_indices`.
        n_max: images of class 0; the smallest class count if that is less, or if None.

    Raises:
        DataError: a class has no images, or none would be left.
    """
    assert images.labels is not None
    found = tuple(torch.bincount(images.labels, minlength=num_classes).tolist())
    if 0 in found:
        raise DataError(f"{images.name}: expected images of each of the {num_classes} classes, found none of class {found.index(0)}")
    if imbalance is None:
        return images, found
    counts = long_tail_counts(min(found) if n_max is None else min(n_max, *found), num_classes, imbalance)
    return images.subset(long_tail_indices(images.labels, counts, rule)), counts
