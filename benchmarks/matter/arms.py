r"""The potentials that are compared: a value \(\Phi_\nu(\kappa)\), up to a constant, and the slope that its backward supplies.

The negative log-likelihood of a direction x is \(\Phi_\nu(\kappa) - \kappa\,\mu^\top x\), up to a constant (\(\Phi_\nu\): eq. patt-score-def), so a learned
concentration stops where the supplied slope equals the mean cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import scipy.special
import torch
from torch import Tensor

import pairgrad as pg

Normalizer = Callable[[Tensor], Tensor]
"""Concentrations, float64, to potentials, up to a constant."""

SWITCH, FLOOR = 100.0, 1e-6


@dataclass(frozen=True)
class Arm:
    """One pair.

    Attributes:
        name: in tables.
        what: in a sentence of the page.
        of: from the dimension to the potential.
    """

    name: str
    what: str
    of: Callable[[int], Normalizer]


def _realization(name: str) -> Callable[[int], Normalizer]:
    return lambda dim: pg.potential(dim, name).value


def _switched(dim: int) -> Normalizer:
    """Exact up to SWITCH; beyond it the approximation of arXiv:1812.04616, section 8.2, moved so that the values meet there."""
    exact, half = pg.potential(dim), (dim - 1) / 2

    def approximate(kappa: Tensor) -> Tensor:
        root = torch.sqrt((half + 1) ** 2 + kappa.square())
        return root - (half - 1) * torch.log(half - 1 + root)

    at = torch.tensor(SWITCH, dtype=torch.float64)
    moved = exact.value(at) - approximate(at)
    return lambda kappa: torch.where(kappa < SWITCH, exact.value(kappa.clamp(max=SWITCH)), approximate(kappa) + moved)


class _ScaledBessel(torch.autograd.Function):
    """exp(-x) I_nu(x) by SciPy, with its derivative."""

    @staticmethod
    def forward(ctx: Any, nu: float, x: Tensor) -> Tensor:
        ctx.nu = nu
        ctx.save_for_backward(x)
        return torch.as_tensor(scipy.special.ive(nu, x.numpy(force=True)))

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[None, Tensor]:
        (x,) = ctx.saved_tensors
        return None, cotangents[0] * (_scaled_bessel(ctx.nu + 1, x) + (ctx.nu / x - 1) * _scaled_bessel(ctx.nu, x))


def _scaled_bessel(nu: float, x: Tensor) -> Tensor:
    value: Any = _ScaledBessel.apply(nu, x)
    return value


def _floored(dim: int) -> Normalizer:
    """A small number added in the logarithm. Where the Bessel function is smaller still, what is left has the slope 1 - nu / kappa."""
    nu = dim / 2 - 1
    return lambda kappa: kappa + torch.log(FLOOR + _scaled_bessel(nu, kappa)) - nu * torch.log(kappa)


PAIRED = Arm("paired", "our default: the potential and its derivative, exact to rounding", _realization("paired"))
CONTROL = Arm("paired, moved", "the control: `paired` from initial weights that differ by one part in a million", _realization("paired"))
ARFR = Arm("arfr", "the paper's cure", _realization("arfr"))
CONSISTENT = Arm("consistent", "the finite recurrence with its own derivative: coherent, not faithful", _realization("consistent"))
ORIGINAL = Arm("original", "the same value with the clipped ratio as its backward: the mismatch of the paper", _realization("original"))
SWITCHED = Arm(
    "switch at 100",
    "exact up to kappa = 100 and an approximation above, joined in value and not in slope, as [graphnet had it until its issue 900]"
    "(https://github.com/graphnet-team/graphnet/issues/900)",
    _switched,
)
FLOORED = Arm(
    "log(1e-6 + ive)",
    "a small number inside the logarithm, as in [SCF's loss](https://github.com/MathsShen/SCF/blob/main/kl_delta_vmf.py); its slope is right "
    "for another function",
    _floored,
)
ARMS = (PAIRED, CONTROL, ARFR, CONSISTENT, ORIGINAL, SWITCHED, FLOORED)


def exact_potential(dim: int) -> Normalizer:
    """What every arm is judged by: -log C_p(kappa), with its constant."""
    pot = pg.potential(dim)
    constant = pot.offset + dim / 2 * math.log(2 * math.pi)
    return lambda kappa: pot.value(kappa) + constant
