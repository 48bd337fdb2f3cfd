"""What the host systems do, step by step and with public parts only: update the bank with a view, score it, take torch's cross-entropy, next view."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

import pairgrad as pg


def sequence(
    bank: pg.ClassBank,
    views: torch.Tensor,
    labels: torch.Tensor,
    *,
    temperature: float = 0.1,
    realization: Any = "paired",
    log_prior: torch.Tensor | None = None,
    normalize: bool = True,
    before: bool = False,
    update: bool = True,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses (V, B), and the gradient of each in its feature, (V, B, p). The bank is left as the sequence leaves it."""
    losses, gradients = [], []
    for view in views:
        leaf = view.detach().clone().requires_grad_()
        features = F.normalize(leaf, dim=-1) if normalize else leaf
        if update and not before:
            bank.update(features, labels)
        scores = pg.vmf_scores(features, bank, temperature, realization, **options)
        loss = F.cross_entropy(scores if log_prior is None else scores + log_prior.to(scores.dtype), labels, reduction="none")
        gradients.append(torch.autograd.grad(loss.sum(), leaf)[0])
        losses.append(loss.detach())
        if update and before:
            bank.update(features, labels)
    return torch.stack(losses), torch.stack(gradients)
