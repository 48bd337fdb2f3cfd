"""What distributions on the sphere share: the constraint, uniform directions, and the checks of their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.distributions import constraints

from pairgrad.ground.checks import HALF_DTYPES, computing_dtype, describe, generator_or_none, in_plain_memory, on_device, readable
from pairgrad.ground.devices import widest
from pairgrad.sphere.inputs import looks


class _UnitVector(constraints.Constraint):
    """A vector of length 1, along the last dimension; `tolerance` says how nearly."""

    event_dim = 1
    is_discrete = False

    def check(self, value: torch.Tensor) -> torch.Tensor:
        return (_exact_lengths(value) - 1).abs() <= tolerance(value.dtype)

    def __repr__(self) -> str:
        return "UnitVector()"


unit_vector = _UnitVector()


def tolerance(dtype: torch.dtype) -> float:
    """By how much the length of a unit vector may differ from 1: 1e-6, as for torch's simplex, or so many roundings of its coordinates and their sum."""
    return max(1e-6, (4 if dtype in HALF_DTYPES else 32) * torch.finfo(dtype).eps)


_SINGLE, _DOUBLE = tolerance(torch.float32), tolerance(torch.float64)


def _exact_lengths(vectors: torch.Tensor) -> torch.Tensor:
    """Norms along the last dimension, in float64 where the device has it: the sum of a million squares in float32 is off by more than a unit vector may be."""
    return torch.linalg.vector_norm(vectors, dim=-1, dtype=widest(vectors.device))


def check_unit(name: str, vectors: torch.Tensor, validate: bool | None) -> torch.Tensor | None:
    """A ValueError unless every vector along the last dimension is one of length 1; `validate` as in `sphere.inputs.looks`.

    Returns the lengths, if they were computed on the way.
    """
    if not looks(vectors, validate) or not vectors.numel():
        return None
    vectors = vectors.detach()
    if in_plain_memory((vectors,)):
        if unit_arrays(vectors.numpy(force=True)):
            return None
    elif vectors.dtype not in HALF_DTYPES:
        # quickly, in their own dtype, whose rounding is not enough to refuse one
        lengths = distances(vectors, vectors.new_zeros(vectors.shape[-1])) if narrow(vectors) else torch.linalg.vector_norm(vectors, dim=-1)
        least, most = torch.aminmax(lengths)
        if bool(most - least <= tolerance(vectors.dtype) / 2) and bool((most - 1).abs() <= tolerance(vectors.dtype) / 2):
            return lengths
    wrong = ~unit_vector.check(vectors)
    if bool(wrong.any()):
        found = _exact_lengths(vectors)[wrong][0].item()
        raise ValueError(
            f"{name} must hold unit vectors, of length 1 to within {tolerance(vectors.dtype):.1g}, got the length {found:.9g} in {describe(vectors)}: "
            f"divide by it, e.g. torch.nn.functional.normalize({name}, dim=-1)"
        )
    return None


def narrow(vectors: torch.Tensor) -> bool:
    """Whether they have so few coordinates that `distances`, which stores no differences, is faster than the sum of squares."""
    return vectors.dim() > 1 and vectors.shape[-1] <= _NARROW


_NARROW = 16


def distances(vectors: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """|x - place| for all vectors x along the last dimension."""
    return torch.cdist(vectors, place.reshape(1, -1), compute_mode="donot_use_mm_for_euclid_dist").squeeze(-1)


def unit_arrays(vectors: Any) -> bool:
    """Whether vectors are unit by sums in their own dtype: an array in float32 or float64."""
    with np.errstate(all="ignore"):
        excess = np.vecdot(vectors, vectors) - 1
    most = excess if vectors.ndim == 1 else max(excess.max(), -excess.min())
    return bool(abs(most) <= _SINGLE if vectors.dtype == np.float32 else abs(most) <= _DOUBLE)


def check_last(name: str, value: Any, dim: int) -> None:
    """A ValueError unless the last dimension of `value` has `dim` coordinates."""
    if value.dim() < 1 or value.shape[-1] != dim:
        raise ValueError(f"{name} must have shape (..., {dim}), that many coordinates as the mean direction has, got {describe(value)}")


def check_batch(name: str, value: torch.Tensor, batch_shape: torch.Size, device: torch.device) -> torch.Size:
    """The common shape of `value` without its last dimension and a batch of distributions on `device`; a ValueError where there is none."""
    on_device(name, value, device, "the distribution is")
    if not batch_shape:
        return value.shape[:-1]
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
    if shape[-1] == 2:
        return _on_the_circle(angle, mean_direction, shape, generator)
    normals = _normals(shape, mean_direction, generator)
    if in_plain_memory((normals, angle, mean_direction)):
        return torch.from_numpy(_few_directions_at(angle.numpy(force=True)[..., None], mean_direction.numpy(force=True), normals.numpy()))
    normals[..., 0].zero_()
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


def _on_the_circle(angle: torch.Tensor, mean_direction: torch.Tensor, shape: torch.Size, generator: torch.Generator | None) -> torch.Tensor:
    """The mean direction turned by the angle, to either side."""
    aside = torch.rand(shape[:-1], dtype=angle.dtype, device=angle.device, **source(generator)) < 0.5
    turn = torch.where(aside, -angle, angle)
    cosine, sine = torch.cos(turn), torch.sin(turn)
    if in_plain_memory((cosine, mean_direction)):
        c, s, mean = cosine.numpy(), sine.numpy(), mean_direction.numpy(force=True)
        drawn = np.empty(shape, c.dtype)
        with np.errstate(all="ignore"):
            drawn[..., 0], drawn[..., 1] = c * mean[..., 0] - s * mean[..., 1], s * mean[..., 0] + c * mean[..., 1]
        return torch.from_numpy(drawn)
    x, y = mean_direction.unbind(-1)
    return torch.stack([cosine * x - sine * y, sine * x + cosine * y], -1)


def _few_directions_at(angle: Any, mean_direction: Any, normals: Any) -> Any:
    """The same with arrays, in the memory of the normal variables."""
    with np.errstate(all="ignore"):
        normals[..., 0] = 0
        length = np.sqrt(np.vecdot(normals, normals))[..., None]
        first = mean_direction[..., :1]
        sign = np.where(first < 0, -1, 1).astype(normals.dtype)
        axis = mean_direction.copy()
        axis[..., :1] += sign
        along = (np.vecdot(normals, axis) * (2 / np.vecdot(axis, axis)))[..., None]
        scale = np.sin(angle) / np.maximum(length, np.finfo(normals.dtype).tiny)
        normals[..., :1] = -along * sign
        normals *= scale
        normals += (np.cos(angle) - scale * along) * mean_direction
        return normals
