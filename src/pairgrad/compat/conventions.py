"""Our losses behind the call signatures of neighbouring libraries."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pairgrad.ground.checks import dense, describe, floating_tensor, integer_at_least
from pairgrad.ground.devices import on_host
from pairgrad.losses.bank_loss import BankLoss


class MetricLearningLoss(nn.Module):
    """`loss(embeddings, labels)` as pytorch-metric-learning calls it.

    Args:
        loss: a [`ProCoLoss`][pairgrad.ProCoLoss] or another loss with a class bank.
        views: how many views of one batch `embeddings` holds one after the other, (views * B, p), with the labels repeated in the same order.
    """

    def __init__(self, loss: BankLoss, views: int = 1) -> None:
        super().__init__()
        self.loss = _checked(loss)
        self.views = integer_at_least("views", views, 1)

    def forward(
        self, embeddings: torch.Tensor, labels: torch.Tensor, indices_tuple: Any = None, ref_emb: Any = None, ref_labels: Any = None
    ) -> torch.Tensor:
        if indices_tuple is not None or ref_emb is not None or ref_labels is not None:
            raise ValueError(
                "indices_tuple, ref_emb and ref_labels must be None: features are compared with classes here, not with each other"
            )
        floating_tensor("embeddings", embeddings)
        if embeddings.dim() != 2 or embeddings.shape[0] % self.views or not embeddings.shape[1]:
            raise ValueError(
                f"embeddings must have shape ({self.views} * batch, dim): {self.views} views of one batch, got {describe(embeddings)}"
            )
        if not isinstance(labels, torch.Tensor) or labels.shape != embeddings.shape[:1]:
            raise ValueError(f"labels must have shape ({embeddings.shape[0]},), one per row of embeddings, got {describe(labels)}")
        if self.views == 1:
            return self.loss(embeddings, labels)
        dense("labels", labels)
        repeated = labels.reshape(self.views, -1)
        if on_host(repeated) and not bool((repeated == repeated[0]).all()):
            raise ValueError(f"labels must repeat in the same order for each of the {self.views} views")
        return self.loss(embeddings.reshape(self.views, -1, embeddings.shape[1]), repeated[0])


class TimmLoss(nn.Module):
    """`loss(x, target) -> scalar` as timm's training script calls it, x the features.

    Class probabilities (B, K), as mixup makes them, are scored against the bank without updating it: a mixed feature belongs to no class.
    """

    def __init__(self, loss: BankLoss) -> None:
        super().__init__()
        self.loss = _checked(loss)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if not isinstance(target, torch.Tensor):
            raise TypeError(
                f"target must be a tensor of labels (batch,) or of class probabilities (batch, num_classes), got {describe(target)}"
            )
        if not target.is_floating_point():
            return self.loss(x, target)
        return self.loss.soft(x, target)


def _checked(loss: BankLoss) -> BankLoss:
    if not isinstance(loss, BankLoss):
        raise TypeError(f"loss must be a loss with a class bank, such as pairgrad.ProCoLoss, got {describe(loss)}")
    return loss
