"""Estimates of a mean direction and a concentration from unit vectors, and how uncertain they are."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from pairgrad.distributions.unit import check_unit, tolerance
from pairgrad.ground._torch_private import unobserved
from pairgrad.ground.arithmetic import as_float
from pairgrad.ground.checks import (
    DTYPES,
    computing_dtype,
    dense,
    describe,
    floating_tensor,
    in_plain_memory,
    on_device,
    one_of,
)
from pairgrad.ground.devices import has_values
from pairgrad.ground.precision import full_precision
from pairgrad.potentials import Potential
from pairgrad.potentials.inverse import newton_of_number
from pairgrad.potentials.kernels import of_number
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
    if weights is None and estimator == "mle" and x.dim() == 2 and in_plain_memory((x,)):
        return _of_few(x)
    wide = x if x.dtype in DTYPES else x.to(computing_dtype("x", x.dtype))
    lengths = torch.linalg.vector_norm(wide.detach(), dim=-1)
    if lengths.numel() and not bool((lengths - 1).abs_().max() <= tolerance(x.dtype) / 2):
        check_unit("x", x, True)
    if weights is None:
        counts, total = None, torch.full(x.shape[:-2], float(x.shape[-2]), dtype=wide.dtype, device=x.device)
    else:
        counts = _checked_weights(weights, wide)
        total = counts.sum(-1)
        _check_total(total)
    if estimator == "unbiased" and bool((total < 2).any()):
        raise ValueError(
            f"estimator='unbiased' reads weights as counts, which must sum to 2 or more in every batch entry, got {total.min().item():g}: "
            "multiply normalised weights by the sample size"
        )
    with full_precision(x.device.type):
        recorded = torch.is_grad_enabled() and (wide.requires_grad or (counts is not None and counts.requires_grad))
        one = wide.dim() == 2 and not total.dim() and unobserved() and not recorded
        found = _in_one_pass(wide, lengths, counts, total) if one else None
        mean, length, rest = _by_differences(wide, counts, total) if found is None else found
        if bool((length <= torch.finfo(wide.dtype).tiny).any()):
            raise ValueError(_NO_DIRECTION)
        direction = mean / length[..., None]
    if bool((rest <= 4 * torch.finfo(wide.dtype).eps ** 2).any()):  # distances of a rounding
        raise ValueError(_COINCIDING.format(describe(x)))
    pot = paired(x.shape[-1])
    if estimator == "mle" and length.numel() == 1 and in_plain_memory((length, rest)):
        return direction.to(x.dtype), *_of_numbers(pot, float(length), float(rest), float(total), x, length.shape)
    kappa = _concentration(pot, length.clamp(max=1.0), rest, total, estimator)
    curvature, slope = pot.curvature(kappa), pot.slope(kappa)
    facts = Estimate(total, length, torch.rsqrt(total * curvature), torch.rsqrt(total * kappa * slope))
    return direction.to(x.dtype), kappa.to(x.dtype), Estimate(*(t.detach().to(x.dtype) for t in facts))


_NO_DIRECTION = "x has no mean direction in some batch entry: its vectors sum to 0"
_COINCIDING = (
    "x must hold at least two different directions in every batch entry, got coinciding ones in {}: their likelihood grows with the concentration "
    "without bound"
)


def _of_few(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Estimate]:
    """Maximum likelihood for one sample of few vectors, in the lines of `_by_differences` and with NumPy."""
    check_unit("x", x, True)
    array = x.numpy(force=True)
    total = len(array)
    with np.errstate(all="ignore"):
        unit = array / np.sqrt(np.vecdot(array, array))[:, None]
        about = unit.mean(0)
        offsets = unit - about
        shift = offsets.mean(0)
        mean = about + shift
        length = math.sqrt(mean @ mean)
    if length <= np.finfo(array.dtype).tiny:
        raise ValueError(_NO_DIRECTION)
    with np.errstate(all="ignore"):
        rest = float(np.vecdot(offsets, offsets).mean() - shift @ shift) / (1 + length)
    if rest <= 4 * float(np.finfo(array.dtype).eps) ** 2:
        raise ValueError(_COINCIDING.format(describe(x)))
    direction = torch.from_numpy(mean / mean.dtype.type(length))
    return direction, *_of_numbers(paired(x.shape[-1]), length, rest, float(total), x, torch.Size())


def _of_numbers(
    pot: Potential, length: float, rest: float, total: float, like: torch.Tensor, shape: torch.Size
) -> tuple[torch.Tensor, Estimate]:
    """The concentration of maximum likelihood and the facts, of one sample."""
    kappa = newton_of_number(pot, min(length, 1.0), rest)
    across, along = (of_number(pot, method, kappa) for method in ("slope", "curvature"))
    numbers = kappa, total, length, 1 / math.sqrt(total * along), 1 / math.sqrt(total * kappa * across)
    concentration, *facts = (torch.full(shape, number, dtype=torch.float64, device=like.device).to(like.dtype) for number in numbers)
    return concentration, Estimate(*facts)


def _in_one_pass(
    x: torch.Tensor, lengths: torch.Tensor, counts: torch.Tensor | None, total: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """The mean of the vectors of one sample, its length and 1 less that; None where that difference would lose more than two bits.

    In blocks of about sqrt(n) vectors: the rounding of a sum grows with the number of its terms.
    """
    shares = (1 if counts is None else counts) / (total * lengths)
    count, dim = x.shape
    size = math.isqrt(count)
    whole = count // size * size
    blocks = torch.bmm(shares[:whole].reshape(-1, 1, size), x[:whole].reshape(-1, size, dim))
    mean = blocks.sum((0, 1)) + shares[whole:] @ x[whole:]
    length = torch.linalg.vector_norm(mean)
    return None if float(length) > 0.75 else (mean, length, 1 - length)


def _by_differences(x: torch.Tensor, counts: torch.Tensor | None, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same for vectors that agree, and with a graph."""
    unit = torch.nn.functional.normalize(x, dim=-1)  # to rounding, not only to the tolerance
    shares = (torch.ones(x.shape[:-1], dtype=x.dtype, device=x.device) if counts is None else counts) / total[..., None]
    about = _weighted(shares, unit).detach()
    # The sum again, of differences from its first value: the rounding of a long sum of vectors that agree is larger than what they differ by.
    offsets = unit - about[..., None, :]
    shift = _weighted(shares, offsets)
    mean = about + shift
    length = torch.linalg.vector_norm(mean, dim=-1)
    # 1 - |m|^2 is the mean squared distance from m, which loses nothing where the vectors agree.
    rest = ((shares * offsets.square().sum(-1)).sum(-1) - shift.square().sum(-1)) / (1 + length)
    return mean, length, rest.detach()


def _weighted(shares: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    return shares @ vectors if vectors.dim() == 2 else torch.einsum("...n,...np->...p", shares, vectors)


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


def _check_total(total: torch.Tensor) -> None:
    if bool((total <= 0).any()):
        raise ValueError("weights must have a positive sum in every batch entry, got one of 0: nothing would be fitted")
    if bool(((total < _LEAST_TOTAL) | ~total.isfinite()).any()):
        raise ValueError(
            f"weights must have a finite sum of at least {_LEAST_TOTAL:g} in every batch entry, got {total.min().item():g} to {total.max().item():g}: "
            "their sum is the sample size"
        )


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
