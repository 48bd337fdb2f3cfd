"""Choice of shift and order: the shallowest expansion whose truncation is below the rounding of a dtype.

The first terms left out of an order-n midpoint expansion change the slope at order nu + m by the relative amount

    sum_{k > n} sup_t |g_k(t) / g_0(t)| / c^k,        c = nu + m + 1/2,

and the value, the increments and the shifted slope by no more, relative to themselves: the recurrence adds positive exact terms and
contracts the error of what it starts from. The sum is estimated by its first two terms, the suprema on a grid. A step of recurrence
costs more than a few terms of a polynomial that is economised afterwards, so the fewest steps are preferred to the lowest order.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import torch

from pairgrad.potentials import debye
from pairgrad.potentials.expansion import Expansion

MAX_ORDER = 24
# A quarter of the unit roundoff of the dtype: truncation that cannot be told from rounding.
TRUNCATION_TOL = {torch.float64: 2.0**-55, torch.float32: 2.0**-26}
_GRID = 64


@cache
def omitted_size(k: int) -> float:
    """Grid estimate of sup over t in [0, 1] of |g_k(t) / g_0(t)| = |(1 + t) g_k(t) / t| for the midpoint family."""
    coefficients = debye.numerator(0, k)[1:]
    common = max(c.denominator for c in coefficients)
    integers = [int(c * common) for c in coefficients]
    degree = len(integers) - 1
    largest = 0
    for i in range(_GRID + 1):
        # exact Horner at t = i / _GRID: the terms cancel by many orders of magnitude
        total = 0
        for power, c in enumerate(reversed(integers)):
            total = total * i + c * _GRID**power
        largest = max(largest, abs(total))
    return float(Fraction(largest, common * _GRID**degree))


def truncation_estimate(nu: Fraction, order: int, shift: int) -> float:
    """Estimated relative truncation error of slope, value and increments of the midpoint expansion."""
    c = float(nu) + shift + 0.5
    return sum(math.exp(math.log(omitted_size(k)) - k * math.log(c)) for k in (order + 1, order + 2))


@cache
def plan(nu: Fraction, dtype: torch.dtype) -> Expansion:
    """The midpoint expansion with the fewest steps, then the lowest order, whose truncation is below `TRUNCATION_TOL[dtype]`."""
    tol = TRUNCATION_TOL[dtype]
    choices: list[tuple[int, int]] = []
    for order in range(1, MAX_ORDER - 1):
        # the centre at which the first omitted term alone meets the tolerance is where the search starts
        centre = (omitted_size(order + 1) / tol) ** (1 / (order + 1))
        shift = max(0, math.floor(centre - 0.5 - float(nu)))
        while truncation_estimate(nu, order, shift) > tol:
            shift += 1
        choices.append((shift, order))
    shift, order = min(choices)
    return Expansion(nu, order, shift, economy=Fraction(tol) / 2)
