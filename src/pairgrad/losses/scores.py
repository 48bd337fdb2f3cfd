"""The vMF class score of a feature (eq. exact-score), for any realization and both geometries."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch

from pairgrad.ground.checks import DTYPES, HALF_DTYPES, dense, describe, one_of, readable, real_number, wide_dtype
from pairgrad.potentials import Potential, potential
from pairgrad.sphere.geometry import GEOMETRIES, Temperature, expanded_radius, squared_increment
from pairgrad.sphere.inputs import checked_features, looks
from pairgrad.sphere.state import Classes


@runtime_checkable
class State(Protocol):
    """What scores are taken against: a `ClassBank` or a `ClassState`."""

    @property
    def num_classes(self) -> int: ...
    @property
    def dim(self) -> int: ...
    def classes(self) -> Classes: ...


def vmf_scores(
    features: torch.Tensor,
    state: State,
    temperature: Temperature = 0.1,
    realization: str | Potential = "paired",
    geometry: str = "factorised",
    *,
    geometry_dtype: torch.dtype | None = None,
    scalar_dtype: torch.dtype | None = None,
    validate: bool | None = None,
) -> torch.Tensor:
    r"""Scores \(q_j(f) = \Phi_\nu(r_j) - \Phi_\nu(\kappa_j)\), \(r_j = \lVert\kappa_j\mu_j + f/\tau\rVert\) (eq. realized-vmf-score).

    In the appendix of the paper they are eqs. patt-score-def and exact-score.

    The logarithm of the expected value of exp(f.z / tau) over a feature z of class j. Differentiable, twice where the realization is, in the features
    and, where they require gradients, in the mean directions, the concentrations and the temperature; the gradient is the one the realization supplies.

    Args:
        features: (B, p), any leading shape. They need not be normalised.
        state: a [`ClassBank`][pairgrad.ClassBank] or a [`ClassState`][pairgrad.ClassState].
        temperature: tau > 0, a number or a tensor with one element.
        realization: how the potential is computed, by name or as a `Potential`; with `"arfr"` these are the scores of eq. f2-score.
        geometry: `"factorised"`, one matrix product; or `"expanded"`, through a (B, K, p) tensor, as in the public code.
        geometry_dtype: compute and return in this dtype, e.g. torch.float64; None: in that of the features.
        scalar_dtype: of the potential alone, between radii and scores in the dtype of the geometry; None: the same. The paper trains with float32 geometry
            and float64 scalars.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).

    Returns:
        (B, K), to rounding: in float32, 5e-6 absolute for unit features at tau = 0.1 and concentrations up to 1e5, and 1e-5 where feature and class are
        nearly parallel.

    Examples:
        >>> import torch, pairgrad as pg
        >>> state = pg.ClassState(torch.eye(3, 8), torch.tensor([5.0, 10.0, 100.0]))
        >>> [round(q, 4) for q in pg.vmf_scores(torch.eye(8)[:1], state, temperature=0.5)[0].tolist()]
        [1.1001, 0.1386, 0.0193]
    """
    one_of("geometry", geometry, GEOMETRIES)
    temperature = check_temperature(temperature)
    pot = resolve(realization, checked_state(state).dim)
    classes = state.classes()
    features = checked_features(features, state.dim, classes.rows, validate=validate)
    dtype = working_dtype(features, classes, geometry_dtype)
    check_reach(features, classes, temperature, dtype, validate)
    with full_precision(features.device.type):
        flat = features.reshape(-1, state.dim)
        scores = plain_scores(flat, classes, temperature, pot, geometry, dtype, checked_scalars(scalar_dtype))
    return scores.reshape(*features.shape[:-1], state.num_classes)


def plain_scores(
    features: torch.Tensor,
    classes: Classes,
    temperature: Temperature,
    pot: Potential,
    geometry: str,
    dtype: torch.dtype,
    scalar_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`vmf_scores` of checked arguments, (B, p) -> (B, K), in operations that autograd and torch.func follow."""
    features = features.to(dtype)
    classes = classes.to(dtype)
    if isinstance(temperature, torch.Tensor):
        temperature = temperature.to(dtype)
    if geometry == "expanded":
        scores, reached = pot.difference, expanded_radius(features, classes, temperature)
    else:
        scores, reached = pot.increment, squared_increment(features, classes, temperature)
    if scalar_dtype is None:
        return scores(classes.concentration, reached)
    return scores(classes.concentration.to(scalar_dtype), reached.to(scalar_dtype)).to(dtype)


def resolve(realization: str | Potential, dim: int) -> Potential:
    """The potential a name stands for in this dimension; a potential stands for itself."""
    if isinstance(realization, Potential):
        if realization.dim != dim:
            raise ValueError(f"realization must be a potential of dim={dim}, the dimension of the features, got {realization!r}")
        return realization
    return potential(dim, realization)


def checked_state(state: State) -> State:
    """The state, if it is one and has all classes."""
    if not torch.compiler.is_compiling() and not isinstance(state, State):  # of a state made in its region, the compiler cannot tell
        raise TypeError(f"state must be a pairgrad.ClassBank or a pairgrad.ClassState, got {describe(state)}")
    if not getattr(state, "whole", True):
        raise ValueError(
            "state must have all classes, got one that several ranks share out, with the classes of this rank: use pairgrad.distributed.vmf_cross_entropy, "
            "pairgrad.distributed.top_classes, or the scores of the loss"
        )
    return state


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


def check_reach(features: torch.Tensor, classes: Classes, temperature: Temperature, dtype: torch.dtype, validate: bool | None) -> None:
    """A ValueError where the squared radii are no numbers in `dtype`; looked at on the CPU, and where `validate` asks for it."""
    if not looks(features, validate) or not all(readable(t) or validate for t in (classes.concentration, classes.rates)):
        return
    if isinstance(temperature, torch.Tensor):
        if temperature.device != features.device:
            raise ValueError(
                f"temperature must be a number or on {features.device}, where the features are, got {describe(temperature)}: move it with .to(...)"
            )
        if not readable(temperature):
            return
        temperature = float(temperature.detach())
    length = longest_of(features)
    if not length:
        return
    concentration = float(classes.concentration.detach().amax())
    rate = float(classes.rates.detach().amax()) if classes.rates.dtype == dtype else 0.0  # else they are computed anew
    check_squares(length, concentration, rate, temperature, dtype)


def check_squares(length: float, concentration: float, rate: float, temperature: float, dtype: torch.dtype) -> None:
    """A ValueError unless the squared radius of the longest feature at the largest concentration is a number in `dtype`."""
    limits = torch.finfo(dtype)
    reach = length / temperature + concentration
    if not (reach < math.sqrt(limits.max / 8) and temperature > math.sqrt(limits.tiny) and rate / temperature < limits.max / 8):
        raise ValueError(
            f"features, temperature and concentrations must keep the squared radius (|f| / temperature + concentration)^2 a number in {dtype}, got features "
            f"of length {length:.3g}, temperature {temperature:.3g} and concentration {concentration:.3g}: normalise the features, raise the temperature, "
            "or compute in float64 (geometry_dtype)"
        )


def longest_of(features: torch.Tensor) -> float:
    """The length of the longest feature, 0 if there is none."""
    return float(torch.linalg.vector_norm(features.detach(), dim=-1, dtype=torch.float64).max()) if features.numel() else 0.0


def working_dtype(features: torch.Tensor, classes: Classes, geometry_dtype: torch.dtype | None) -> torch.dtype:
    """That of the features against the class rows, float32 for half features."""
    if geometry_dtype is not None:
        return wide_dtype("geometry_dtype", geometry_dtype)
    dtype = torch.promote_types(features.dtype, classes.rows.dtype) if features.dtype not in HALF_DTYPES else classes.rows.dtype
    return torch.float32 if dtype in HALF_DTYPES else dtype


def checked_scalars(scalar_dtype: torch.dtype | None) -> torch.dtype | None:
    """The dtype of the scalar functions, if it is one that they have."""
    if scalar_dtype is not None and (not isinstance(scalar_dtype, torch.dtype) or scalar_dtype not in DTYPES):
        raise TypeError(f"scalar_dtype must be None, torch.float32 or torch.float64, got {describe(scalar_dtype)}")
    return scalar_dtype


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Autocast off: scores and losses are computed in float32 or float64 whatever the region around them."""
    if not torch.amp.is_autocast_available(device_type) or not torch.is_autocast_enabled(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)
