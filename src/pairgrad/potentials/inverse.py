"""The inverse of the slope: from a resultant length to a concentration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pairgrad.ground.arithmetic import as_float
from pairgrad.ground.checks import describe, readable
from pairgrad.potentials import kernels
from pairgrad.potentials.autograd import differentiable

if TYPE_CHECKING:
    from pairgrad.potentials.protocol import Potential

# The start is within 2 % at every order and Newton squares that: two steps (float32) or three (float64) reach rounding, one more is kept.
NEWTON_STEPS = {torch.float32: 3, torch.float64: 4}


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


def _newton(pot: Potential, r: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    """Newton's method for h(x) = R / (1 - R^2), which is almost linear in x: between x / (2 nu + 2) and x / (2 nu + 1).

    1 - R^2 is formed from the complement, so that lengths close to 1 lose nothing; `rest` is 1 - |r|.
    """
    formulas = pot.formulas(r.dtype)
    length = r.abs()
    inside = (rest > 0) & (length > 0) & (length <= 1)
    safe, rest = torch.where(inside, length, 0.5), torch.where(inside, rest, 0.5)
    target = safe / (rest * (1 + safe))
    x = as_float(2 * pot.nu + 1) * target + safe
    for _ in range(NEWTON_STEPS[r.dtype] + (0 if pot.to_rounding else 4)):  # the start is close to the exact inverse
        slope, rest = formulas.slope(kernels.TORCH, x), formulas.complement(kernels.TORCH, x)
        width = rest * (2 - rest)
        step = (target * width - slope) * width / (formulas.curvature(kernels.TORCH, x) * (1 + slope * slope))
        x = torch.maximum(x + step, x / 8)
    x = torch.where(inside, x, torch.where(length == 0, 0.0, torch.where(length == 1, torch.inf, torch.nan)))
    return x * torch.sign(r)


_with_complement = differentiable(
    _newton,
    lambda pot, output, r, rest: 1 / kernels.curvature(pot, output),
    lambda pot, output, r, rest: torch.zeros_like(rest),  # the same information again
    uses_output=True,
)


def newton(pot: Potential, r: torch.Tensor, rest: torch.Tensor | None = None) -> torch.Tensor:
    """The x with slope(x) = r, for `rest` = 1 - |r| where that is known to more digits than the subtraction has."""
    return _with_complement(pot, r, (1 - r.abs()).detach() if rest is None else rest.detach())


def closed_form(pot: Potential, r: torch.Tensor) -> torch.Tensor:
    """dim r / (1 - r^2), eq. released-state [banerjee2005clustering]."""
    return torch.where(r.abs() <= 1, as_float(2 * pot.nu + 2) * r / ((1 - r) * (1 + r)), torch.nan)
