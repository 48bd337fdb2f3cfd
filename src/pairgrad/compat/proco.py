"""ProCo's public names and call signatures over our bank and scores [du2024proco].

    from pairgrad.compat.proco import LogitAdjust, ProCoLoss      # instead of the modules of the public code

What differs is stated where it differs: the class state is buffers, so `state_dict` carries it; no process group is needed; scores are exact to rounding
and their gradient is theirs, unless `realization="original"` asks for the recurrence that is diagnosed in the paper.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pairgrad.compat.checkpoint import EstimatorState, read_proco_checkpoint
from pairgrad.ground.checks import describe
from pairgrad.losses.adjust import LogitAdjust as _LogitAdjust
from pairgrad.losses.adjust import real_vector
from pairgrad.losses.bank_loss import BankLoss
from pairgrad.potentials import Potential
from pairgrad.sphere.bank import ClassBank
from pairgrad.sphere.inputs import check_statistics

_ONE_MEMORY = "estimator exists with memory='two-epochs' only: this criterion has one cumulative memory, estimator_old"

__all__ = ["Estimator", "LogitAdjust", "ProCoLoss", "load_checkpoint"]


class ProCoLoss(nn.Module):
    """The criterion of the public code: called with features and labels it updates the class state and returns *logits*, not a loss.

    Args:
        contrast_dim: feature dimension.
        temperature: tau.
        num_classes: K.
        realization: of the potential; `"original"` has the scores and the gradient of the public code.
        geometry: `"factorised"`, or `"expanded"`, through (B, K, p) tensors, as the public code.
        normalize: scale the features to unit length; the public code does not.
        memory: `"two-epochs"`, as the public code has it, or `"cumulative"`.
        estimator: `"closed-form"` or `"mle"`, as in [`ClassBank`][pairgrad.ClassBank], and so are the cap and what follows.
        cap: the largest concentration, also that of R >= 1.
        on_resultant_above_one: `"cap"`, `"error"` or `"normalize"`.
        unseen: `"random"` or `"uniform"`.
        generator: for the random directions of unseen classes.
        device: of the class state.
        dtype: of the class state.
    """

    def __init__(
        self,
        contrast_dim: int,
        temperature: float = 1.0,
        num_classes: int = 1000,
        *,
        realization: str | Potential = "paired",
        geometry: str = "factorised",
        normalize: bool = False,
        memory: str = "two-epochs",
        estimator: str = "closed-form",
        cap: float = 1e5,
        on_resultant_above_one: str = "cap",
        unseen: str = "random",
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.feature_num = contrast_dim
        self.criterion = BankLoss(
            num_classes,
            contrast_dim,
            temperature=temperature,
            realization=realization,
            geometry=geometry,
            normalize=normalize,
            memory=memory,
            estimator=estimator,
            cap=cap,
            on_resultant_above_one=on_resultant_above_one,
            unseen=unseen,
            generator=generator,
            device=device,
            dtype=dtype,
        )
        self.weight: torch.Tensor | None = None

    @property
    def bank(self) -> ClassBank:
        """The class bank behind the names."""
        return self.criterion.bank

    @property
    def temperature(self) -> float:
        """That of the scores."""
        return self.criterion.temperature

    @property
    def estimator_old(self) -> Estimator:
        """The statistics that are scored."""
        return Estimator(self, "")

    @property
    def estimator(self) -> Estimator:
        """The statistics that are collected for the next epoch."""
        return Estimator(self, "next_")

    def __getattr__(self, name: str) -> Any:
        if name == "estimator":  # the property has refused; torch would hide why
            raise AttributeError(_ONE_MEMORY)
        return super().__getattr__(name)

    def forward(
        self, features: torch.Tensor, labels: torch.Tensor | None = None, sup_logits: torch.Tensor | None = None, args: Any = None
    ) -> torch.Tensor:
        """Logits (B, K): the scores after an update with the features, if there are labels. `sup_logits` and `args` are not used, as in the public code."""
        if labels is not None:
            self.bank.update(features, labels)
        return self.criterion.scores(features)

    def loss(self, features: Any, labels: torch.Tensor, class_counts: Sequence[float] | torch.Tensor | None = None) -> torch.Tensor:
        """The loss itself, of one or several views: cross-entropy of the logits plus the log prior of `class_counts`,
        which stays for later calls. Fused; updates the class state in training mode.
        """
        if class_counts is not None:
            self.criterion.set_prior(class_counts)
        return self.criterion(features, labels)

    def cal_weight_for_classes(self, cls_num_list: Sequence[float]) -> None:
        """Class frequencies, kept as `weight` (1, K)."""
        given = real_vector("cls_num_list", cls_num_list, "give one count for each class")
        counts = given.float()
        if counts.shape != (self.num_classes,):
            raise ValueError(f"cls_num_list must have one count for each of the {self.num_classes} classes, got {describe(counts)}")
        if not bool(((counts >= 0) & counts.isfinite()).all()) or not 0 < float(counts.sum()) < float("inf"):
            raise ValueError(
                f"cls_num_list must be finite and >= 0 with a positive sum, got values from {given.min():g} to {given.max():g}"
            )
        counts = counts.to(self.bank.sums.device)
        self.weight = (counts / counts.sum()).view(1, -1)

    def reload_memory(self) -> None:
        """Nothing to do: the class state is buffers and moves with the module."""

    def _hook_before_epoch(self, epoch: int, epochs: int) -> None:
        """The collected statistics become the ones that are scored; call it before every epoch."""
        if self.bank.memory == "two-epochs":
            self.bank.start_epoch()


class Estimator:
    """One of the two memories under the public code's attribute names, read only."""

    def __init__(self, criterion: ProCoLoss, prefix: str) -> None:
        if prefix and criterion.bank.memory != "two-epochs":
            raise AttributeError(_ONE_MEMORY)
        self._criterion, self._prefix = criterion, prefix
        self.class_num, self.feature_num = criterion.num_classes, criterion.feature_num

    def _buffer(self, name: str) -> torch.Tensor:
        return getattr(self._criterion.bank, self._prefix + name)

    @property
    def Ave(self) -> torch.Tensor:
        """Mean features, (K, p); the initial direction times 0.9 where a class has no samples."""
        sums, counts = self._buffer("sums"), self.Amount
        return sums / torch.where(counts > 0, counts, 1.0).to(sums.dtype)[:, None]

    @property
    def Amount(self) -> torch.Tensor:
        """Counts, (K,)."""
        return self._buffer("counts")

    @property
    def kappa(self) -> torch.Tensor:
        """Concentrations, (K,)."""
        return self._criterion.bank.rule(torch.linalg.vector_norm(self.Ave, dim=1, dtype=torch.float64), self.Amount).to(self.Ave.dtype)

    @property
    def logc(self) -> torch.Tensor:
        """The potential at the concentrations, with the constant of `offset`: what the public code subtracts from every score."""
        pot = self._criterion.criterion.potential
        return pot.value(self.kappa.double()) + pot.offset


class LogitAdjust(nn.Module):
    """Logit-adjusted cross-entropy with the public code's arguments, `LogitAdjust(cls_num_list, tau=1, weight=None)(x, target)`."""

    def __init__(self, cls_num_list: Sequence[float] | torch.Tensor, tau: float = 1, weight: Any = None) -> None:
        super().__init__()
        self.criterion = _LogitAdjust(cls_num_list, strength=tau, weight=weight)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.criterion(x, target)


@torch.no_grad()
def load_checkpoint(criterion: ProCoLoss, path: str | os.PathLike[str], *, key: str = "criterion_scl") -> ProCoLoss:
    """Take the class state out of a checkpoint of the public code, which pickles its whole criterion, without executing anything that is in it.

    The temperature of the criterion is kept; classes without samples keep the initial direction that is in the file. On an error the criterion is as it
    was. Returns the criterion.
    """
    found = read_proco_checkpoint(path, key=key)
    bank = criterion.bank
    shape = tuple(found.old.mean.shape)
    if shape != (bank.num_classes, bank.dim):
        raise ValueError(
            f"the checkpoint has (num_classes, dim) = {shape}, the criterion {(bank.num_classes, bank.dim)}: make it with "
            f"ProCoLoss(contrast_dim={shape[1]}, num_classes={shape[0]})"
        )
    state = bank.state_dict()
    banks = (("", "estimator_old", found.old), ("next_", "estimator", found.new))
    for prefix, name, estimator in banks if bank.memory == "two-epochs" else banks[:1]:
        statistics = _statistics(prefix, estimator, bank.sums.dtype)
        try:
            check_statistics(*statistics.values(), names=(f"{name}.Ave * {name}.Amount", f"{name}.Ave * {name}.Amount", f"{name}.Amount"))
        except ValueError as error:
            raise ValueError(f"the class state in {str(Path(path))!r} cannot be used: {error}") from None
        state.update(statistics)
    bank.load_state_dict(state)
    return criterion


def _statistics(prefix: str, estimator: EstimatorState, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Sums = mean * count, in two words; the row of a class without samples is its initial direction."""
    counts = estimator.count.double()
    sums = estimator.mean.double() * torch.where(counts > 0, counts, 1.0)[:, None]
    high = sums.to(dtype)
    return {f"{prefix}sums": high, f"{prefix}compensation": (sums - high.double()).to(dtype), f"{prefix}counts": counts}
