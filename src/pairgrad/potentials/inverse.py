"""The inverse of the slope: from a resultant length to a concentration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pairgrad.ground.arithmetic import BlockArithmetic, Number, as_float
from pairgrad.ground.checks import describe, readable
from pairgrad.potentials import kernels
from pairgrad.potentials.autograd import differentiable
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.formulas import Formulas

if TYPE_CHECKING:
    from pairgrad.potentials.protocol import Potential

# The start is within 7 % of the exact inverse at every order and Newton squares that: four steps reach rounding. Formulas that are not close to the exact
# ones get four steps more.
_NEWTON_STEPS = 8


def check_range(r: torch.Tensor) -> None:
    """|r| <= 1, where looking costs no device synchronisation: eager tensors on the CPU."""
    if not readable(r):
        return
    outside = r.detach().abs() > 1
    if bool(outside.any()):
        worst = r.detach().abs().nan_to_num(0.0).max().item()
        raise ValueError(
            f"resultant_length must lie in [-1, 1], got values up to {worst:g} in {describe(r)}: it is the norm of a mean of unit vectors; "
            "normalise the features, or clamp it yourself if you mean to"
        )


def _newton(ops: kernels.Ops, pot: Potential, formulas: Formulas, r: Number, rest: Number) -> Number:
    """The root of h(x) = target for h = R / (1 - R^2), which is almost linear in x: between x / (2 nu + 2) and x / (2 nu + 1).

    1 - R^2 is formed from the complement, so that lengths close to 1 lose nothing; `rest` is 1 - |r|.
    """
    length = ops.absolute(r)
    planned = formulas if isinstance(formulas, Expansion) and formulas.economy else None
    least = 1 / ops.far(r) if planned else 0.0  # up to it, x is dim r, and squares would leave the range
    inside = (rest > 0) & (length > least) & (length <= 1)
    half = 0 * r + 0.5
    safe, rest = ops.choose(inside, length, half), ops.choose(inside, rest, half)
    target = safe / (rest * (1 + safe))
    x = as_float(2 * pot.nu + 1) * target + safe
    if planned:
        x = ops.choose(rest < least, x, _planned(ops, pot, planned, target, x))
    else:
        for _ in range(_NEWTON_STEPS):
            slope, rest = formulas.slope(ops, x), formulas.complement(ops, x)
            x = ops.maximum(x + _step(target, slope, rest, formulas.curvature(ops, x)), x / 8)
    ends = ops.choose(length <= least, as_float(2 * pot.nu + 2) * length, ops.choose(length == 1, math.inf, half * math.nan))
    return ops.choose(inside, x, ends) * ops.sign(r)


def _step(target: Number, slope: Number, rest: Number, bend: Number) -> Number:
    """Newton's, for h."""
    width = rest * (2 - rest)
    return (target * width - slope) * width / (bend * (1 + slope * slope))


def _planned(ops: kernels.Ops, pot: Potential, formulas: Expansion, target: Number, x: Number) -> Number:
    """With expansions that are right to rounding: steps of Halley with the short one that float32 needs, then of Newton with the full one.

    The Riccati equation R' = 1 - R^2 - a R, a = (2 nu + 1) / x, gives the second derivative,

        h'' / h' = a R / (x R') - 2 R - a + 2 R R' / (1 + R^2) + 4 R R' / (1 - R^2),

    and Halley cubes the error: 1.1e-2 at dim 16 becomes 1e-8, less than what float32 leaves out, and Newton squares that. Below, where the short expansion
    has a shift, the start is within 6.5e-2, and a second step is taken. A second step of Newton evens out rounding; it is left out where only the full
    expansion has a shift (dims 14 to 31), which makes it long.
    """
    short = pot.formulas(torch.float32)
    assert isinstance(short, Expansion)
    for _ in range(2 if short.shift else 1):
        slope, rest, bend = short.slope_complement_curvature(ops, x)
        step = _step(target, slope, rest, bend)
        a = as_float(2 * pot.nu + 1) * ops.reciprocal(x)
        turn = slope * (a / (x * bend) - 2 + bend * (2 * ops.reciprocal(1 + slope * slope) + 4 * ops.reciprocal(rest * (2 - rest)))) - a
        x = ops.maximum(x + step / (1 + step * turn / 2), x / 8)
    for _ in range(1 if formulas.shift and not short.shift else 2):
        x = x + _step(target, *formulas.slope_complement_curvature(ops, x))
    return x


_with_complement = differentiable(
    kernels.computed(_newton, on_devices=BlockArithmetic()),
    lambda pot, output, r, rest: 1 / kernels.curvature(pot, output),
    lambda pot, output, r, rest: torch.zeros_like(rest),  # the same information again
    uses_output=True,
)


def newton(pot: Potential, r: torch.Tensor, rest: torch.Tensor | None = None) -> torch.Tensor:
    """The x with slope(x) = r, for `rest` = 1 - |r| where that is known to more digits than the subtraction has."""
    return _with_complement(pot, r, (1 - r.abs()).detach() if rest is None else rest.detach())


def newton_of_number(pot: Potential, r: float, rest: float) -> float:
    """The same of floats."""
    return kernels.of_number(pot, _newton, r, rest)


def closed_form(pot: Potential, r: torch.Tensor) -> torch.Tensor:
    """dim r / (1 - r^2), eq. released-state [banerjee2005clustering]."""
    return (as_float(2 * pot.nu + 2) * r / ((1 - r) * (1 + r))).masked_fill(r.abs() > 1, torch.nan)
