"""A classifier whose classes are von Mises-Fisher distributions with learned directions and concentrations [Scott_2021_ICCV]."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pairgrad.ground.checks import boolean, computing_dtype, describe, device_or_none, integer_at_least, one_of, real_number
from pairgrad.ground.precision import full_precision
from pairgrad.losses.cross_entropy import checked_options, checked_per_class, checked_targets, vmf_cross_entropy
from pairgrad.losses.fused.targets import Targets
from pairgrad.losses.options import check_temperature, resolve
from pairgrad.losses.reduction import check_reduction, reduce
from pairgrad.losses.scores import vmf_scores
from pairgrad.potentials import Potential
from pairgrad.sphere.inputs import checked_features
from pairgrad.sphere.state import ClassState

SCORES = ("marginal", "density")


class VMFClassifier(nn.Module):
    r"""Logits of features against classes \(\mathrm{vMF}(\mu_j, \kappa_j)\), all of them parameters.

    `"marginal"` treats the feature as uncertain too: a vMF with concentration \(\lVert f\rVert/\tau\), so that the logit is the log of the overlap of two
    distributions, \(\Phi(\lVert\kappa_j\mu_j + f/\tau\rVert) - \Phi(\kappa_j)\), the score of eq. exact-score; the length of a feature is its certainty.
    `"density"` takes the direction of the feature as given: \(\kappa_j \mu_j^\top f/\lVert f\rVert - \Phi(\kappa_j)\), the log density up to a constant. Its
    cosine is a rounded matrix product, so that in float32 a logit is right to some 4e-7 \(\kappa_j\): with concentrations above 1e4 use float64, or the
    marginal score, which has no such loss.

    Args:
        num_classes: K.
        dim: feature dimension p.
        score: `"marginal"` or `"density"`.
        temperature: tau of the marginal score; the density has none.
        concentration: initial concentration of every class; None: dim, where the mean resultant length is about 0.6.
        learn_temperature: make log tau a parameter.
        realization: of the potential.
        device: of the parameters.
        dtype: of the parameters.

    Examples:
        >>> import torch, pairgrad as pg
        >>> head = pg.VMFClassifier(num_classes=10, dim=64)
        >>> head(torch.randn(4, 64)).shape
        torch.Size([4, 10])
        >>> head.loss(torch.randn(4, 64), torch.tensor([1, 2, 3, 4])).backward()
        >>> head.log_concentration.grad.shape
        torch.Size([10])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        score: str = "marginal",
        temperature: float = 0.1,
        concentration: float | None = None,
        learn_temperature: bool = False,
        realization: str | Potential = "paired",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = integer_at_least("num_classes", num_classes, 1)
        self.dim = integer_at_least("dim", dim, 2, hint="a direction needs at least two coordinates")
        self.score = one_of("score", score, SCORES)
        if isinstance(temperature, torch.Tensor):
            raise TypeError(
                f"temperature must be a positive finite number, got {describe(temperature)}: learn_temperature=True makes it a parameter"
            )
        temperature = float(check_temperature(temperature))
        if not 1e-30 <= temperature <= 1e30:
            raise ValueError(f"temperature must be a positive finite number from 1e-30 to 1e30, got {temperature!r}")
        given = self.dim if concentration is None else concentration
        initial = real_number("concentration", given, "positive and finite", lambda kappa: 0 < kappa < math.inf)
        if not 1e-30 <= initial <= 1e18:  # of which neither the logarithm nor the square is infinite
            raise ValueError(f"concentration must be positive and finite, from 1e-30 to 1e18, got {initial!r}")
        if boolean("learn_temperature", learn_temperature) and score == "density":
            raise ValueError("learn_temperature needs score='marginal': the density score has no temperature")
        self.potential = resolve(realization, self.dim)
        device = device_or_none("device", device)
        computing_dtype("dtype", torch.get_default_dtype() if dtype is None else dtype)
        if self.num_classes * self.dim >= 2**60:
            raise ValueError(
                f"num_classes times dim must be below 2^60, the numbers that memory can hold, got num_classes = {self.num_classes} and dim = {self.dim}"
            )
        self.weight = nn.Parameter(functional.normalize(torch.randn(self.num_classes, self.dim, device=device, dtype=dtype), dim=1))
        self.log_concentration = nn.Parameter(torch.full((self.num_classes,), initial, device=device, dtype=dtype).log())
        log_temperature = torch.full((), float(temperature), device=device, dtype=dtype).log()
        self.log_temperature = nn.Parameter(log_temperature) if learn_temperature else None
        self._temperature = float(temperature)

    @property
    def concentration(self) -> torch.Tensor:
        """(K,), positive."""
        return self.log_concentration.exp()

    @property
    def temperature(self) -> torch.Tensor | float:
        """The learned temperature, or the fixed one."""
        return self._temperature if self.log_temperature is None else self.log_temperature.exp()

    @property
    def state(self) -> ClassState:
        """Directions and concentrations as they are now, connected to the parameters."""
        return ClassState(self.weight, self.concentration)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Logits (..., K) of features (..., p)."""
        if self.score == "marginal":
            return vmf_scores(features, self.state, self.temperature, self.potential)
        features = checked_features(features, self.dim, self.weight, squared=True)
        state = self.state  # its directions and concentrations are checked
        with full_precision(features.device.type):
            directions = functional.normalize(features.to(self.weight.dtype), dim=-1)
            cosines = directions @ functional.normalize(state.mean_direction, dim=1).t()
            return state.concentration * cosines - self.potential.value(state.concentration)

    def loss(
        self,
        features: torch.Tensor,
        labels: torch.Tensor,
        log_prior: torch.Tensor | None = None,
        reduction: str = "mean",
        *,
        weight: torch.Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        max_norm: float | None = None,
        tile: int | None = None,
        execution: str = "eager",
        compile_mode: str | None = None,
        products: str | None = None,
    ) -> torch.Tensor:
        """Cross-entropy of the logits of features (B, p); options as in [`vmf_cross_entropy`][pairgrad.vmf_cross_entropy].

        The marginal score is fused over class tiles, which `max_norm`, `tile`, `execution`, `compile_mode` and `products` are about; the density has all
        logits in memory.
        """
        if self.score == "marginal":
            return vmf_cross_entropy(
                features,
                labels,
                self.state,
                self.temperature,
                log_prior,
                reduction,
                self.potential,
                weight=weight,
                ignore_index=ignore_index,
                label_smoothing=label_smoothing,
                max_norm=max_norm,
                tile=tile,
                execution=execution,
                compile_mode=compile_mode,
                products=products,
            )
        if (max_norm, tile, execution, compile_mode, products) != (None, None, "eager", None, None):
            raise ValueError(
                "max_norm, tile, execution, compile_mode and products belong to score='marginal', got one of them with score='density'"
            )
        check_reduction(reduction)
        ignore_index, label_smoothing = checked_options(ignore_index, label_smoothing)
        checked_features(features, self.dim, self.weight, squared=True, single=True)
        labels = checked_targets(labels, len(features), self.num_classes, self.weight, ignore_index, None)
        logits = self(features)
        log_prior = checked_per_class("log_prior", log_prior, self.num_classes, self.weight, logits.dtype)
        weight = checked_per_class("weight", weight, self.num_classes, self.weight, logits.dtype)
        targets = Targets.of(labels, weight, ignore_index, label_smoothing, self.num_classes, logits.dtype)
        return reduce(targets.losses(logits if log_prior is None else logits + log_prior), reduction, targets.share.sum())

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, dim={self.dim}, score={self.score!r}, realization={self.potential.realization!r}"
