"""Truth for tests: the exact potential in ball arithmetic, rounded only when the error is formed.

`exact` gives enclosures at tensors, `exact_at` at balls of any precision, `relative_error` compares a result with them. `working_precision` sets the
precision of python-flint for a block. All of it goes through the public realization `"reference"`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import torch

import pairgrad as pg
from pairgrad.ground import BallArithmetic


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """python-flint at a precision of `bits`, which is global to it; restored on leaving."""
    before, flint.ctx.prec = flint.ctx.prec, bits
    try:
        yield
    finally:
        flint.ctx.prec = before


def relative_error(got: torch.Tensor, balls: np.ndarray) -> np.ndarray:
    """|got - truth| / |truth| elementwise; infinite where got is not finite."""
    flat = got.detach().double().reshape(-1).tolist()
    errors = [
        float(abs((flint.arb(g) - ball) / ball)) if math.isfinite(g) else math.inf for g, ball in zip(flat, balls.reshape(-1), strict=True)
    ]
    return np.array(errors).reshape(balls.shape)


def exact(quantity: str, dim: int, *points: torch.Tensor, digits: int = 30) -> np.ndarray:
    """Enclosures of a quantity of the exact potential; `value` is taken from value(0) = 0, as `"paired"` does."""
    reference = pg.potential(dim, "reference", digits=digits)
    points = tuple(torch.broadcast_tensors(*(p.double() for p in points)))
    if quantity == "value":
        return reference.enclosure("difference", torch.zeros_like(points[0]), points[0])
    return reference.enclosure(quantity, *points)


def exact_at(quantity: str, nu: Fraction | float, *points: Any, digits: int = 30) -> Any:
    """The ball of a quantity of the exact potential of order `nu` at balls (`flint.arb`), or at floats taken for the numbers they are."""
    formulas = pg.potential(nu=nu, realization="reference", digits=digits).formulas()
    return getattr(formulas, quantity)(BallArithmetic(), *map(flint.arb, points))


def order(dim: int) -> Fraction:
    """nu = dim / 2 - 1, exactly."""
    return Fraction(dim, 2) - 1


def log_area(dim: int) -> float:
    """log of the area of the unit sphere in `dim` dimensions, log(2 pi^(dim/2) / Gamma(dim/2)), from the textbook."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


def scale(dim: int) -> float:
    """max(nu, 1/2): the size of x at which the ratio turns from linear to saturated."""
    return max(dim / 2 - 1, 0.5)
