"""Accuracies and shot groups."""

import json

import numpy as np
import pytest
import torch

from pairgrad.ood import accuracy, accuracy_report, balanced_accuracy, per_class_accuracy, shot_groups

CIFAR10 = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
CIFAR100 = [int(500 * 0.01 ** (k / 99)) for k in range(100)]

PREDICTIONS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 0])
LABELS = torch.tensor([0, 0, 0, 0, 1, 2, 1, 1])


def test_accuracy_and_its_balance():
    """Class 0: 3 of 4; class 1: 1 of 3; class 2: 1 of 1; class 3 has no samples."""
    assert accuracy(PREDICTIONS, LABELS) == 5 / 8
    assert per_class_accuracy(PREDICTIONS, LABELS, 4) == (3 / 4, 1 / 3, 1.0, None)
    assert balanced_accuracy(PREDICTIONS, LABELS, 4) == (3 / 4 + 1 / 3 + 1) / 3
    assert accuracy(PREDICTIONS.int().numpy(), LABELS.numpy()) == 5 / 8


def test_predictions_may_be_other_labels():
    assert per_class_accuracy(np.array([7, 1]), np.array([0, 1]), 2) == (0.0, 1.0)


def test_shot_groups_of_the_long_tailed_benchmarks():
    assert shot_groups(CIFAR10) == ((0, 1, 2), (3, 4, 5, 6), (7, 8, 9))
    groups = shot_groups(CIFAR100)
    # n[34] = 102 and n[67] = 22 (with others equal to 22 none): above the first, below the second
    assert groups.many == tuple(range(34))
    assert groups.medium == tuple(range(34, 68))
    assert groups.few == tuple(range(68, 100))


def test_shot_groups_follow_the_labels_and_not_the_order():
    order = np.random.RandomState(0).permutation(10)
    groups = shot_groups(np.array(CIFAR10)[order])
    assert {CIFAR10[order[label]] for label in groups.many} == {5000, 2997, 1796}
    assert {CIFAR10[order[label]] for label in groups.few} == {139, 83, 50}
    assert groups.medium == tuple(sorted(groups.medium))


def test_more_than_a_hundred_classes_have_fixed_limits():
    counts = [101, 100, 20, 19, *[50] * 97]
    assert shot_groups(counts).many == (0,)
    assert shot_groups(counts).few == (3,)
    assert shot_groups(counts[:100]) != shot_groups(counts)


def test_groups_by_the_limits_of_proco():
    """Also with few classes, where PATT's code takes thirds."""
    assert shot_groups(CIFAR10, rule="proco") == (tuple(range(8)), (8, 9), ())
    assert shot_groups(CIFAR100, rule="proco").many == tuple(label for label in range(100) if CIFAR100[label] > 100)
    assert shot_groups([101, 100, 20, 19], rule="proco") == ((0,), (1, 2), (3,))
    labels = np.arange(10)
    report = accuracy_report(np.where(labels < 8, labels, 0), labels, CIFAR10, rule="proco")
    assert (report.many, report.medium, report.few) == (1.0, 0.0, None)
    with pytest.raises(ValueError, match="rule must be one of 'patt', 'proco', got 'thirds'"):
        shot_groups(CIFAR10, rule="thirds")


def test_groups_can_be_empty():
    assert shot_groups(torch.tensor([5, 5, 5])) == ((), (0, 1, 2), ())
    report = accuracy_report(np.array([0, 1]), np.array([0, 0]), [5, 5, 5])
    assert (report.many, report.medium, report.few) == (None, 0.5, None)


def test_report():
    predictions = np.concatenate([np.arange(10), np.zeros(10, dtype=int)])
    labels = np.concatenate([np.arange(10), np.arange(10)])
    labels[labels == 9] = 8  # class 9 has no test samples, class 8 four of which none is right at 9
    report = accuracy_report(predictions, labels, CIFAR10)
    assert report.per_class == (1.0, *[0.5] * 7, 0.25, None)
    assert report.accuracy == 10 / 20 == accuracy(predictions, labels)
    assert report.many == (1 + 0.5 + 0.5) / 3
    assert report.medium == 0.5
    assert report.few == (0.5 + 0.25) / 2  # of the classes 7 and 8
    assert report.balanced == balanced_accuracy(predictions, labels, 10)
    read = json.loads(json.dumps(report.to_dict()))
    assert read["few"] == report.few
    assert read["per_class"] == list(report.per_class)


@pytest.mark.parametrize(
    ("predictions", "labels", "error", "says"),
    [
        (torch.zeros(2).long(), torch.zeros(3).long(), ValueError, "equal length, got 2 and 3"),
        (torch.zeros(0).long(), torch.zeros(0).long(), ValueError, "at least one sample"),
        (torch.zeros(2), torch.zeros(2).long(), TypeError, "predictions must be .* of integers"),
        (torch.zeros(2).long(), [0, 1], TypeError, "labels must be .* of integers"),
        (torch.zeros(2, 1).long(), torch.zeros(2).long(), ValueError, r"predictions must have shape \(N,\)"),
    ],
)
def test_what_is_refused(predictions, labels, error, says):
    with pytest.raises(error, match=says):
        accuracy(predictions, labels)
    with pytest.raises(error, match=says):
        accuracy_report(predictions, labels, [3, 2])


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_outside(label):
    with pytest.raises(ValueError, match="labels must lie between 0 and 2"):
        per_class_accuracy(torch.tensor([0, 1]), torch.tensor([0, label]), 3)


def test_counts_are_checked():
    for counts in ([], [3, -1]):
        with pytest.raises((ValueError, TypeError), match="class_counts"):
            shot_groups(counts)
    with pytest.raises(TypeError, match="class_counts"):
        shot_groups([0.5, 0.5])
