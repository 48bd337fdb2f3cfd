"""How scores and losses are computed: the options that all of them share, checked in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from pairgrad.ground.checks import (
    DTYPES,
    HALF_DTYPES,
    dense,
    describe,
    integer_at_least,
    one_of,
    optional_boolean,
    readable,
    real_number,
    wide_dtype,
)
from pairgrad.ground.devices import widest
from pairgrad.losses.fused.execution import Execution, execution_of, settled
from pairgrad.losses.fused.plan import Plan, plan
from pairgrad.potentials import Potential, potential
from pairgrad.sphere.geometry import GEOMETRIES, Temperature
from pairgrad.sphere.inputs import looks
from pairgrad.sphere.state import Classes

_BOUND_TOL = 1e-3  # by which a feature may exceed max_norm: unit vectors in half precision do, and the margins of the series are wider


@dataclass(frozen=True, eq=False)
class Options:
    """How a score or a loss is computed; `checked` makes one from a user's keywords.

    Args:
        potential: the realization, for the dimension of the features.
        temperature: tau.
        geometry: `"factorised"` or `"expanded"`.
        geometry_dtype: of scores and losses; None: that of features and classes.
        scalar_dtype: of the potential; None: that of the geometry.
        max_norm: a bound on the length of the features; None: found where that costs nothing.
        tile: classes per tile; None: chosen.
        validate: whether values are checked.
        execution: how the fused pass runs.
    """

    potential: Potential
    temperature: Temperature
    geometry: str
    geometry_dtype: torch.dtype | None
    scalar_dtype: torch.dtype | None
    max_norm: float | None
    tile: int | None
    validate: bool | None
    execution: Execution

    @staticmethod
    def checked(
        dim: int,
        temperature: Temperature,
        realization: str | Potential,
        *,
        geometry: str = "factorised",
        geometry_dtype: torch.dtype | None = None,
        scalar_dtype: torch.dtype | None = None,
        max_norm: float | None = None,
        tile: int | None = None,
        validate: bool | None = None,
        execution: Execution | None = None,
    ) -> Options:
        """From the keywords of a public function; an error names the first that is wrong."""
        potential = resolve(realization, dim)
        execution = execution_of("eager") if execution is None else execution
        execution.check(potential)
        return Options(
            potential,
            check_temperature(temperature),
            one_of("geometry", geometry, GEOMETRIES),
            None if geometry_dtype is None else wide_dtype("geometry_dtype", geometry_dtype),
            checked_scalars(scalar_dtype),
            checked_norm(max_norm),
            None if tile is None else integer_at_least("tile", tile, 1),
            optional_boolean("validate", validate),
            execution,
        )

    def settled(self, dtype: torch.dtype, device: torch.device, rows: int, num_classes: int) -> Options:
        """With the execution that `"auto"` stands for at this place; a ValueError if it has not this dtype or device."""
        execution = settled(self.execution, self.potential, dtype, device, rows, num_classes)
        execution.check_place(dtype, device)
        return self if execution is self.execution else replace(self, execution=execution)

    def dtype(self, features: torch.Tensor, classes: Classes) -> torch.dtype:
        """What is computed in and returned: that of the features against the class rows, float32 for half features."""
        if self.geometry_dtype is not None:
            return self.geometry_dtype
        rows = classes.rows.dtype
        dtype = rows if features.dtype in HALF_DTYPES else torch.promote_types(features.dtype, rows)
        return torch.float32 if dtype in HALF_DTYPES else dtype

    def plain(self, dtype: torch.dtype) -> bool:
        """Whether the scores of all classes must be formed, because the fused pass does not have this arithmetic."""
        return self.geometry == "expanded" or self.scalar_dtype not in (None, dtype)

    def check_reach(self, features: torch.Tensor, classes: Classes, dtype: torch.dtype) -> float | None:
        """A ValueError where squared radii overflow `dtype`; looked at on the CPU, and where `validate` asks for it. Returns the length of the longest
        feature, if it was looked up.
        """
        temperature, validate = self.temperature, self.validate
        if not looks(features, validate) or not (validate or (readable(classes.concentration) and readable(classes.rates))):
            return None
        if isinstance(temperature, torch.Tensor):
            if temperature.device != features.device:
                raise ValueError(
                    f"temperature must be a number or on {features.device}, where the features are, got {describe(temperature)}: move it with .to(...)"
                )
            if not readable(temperature):
                return None
            temperature = float(temperature.detach())
        length = longest_of(features)
        if length:
            rate = _largest(classes.rates) if classes.rates.dtype == dtype else 0.0  # else they are computed again
            check_squares(length, _largest(classes.concentration), rate, temperature, dtype)
        return length

    def longest(self, features: torch.Tensor, validate: bool | None, known: float | None = None) -> float | None:
        """A bound on the length of the features: `max_norm`, which must be one, or what they have, which may be `known`; None where that cannot be read."""
        bound = self.max_norm
        if bound is None:
            found = readable(features) and features.numel() and not self.execution.compiled  # a compiled pass is made for one bound
            return (longest_of(features) if known is None else known) + 1e-30 if found else None
        if looks(features, validate) and features.numel() and longest_of(features) > bound * (1 + _BOUND_TOL):
            raise ValueError(
                f"max_norm must be a bound on the length of the features, got max_norm = {bound:g} and a feature of length {longest_of(features):g}: the "
                "loss would be wrong; give a larger one, or None to have it found"
            )
        return bound

    def plan(self, dtype: torch.dtype, device: torch.device, **known: Any) -> Plan:
        """The plan of a fused pass; `known` are further arguments of `fused.plan.plan`."""
        temperature = self.temperature
        if isinstance(temperature, torch.Tensor):
            temperature = temperature.detach().to(dtype)
        return plan(self.potential, temperature, dtype, device, tile=self.tile, **known)


def resolve(realization: str | Potential, dim: int) -> Potential:
    """The potential a name stands for in this dimension; a potential stands for itself."""
    if isinstance(realization, Potential):
        if realization.dim != dim:
            raise ValueError(f"realization must be a potential of dim={dim}, the dimension of the features, got {realization!r}")
        return realization
    if type(realization) is str and not torch.compiler.is_compiling():
        return _named(dim, realization)
    return potential(dim, realization)


_named = lru_cache(maxsize=256)(potential)


def check_temperature(temperature: Temperature) -> Temperature:
    """The temperature, if it is a positive finite number or a tensor of one; the value of a tensor is read only where that costs no synchronisation."""
    if isinstance(temperature, torch.Tensor):
        if temperature.numel() != 1 or not temperature.is_floating_point():
            raise ValueError(
                f"temperature must be a positive number or a floating-point tensor with one element, got {describe(temperature)}"
            )
        if readable(temperature) and not 0 < float(temperature.detach()) < float("inf"):
            raise ValueError(f"temperature must be positive and finite, got {float(temperature.detach())!r}")
        return dense("temperature", temperature).reshape(())
    if torch.compiler.is_compiling():
        return temperature
    return real_number("temperature", temperature, "a positive finite number", lambda tau: 0 < tau < math.inf, kind=ValueError)


def checked_scalars(scalar_dtype: torch.dtype | None) -> torch.dtype | None:
    """The dtype of the scalar functions, if it is one that they have."""
    if scalar_dtype is not None and (not isinstance(scalar_dtype, torch.dtype) or scalar_dtype not in DTYPES):
        raise TypeError(f"scalar_dtype must be None, torch.float32 or torch.float64, got {describe(scalar_dtype)}")
    return scalar_dtype


def checked_norm(max_norm: float | None) -> float | None:
    """A bound on the length of the features, if it can be one."""
    if max_norm is None:
        return None
    expected = "a positive number, a bound on the length of the features"
    return real_number("max_norm", max_norm, expected, lambda length: 0 < length < math.inf, kind=ValueError)


def check_squares(length: float, concentration: float, rate: float, temperature: float, dtype: torch.dtype) -> None:
    """A ValueError unless the squared radius of the longest feature at the largest concentration is finite in `dtype`."""
    limits = torch.finfo(dtype)
    reach = length / temperature + concentration
    if not (reach < math.sqrt(limits.max / 8) and temperature > math.sqrt(limits.tiny) and rate / temperature < limits.max / 8):
        raise ValueError(
            f"features, temperature and concentrations must keep the squared radius (|f| / temperature + concentration)^2 a number in {dtype}, got features "
            f"of length {length:.3g}, temperature {temperature:.3g} and concentration {concentration:.3g}: normalise the features, raise the temperature, "
            "or compute in float64 (geometry_dtype)"
        )


def _largest(values: torch.Tensor) -> float:
    return float((values.detach() if values.requires_grad else values).amax())


def longest_of(features: torch.Tensor) -> float:
    """The length of the longest feature, 0 if there is none."""
    return float(torch.linalg.vector_norm(features.detach(), dim=-1, dtype=widest(features.device)).max()) if features.numel() else 0.0
