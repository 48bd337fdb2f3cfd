"""The uniform distribution on the sphere."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.distributions import Distribution, constraints

from pairgrad.distributions.unit import check_batch, check_last, check_unit, uniform_direction, unit_vector
from pairgrad.ground._torch_private import new_distribution
from pairgrad.ground.checks import computing_dtype, device_or_none, floating_tensor, integer_at_least, optional_boolean, shape_of
from pairgrad.sphere.area import log_area


class HypersphericalUniform(Distribution):
    """Directions without preference in `dim` dimensions: `VonMisesFisher` at concentration 0.

    Args:
        dim: number of coordinates, at least 2.
        dtype: of the samples, moments and entropy; torch's default dtype if None.
        device: likewise.
        validate_args: whether to look at the values of arguments, as for `VonMisesFisher`.

    Examples:
        >>> round(HypersphericalUniform(3).entropy().item(), 4)  # log(4 pi)
        2.531
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}  # pyright: ignore
    support = unit_vector  # pyright: ignore
    has_rsample = True

    def __init__(
        self, dim: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None, validate_args: bool | None = None
    ) -> None:
        self.dim = integer_at_least("dim", dim, 2, hint="a direction needs at least two coordinates", most=2 * 10**9)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        computing_dtype("dtype", dtype)
        self._zero = torch.zeros((), dtype=dtype, device=device_or_none("device", device))
        self._looks = optional_boolean("validate_args", validate_args)
        super().__init__(torch.Size(), torch.Size((self.dim,)), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> HypersphericalUniform:
        new: Any = new_distribution(self, HypersphericalUniform, _instance)
        new.dim, new._zero, new._looks = self.dim, self._zero, self._looks
        Distribution.__init__(new, shape_of("batch_shape", batch_shape), self.event_shape, validate_args=False)
        return new

    def _constant(self, value: float, shape: torch.Size) -> torch.Tensor:
        return (self._zero + value).expand(shape)

    @property
    def mean(self) -> torch.Tensor:
        """0: no direction is preferred."""
        return self._constant(0.0, self.batch_shape + self.event_shape)

    @property
    def variance(self) -> torch.Tensor:
        """1 / p in every coordinate."""
        return self._constant(1 / self.dim, self.batch_shape + self.event_shape)

    @property
    def covariance(self) -> torch.Tensor:
        """I / p."""
        identity = torch.eye(self.dim, dtype=self._zero.dtype, device=self._zero.device) / self.dim
        return identity.expand(*self.batch_shape, self.dim, self.dim)

    covariance_matrix = covariance

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Minus the logarithm of the area of the sphere, whatever the direction."""
        floating_tensor("value", value)
        check_last("value", value, self.dim)
        check_unit("value", value, self._looks)
        shape = check_batch("value", value, self.batch_shape, self._zero.device)
        return torch.full(shape, -log_area(self.dim), dtype=torch.promote_types(value.dtype, self._zero.dtype), device=value.device)

    def entropy(self) -> torch.Tensor:
        return self._constant(log_area(self.dim), self.batch_shape)

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> torch.Tensor:
        """Exact draws, of shape sample_shape + batch_shape + (dim,); there is no parameter to differentiate by."""
        shape = shape_of("sample_shape", sample_shape) + self.batch_shape + self.event_shape
        return uniform_direction(shape, self._zero, generator).to(self._zero.dtype)

    def sample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> torch.Tensor:
        return self.rsample(sample_shape, generator)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, batch_shape={tuple(self.batch_shape)}, dtype={self._zero.dtype})"
