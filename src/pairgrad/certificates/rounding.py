"""How far rounding can move the slope, proven over the whole axis: the arithmetic is in `rounding_arithmetic`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from pairgrad.certificates.rounding_arithmetic import RoundingArithmetic, above
from pairgrad.certificates.rounding_constants import SMALLEST_NORMAL, UNIT_ROUNDOFF
from pairgrad.ground.arithmetic import BallArithmetic
from pairgrad.ground.balls import flint, working_precision
from pairgrad.ground.checks import DTYPES
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.protocol import Potential

HYPOTHESIS = (
    "+ - * / round to nearest, sqrt is within one unit in the last place, and what is subnormal may be flushed to zero; a scalar is rounded to the "
    "dtype before it meets a tensor, and a scalar over a tensor is a reciprocal and a product, as in torch; products may be fused into sums, "
    "nothing else is rearranged"
)
_PRECISION = 64  # bits of the midpoints; what is rounded there goes into the radii
_SHARPNESS = 1.1  # boxes are halved until the bound is within this factor of what it is at a single point
_MOST_BOXES = 4000
_PEEK = 8  # a single point is looked at once in so many halvings


@dataclass(frozen=True)
class RoundingBound:
    """|computed - exact| <= relative * |exact| at 0 and for all x with smallest <= |x| <= infinity.

    "Exact" is the same formula in real arithmetic, with its exact coefficients. The error of truncation comes on top.
    """

    relative: float
    roundings: float  # the same in units of u
    smallest: float  # below, the slope or x / s may be subnormal
    worst: tuple[float, float]  # the box of x / max(nu, 1/2) in which the bound is largest
    boxes: int
    hypothesis: str = HYPOTHESIS


@cache
def slope_rounding_bound(pot: Potential, dtype: torch.dtype = torch.float64) -> RoundingBound:
    """A bound of the relative rounding error of `pot.slope` in float32 or float64, for a potential given by an expansion.

    Without shift it is 9 u (0.1 s to prove); with the shifts that `"paired"` takes below dim 30, up to 18 u (some seconds).

    Raises:
        TypeError: another dtype, or a potential that is no expansion.
        ImportError: without python-flint.
    """
    if dtype not in DTYPES:
        raise TypeError(f"dtype must be torch.float32 or torch.float64 (others are computed in float32 and rounded once more), got {dtype}")
    formulas = pot.formulas(dtype)
    if not isinstance(formulas, Expansion):
        raise TypeError(f"a rounding bound needs a potential given by an expansion ('paired' or 'arfr'), got {pot!r}")
    centre, scale = float(formulas.centre), max(float(pot.nu), 0.5)
    smallest = 8 * SMALLEST_NORMAL[dtype] * (centre + float(pot.nu) + 1)
    ends = [smallest, *(centre * 2.0**k for k in range(-12, 21)), math.inf]
    kept: dict[Any, Any] = {}

    def condition(a: float, b: float) -> float:
        ops: Any = RoundingArithmetic(dtype, (a, b), kept)
        return above(ops.condition(formulas.slope(ops, ops.argument)))

    with working_precision(_PRECISION):
        largest, worst, boxes = _largest(condition, list(pairwise(ends)))
        unit = flint().arb(UNIT_ROUNDOFF[dtype])
        relative = above((largest * unit / (1 - unit)).expm1())  # from |log F(x, e) - log F(x, 0)|
    return RoundingBound(relative, relative / UNIT_ROUNDOFF[dtype], smallest, (worst[0] / scale, worst[1] / scale), boxes)


def measured_slope_rounding(pot: Potential, dtype: torch.dtype = torch.float64, states: int = 1000) -> float:
    """The largest relative rounding error of `pot.slope` on the CPU, in units of u, over random x / max(nu, 1/2) from 1e-3 to 1e3, against balls."""
    formulas, scale = pot.formulas(dtype), max(float(pot.nu), 0.5)
    exponents = torch.empty(states, dtype=torch.float64).uniform_(-3, 3, generator=torch.Generator().manual_seed(0))
    x = (scale * 10**exponents).to(dtype)
    largest, ops = 0.0, BallArithmetic()
    with working_precision(160) as module:
        for point, computed in zip(x.tolist(), pot.slope(x).tolist(), strict=True):
            largest = max(largest, float(abs(module.arb(computed) / formulas.slope(ops, module.arb(point)) - 1)))
    return largest / UNIT_ROUNDOFF[dtype]


def _largest(condition: Callable[[float, float], float], boxes: list[tuple[float, float]]) -> tuple[float, tuple[float, float], int]:
    """A bound of the condition over all boxes, the box in which it is largest, and the number of boxes this took."""
    heap = [(-condition(a, b), a, b) for a, b in boxes]
    heapq.heapify(heap)
    reached = 0.0
    while True:
        bound, a, b = heap[0]
        middle = math.sqrt(a) * math.sqrt(b) if b < math.inf else a * 2.0**20
        if len(heap) % _PEEK == 0:
            reached = max(reached, condition(middle, middle))
        if -bound <= _SHARPNESS * reached or len(heap) >= _MOST_BOXES or not a < middle < b:
            return -bound, (a, b), len(heap)
        heapq.heapreplace(heap, (-condition(a, middle), a, middle))
        heapq.heappush(heap, (-condition(middle, b), middle, b))
