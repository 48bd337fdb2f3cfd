"""What the loss of a row is: cross-entropy with a label, with class weights and label smoothing, or with probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pairgrad.ground.checks import readable
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.tiles import Label, LinearSums, Result, Sums, finish, finish_linear, visit
from pairgrad.sphere.state import Classes


@dataclass(frozen=True)
class Targets:
    """What the loss of row i asks for: hard_i CE(y_i) + sum_j u_ij (log sum_k exp z_ik - z_ij).

    Args:
        labels: (B,), ignored ones replaced by 0; None for probabilities.
        hard: (B,), the weight of the label's term: (1 - smoothing) w_y, 0 for ignored rows.
        soft: (B, K) or (1, K) weights u, or None.
        counted: (B,), 1 or 0 for ignored rows; multiplies the soft part.
        share: (B,), what the mean divides by, summed.
        soft_total: the sums of `soft` over all classes, where it has only some of them; None: over those that it has.
        plain: known to be nothing but one label for each row, none of which is ignored.
    """

    labels: torch.Tensor | None
    hard: torch.Tensor | None
    soft: torch.Tensor | None
    counted: torch.Tensor
    share: torch.Tensor
    soft_total: torch.Tensor | None = None
    plain: bool = False

    @staticmethod
    def of(
        labels: torch.Tensor, weight: torch.Tensor | None, ignore_index: int, smoothing: float, num_classes: int, dtype: torch.dtype
    ) -> Targets:
        if labels.is_floating_point():
            soft = labels.to(dtype) * (1 - smoothing) + smoothing / num_classes
            ones = torch.ones(len(labels), dtype=dtype, device=labels.device)
            return Targets(None, None, soft if weight is None else soft * weight, ones, ones)
        ignored = labels == ignore_index
        if weight is None and not smoothing and readable(labels) and not bool(ignored.any()):
            ones = torch.ones(labels.shape, dtype=dtype, device=labels.device)
            return Targets(labels, ones, None, ones, ones, plain=True)
        counted = (~ignored).to(dtype)
        labels = torch.where(ignored, 0, labels)
        share = counted if weight is None else counted * weight[labels]
        if not smoothing:
            return Targets(labels, share, None, counted, share)
        even = torch.full((1, num_classes), smoothing / num_classes, dtype=dtype, device=labels.device)
        return Targets(labels, share * (1 - smoothing), even if weight is None else even * weight, counted, share)

    def visit(
        self, plan: Plan, sums: Sums, view: torch.Tensor, own: torch.Tensor, classes: Classes, bias: torch.Tensor | None
    ) -> tuple[Sums, LinearSums]:
        """Both kinds of sums over all classes, for soft targets; those of exponentials without the label of each row."""
        linear = None
        assert self.soft is not None
        for first, last in plan.tiles(len(classes.rates)):
            own_class = None if self.labels is None else self.labels[:, None] == torch.arange(first, last, device=view.device)
            tile_bias = view.new_zeros(()) if bias is None else bias[first:last]
            part = classes.tile(first, last)
            sums, linear = visit(plan, sums, view, own, part, tile_bias, own_class, self.soft[:, first:last], linear)
        assert linear is not None
        return sums, linear

    def mean_weight(self) -> torch.Tensor | None:
        """What a mean over the rows divides their sum by; None: how many there are."""
        return None if self.plain else self.share.sum()

    def finish(self, plan: Plan, sums: Sums, linear: LinearSums, view: torch.Tensor, label: Label | None) -> Result:
        """Loss and gradient from the sums of `visit`: the soft part first, since `finish` writes over the sums."""
        soft = weighted(finish_linear(plan, sums, linear, view, label), self.counted)
        if label is None or self.hard is None:
            return soft
        hard = weighted(finish(plan, sums, view, label), self.hard)
        gradient = None if soft.gradient is None or hard.gradient is None else soft.gradient + hard.gradient
        return Result(soft.loss + hard.loss, gradient, hard.normaliser)

    def losses(self, logits: torch.Tensor) -> torch.Tensor:
        """(B,), of logits (B, K), in operations that autograd and torch.func follow; what has no weight contributes 0, even where it is infinite."""
        unlikeliness = -torch.log_softmax(logits, 1)
        loss = torch.zeros_like(unlikeliness[:, 0])
        if self.labels is not None and self.hard is not None:
            at_label = unlikeliness.gather(1, self.labels[:, None])[:, 0]
            loss = loss + torch.where(self.hard == 0, 0.0, self.hard * at_label)
        if self.soft is not None:
            parts = torch.where(self.soft == 0, 0.0, self.soft * unlikeliness).sum(1)
            loss = loss + torch.where(self.counted == 0, 0.0, self.counted * parts)
        return loss


def weighted(result: Result, weight: torch.Tensor) -> Result:
    """A row of weight 0 contributes 0, even where its loss is infinite."""
    counts = weight != 0
    loss = torch.where(counts, result.loss * weight, 0.0)
    gradient = result.gradient
    if gradient is not None:
        gradient = torch.where(counts.unsqueeze(-1), gradient * weight.unsqueeze(-1), 0.0)
    return Result(loss, gradient, result.normaliser)
