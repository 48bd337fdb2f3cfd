"""From one loss per sample to what an optimizer is given."""

from __future__ import annotations

import torch

from pairgrad.ground.checks import one_of

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(reduction: str) -> str:
    """The reduction, if it is one."""
    return one_of("reduction", reduction, REDUCTIONS)


def reduce(losses: torch.Tensor, reduction: str, total_weight: torch.Tensor | None = None) -> torch.Tensor:
    """The losses, their sum, or their mean: the sum over `total_weight`, or over how many there are.

    The mean of no samples, or of samples whose weights add up to 0, is 0 and is connected to the graph: a batch without outliers, or one in which
    every label is ignored, adds nothing to the loss and sends back zeros.
    """
    if reduction == "none":
        return losses
    if reduction == "mean" and total_weight is None and losses.numel():
        return losses.mean()  # one launch on a device
    total = losses.sum()
    if reduction == "sum" or total_weight is None:
        return total
    return total / torch.where(total_weight == 0, 1.0, total_weight)
