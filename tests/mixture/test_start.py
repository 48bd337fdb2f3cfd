"""The law of the seeds that a fit starts from."""

import numpy as np
import pytest
import torch

from pairgrad.mixture.rows import DenseRows
from pairgrad.mixture.start import seeds
from tests.mixture.data import mixture


def rows_at(angles):
    return DenseRows(torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], 1)))


def law(distances, weights, chosen, components, trials):
    """Probabilities of the seeds that follow those chosen, as tuples: each is the best of independent draws by weight and distance."""
    if len(chosen) == components:
        return {(): 1.0}
    distance = distances[list(chosen)].min(0)
    mass = weights * distance / (weights @ distance)
    left = [weights @ np.minimum(distance, distances[i]) for i in range(len(weights))]
    result, worse = {}, 1.0
    for i in np.argsort(left):  # the first is chosen if it is drawn at all, the second if it is and the first is not
        share = worse**trials - max(worse - mass[i], 0.0) ** trials
        worse -= mass[i]
        if mass[i] > 0:
            for rest, probability in law(distances, weights, (*chosen, int(i)), components, trials).items():
                result[(int(i), *rest)] = share * probability
    return result


def test_seeds_are_drawn_by_distance():
    """Four components have three trials. The first seed is the heavy row but for one start in a million; the three after it, whose candidates are drawn at
    once, follow the law of one after another. Pearson's statistic over the 5 likeliest triples and the rest stays below 25.7 but once in 10,000 times."""
    angles = np.radians([0.0, 100, 108, 180, 230, 300])
    weights = np.array([1e8, 6.0, 5, 1, 4, 2])
    rows, random, starts = rows_at(angles), np.random.RandomState(0), 600
    expected = law(1 - np.cos(angles[:, None] - angles), weights, (0,), 4, 3)
    assert sum(expected.values()) == pytest.approx(1)
    found = [tuple(seeds(rows, torch.from_numpy(weights), 4, "k-means++", random)[1:].tolist()) for _ in range(starts)]
    likeliest = sorted(expected, key=expected.__getitem__)[-5:]
    shares = np.array([expected[triple] for triple in likeliest])
    counts = np.array([found.count(triple) for triple in likeliest])
    shares, counts = np.r_[shares, 1 - shares.sum()], np.r_[counts, starts - counts.sum()]
    assert starts * shares.min() > 5
    assert ((counts - starts * shares) ** 2 / (starts * shares)).sum() < 25.7, (likeliest, counts, starts * shares)


def test_seeds_differ_as_long_as_rows_do():
    rows = rows_at(np.radians([0.0] * 20 + [1.0] * 20 + [200.0] * 20).astype(np.float32).astype(np.float64))
    for seed in range(20):
        chosen = rows.take(seeds(rows, None, 3, "k-means++", np.random.RandomState(seed)))
        assert len(torch.unique(chosen, dim=0)) == 3
    assert len(seeds(rows, None, 6, "k-means++", np.random.RandomState(0))) == 6  # more than there are places


def test_random_seeds_are_drawn_by_weight_without_repetition():
    rows = rows_at(np.arange(6.0))
    weights = torch.tensor([0.0, 1, 1, 1, 1, 1e9]).double()
    for seed in range(30):
        chosen = seeds(rows, weights, 5, "random", np.random.RandomState(seed)).tolist()
        assert chosen[0] == 5
        assert sorted(chosen) == [1, 2, 3, 4, 5]


def test_the_mixture_helper_is_what_it_says():
    X, labels, directions = mixture(3, (50, 50), (200, 100), seed=1)
    assert np.bincount(labels).tolist() == [200, 100]
    assert np.allclose(np.linalg.norm(X, axis=1), 1)
    means = np.stack([X[labels == j].mean(0) for j in range(2)])
    assert np.all((means / np.linalg.norm(means, axis=1, keepdims=True) * directions).sum(1) > 0.99)
