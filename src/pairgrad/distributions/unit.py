"""What distributions on the sphere share: the constraint, uniform tangent directions, and the checks of their parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import constraints

from pairgrad.ground.checks import computing_dtype, describe
from pairgrad.sphere.inputs import looks


class _UnitVector(constraints.Constraint):
    """A vector of length 1, along the last dimension. The tolerance is that of torch's simplex, or 32 roundings of the dtype."""

    event_dim = 1
    is_discrete = False

    def check(self, value: torch.Tensor) -> torch.Tensor:
        return (lengths(value) - 1).abs() <= tolerance(value.dtype)

    def __repr__(self) -> str:
        return "UnitVector()"


unit_vector = _UnitVector()


def tolerance(dtype: torch.dtype) -> float:
    """By how much the length of a unit vector may differ from 1."""
    return max(1e-6, 32 * torch.finfo(dtype).eps)


def lengths(vectors: torch.Tensor) -> torch.Tensor:
    """Norms along the last dimension, in float32 at least."""
    return torch.linalg.vector_norm(vectors.to(computing_dtype("vectors", vectors.dtype)), dim=-1)


def check_unit(name: str, vectors: torch.Tensor, validate: bool | None) -> None:
    """A ValueError unless every vector along the last dimension is one of length 1; `validate` as in `sphere.inputs.looks`."""
    if not looks(vectors, validate):
        return
    wrong = ~unit_vector.check(vectors.detach())
    if bool(wrong.any()):
        found = lengths(vectors.detach())[wrong][0].item()
        raise ValueError(
            f"{name} must hold unit vectors, of length 1 to within {tolerance(vectors.dtype):.1g}, got the length {found:.9g} in {describe(vectors)}: "
            f"divide by it, e.g. torch.nn.functional.normalize({name}, dim=-1)"
        )


def check_last(name: str, value: Any, dim: int) -> None:
    """A ValueError unless the last dimension of `value` has `dim` coordinates."""
    if value.dim() < 1 or value.shape[-1] != dim:
        raise ValueError(f"{name} must have shape (..., {dim}), that many coordinates as the mean direction has, got {describe(value)}")


def normals(shape: torch.Size, like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    return torch.randn(shape, dtype=computing_dtype("dtype", like.dtype), device=like.device, generator=generator)


def uniform_direction(shape: torch.Size, like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Directions uniform on the sphere of the last dimension of `shape`."""
    vectors = normals(shape, like, generator)
    if shape[-1] == 1:
        return torch.where(vectors < 0, -1.0, 1.0).to(vectors.dtype)
    return vectors.div_(torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min_(torch.finfo(vectors.dtype).tiny))


def tangent_direction(mean_direction: torch.Tensor, shape: torch.Size, generator: torch.Generator | None) -> torch.Tensor:
    r"""Directions of `shape`, uniform among those orthogonal to `mean_direction`.

    A direction orthogonal to the first axis \(e_1\) is reflected by the Householder reflection along \(u = \mu + \sigma e_1\), \(\sigma\) the sign of
    \(\mu_1\), which takes \(e_1\) to \(-\sigma\mu\). With this sign \(\lVert u\rVert^2 = 2 + 2|\mu_1| \ge 2\): nothing is small at \(\mu = \pm e_1\), neither
    the denominator nor the derivative in \(\mu\), and no matrix is formed.
    """
    vectors = torch.zeros(shape, dtype=computing_dtype("dtype", mean_direction.dtype), device=mean_direction.device)
    vectors[..., 1:] = uniform_direction(torch.Size((*shape[:-1], shape[-1] - 1)), mean_direction, generator)
    sign = torch.where(mean_direction[..., :1] < 0, -1.0, 1.0).to(mean_direction.dtype)
    axis = mean_direction + torch.nn.functional.pad(sign, (0, shape[-1] - 1))
    along = (vectors * axis).sum(-1, keepdim=True) * (2 / axis.square().sum(-1, keepdim=True))
    return vectors - along * axis
