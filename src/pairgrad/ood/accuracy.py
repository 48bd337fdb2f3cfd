"""Accuracy of a classifier trained on a long-tailed set: overall, balanced, by class and by groups of classes with many, medium and few samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pairgrad.ground.checks import describe, integer_at_least, one_of
from pairgrad.ood.inputs import Array, label_array

SHOT_RULES = ("patt", "proco")
QUANTILE_CLASSES = 100  # of "patt": up to this number of classes the limits of the groups are taken from the counts themselves
MANY_ABOVE, FEW_BELOW = 100, 20


class ShotGroups(NamedTuple):
    """Labels of the classes with many, medium and few training samples, each in ascending order."""

    many: tuple[int, ...]
    medium: tuple[int, ...]
    few: tuple[int, ...]


@dataclass(frozen=True)
class AccuracyReport:
    """Fractions of correct predictions. None stands where there is nothing to average: a class without test samples, a group without classes.

    Attributes:
        accuracy: over all samples.
        balanced: the mean over the classes that have test samples.
        many, medium, few: the mean over the classes of a group that have test samples.
        per_class: by label.
    """

    accuracy: float
    balanced: float
    many: float | None
    medium: float | None
    few: float | None
    per_class: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {**asdict(self), "per_class": list(self.per_class)}


def accuracy(predictions: Array, labels: Array) -> float:
    """The fraction of predictions that are right.

    Args:
        predictions: predicted labels, (N,).
        labels: (N,).
    """
    predictions, labels = _pair(predictions, labels)
    return int((predictions == labels).sum()) / labels.size


def per_class_accuracy(predictions: Array, labels: Array, num_classes: int) -> tuple[float | None, ...]:
    """The fraction of right predictions among the samples of each class; None for a class without samples.

    Args:
        predictions: predicted labels, (N,).
        labels: (N,), from 0 to `num_classes` - 1.
        num_classes: K.
    """
    predictions, labels = _pair(predictions, labels)
    classes = integer_at_least("num_classes", num_classes, 1, most=2**31)
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"labels must lie between 0 and {classes - 1}, got {labels.min()} to {labels.max()}: leave OOD samples out, or correct K"
        )
    samples = np.bincount(labels, minlength=classes)
    right = np.bincount(labels[predictions == labels], minlength=classes)
    return tuple(int(r) / int(n) if n else None for r, n in zip(right, samples, strict=True))


def balanced_accuracy(predictions: Array, labels: Array, num_classes: int) -> float:
    """The mean of the accuracies of the classes that occur in `labels`.

    Args:
        predictions: predicted labels, (N,).
        labels: (N,), from 0 to `num_classes` - 1.
        num_classes: K.
    """
    mean = _mean(per_class_accuracy(predictions, labels, num_classes))
    assert mean is not None  # there is at least one label
    return mean


def shot_groups(class_counts: Sequence[int] | Array, rule: str = "patt") -> ShotGroups:
    """Which classes have many, medium and few training samples.

    Public code has two rules, and published accuracies of groups are of one or the other:

    - `"proco"`, also the common one of ImageNet-LT: many above 100 samples, few below 20.
    - `"patt"`: the same with more than 100 classes. With up to 100, and the counts sorted from the largest to the smallest as n[0], n[1], ..., n[K-1]:
      many above n[int(0.34 K)], few below n[int(0.67 K)].

    Medium are the others.

    Args:
        class_counts: training samples of each class, (K,), in the order of the labels.
        rule: `"patt"` or `"proco"`.

    Examples:
        >>> shot_groups([5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50])
        ShotGroups(many=(0, 1, 2), medium=(3, 4, 5, 6), few=(7, 8, 9))
        >>> shot_groups([5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50], rule="proco")
        ShotGroups(many=(0, 1, 2, 3, 4, 5, 6, 7), medium=(8, 9), few=())
    """
    counts = _counts(class_counts)
    many_above, few_below = MANY_ABOVE, FEW_BELOW
    if one_of("rule", rule, SHOT_RULES) == "patt" and counts.size <= QUANTILE_CLASSES:
        descending = np.sort(counts)[::-1]
        many_above, few_below = (int(descending[int(share * counts.size)]) for share in (0.34, 0.67))
    many, few = counts > many_above, counts < few_below
    return ShotGroups(*(tuple(np.flatnonzero(group).tolist()) for group in (many, ~many & ~few, few)))


def accuracy_report(predictions: Array, labels: Array, class_counts: Sequence[int] | Array, rule: str = "patt") -> AccuracyReport:
    """Every accuracy of this module at once.

    Args:
        predictions: predicted labels, (N,).
        labels: (N,), from 0 to K - 1.
        class_counts: training samples of each class, (K,).
        rule: of the groups, see [`shot_groups`][pairgrad.ood.shot_groups].

    Examples:
        >>> report = accuracy_report(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2]), [50, 20, 5])
        >>> report.accuracy, round(report.balanced, 4), report.many, report.medium, report.few
        (0.75, 0.6667, 1.0, 0.5, None)
    """
    groups = shot_groups(class_counts, rule)
    by_class = per_class_accuracy(predictions, labels, sum(map(len, groups)))
    many, medium, few = (_mean([by_class[label] for label in group]) for group in groups)
    balanced = _mean(by_class)
    assert balanced is not None  # there is at least one label
    return AccuracyReport(accuracy(predictions, labels), balanced, many, medium, few, by_class)


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _pair(predictions: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    predictions, labels = label_array("predictions", predictions), label_array("labels", labels)
    if predictions.shape != labels.shape:
        raise ValueError(f"predictions and labels must have equal length, got {predictions.size} and {labels.size}")
    if not labels.size:
        raise ValueError("labels must hold at least one sample, got none: an accuracy of nothing is not defined")
    return predictions, labels


def _counts(class_counts: Any) -> np.ndarray:
    try:
        given = class_counts if isinstance(class_counts, (torch.Tensor, np.ndarray)) else np.asarray(class_counts)
    except (ValueError, TypeError, OverflowError):  # lists of different lengths, integers of any length
        raise TypeError(f"class_counts must be a sequence of integers, one for each class, got {describe(class_counts)}") from None
    counts = label_array("class_counts", given)
    if not counts.size or counts.min() < 0:
        raise ValueError(f"class_counts must be one number >= 0 for each class, got {describe(class_counts)}")
    return counts
