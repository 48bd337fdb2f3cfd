"""Class-balanced sampling: balance, determinism, and no repetition before a class is exhausted."""

import numpy as np
import pytest
import torch

from pairgrad.ood import class_balanced_indices

LABELS = torch.tensor([3, 0, 3, 3, 1, 3, 3, 0, 3])  # two of 0, one of 1, six of 3
PINNED = [1, 4, 5, 7, 4, 2, 1, 4, 3, 7, 4, 6]


def test_classes_take_turns():
    drawn = LABELS[class_balanced_indices(LABELS, 20, seed=5)]
    assert drawn.tolist() == ([0, 1, 3] * 7)[:20]


def test_a_class_gives_all_its_samples_before_any_again():
    indices = class_balanced_indices(LABELS, 3 * 24, seed=5)
    for label in (0, 1, 3):
        members = torch.nonzero(torch.eq(LABELS, label)).flatten().tolist()
        given = [i for i in indices.tolist() if LABELS[i] == label]
        passes = [given[k : k + len(members)] for k in range(0, 24, len(members))]
        assert all(sorted(p) == members for p in passes)
        if label == 3:
            assert len({tuple(p) for p in passes}) > 1  # in a new order each time


def test_equal_arguments_give_equal_indices():
    """The literal was written by this function: it must not change with numpy, torch or the machine."""
    first = class_balanced_indices(LABELS, 12, seed=5)
    assert first.tolist() == PINNED
    assert torch.equal(first, class_balanced_indices(LABELS.numpy().astype(np.int32), 12, 5))
    assert torch.equal(first[:7], class_balanced_indices(LABELS, 7, seed=5))
    assert first.dtype == torch.int64
    assert any(class_balanced_indices(LABELS, 12, seed=s).tolist() != PINNED for s in range(4))


def test_the_global_generators_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    class_balanced_indices(LABELS, 50, seed=5)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_nothing_asked_for():
    assert class_balanced_indices(LABELS, 0, seed=0).tolist() == []


@pytest.mark.parametrize(
    ("labels", "size", "seed", "says"),
    [
        (torch.tensor([], dtype=torch.long), 3, 0, "labels must be a nonempty vector"),
        (torch.tensor([0, -1]), 3, 0, "labels must be a nonempty vector of class labels >= 0"),
        (LABELS, -1, 0, "size must be an integer >= 0"),
        (LABELS, 3, -1, "seed must be an integer >= 0"),
        (LABELS, 3, 2**32, r"seed must be below 2\^32"),
    ],
)
def test_what_is_refused(labels, size, seed, says):
    with pytest.raises(ValueError, match=says):
        class_balanced_indices(labels, size, seed)
