"""Which samples to fit on: deterministic and balanced over the classes."""

from __future__ import annotations

import numpy as np
import torch

from pairgrad.ground.checks import integer_at_least
from pairgrad.ood.inputs import Array, label_array


def class_balanced_indices(labels: Array, size: int, seed: int) -> torch.Tensor:
    """Indices of `size` samples that take the classes in turn; equal arguments give equal indices, on every machine.

    The classes that occur in `labels` come round in ascending order. Each class gives its samples in an order drawn from `seed`, none twice until all
    have been given, and then again in a new order. So class counts differ by 1 at most, and a smaller `size` gives the beginning of a larger one.

    Args:
        labels: (N,), >= 0.
        size: how many indices, possibly more than N.
        seed: from 0 to 2^32 - 1.

    Returns:
        (size,), int64, on the CPU.

    Examples:
        >>> labels = torch.tensor([0, 0, 0, 0, 1, 2, 2])
        >>> labels[class_balanced_indices(labels, 8, seed=0)].tolist()
        [0, 1, 2, 0, 1, 2, 0, 1]
    """
    given = label_array("labels", labels)
    size = integer_at_least("size", size, 0, most=2**31)
    seed = integer_at_least("seed", seed, 0)
    if seed >= 2**32:
        raise ValueError(f"seed must be below 2^32, got {seed}")
    if not given.size or given.min() < 0 or given.max() >= 2**32:
        raise ValueError(
            f"labels must be a nonempty vector of class labels >= 0, got {given.size} labels: leave out samples without a class"
        )
    classes = np.unique(given)
    rounds = -(-size // classes.size)
    columns = [_turns(np.flatnonzero(given == label), rounds, (seed, int(label))) for label in classes]
    return torch.from_numpy(np.stack(columns, axis=1).reshape(-1)[:size].copy())


def _turns(members: np.ndarray, rounds: int, key: tuple[int, int]) -> np.ndarray:
    """`rounds` members, by shuffled passes over all of them. RandomState, since numpy keeps its streams the same in all versions."""
    passes = -(-rounds // members.size)
    orders = [np.random.RandomState([*key, number]).permutation(members) for number in range(passes)]
    return np.concatenate([*orders, members[:0]])[:rounds].astype(np.int64)
