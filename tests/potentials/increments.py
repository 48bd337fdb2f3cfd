"""Increments of the exact potential in ball arithmetic, and states to compare them at."""

from __future__ import annotations

import flint
import numpy as np
import torch

from tests.truth import exact_at, order, working_precision


def exact_increment(dim: int, a: torch.Tensor, squared: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Phi(b) - Phi(a) and R(b) / b, with the floats taken for the numbers they are; 400 bits, so that b - a = 1e-20 a leaves 25 digits."""
    values, gains = [], []
    with working_precision(400):
        for x, step in zip(a.tolist(), squared.tolist(), strict=True):
            start = flint.arb(x)
            square = start * start + flint.arb(step)
            end = square.sqrt().mid() if square > 0 else flint.arb(0)
            values.append(exact_at("difference", order(dim), start, end, digits=25))
            gains.append(exact_at("slope", order(dim), end, digits=25) / end if end > 0 else flint.arb(1) / dim)
    return np.array(values, dtype=object), np.array(gains, dtype=object)


def states(dim: int, dtype: torch.dtype, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """a = 0 and from 1e-3 to 1e5; squared from 1e-8 to 1e10, or negative: small against a^2, or down to where next to nothing is left of b."""
    rng = np.random.default_rng((seed, dim))
    a = 10 ** rng.uniform(-3, 5, count)
    a[: count // 10] = 0
    up = 10 ** rng.uniform(-8, 10, count)
    down = -a * a * np.where(rng.random(count) < 0.3, 1 - 10 ** rng.uniform(-12, -1, count), 10 ** rng.uniform(-6, 0, count))
    low, step = torch.tensor(a).to(dtype), torch.tensor(np.where(rng.random(count) < 0.5, down, up)).to(dtype)
    return low[step != 0], step[step != 0]


def shrinkage(dim: int, a: torch.Tensor, squared: torch.Tensor) -> np.ndarray:
    """max(1, s_a^2 / s_b^2), s^2 = (nu + 1/2)^2 + x^2: how much a relative change of a^2 moves s_b^2."""
    low = (dim / 2 - 0.5) ** 2 + a.double() ** 2
    high = (low + squared.double()).clamp_min((dim / 2 - 0.5) ** 2)
    return (low / high).clamp_min(1).numpy()
