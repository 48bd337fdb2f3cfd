"""One view of a batch with everything that it is scored against, and what a realization makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import pairgrad as pg
from pairgrad.losses import UpdateField, update_field

RULES = ("original", "consistent")  # one forward, two backwards
DOUBLE = torch.float64
TRAINING: dict[str, Any] = {"geometry": "expanded", "dtype": torch.float32, "scalar_dtype": DOUBLE}  # as the paper trains


@dataclass(frozen=True, eq=False)
class View:
    """Features (B, p), labels (B,), a class state, the temperature and the log prior (K,)."""

    features: torch.Tensor
    labels: torch.Tensor
    state: pg.ClassState | pg.ClassBank
    temperature: float
    log_prior: torch.Tensor | None = None

    @property
    def dim(self) -> int:
        return self.state.dim

    @property
    def nu(self) -> float:
        return self.dim / 2 - 1

    @property
    def concentration(self) -> torch.Tensor:
        """(K,), in float64."""
        return self.state.classes().concentration.double()

    def scores(self, realization: str) -> torch.Tensor:
        """(B, K) in float64, without the prior."""
        return pg.vmf_scores(self.features.double(), self.state, self.temperature, realization, geometry_dtype=DOUBLE)

    def losses(self, realization: str) -> torch.Tensor:
        """(B,) in float64."""
        return pg.vmf_cross_entropy(
            self.features.double(), self.labels, self.state, self.temperature, self.log_prior, "none", realization, geometry_dtype=DOUBLE
        )

    def field(self) -> UpdateField:
        """The gradients of each sample in float64: what `"original"` supplies, and that of the loss it computes."""
        return update_field(
            self.features.double(), self.labels, self.state, self.temperature, self.log_prior, RULES[0], geometry_dtype=DOUBLE
        )


@dataclass(frozen=True, eq=False)
class Backward:
    """Scores, mean loss and feature gradient of one realization on one view."""

    scores: torch.Tensor
    loss: torch.Tensor
    gradient: torch.Tensor

    @staticmethod
    def of(
        view: View,
        realization: str,
        geometry: str = "factorised",
        dtype: torch.dtype | None = None,
        scalar_dtype: torch.dtype | None = None,
    ) -> Backward:
        """In the dtype of the features, or in another; the potential in `scalar_dtype`."""
        features = view.features.to(view.features.dtype if dtype is None else dtype, copy=True).requires_grad_()
        scores = pg.vmf_scores(
            features.detach(), view.state, view.temperature, realization, geometry, geometry_dtype=dtype, scalar_dtype=scalar_dtype
        )
        loss = pg.vmf_cross_entropy(
            features,
            view.labels,
            view.state,
            view.temperature,
            view.log_prior,
            realization=realization,
            geometry=geometry,
            geometry_dtype=dtype,
            scalar_dtype=scalar_dtype,
        )
        (gradient,) = torch.autograd.grad(loss, features)
        return Backward(scores, loss.detach(), gradient)


def changed(
    view: View, geometry: str = "factorised", dtype: torch.dtype | None = None, scalar_dtype: torch.dtype | None = None
) -> dict[str, float]:
    """What differs between `"original"` and `"consistent"`: scores, mean loss, and the feature gradient of the mean loss."""
    supplied, own = (Backward.of(view, name, geometry, dtype, scalar_dtype) for name in RULES)
    change = supplied.gradient.double() - own.gradient.double()
    return {
        "score": (supplied.scores - own.scores).abs().max().item(),
        "loss": (supplied.loss - own.loss).abs().item(),
        "relative": (torch.linalg.vector_norm(change) / torch.linalg.vector_norm(own.gradient.double())).item(),
        "largest": change.abs().max().item(),
    }
