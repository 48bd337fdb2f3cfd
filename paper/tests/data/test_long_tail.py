"""Long-tailed subsets: the published totals, and which images are kept."""

import numpy as np
import pytest
import torch

from pairgrad_paper.data import ArrayImages, DataError, long_tail_counts, long_tail_indices
from pairgrad_paper.data.long_tail import long_tail

# Totals of the published subsets, by number of classes and imbalance.
TOTALS = {
    (10, 10): 20431,
    (10, 50): 13996,
    (10, 100): 12406,
    (100, 10): 19573,
    (100, 50): 12608,
    (100, 100): 10847,
}


@pytest.mark.parametrize(("num_classes", "imbalance"), TOTALS)
def test_totals_are_the_published_ones(num_classes, imbalance):
    counts = long_tail_counts(50_000 // num_classes, num_classes, imbalance)
    assert sum(counts) == TOTALS[num_classes, imbalance]
    assert counts[0] == 50_000 // num_classes
    assert counts[-1] == 50_000 // num_classes // imbalance
    assert list(counts) == sorted(counts, reverse=True)


def test_numbers_are_cut_not_rounded():
    # 10 * 0.5**(1/2) = 7.07, 10 * 0.5**(2/2) = 5; 4 * 0.5**(1/2) = 2.83
    assert long_tail_counts(10, 3, 2) == (10, 7, 5)
    assert long_tail_counts(4, 3, 2) == (4, 2, 2)


def test_balanced_and_single_class():
    assert long_tail_counts(7, 4, 1) == (7, 7, 7, 7)
    assert long_tail_counts(7, 1, 100) == (7,)


def test_a_class_without_images_is_an_error():
    with pytest.raises(DataError, match=r"imbalance 100 leaves class 8 without images, since the largest class has 50"):
        long_tail_counts(50, 10, 100)
    assert long_tail_counts(100, 10, 100)[-1] == 1


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((0, 10, 100), ValueError, "n_max must be an integer >= 1, got 0"),
        ((10, 0, 100), ValueError, "num_classes must be an integer >= 1, got 0"),
        ((10, 10, 0.5), ValueError, r"imbalance must be a finite number >= 1 .*, got 0\.5"),
        ((10, 10, float("inf")), ValueError, "imbalance must be a finite number"),
        ((10, 10, float("nan")), ValueError, "imbalance must be a finite number"),
        ((10, 10, "100"), TypeError, "imbalance must be a number >= 1, got '100'"),
        ((10, 10, True), TypeError, "imbalance must be a number"),
    ],
)
def test_bad_arguments_of_counts(arguments, error, match):
    with pytest.raises(error, match=match):
        long_tail_counts(*arguments)


def test_first_takes_the_first_of_each_class_in_file_order():
    labels = torch.tensor([2, 0, 1, 1, 0, 2, 2, 0, 1])
    assert long_tail_indices(labels, [3, 2, 1]).tolist() == [1, 4, 7, 2, 3, 0]
    assert long_tail_indices(labels.numpy(), (1, 0, 2)).tolist() == [1, 0, 5]
    assert long_tail_indices(labels.tolist(), (1, 1, 1), "first").dtype == torch.int64


def test_shuffled_is_the_global_numpy_generator_of_seed_zero_class_after_class():
    """The rule of ProCo, spelled with numpy's global functions; the classes share one stream."""
    labels = np.random.default_rng(5).integers(0, 3, size=60)
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    expected = []
    for label, count in enumerate((12, 7, 2)):
        positions = np.where(labels == label)[0]
        np.random.shuffle(positions)  # noqa: NPY002
        expected += positions[:count].tolist()
    np.random.set_state(state)  # noqa: NPY002
    assert long_tail_indices(labels, (12, 7, 2), "shuffled").tolist() == expected
    assert expected[:12] != long_tail_indices(labels, (12, 7, 2), "first").tolist()[:12]


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    long_tail_indices([0, 0, 0], [2], "shuffled")
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_a_small_class_is_an_error():
    with pytest.raises(DataError, match="class 1 has 1 images, expected at least 2"):
        long_tail_indices([0, 0, 1], [1, 2])


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (([0, 1], [1, 1], "last"), ValueError, "rule must be one of 'first', 'shuffled', got 'last'"),
        (([0.0, 1.0], [1, 1]), ValueError, r"labels must be integers of shape \(N,\), got float64"),
        (([[0], [1]], [1, 1]), ValueError, r"labels must be integers .* shape \(2, 1\)"),
        (([0, 1], [1, -1]), ValueError, r"counts\[1\] must be an integer >= 0, got -1"),
        (([0, 1], [1, 0.5]), TypeError, r"counts\[1\] must be an integer"),
    ],
)
def test_bad_arguments_of_indices(arguments, error, match):
    with pytest.raises(error, match=match):
        long_tail_indices(*arguments)


def test_subset_of_images():
    labels = torch.tensor([0, 1, 0, 1, 0, 1, 1])
    images = ArrayImages("some", torch.arange(7, dtype=torch.uint8).view(7, 1, 1, 1), labels)
    kept = {}
    for n_max in (None, 2, 100):
        part, counts = long_tail(images, 2, 2, "first", n_max)
        kept[n_max] = (counts, part.images.flatten().tolist(), part.labels.tolist())
    assert kept[None] == kept[100] == ((3, 1), [0, 2, 4, 1], [0, 0, 0, 1])
    assert kept[2] == ((2, 1), [0, 2, 1], [0, 0, 1])
    whole, counts = long_tail(images, 2, None, "first", 2)
    assert whole is images
    assert counts == (3, 4)
    with pytest.raises(DataError, match="some: expected images of each of the 4 classes, found none of class 2"):
        long_tail(images, 4, 2, "first")
