"""Estimates of a mean direction and a concentration from unit vectors, and how uncertain they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pairgrad.distributions.unit import check_unit
from pairgrad.ground.arithmetic import as_float
from pairgrad.ground.checks import computing_dtype, dense, describe, floating_tensor, on_device, one_of
from pairgrad.ground.devices import has_values
from pairgrad.ground.precision import full_precision
from pairgrad.potentials import Potential
from pairgrad.potentials.registry import paired

ESTIMATORS = ("mle", "unbiased", "closed-form", "banerjee", "sra")
_SRA_STEPS = 2
_LEAST_TOTAL = 1e-18  # below, the standard errors of a sample of that size are no numbers in float32


class Estimate(NamedTuple):
    r"""What a fit saw, and its asymptotic standard errors (from the Fisher information of n observations)."""

    sample_size: torch.Tensor  # n, the sum of the weights
    resultant_length: torch.Tensor  # ||S|| / n
    concentration_error: torch.Tensor  # 1 / sqrt(n R'(kappa))
    direction_error: torch.Tensor  # 1 / sqrt(n kappa R(kappa)): radians, in each direction orthogonal to mu


def estimate(x: torch.Tensor, weights: torch.Tensor | None, estimator: str) -> tuple[torch.Tensor, torch.Tensor, Estimate]:
    """Mean direction (..., p), concentration (...) and facts, of unit vectors (..., n, p)."""
    one_of("estimator", estimator, ESTIMATORS)
    floating_tensor("x", x)
    if not has_values(x):
        raise ValueError(f"x must hold numbers, got {describe(x)}: a fit looks at them")
    if x.dim() < 2 or x.shape[-1] < 2 or x.shape[-2] < 1:
        raise ValueError(f"x must have shape (..., n, p) with n >= 1 vectors of p >= 2 coordinates, got {describe(x)}")
    check_unit("x", x, True)
    wide = torch.nn.functional.normalize(x.to(computing_dtype("x", x.dtype)), dim=-1)  # to rounding, not only to the tolerance
    counts = torch.ones(x.shape[:-1], dtype=wide.dtype, device=x.device) if weights is None else _checked_weights(weights, wide)
    total = counts.sum(-1)
    if bool((total <= 0).any()):
        raise ValueError("weights must have a positive sum in every batch entry, got one of 0: nothing would be fitted")
    if bool(((total < _LEAST_TOTAL) | ~total.isfinite()).any()):
        raise ValueError(
            f"weights must have a finite sum of at least {_LEAST_TOTAL:g} in every batch entry, got {total.min().item():g} to {total.max().item():g}: "
            "their sum is the sample size"
        )
    if estimator == "unbiased" and bool((total < 2).any()):
        raise ValueError(
            f"estimator='unbiased' reads weights as counts, which must sum to 2 or more in every batch entry, got {total.min().item():g}: "
            "multiply normalised weights by the sample size"
        )
    with full_precision(x.device.type):
        shares = counts / total[..., None]
        about = _weighted(shares, wide).detach()
        # The sum again, of differences from its first value: the rounding of a long sum of vectors that agree is larger than what they differ by.
        offsets = wide - about[..., None, :]
        shift = _weighted(shares, offsets)
        mean = about + shift
        length = torch.linalg.vector_norm(mean, dim=-1)
        if bool((length <= torch.finfo(wide.dtype).tiny).any()):
            raise ValueError("x has no mean direction in some batch entry: its vectors sum to 0")
        direction = mean / length[..., None]
        # 1 - |m|^2 is the mean squared distance from m, which loses nothing where the vectors agree.
        rest = (((shares * offsets.square().sum(-1)).sum(-1) - shift.square().sum(-1)) / (1 + length)).detach()
    if bool((rest <= 4 * torch.finfo(wide.dtype).eps ** 2).any()):  # distances of a rounding
        raise ValueError(
            f"x must hold at least two different directions in every batch entry, got coinciding ones in {describe(x)}: their likelihood grows with the "
            "concentration without bound"
        )
    pot = paired(x.shape[-1])
    kappa = _concentration(pot, length.clamp(max=1.0), rest, total, estimator)
    curvature, slope = pot.curvature(kappa), pot.slope(kappa)
    facts = Estimate(total, length, torch.rsqrt(total * curvature), torch.rsqrt(total * kappa * slope))
    return direction.to(x.dtype), kappa.to(x.dtype), Estimate(*(t.detach().to(x.dtype) for t in facts))


def _weighted(shares: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    return torch.einsum("...n,...np->...p", shares, vectors)


def _concentration(pot: Potential, r: torch.Tensor, rest: torch.Tensor, count: torch.Tensor, estimator: str) -> torch.Tensor:
    """The estimate from r, 1 - r and n."""
    dim = as_float(2 * pot.nu + 2)
    if estimator == "mle":
        return pot.concentration(r, complement=rest)
    rest = rest + (r.detach() - r)  # with the derivative of 1 - r
    square = rest * (1 + r)  # 1 - r^2
    if estimator == "unbiased":
        square = square * (count / (count - 1))
        inside = square < 1
        r = torch.where(inside, 1 - square, 1.0).sqrt()  # a square of a length that is not positive is no length: no concentration
        return torch.where(inside, pot.concentration(r, complement=square / (1 + r)), 0.0)
    if estimator == "closed-form":
        return dim * r / square
    kappa = r * (dim - r * r) / square
    if estimator == "sra":
        for _ in range(_SRA_STEPS):
            kappa = kappa - (rest - pot.complement(kappa)) / pot.curvature(kappa)
    return kappa


def _checked_weights(weights: Any, x: torch.Tensor) -> torch.Tensor:
    if not isinstance(weights, torch.Tensor) or weights.is_complex() or weights.is_quantized:
        raise TypeError(f"weights must be a torch tensor of real numbers, one per vector of x, got {describe(weights)}")
    dense("weights", weights)
    on_device("weights", weights, x.device, "x is", "them")
    counts = weights.to(x.dtype)
    try:
        shape = torch.broadcast_shapes(counts.shape[:-1], x.shape[:-2])
    except RuntimeError:
        shape = None
    if shape is None or counts.shape[-1:] != x.shape[-2:-1]:
        raise ValueError(f"weights must have shape {tuple(x.shape[:-1])}, one per vector of x, or broadcast to it, got {describe(weights)}")
    if not bool(((counts >= 0) & counts.isfinite()).all()):
        raise ValueError(f"weights must be finite and >= 0, got values from {counts.min().item():g} to {counts.max().item():g}")
    return counts.expand(*shape, -1)
