"""Truth for tests: ball arithmetic, rounded only when the error is formed."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import numpy as np
import torch

from pairgrad.potentials.reference import Balls


def relative_error(got: torch.Tensor, balls: np.ndarray) -> np.ndarray:
    """|got - truth| / |truth| elementwise; infinite where got is not finite."""
    flat = got.detach().double().reshape(-1).tolist()
    errors = [
        float(abs((flint.arb(g) - ball) / ball)) if math.isfinite(g) else math.inf for g, ball in zip(flat, balls.reshape(-1), strict=True)
    ]
    return np.array(errors).reshape(balls.shape)


def exact(quantity: str, dim: int, *points: torch.Tensor) -> np.ndarray:
    """Enclosures of a quantity of the exact potential; `value` is taken from value(0) = 0, as `"paired"` does."""
    balls = Balls(Fraction(dim, 2) - 1, 30)
    points = tuple(torch.broadcast_tensors(*(p.double() for p in points)))
    if quantity == "value":
        return balls.apply("difference", torch.zeros_like(points[0]), points[0])
    return balls.apply(quantity, *points)


def scale(dim: int) -> float:
    """max(nu, 1/2): the size of x at which the ratio turns from linear to saturated."""
    return max(dim / 2 - 1, 0.5)
