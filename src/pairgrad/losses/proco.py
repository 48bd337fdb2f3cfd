"""The loss of probabilistic contrastive learning (ProCo) [du2024proco]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from pairgrad.ground.checks import real_number
from pairgrad.losses.adjust import LogitAdjust, check_same_prior
from pairgrad.losses.bank_loss import BankLoss, Views


class ProCoLoss(BankLoss):
    r"""Contrastive learning against a vMF per class: the mean over views of the cross-entropy of \(q_j + \log\pi_j\).

    With `logits` of a classifier the whole objective: logit-adjusted cross-entropy of the classifier plus `weight` times the contrastive part.

        loss = ProCoLoss(num_classes=1000, dim=1024, temperature=0.07, class_counts=counts, memory="two-epochs")
        for epoch in range(epochs):
            loss.start_epoch()
            for (weak, strong_1, strong_2), labels in loader:
                total = loss([head(strong_1), head(strong_2)], labels, logits=model(weak))

    Args:
        num_classes: K.
        dim: feature dimension p.
        weight: of the contrastive part beside the classifier's.
        class_counts: training samples per class, for the log prior; None: no prior.
        **options: of [`BankLoss`][pairgrad.losses.BankLoss] and of [`ClassBank`][pairgrad.ClassBank]. The public code has `memory="two-epochs"` and calls
            its epoch hook before every epoch; here `"cumulative"` is the default, which needs no hook.

    Examples:
        >>> import torch, pairgrad as pg
        >>> _ = torch.manual_seed(0)
        >>> loss = pg.ProCoLoss(num_classes=10, dim=32, temperature=0.1, class_counts=[100] * 5 + [10] * 5)
        >>> views = torch.randn(2, 8, 32, requires_grad=True)
        >>> value = loss(views, torch.arange(8))
        >>> value.backward()
        >>> value.shape, views.grad.shape, int(loss.bank.counts.sum())
        (torch.Size([]), torch.Size([2, 8, 32]), 16)
    """

    def __init__(self, num_classes: int, dim: int, *, weight: float = 1.0, class_counts: Any = None, **options: Any) -> None:
        super().__init__(num_classes, dim, class_counts=class_counts, **options)
        self.weight = real_number("weight", weight, "a finite number")
        self.classifier = self._classifier([1.0] * self.num_classes if class_counts is None else class_counts)
        self.register_load_state_dict_pre_hook(partial(check_same_prior, "classifier"))

    def _classifier(self, class_counts: Sequence[float] | torch.Tensor) -> LogitAdjust:
        sums = self.bank.sums
        return LogitAdjust(class_counts, reduction=self.reduction, dtype=sums.dtype).to(sums.device)

    def set_prior(self, class_counts: Sequence[float] | torch.Tensor) -> None:
        """Add prior_strength * log(n_k / sum n) to the scores, and log(n_k / sum n) to the classifier's logits, from now on."""
        super().set_prior(class_counts)
        if hasattr(self, "classifier"):  # not yet while the part with the bank is made
            self.classifier = self._classifier(class_counts)

    def without_prior(self) -> None:
        super().without_prior()
        self.classifier = self._classifier([1.0] * self.num_classes)

    def forward(self, features: Views, labels: torch.Tensor, logits: torch.Tensor | None = None) -> torch.Tensor:
        """The contrastive loss of one or several views, or with `logits` (B, K) the whole objective. Updates the bank in training mode."""
        if logits is None:
            return super().forward(features, labels)
        classifier = self.of_own(self.classifier, logits, labels)  # first: it checks its arguments before the bank changes
        contrast = super().forward(features, labels)
        if self.reduction == "mean":
            classifier = self.of_all(classifier, len(labels))
        return classifier + self.weight * contrast

    def start_epoch(self, *, generator: torch.Generator | None = None) -> None:
        """Before every epoch with `memory="two-epochs"`; does nothing with a cumulative bank."""
        if self.bank.memory == "two-epochs":
            self.bank.start_epoch(generator=generator)
