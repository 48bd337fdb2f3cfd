"""What distributions on the sphere share: the constraint, uniform directions, and the checks of their parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import constraints

from pairgrad.ground.checks import HALF_DTYPES, computing_dtype, describe, generator_or_none, on_device, readable
from pairgrad.sphere.inputs import looks


class _UnitVector(constraints.Constraint):
    """A vector of length 1, along the last dimension; `tolerance` says how nearly."""

    event_dim = 1
    is_discrete = False

    def check(self, value: torch.Tensor) -> torch.Tensor:
        return (lengths(value) - 1).abs() <= tolerance(value.dtype)

    def __repr__(self) -> str:
        return "UnitVector()"


unit_vector = _UnitVector()


def tolerance(dtype: torch.dtype) -> float:
    """By how much the length of a unit vector may differ from 1: 1e-6, as for torch's simplex, or so many roundings of its coordinates and their sum."""
    return max(1e-6, (4 if dtype in HALF_DTYPES else 32) * torch.finfo(dtype).eps)


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


def check_batch(name: str, value: torch.Tensor, batch_shape: torch.Size, device: torch.device) -> torch.Size:
    """The common shape of `value` without its last dimension and a batch of distributions on `device`; a ValueError where there is none."""
    on_device(name, value, device, "the distribution is")
    try:
        return torch.broadcast_shapes(value.shape[:-1], batch_shape)
    except RuntimeError:
        raise ValueError(
            f"{name} must have a shape that broadcasts against the batch {tuple(batch_shape)} of the distribution, without its last dimension, "
            f"got {describe(value)}"
        ) from None


def source(generator: torch.Generator | None) -> dict[str, Any]:
    """The keyword for torch.rand and randn: their overloads with a generator, None included, cannot be traced with symbolic sizes."""
    return {} if generator_or_none("generator", generator) is None else {"generator": generator}


def _normals(shape: torch.Size, like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    return torch.randn(shape, dtype=computing_dtype("dtype", like.dtype), device=like.device, **source(generator))


def _lengths_of_normals(vectors: torch.Tensor) -> torch.Tensor:
    """Norms along the last dimension, which is kept, and never 0."""
    return torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min_(torch.finfo(vectors.dtype).tiny)


def uniform_direction(shape: torch.Size, like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Directions uniform on the sphere of the last dimension of `shape`."""
    vectors = _normals(shape, like, generator)
    return vectors.div_(_lengths_of_normals(vectors))


def directions_at(angle: torch.Tensor, mean_direction: torch.Tensor, shape: torch.Size, generator: torch.Generator | None) -> torch.Tensor:
    r"""\(\cos\theta\,\mu + \sin\theta\,v\) of `shape`, with v uniform among the directions orthogonal to \(\mu\).

    v is a normal vector g orthogonal to the first axis \(e_1\), scaled to length 1 and reflected by the Householder reflection along
    \(u = \mu + \sigma e_1\), \(\sigma\) the sign of \(\mu_1\), which takes \(e_1\) to \(-\sigma\mu\). With this sign
    \(\lVert u\rVert^2 = 2 + 2|\mu_1| \ge 2\): nothing is small at \(\mu = \pm e_1\), neither the denominator nor the derivative in \(\mu\). No matrix
    is formed: with \(s = \sin\theta/\lVert g\rVert\) and \(a = 2u^\top g/\lVert u\rVert^2\), the result is \(s\,(g - a\sigma e_1) + (\cos\theta - sa)\mu\).
    """
    normals = _normals(shape, mean_direction, generator)
    normals[..., 0].zero_()
    if shape[-1] == 2:  # a float32 normal is 0 once in 1e7 draws, and with it the only coordinate that is left
        normals[..., 1:] = torch.where(normals[..., 1:] < 0, -1.0, 1.0)
    length = _lengths_of_normals(normals)
    sign = torch.where(mean_direction[..., :1] < 0, -1.0, 1.0).to(mean_direction.dtype)
    axis = torch.cat([mean_direction[..., :1] + sign, mean_direction[..., 1:]], -1)
    across = normals @ axis if axis.dim() == 1 else torch.linalg.vecdot(normals, axis)
    along = across[..., None] * (2 / axis.square().sum(-1, keepdim=True))
    angle = angle[..., None]
    scale = torch.sin(angle) / length
    weight = torch.cos(angle) - scale * along
    if torch.is_grad_enabled() or not readable(mean_direction) or not readable(angle):
        return scale * torch.cat([-along * sign, normals[..., 1:]], -1) + weight * mean_direction
    normals[..., :1] = -along * sign
    return normals.mul_(scale).addcmul_(weight, mean_direction)
