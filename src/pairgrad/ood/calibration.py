"""Feature calibration of PATT: a factor for every feature dimension, from how ID and outlier features differ in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from pairgrad.ground.checks import dense, describe, floating_tensor, on_device, one_of, readable
from pairgrad.ground.devices import HOST, need_float64
from pairgrad.ood.scores import energy

ACCUMULATIONS = ("mean", "released")


class CalibrationForm(NamedTuple):
    """How a calibration is fitted.

    Attributes:
        accumulation: how paired batches are put together, as for `FeatureCalibration`.
        split: of which ID split they come: `"train"`, the long-tailed training split; or `"test"`, the test split subsampled with the long-tail rule.
    """

    accumulation: str
    split: str


FORMS = MappingProxyType({"paper": CalibrationForm("mean", "train"), "released": CalibrationForm("released", "test")})


class FeatureCalibration(nn.Module):
    r"""Scales features by \(S \in [0, 2]^p\) before the classifier: logits \(W (f \odot S) + b\), OOD score \(-\log\sum_k e^{z_k}\) of them.

    A pair of batches, ID features f with labels y and outlier features g with pseudo-labels \(\hat y\), gives
    \(d = \mathrm{mean}_i\, f_i \odot W_{y_i} / \pi_{y_i} - \mathrm{mean}_j\, g_j \odot W_{\hat y_j} / \pi_{\hat y_j}\). The d of all pairs are put
    together and scaled linearly over the dimensions, the smallest to 0 and the largest to 2.

    Fit with `update` for every pair and `finish`, or with `fit`. All state is buffers in `state_dict`, so that a fitted calibration is saved with its
    classifier, and a fit can be saved and taken up again.

    Args:
        weight: W, the classifier's rows, (K, p). It is copied; fit again after further training.
        bias: b, (K,), or None.
        prior: class frequencies of the training split, (K,), all positive. Counts will do: they are divided by their sum.
        accumulation: `"mean"`, every pair weighs the same; or `"released"`, \(S_t = t S_{t-1} + d_t\) for t = 0, 1, ..., as in the public code.
            There pair t of n has the weight (n - 1)! / t!: the first two count equally, and all after the twentieth for nothing in float64. We sum
            \(d_t / t!\), which is \(S_t / t!\), has the same scaled result, and stays finite for any number of pairs.

    Attributes:
        scale: S, (p,), NaN until fitted.
        total: the weighted sum of the d so far, (p,), float64.
        pairs: how many there were.

    Examples:
        >>> calibration = FeatureCalibration(torch.eye(2), None, [1, 1])
        >>> calibration.update(torch.tensor([[3.0, 0.0]]), torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
        >>> calibration.finish().scale
        tensor([2., 0.])
        >>> calibration.score(torch.tensor([[1.0, 5.0]]))
        tensor([-2.1269])
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    prior: torch.Tensor
    scale: torch.Tensor
    total: torch.Tensor
    pairs: torch.Tensor

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        prior: Sequence[float] | torch.Tensor,
        *,
        accumulation: str = "mean",
    ) -> None:
        super().__init__()
        w = floating_tensor("weight", weight).detach()
        if w.dim() != 2 or w.shape[0] < 1 or w.shape[1] < 2:
            raise ValueError(
                f"weight must have shape (classes, dim) with dim >= 2, got {describe(w)}: give the weight of the linear classifier"
            )
        b = None if bias is None else floating_tensor("bias", bias).detach()
        if b is not None and b.shape != w.shape[:1]:
            raise ValueError(f"bias must have one entry for each of the {w.shape[0]} rows of weight, got {describe(b)}")
        for name, values in (("weight", w), ("bias", b)):
            if values is not None:
                if readable(values) and not bool(values.isfinite().all()):
                    raise ValueError(f"{name} must be finite, got NaN or infinity in {describe(values)}: look at the classifier")
                on_device(name, values, w.device, "weight is", "it")
        need_float64("weight", w, "the calibration")
        self.accumulation = one_of("accumulation", accumulation, ACCUMULATIONS)
        self.register_buffer("weight", w.clone())
        self.register_buffer("bias", None if b is None else b.to(w, copy=True))
        self.register_buffer("prior", self._checked_prior(prior).to(w.device))
        self.register_buffer("scale", torch.full_like(w[0], math.nan))
        self.register_buffer("total", torch.zeros(self.dim, dtype=torch.float64, device=w.device))
        self.register_buffer("pairs", torch.zeros((), dtype=torch.int64))
        self._fitted = False
        self.register_load_state_dict_post_hook(FeatureCalibration._after_loading)

    @classmethod
    def of(cls, classifier: nn.Linear, prior: Sequence[float] | torch.Tensor, *, form: str = "paper") -> FeatureCalibration:
        """The calibration of a linear classifier, with the accumulation of a form in `FORMS`; the split is for the caller to choose."""
        if form not in FORMS:
            one_of("form", form, tuple(FORMS))
        return cls(classifier.weight, classifier.bias, prior, accumulation=FORMS[form].accumulation)

    @property
    def num_classes(self) -> int:
        """How many classes the classifier has."""
        return self.weight.shape[0]

    @property
    def dim(self) -> int:
        """Of the features."""
        return self.weight.shape[1]

    @property
    def fitted(self) -> bool:
        """Whether `scale` belongs to the pairs seen so far."""
        return self._fitted

    @torch.no_grad()
    def update(
        self, id_features: torch.Tensor, id_labels: torch.Tensor, outlier_features: torch.Tensor, outlier_labels: torch.Tensor | None = None
    ) -> None:
        """Add one pair of batches. On an error nothing has changed.

        Args:
            id_features: f, (B, p).
            id_labels: y, (B,).
            outlier_features: g, (M, p).
            outlier_labels: pseudo-labels, integers (M,); or logits (M, K), whose largest decides; or None: the logits W g + b.
        """
        for name, features in (("id_features", id_features), ("outlier_features", outlier_features)):
            if not bool(self._checked_features(name, features).to(self.weight.dtype).isfinite().all()):
                raise ValueError(f"id_features and outlier_features must be finite, got NaN or infinity in {name}: {describe(features)}")
        inside = self._moment("id", id_features, id_labels)
        if outlier_labels is None:
            outlier_labels = self._linear(self._checked_features("outlier_features", outlier_features))
        outside = self._moment("outlier", outlier_features, outlier_labels)
        difference = inside - outside
        if not bool(difference.isfinite().all()):
            raise ValueError(
                "id_features and outlier_features must be finite, but their weighted means are not: look for NaN or overflow in them"
            )
        count = 0 if self.accumulation == "mean" else int(self.pairs)
        self.total += (
            1 / math.factorial(count) if count < 178 else 0.0
        ) * difference  # 1 / t! is below the smallest float64 from t = 178 on
        self.pairs += 1
        self.scale.fill_(math.nan)
        self._fitted = False

    @torch.no_grad()
    def finish(self) -> FeatureCalibration:
        """Scale the sum to [0, 2] and store it in `scale`; more pairs may follow, and `finish` again."""
        if not int(self.pairs):
            raise RuntimeError("no pair of batches has been seen: call update(...) before finish()")
        low, high = self.total.min(), self.total.max()
        if not bool(high > low):
            raise ValueError(
                f"the fitted vector is constant: all {self.dim} dimensions have the value {low.item():g}, and cannot be scaled to [0, 2]. "
                "ID and outlier batches may be the same, or all features or weights zero"
            )
        self.scale.copy_(2 * (self.total - low) / (high - low))
        self._fitted = True
        return self

    def fit(self, batches: Iterable[tuple[torch.Tensor, ...]]) -> FeatureCalibration:
        """`update(*batch)` for every batch, from the start, and `finish`."""
        self.reset()
        for batch in batches:
            self.update(*batch)
        return self.finish()

    def reset(self) -> None:
        """Forget all pairs."""
        self.total.zero_()
        self.pairs.zero_()
        self.scale.fill_(math.nan)
        self._fitted = False

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """W (f * S) + b of features (B, p): (B, K), for the prediction as well as the score."""
        if not self._fitted:
            raise RuntimeError(
                "the calibration is not fitted: call update(...) for pairs of batches and then finish(), or load a fitted state"
            )
        return self._linear(self._checked_features("features", features), self.scale)

    def score(self, features: torch.Tensor) -> torch.Tensor:
        """OOD-ness, (B,): the energy of the calibrated logits."""
        return energy(self.logits(features))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """As `logits`."""
        return self.logits(features)

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, dim={self.dim}, accumulation={self.accumulation!r}, pairs={int(self.pairs)}, fitted={self.fitted}"

    def _linear(self, features: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        features = features.to(self.weight.dtype)
        return F.linear(features if scale is None else features * scale, self.weight, self.bias)

    def _moment(self, side: str, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean of f * W[y] / pi[y], in float64; logits in place of labels are resolved."""
        f = self._checked_features(f"{side}_features", features)
        y = self._checked_labels(f"{side}_labels", labels, f.shape[0])
        rows = self.weight.double() / self.prior[:, None]
        return (f.double() * rows[y]).mean(dim=0)

    def _checked_features(self, name: str, features: Any) -> torch.Tensor:
        f = floating_tensor(name, features)
        if f.dim() != 2 or f.shape[0] == 0 or f.shape[1] != self.dim:
            raise ValueError(f"{name} must have shape (batch, dim={self.dim}) with at least one row, got {describe(f)}")
        on_device(name, f, self.weight.device, "the calibration is")
        return f

    def _checked_labels(self, name: str, labels: Any, size: int) -> torch.Tensor:
        if not isinstance(labels, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, got {describe(labels)}")
        dense(name, labels)
        if labels.is_quantized or labels.device != self.weight.device:
            raise ValueError(f"{name} must be integers on {self.weight.device}, where the calibration is, got {describe(labels)}")
        if labels.is_floating_point() and name == "outlier_labels":
            floating_tensor(name, labels)
            if labels.shape != (size, self.num_classes):
                raise ValueError(f"{name} must have shape ({size}, {self.num_classes}) if they are logits, got {describe(labels)}")
            if bool(labels.isnan().any()):
                raise ValueError(f"{name} must not contain NaN if they are logits, got {describe(labels)}: their largest decides")
            return labels.argmax(dim=1)
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.shape != (size,):
            raise ValueError(f"{name} must be integers of shape ({size},), one for each feature, got {describe(labels)}")
        labels = labels.long()  # before comparing: uint8 labels and 300 are compared modulo 256
        if not bool(((labels >= 0) & (labels < self.num_classes)).all()):
            raise ValueError(f"{name} must lie between 0 and {self.num_classes - 1}, got {int(labels.min())} to {int(labels.max())}")
        return labels

    def _checked_prior(self, prior: Any) -> torch.Tensor:
        if isinstance(prior, torch.Tensor):
            dense("prior", prior)
        try:
            given = torch.as_tensor(prior).detach()
            if given.is_complex():
                raise TypeError
            values = given.to(device=HOST, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise TypeError(
                f"prior must be a sequence or tensor of positive numbers, got {describe(prior)}: give one for each class"
            ) from None
        if given.dtype == torch.bool:
            raise TypeError(f"prior must be a sequence or tensor of positive numbers, got {describe(given)}: give one for each class")
        if values.shape != (self.num_classes,) or not bool(((values > 0) & values.isfinite()).all()):
            raise ValueError(
                f"prior must be {self.num_classes} positive numbers, one for each row of weight, got {describe(values)}: "
                "a class without training samples has no weight 1 / prior; leave it out of the classifier or give it a count"
            )
        values = values / values.max()  # so that their sum does not overflow
        return values / values.sum()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """As for every module, except that the sum and the prior stay in float64: `.half()` and `.float()` leave their precision alone."""
        kept = {"total": self.total, "prior": self.prior}
        super()._apply(fn, recurse)
        for name, before in kept.items():
            after = getattr(self, name)
            if before is not None and after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    def _after_loading(self, incompatible: Any) -> None:
        self._fitted = not bool(self.scale.isnan().any())
