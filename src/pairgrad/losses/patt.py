"""The loss of PATT [he2025patt]: implicit semantic augmentation (ISAC), temperature logit adjustment (TLA), outlier exposure (OE)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from pairgrad.ground.checks import describe, one_of, real_number
from pairgrad.ground.devices import has_values
from pairgrad.losses.adjust import TemperatureLogitAdjust, check_same_prior, kept_counts
from pairgrad.losses.bank_loss import BankLoss, Views
from pairgrad.losses.outlier import OutlierExposure
from pairgrad.potentials import Potential


class Weights(NamedTuple):
    """Factors of the two auxiliary terms, and the temperature of the classifier's logits."""

    adjustment: float
    outliers: float
    logit_temperature: float


# "cifar" and "imagenet" are the defaults of the public code. The commands in its README agree on ImageNet and disagree on CIFAR: "cifar-readme". The paper
# prints no weights; its experiments run the public code.
PRESETS = {
    "cifar": Weights(0.5, 0.1, 0.9),
    "imagenet": Weights(0.5, 0.02, 0.7),
    "cifar-readme": Weights(0.1, 0.5, 0.9),
}


_RULES: tuple[tuple[Any, ...], ...] = (
    ("adjustment_weight", "a finite number"),
    ("outlier_weight", "a finite number"),
    ("logit_temperature", "a finite number > 0", lambda value: 0 < value < math.inf),
)


class PATTTerms(NamedTuple):
    """The total and its terms, before their weights."""

    total: torch.Tensor
    augmentation: torch.Tensor
    adjustment: torch.Tensor
    outliers: torch.Tensor


class PATTLoss(nn.Module):
    r"""\(L = L_\mathrm{ISAC} + \lambda_\mathrm{TLA} L_\mathrm{TLA} + \lambda_\mathrm{OE} L_\mathrm{OE}\) (eq. patt-total).

    Only the first term has a Bessel function in it; `realization` selects how it is computed, and with it the arm of the paper. Features are taken as they
    come, without normalisation, as in the public code: then most classes have resultant lengths above 1 and the capped concentration. `normalize=True`
    makes it the vMF model it is meant to be.

    Args:
        num_classes: K.
        dim: feature dimension p.
        class_counts: training samples per class, for the log prior of ISAC and TLA.
        preset: of the two weights and the logit temperature: `"cifar"` or `"imagenet"`, the defaults of the public code, or `"cifar-readme"`, the commands
            that its README documents for CIFAR.
        adjustment_weight: of TLA, instead of the preset's.
        outlier_weight: of OE, instead of the preset's.
        logit_temperature: of TLA, instead of the preset's.
        normalize: scale the features of the ISAC term to unit length.
        temperature: tau.
        prior_strength: factor of the log prior.
        realization: of the potential, by name or as a `Potential`: `"paired"`, or one of the arms of the paper, `"original"`, `"consistent"`, `"arfr"`.
        score: `"after-update"`, as the hosts do, or `"before-update"`, against a bank that has not seen the view.
        geometry: `"factorised"` (fused) or `"expanded"`, through (B, K, p) tensors, as the public code.
        geometry_dtype: compute scores and loss in this dtype; None: in that of the bank.
        scalar_dtype: compute the potential in this dtype, between radii and scores in that of the geometry, as the paper's training does with torch.float64;
            None: in that of the geometry. Where the two differ, the plain path is taken.
        execution: `"eager"`; `"compiled"`, the step (update, scores, loss, gradient) through `torch.compile`, for the first batch and again for a
            larger one, while a smaller one, such as the last of an epoch, is computed in eager mode; `"triton"`, three kernels on a GPU; or `"auto"`, one
            of these by device and size, which the logger `pairgrad` names. [What they trade](how-to/gpu.md#executions).
        compile_mode: of torch.compile, such as `"reduce-overhead"`, for `execution="compiled"`.
        products: of float32 in `execution="triton"`: `"ieee"`; `"3xtf32"`, as accurate, by tensor cores; or `"tf32"`, three digits. None: `"3xtf32"`, and
            `"ieee"` on AMD's GPUs.
        estimator: of the concentrations, this and what follows as in [`ClassBank`][pairgrad.ClassBank].
        cap: the largest concentration.
        on_resultant_above_one: `"cap"`, `"error"` or `"normalize"`.
        unseen: `"random"` or `"uniform"`, what a class without samples is.
        small_samples: `"plain"` or `"unbiased"`.
        decay: forget a class by this factor whenever it occurs; None: never.
        memory: `"cumulative"` or `"two-epochs"`.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).
        generator: for the random directions of unseen classes.
        device: of the bank.
        dtype: of the bank, float32 (default) or float64, and of the loss.

    Examples:
        >>> import torch, pairgrad as pg
        >>> _ = torch.manual_seed(0)
        >>> loss = pg.PATTLoss(num_classes=10, dim=64, class_counts=[100] * 5 + [10] * 5, realization="arfr")
        >>> views, labels = torch.randn(2, 8, 64, requires_grad=True), torch.arange(8)
        >>> terms = loss.terms(views, labels, logits=torch.randn(8, 10), outlier_logits=torch.randn(16, 10))
        >>> torch.equal(terms.total, terms.augmentation + 0.5 * terms.adjustment + 0.1 * terms.outliers)
        True
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        class_counts: Sequence[float] | torch.Tensor,
        preset: str = "cifar",
        adjustment_weight: float | None = None,
        outlier_weight: float | None = None,
        logit_temperature: float | None = None,
        normalize: bool = False,
        temperature: float = 0.1,
        prior_strength: float = 1.0,
        realization: str | Potential = "paired",
        score: str = "after-update",
        geometry: str = "factorised",
        geometry_dtype: torch.dtype | None = None,
        scalar_dtype: torch.dtype | None = None,
        execution: str = "eager",
        compile_mode: str | None = None,
        products: str | None = None,
        estimator: str = "closed-form",
        cap: float = 1e5,
        on_resultant_above_one: str = "cap",
        unseen: str = "random",
        small_samples: str = "plain",
        decay: float | None = None,
        memory: str = "cumulative",
        validate: bool | None = None,
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.preset = one_of("preset", preset, tuple(PRESETS))
        chosen = PRESETS[preset]
        given = (adjustment_weight, outlier_weight, logit_temperature)
        self.weights = Weights(
            *(c if g is None else real_number(name, g, *rule) for (name, *rule), c, g in zip(_RULES, chosen, given, strict=True))
        )
        self.augmentation = BankLoss(
            num_classes,
            dim,
            class_counts=class_counts,
            normalize=normalize,
            temperature=temperature,
            prior_strength=prior_strength,
            realization=realization,
            score=score,
            geometry=geometry,
            geometry_dtype=geometry_dtype,
            scalar_dtype=scalar_dtype,
            execution=execution,
            compile_mode=compile_mode,
            products=products,
            estimator=estimator,
            cap=cap,
            on_resultant_above_one=on_resultant_above_one,
            unseen=unseen,
            small_samples=small_samples,
            decay=decay,
            memory=memory,
            validate=validate,
            generator=generator,
            device=device,
            dtype=dtype,
        )
        self.adjustment = self._adjustment(class_counts)
        self.outliers = OutlierExposure()
        self.register_load_state_dict_pre_hook(partial(check_same_prior, "adjustment"))

    def _adjustment(self, class_counts: Sequence[float] | torch.Tensor) -> TemperatureLogitAdjust:
        sums = self.augmentation.bank.sums
        self.class_counts = kept_counts(class_counts)
        return TemperatureLogitAdjust(class_counts, self.weights.logit_temperature, dtype=sums.dtype).to(sums.device)

    def set_prior(self, class_counts: Sequence[float] | torch.Tensor) -> None:
        """Take these counts for the log prior of ISAC and TLA from now on."""
        kept_counts(class_counts)  # before anything changes: the prior of a BankLoss may be None, this one may not
        self.augmentation.set_prior(class_counts)
        self.adjustment = self._adjustment(class_counts)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> PATTLoss:
        lost = not has_values(self.adjustment.log_prior)
        super()._apply(fn, recurse)
        if lost and has_values(self.bank.sums):
            self.adjustment = self._adjustment(self.class_counts)
        return self

    @property
    def bank(self) -> Any:
        """The class bank of the vMF term."""
        return self.augmentation.bank

    def forward(
        self, features: Views, labels: torch.Tensor, logits: torch.Tensor, outlier_logits: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The total of `terms`."""
        return self.terms(features, labels, logits, outlier_logits).total

    def terms(self, features: Views, labels: torch.Tensor, logits: torch.Tensor, outlier_logits: torch.Tensor | None = None) -> PATTTerms:
        """The total and its terms; updates the bank in training mode.

        Args:
            features: the views that are augmented implicitly, in order: (V, B, p), or a sequence of (B, p).
            labels: (B,).
            logits: (B, K), the classifier's for the regular view.
            outlier_logits: (N, K), the classifier's for outliers; None leaves the term out. On several ranks all have some, be it (0, K), or none has.
        """
        augmentation, adjustment, outliers = self.augmentation.with_terms(
            features,
            labels,
            lambda: self._of_classifier(logits, labels, outlier_logits),
            len(outlier_logits) if isinstance(outlier_logits, torch.Tensor) else None,  # what else it is, is refused
        )
        total = augmentation + self.weights.adjustment * adjustment + self.weights.outliers * outliers
        return PATTTerms(total, augmentation, adjustment, outliers)

    def _of_classifier(
        self, logits: torch.Tensor, labels: torch.Tensor, outlier_logits: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if outlier_logits is not None and not isinstance(outlier_logits, torch.Tensor):
            raise TypeError(f"outlier_logits must be a tensor of shape (batch, num_classes) or None, got {describe(outlier_logits)}")
        adjustment = self.adjustment(logits, labels)
        if outlier_logits is not None and (outlier_logits.shape[1:] != logits.shape[1:] or outlier_logits.device != logits.device):
            raise ValueError(
                f"outlier_logits must have shape (batch, {logits.shape[1]}) on {logits.device}, a column for each class as logits have, got "
                f"{describe(outlier_logits)}"
            )
        return adjustment, adjustment.new_zeros(()) if outlier_logits is None else self.outliers(outlier_logits)

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Scores (B, K) of features (B, p) against the bank as it is."""
        return self.augmentation.scores(features)

    def extra_repr(self) -> str:
        return f"preset={self.preset!r}, {self.weights}"
