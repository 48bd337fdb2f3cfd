"""The loss of probabilistic contrastive learning (ProCo) [du2024proco]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from pairgrad.ground.checks import real_number
from pairgrad.losses.adjust import LogitAdjust, check_same_prior
from pairgrad.losses.bank_loss import BankLoss, Views
from pairgrad.potentials import Potential


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
        temperature: tau.
        prior_strength: factor of the log prior.
        normalize: scale the features to unit length first, as a vMF model wants them. Without, they are taken as they come.
        realization: of the potential, by name or as a `Potential`: `"paired"`, or one of the arms of the paper, `"original"`, `"consistent"`, `"arfr"`.
        score: `"after-update"`, as the hosts do, or `"before-update"`, against a bank that has not seen the view.
        geometry: `"factorised"` (fused) or `"expanded"`, through (B, K, p) tensors, as the public code.
        geometry_dtype: compute scores and loss in this dtype; None: in that of the bank.
        scalar_dtype: compute the potential in this dtype, between radii and scores in that of the geometry, as the paper's training does with torch.float64;
            None: in that of the geometry. Where the two differ, the plain path is taken.
        reduction: `"mean"`, `"sum"` or `"none"` (one loss per view and sample, (V, B)).
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
        memory: `"cumulative"`, or `"two-epochs"` as the public code has it, which calls `start_epoch` before every epoch.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).
        generator: for the random directions of unseen classes.
        device: of the bank.
        dtype: of the bank, float32 (default) or float64, and of the loss.

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

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        weight: float = 1.0,
        class_counts: Sequence[float] | torch.Tensor | None = None,
        temperature: float = 0.1,
        prior_strength: float = 1.0,
        normalize: bool = True,
        realization: str | Potential = "paired",
        score: str = "after-update",
        geometry: str = "factorised",
        geometry_dtype: torch.dtype | None = None,
        scalar_dtype: torch.dtype | None = None,
        reduction: str = "mean",
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
        super().__init__(
            num_classes,
            dim,
            class_counts=class_counts,
            temperature=temperature,
            prior_strength=prior_strength,
            normalize=normalize,
            realization=realization,
            score=score,
            geometry=geometry,
            geometry_dtype=geometry_dtype,
            scalar_dtype=scalar_dtype,
            reduction=reduction,
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
        self.weight = real_number("weight", weight, "a finite number")
        self.classifier = self._classifier(class_counts)
        self.register_load_state_dict_pre_hook(partial(check_same_prior, "classifier"))

    def _classifier(self, class_counts: Sequence[float] | torch.Tensor | None) -> LogitAdjust:
        sums = self.bank.sums
        return LogitAdjust(
            [1.0] * self.num_classes if class_counts is None else class_counts, reduction=self.reduction, dtype=sums.dtype
        ).to(sums.device)

    def set_prior(self, class_counts: Sequence[float] | torch.Tensor | None) -> None:
        """Add prior_strength * log(n_k / sum n) to the scores, and log(n_k / sum n) to the classifier's logits, from now on."""
        super().set_prior(class_counts)
        if hasattr(self, "classifier"):  # not yet while the part with the bank is made
            self.classifier = self._classifier(class_counts)

    def forward(self, features: Views, labels: torch.Tensor, logits: torch.Tensor | None = None) -> torch.Tensor:
        """The contrastive loss of one or several views, or with `logits` (B, K) the whole objective. Updates the bank in training mode."""
        if logits is None:
            return super().forward(features, labels)
        contrast, classifier = self.with_terms(features, labels, lambda: [self.classifier(logits, labels)])
        return classifier + self.weight * contrast

    def start_epoch(self, *, generator: torch.Generator | None = None) -> None:
        """Before every epoch with `memory="two-epochs"`; does nothing with a cumulative bank."""
        if self.bank.memory == "two-epochs":
            self.bank.start_epoch(generator=generator)
