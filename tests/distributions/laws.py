"""Statistical tests of draws with a stated false-alarm rate.

Every statistic is compared with a threshold that a right sampler exceeds with probability at most ONE = FALSE_ALARM / TESTS: all together, fewer than one
seed in a hundred thousand would fail. The seeds are fixed.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import torch

from tests.distributions.angle_truth import Grid

FALSE_ALARM, TESTS = 1e-5, 1000  # TESTS: more comparisons than there are
ONE = FALSE_ALARM / TESTS
COUNT = 200_000
Z = NormalDist().inv_cdf(1 - ONE / 2)

PAIRS = (
    *((2, k) for k in (0.0, 0.3, 2.0, 30.0, 1e4, 1e8)),
    *((3, k) for k in (0.0, 1e-3, 1.0, 10.0, 700.0, 1e8)),
    *((4, k) for k in (0.5, 5.0, 1e3)),
    *((5, k) for k in (0.0, 2.0, 20.0, 1e6)),
    *((8, k) for k in (1.0, 12.0, 300.0)),
    *((64, k) for k in (0.0, 1.0, 32.0, 500.0, 1e8)),
    *((512, k) for k in (0.1, 11.0, 100.0, 2e3, 1e5)),
    *((4096, k) for k in (1.0, 64.0, 5e3, 1e8)),
    *((100_000, k) for k in (0.0, 10.0, 1e4, 1e8)),
)


def kolmogorov(alpha: float, count: int) -> float:
    """The distance that the empirical distribution function exceeds with probability at most alpha (Dvoretzky, Kiefer, Wolfowitz, Massart)."""
    return math.sqrt(math.log(2 / alpha) / (2 * count))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check_angles(angles: torch.Tensor, dim: int, kappa: float, resolution: float = 0.0) -> None:
    """Distribution function, mean and variance of w = cos. `resolution`: by how much rounding may move the distribution function, and the moments in
    units of their standard deviation."""
    grid, values = Grid.of(dim, kappa), angles.double().numpy()
    count = len(values)
    assert np.isfinite(values).all()
    distance = grid.distance(values)
    assert distance <= kolmogorov(ONE, count) + resolution, (dim, kappa, distance)
    rest = 2 * np.sin(values / 2) ** 2
    error = (rest.mean() - grid.mean) / math.sqrt(grid.variance / count)
    assert abs(error) <= Z + resolution * math.sqrt(count), (dim, kappa, error)
    spread = ((rest - grid.mean) ** 2).mean()
    error = (spread - grid.variance) / math.sqrt((grid.fourth - grid.variance**2) / count)
    assert abs(error) <= Z + resolution * math.sqrt(count), (dim, kappa, error)


def rounding_share(dim: int, kappa: float, dtype: torch.dtype) -> float:
    """A share of the spread of the angle that four of its roundings are, times the largest slope of the distribution function, below one."""
    grid = Grid.of(dim, kappa, points=2001)
    lower, upper = np.interp([0.16, 0.84], grid.below, grid.angles)
    return 4 * torch.finfo(dtype).eps * upper / (upper - lower)
