"""The vMF class score of a feature (eq. exact-score), for any realization and both geometries."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from pairgrad.ground.checks import describe
from pairgrad.ground.precision import full_precision
from pairgrad.losses.options import Options
from pairgrad.potentials import Potential
from pairgrad.sphere.bank import ClassBank
from pairgrad.sphere.geometry import Temperature, expanded_radius, squared_increment
from pairgrad.sphere.inputs import checked_features
from pairgrad.sphere.state import Classes, ClassState


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
    options = Options.checked(
        checked_state(state).dim,
        temperature,
        realization,
        geometry=geometry,
        geometry_dtype=geometry_dtype,
        scalar_dtype=scalar_dtype,
        validate=validate,
    )
    classes = state.classes()
    features = checked_features(features, state.dim, classes.rows, validate=validate)
    dtype = options.dtype(features, classes)
    options.check_reach(features, classes, dtype)
    with full_precision(features.device.type):
        scores = plain_scores(features.reshape(-1, state.dim), classes, options, dtype)
    return scores.reshape(*features.shape[:-1], state.num_classes)


def plain_scores(
    features: torch.Tensor, classes: Classes, options: Options, dtype: torch.dtype, temperature: Temperature | None = None
) -> torch.Tensor:
    """`vmf_scores` of checked arguments, (B, p) -> (B, K), in operations that autograd and torch.func follow; `temperature` instead of that of the options."""
    features = features.to(dtype)
    classes = classes.to(dtype)
    tau = options.temperature if temperature is None else temperature
    if isinstance(tau, torch.Tensor):
        tau = tau.to(dtype)
    pot, scalars = options.potential, options.scalar_dtype
    if options.geometry == "expanded":
        scores, reached = pot.difference, expanded_radius(features, classes, tau)
    else:
        scores, reached = pot.increment, squared_increment(features, classes, tau)
    if scalars is None:
        return scores(classes.concentration, reached)
    return scores(classes.concentration.to(scalars), reached.to(scalars)).to(dtype)


def checked_state(state: State) -> State:
    """The state, if it is one and has all classes."""
    if not torch.compiler.is_compiling() and not isinstance(
        state, (ClassBank, ClassState, State)
    ):  # of a state made in its region, the compiler cannot tell
        raise TypeError(f"state must be a pairgrad.ClassBank or a pairgrad.ClassState, got {describe(state)}")
    if not getattr(state, "whole", True):
        raise ValueError(
            "state must have all classes, got one that is sharded over ranks, with the classes of this rank: use pairgrad.distributed.vmf_cross_entropy, "
            "pairgrad.distributed.top_classes, or the scores of the loss"
        )
    return state
