r"""The logarithm of the density of von Mises-Fisher distributions at given directions, and its derivatives.

With the largest log-density \(c = [\kappa - \Phi(\kappa)] - \log|S|\) it is \(c - \tfrac\kappa2\lVert x-\mu\rVert^2\). The squared distance is that of the
difference. Of many directions and one distribution it is \(\lVert x\rVert^2 + \lVert\mu\rVert^2 - 2\mu^\top x\), two passes over them and nothing
stored, wherever the other terms are so large that the roundings of that, times \(\kappa\), do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd import Function

from pairgrad.distributions.unit import distances, narrow
from pairgrad.ground._torch_private import is_legacy_batched, unobserved
from pairgrad.ground.checks import in_plain_memory, readable
from pairgrad.ground.precision import full_precision
from pairgrad.potentials import Potential
from pairgrad.potentials.kernels import of_number
from pairgrad.sphere.area import log_area

Peak = Callable[[], "torch.Tensor | float"]  # c


def log_density(
    potential: Potential, peak: Peak, x: torch.Tensor, direction: torch.Tensor, kappa: torch.Tensor, lengths: torch.Tensor | None = None
) -> torch.Tensor:
    """c - kappa |x - mu|^2 / 2 for tensors of one dtype whose shapes broadcast; `lengths` are those of x, if they are known."""
    with full_precision(x.device.type):
        if not readable(x) or not unobserved():
            return peak() - kappa * _half_square(x - direction)
        if torch.is_grad_enabled() and (x.requires_grad or direction.requires_grad or kappa.requires_grad):
            return _LogDensity.apply(potential, peak, x, direction, kappa, lengths)
        return _value(peak, x, direction, kappa, lengths)[0]


def few_log_densities(c: Any, x: Any, direction: torch.Tensor, kappa: torch.Tensor) -> torch.Tensor:
    """The same for an array of few directions."""
    return torch.from_numpy(np.asarray(_few(c, x, direction, kappa)[0]))


def _few(c: Any, x: Any, direction: torch.Tensor, kappa: torch.Tensor) -> tuple[Any, Any]:
    """The log-density and |x - mu|^2 / 2 for an array of few directions."""
    with np.errstate(all="ignore"):
        offset = x - direction.numpy(force=True)
        half = np.vecdot(offset, offset) / 2
        return (c if isinstance(c, float) else c.numpy(force=True)) - kappa.numpy(force=True) * half, half


def _half_square(offset: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vecdot(offset, offset) / 2


def _value(
    peak: Peak, x: torch.Tensor, direction: torch.Tensor, kappa: torch.Tensor, lengths: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-density and |x - mu|^2 / 2, on the host and without a graph."""
    c = peak()
    if in_plain_memory((x, direction, kappa)):
        value, half = _few(c, x.numpy(force=True), direction, kappa)
        return torch.from_numpy(np.asarray(value)), torch.from_numpy(np.asarray(half))
    if isinstance(c, float) and narrow(x):
        half = distances(x, direction).square_().div_(2)
    elif isinstance(c, float) and kappa.item() <= _WIDE * (c + 2 * max(log_area(x.shape[-1]), 0.0)):
        direction = direction.reshape(-1)
        lengths = torch.linalg.vector_norm(x, dim=-1) if lengths is None else lengths
        half = (lengths * lengths).add_(direction @ direction).div_(2).sub_(x @ direction).clamp_min_(0)
    else:
        offset = (x - direction).numpy(force=True)
        half = torch.from_numpy(np.asarray(np.vecdot(offset, offset))).div_(2)  # a third of the time that torch's takes
    return c - kappa * half, half


_WIDE = 1.0  # kappa over [kappa - Phi] + |log |S|| up to which a rounding of 1, times kappa, is like a rounding of these


class _LogDensity(Function):
    """The value as one node of the graph, which keeps no differences x - mu."""

    @staticmethod
    def forward(
        ctx: Any,
        potential: Potential,
        peak: Peak,
        x: torch.Tensor,
        direction: torch.Tensor,
        kappa: torch.Tensor,
        lengths: torch.Tensor | None,
    ) -> torch.Tensor:
        value, half = _value(peak, x, direction, kappa, lengths)
        ctx.potential = potential
        ctx.save_for_backward(x, direction, kappa, half)
        return value

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, direction, kappa, half = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:5]
        if torch.is_grad_enabled():  # for the second derivative, all of it from the arguments
            half = _half_square(x - direction)
        rise: Any = None
        few = in_plain_memory((x, direction, kappa, grad))
        if wanted[2]:
            number = few and kappa.numel() == 1
            rise = of_number(ctx.potential, "complement", kappa.item()) if number else ctx.potential.complement(kappa)
        if few:
            return None, None, *_few_gradients(x, direction, kappa, half, grad, rise), None
        by_x = by_direction = by_kappa = None
        if wanted[0] or wanted[1]:
            weight, offset = (grad * kappa)[..., None], x - direction
            if wanted[1] and direction.dim() == 1:
                with full_precision(x.device.type):
                    by_direction = weight.reshape(-1) @ offset.reshape(-1, offset.shape[-1])
            elif wanted[1]:
                by_direction = (weight * offset).sum_to_size(direction.shape)
            if wanted[0]:
                separate = torch.is_grad_enabled() or is_legacy_batched(grad)
                by_x = (offset * -weight if separate else offset.mul_(-weight)).sum_to_size(x.shape)
        if rise is not None:
            by_kappa = (grad * (rise - half)).sum_to_size(kappa.shape)
        return None, None, by_x, by_direction, by_kappa, None


def _few_gradients(
    x: torch.Tensor, direction: torch.Tensor, kappa: torch.Tensor, half: torch.Tensor, grad: torch.Tensor, rise: Any
) -> tuple[torch.Tensor | None, ...]:
    """In x, mu and kappa, by NumPy; `rise` is the derivative of c, or None if the last is not wanted."""
    with np.errstate(all="ignore"):
        g = grad.numpy(force=True)
        pull = np.multiply(g, kappa.numpy(force=True))[..., None] * (x.numpy(force=True) - direction.numpy(force=True))
        rise = rise.numpy(force=True) if isinstance(rise, torch.Tensor) else rise
        by_kappa = None if rise is None else torch.from_numpy(_summed(g * (rise - half.numpy()), kappa.shape))
        return torch.from_numpy(_summed(-pull, x.shape)), torch.from_numpy(_summed(pull, direction.shape)), by_kappa


def _summed(array: Any, shape: torch.Size) -> Any:
    """The sums of an array over what `shape` was broadcast along."""
    array = np.asarray(array)
    if array.shape == shape:
        return array
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    stretched = tuple(i for i, size in enumerate(shape) if size == 1 != array.shape[i])
    return np.asarray(array.sum(axis=stretched, keepdims=True) if stretched else array)
