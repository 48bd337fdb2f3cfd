r"""Cross-entropy of vMF scores and its gradient in the features, in one pass over tiles of classes, from no (batch, classes) matrix.

With z_ij = q_j(f_i) + b_j, the loss of sample i with label y is log(1 + sum_{j != y} exp(z_ij - z_iy)) (eq. view-loss), and since
dq_j / df = g_ij (kappa_j mu_j + f / tau) / tau with the gain g = slope(r) / r, its gradient needs, beside the label's own term, only

    total_i = sum_{j != y} e_ij,     pull_i = sum_{j != y} e_ij g_ij,     push_i = sum_{j != y} e_ij g_ij (kappa_j / ||S_j||) S_j,

with e_ij = exp(z_ij - top_i). All three are sums over classes, so tiles are visited once: a product with the class rows, a few elementwise operations, a
product back. The label is left out of the sums and put in by hand, so that a small loss, and its gradient p_y - 1, keep their relative accuracy.

`top` cancels in the end. Where the scores are known to lie close together it is fixed in advance, and the weights of a tile need no maximum; else the
running maximum is kept and earlier sums are scaled when it grows. Where targets are not single labels, sums with the target weights u_ij join in:
the loss is then sum_j u_ij (log sum_k exp z_ik - z_ij).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from pairgrad.losses.fused.arithmetic import increment_pair
from pairgrad.losses.fused.plan import MARGIN, Plan
from pairgrad.potentials.protocol import dtype_on
from pairgrad.sphere.geometry import Temperature
from pairgrad.sphere.state import Classes

_LONG_ROW, _PARTS = 2**15, 16


class Sums(NamedTuple):
    """Sums over the classes visited so far, for rows of shape (V, B)."""

    top: torch.Tensor  # (V, B, 1)
    total: torch.Tensor  # (V, B)
    pull: torch.Tensor | None  # (V, B)
    push: torch.Tensor | None  # (V, B, p)

    def earlier(self) -> Sums:
        """Those of all views but the last."""
        pull = None if self.pull is None else self.pull[:-1]
        return Sums(self.top[:-1], self.total[:-1], pull, None if self.push is None else self.push[:-1])


class LinearSums(NamedTuple):
    """The same with target weights u_ij instead of e_ij; `score` is the sum of u_ij z_ij."""

    weight: torch.Tensor
    score: torch.Tensor
    pull: torch.Tensor | None
    push: torch.Tensor | None


class Label(NamedTuple):
    """Logit z_y and gain of the label of every row, with the state its class has in that view."""

    logit: torch.Tensor  # (V, B)
    gain: torch.Tensor  # (V, B)
    classes: Classes  # (V, B, p), (V, B), (V, B)


class Result(NamedTuple):
    """Loss per row, its gradient in the features times `share`, and log sum_j exp z_j, which may be missing if the plan does not want it."""

    loss: torch.Tensor  # (V, B)
    gradient: torch.Tensor | None  # (V, B, p)
    normaliser: torch.Tensor | None  # (V, B)
    share: float = 1.0


def own_square(features: torch.Tensor, temperature: Temperature) -> torch.Tensor:
    """||f||^2 / tau^2, (..., 1)."""
    return (features * features).sum(-1, keepdim=True) / (temperature * temperature)


def label_terms(plan: Plan, features: torch.Tensor, own: torch.Tensor, classes: Classes, bias: torch.Tensor) -> Label:
    """The label's score by a row-wise product, for class states of shape (V, B)."""
    dots = (features * classes.rows).sum(-1)
    squared = dots * (2 * classes.rates / plan.temperature) + own.squeeze(-1)
    score, gain = _score_and_gain(plan, classes.concentration, squared)
    return Label(score + bias, gain, classes)


def start(plan: Plan, features: torch.Tensor, own: torch.Tensor, label: Label | None, largest_bias: torch.Tensor) -> Sums:
    """Empty sums, with the first value of `top`."""
    shape = features.shape[:-1]
    if plan.fixed:
        # no score exceeds ||f|| / tau, and the label's is one of them: the largest logit lies within the margin of this
        highest = own.sqrt().squeeze(-1) + (largest_bias - MARGIN[features.dtype])
        # without a label: a class without direction and with the largest prior has its logit there; log(total) + top then cancels little
        top = torch.maximum(highest, largest_bias if label is None else label.logit)
    elif label is not None:
        top = label.logit.clamp_min(torch.finfo(features.dtype).min / 2)
    else:
        top = torch.full(shape, torch.finfo(features.dtype).min / 2, dtype=features.dtype, device=features.device)
    return Sums(top.unsqueeze(-1), torch.zeros_like(top), None, None)


def logits_and_gains(
    plan: Plan, features: torch.Tensor, own: torch.Tensor, classes: Classes, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """z and gain, (V, B, T), and the rates, for classes (T, p), or (V, T, p) with the state each view sees; `bias` broadcasts to (V, B, T)."""
    rates = classes.rates.unsqueeze(-2)
    squared = torch.addcmul(own, features @ classes.rows.mT, 2 / plan.temperature * rates)
    score, gain = _score_and_gain(plan, classes.concentration.unsqueeze(-2), squared)
    return score.add_(bias), gain, rates


def visit(
    plan: Plan,
    sums: Sums,
    features: torch.Tensor,
    own: torch.Tensor,
    classes: Classes,
    bias: torch.Tensor,
    excluded: torch.Tensor | None,
    targets: torch.Tensor | None = None,
    linear: LinearSums | None = None,
) -> tuple[Sums, LinearSums | None]:
    """Add a tile of classes to the sums.

    Args:
        bias: -inf leaves a class out.
        excluded: broadcasts to the rows and classes; true where a class must not count; or None.
        targets: u_ij, broadcasts to (V, B, T), or None.
    """
    logit, gain, rates = logits_and_gains(plan, features, own, classes, bias)
    if targets is not None:
        linear = _visit_linear(plan, linear, logit, gain, rates, classes.rows, targets)
    if plan.fixed:
        top, scale = sums.top, None
        weight = logit.sub_(top).exp_()
        if excluded is not None:
            weight = torch.where(excluded, 0.0, weight)
    else:
        if excluded is not None:
            logit = torch.where(excluded, -torch.inf, logit)
        top = torch.maximum(sums.top, logit.amax(-1, keepdim=True))
        scale = torch.exp(sums.top - top)
        weight = logit.sub_(top).exp_()
    del logit
    total = _plus(sums.total, scale, _row_sums(weight))
    if not plan.gradient:
        return Sums(top, total, None, None), linear
    weight = weight.mul_(gain)
    del gain
    pull = None if plan.tangential else _plus(sums.pull, scale, _row_sums(weight))
    push = sums.push if sums.push is None or scale is None else sums.push * scale
    return Sums(top, total, pull, _plus_product(push, weight.mul_(rates), classes.rows)), linear


def in_one_tile(
    plan: Plan,
    features: torch.Tensor,
    labels: torch.Tensor,
    classes: Classes,
    bias: torch.Tensor | None,
    target: torch.Tensor,
) -> Result:
    """Loss and gradient where all classes fit in a tile: the label's logit and the maximum are read off it. For eager mode.

    Args:
        labels: (B,).
        classes: (K, p), or (V, K, p) with the state that each view sees.
        target: rows of the labels' classes, (V, B, p), or (B, p) for all views.
    """
    rows, rates, concentration = classes
    product = torch.bmm if rows.dim() == 3 else torch.matmul
    return _from_products(
        plan,
        features,
        lambda: product(features, rows.mT),
        rates.unsqueeze(-2),
        concentration.unsqueeze(-2),
        bias,
        labels.expand(features.shape[:2]).unsqueeze(-1),
        target,
        lambda weight: product(weight, rows),
    )


def in_one_pass(
    plan: Plan,
    features: torch.Tensor,
    places: torch.Tensor,
    classes: Classes,
    further: Classes,
    bias: torch.Tensor,
    target: torch.Tensor,
) -> Result:
    """`in_one_tile` against classes (K, p) and behind them those that every view has for itself, (V, T, p), in one chain of operations for all of them.

    Args:
        places: (V, B), of the labels among the K + T.
        bias: (V, 1, K + T).
    """
    rates, concentration = (
        torch.cat([shared.expand(len(own), -1), own], 1).unsqueeze(1) for shared, own in zip(classes[1:], further[1:], strict=True)
    )
    known = len(classes.rows)

    def forth() -> torch.Tensor:
        return torch.cat([features @ classes.rows.mT, features @ further.rows.mT], -1)

    def back(weight: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(weight[..., :known] @ classes.rows, weight[..., known:], further.rows)

    return _from_products(plan, features, forth, rates, concentration, bias, places.unsqueeze(-1), target, back)


def _from_products(
    plan: Plan,
    features: torch.Tensor,
    forth: Callable[[], torch.Tensor],
    rates: torch.Tensor,
    concentration: torch.Tensor,
    bias: torch.Tensor | None,
    index: torch.Tensor,
    target: torch.Tensor,
    back: Callable[[torch.Tensor], torch.Tensor],
) -> Result:
    """`forth` gives the products of the features with all class rows, `back` those of weights with the rows; `index` has the places of the labels."""
    own = own_square(features, plan.temperature)
    # the label's logit is in the loss whatever the others are: its product is taken row by row, which rounds less than a matrix product
    label = (features * target).sum(-1, keepdim=True)
    squared = torch.addcmul(own, forth().scatter_(-1, index, label), rates / (plan.temperature / 2))
    logit, gain = _score_and_gain(plan, concentration, squared)
    del squared
    if bias is not None:
        logit = logit.add_(bias)
    top = logit.amax(-1, keepdim=True)
    label = logit.gather(-1, index) if plan.normaliser else None
    weight = logit.sub_(top)
    odds = weight.gather(-1, index)
    weight, label_weight = weight.exp_(), odds.exp()
    total = weight.scatter_(-1, index, 0.0).sum(-1, keepdim=True)
    log_total = total.log()
    odds = torch.sub(log_total, odds)  # log of (1 - p_y) / p_y
    loss = torch.logaddexp(torch.zeros_like(odds), odds).squeeze(-1)
    normaliser = (
        None if label is None else torch.logaddexp(label, log_total.add_(top)).squeeze(-1)
    )  # finite for a label that cannot occur, too
    if not plan.gradient:
        return Result(loss, None, normaliser)
    share = label_weight.add_(total).reciprocal_().mul_(1 / plan.temperature)
    pull = None
    if not plan.tangential:
        pull = (weight * gain).sum(-1, keepdim=True).sub_(gain.gather(-1, index).mul_(total)).mul_(share).mul_(1 / plan.temperature)
    # the label's term is minus the sum of all others, times its gain; in the product it would be rounded with each of them
    pushes = gain.mul_(rates)
    label_push = pushes.gather(-1, index).mul_(total).mul_(share)
    gradient = back(weight.mul_(pushes)).mul_(share).addcmul_(target, label_push, value=-1)
    return Result(loss, gradient if pull is None else gradient.addcmul_(features, pull), normaliser)


def finish(plan: Plan, sums: Sums, features: torch.Tensor, label: Label) -> Result:
    """Loss and gradient for single labels, from the sums over all other classes."""
    log_total, top = sums.total.log(), sums.top.squeeze(-1)
    odds = log_total + (top - label.logit)  # log of (1 - p_y) / p_y
    loss = torch.logaddexp(torch.zeros_like(odds), odds)
    normaliser = torch.logaddexp(label.logit, log_total + top)  # finite for a label that cannot occur, too
    if sums.push is None:
        return Result(loss, None, normaliser)
    away = torch.sigmoid(odds)  # 1 - p_y
    share = torch.reciprocal(sums.total + torch.exp(label.logit - top))
    inverse = 1 / plan.temperature
    pulled = away * label.gain
    gradient = sums.push.mul_((share * inverse).unsqueeze(-1))  # the sums are ours: nobody reads them again
    gradient = gradient.addcmul_(label.classes.rows, (pulled * label.classes.rates * -inverse).unsqueeze(-1))
    if sums.pull is not None:
        gradient = gradient.addcmul_(features, ((share * sums.pull - pulled) * (inverse * inverse)).unsqueeze(-1))
    return Result(loss, gradient, normaliser)


def finish_linear(plan: Plan, sums: Sums, linear: LinearSums, features: torch.Tensor, label: Label | None) -> Result:
    """Loss and gradient of sum_j u_j (log sum_k exp z_k - z_j); `sums` then lack the label, if there is one."""
    top = sums.top.squeeze(-1)
    extra = torch.exp(label.logit - top) if label is not None else 0.0
    total = sums.total + extra
    normaliser = total.log() + top
    loss = linear.weight * normaliser - linear.score
    if sums.pull is None or sums.push is None or linear.pull is None or linear.push is None:
        return Result(loss, None, normaliser)
    share = linear.weight / total
    inverse = 1 / plan.temperature
    pull = share * sums.pull - linear.pull
    gradient = sums.push * share.unsqueeze(-1) - linear.push
    if label is not None:
        own = share * extra * label.gain
        pull = pull + own
        gradient = gradient + label.classes.rows * (own * label.classes.rates).unsqueeze(-1)
    gradient = gradient * inverse + features * (pull * inverse * inverse).unsqueeze(-1)
    return Result(loss, gradient, normaliser)


def _score_and_gain(plan: Plan, concentration: torch.Tensor, squared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    compute = dtype_on(plan.pot, squared.device, squared.dtype)
    if compute == squared.dtype:
        return increment_pair(plan.pot, concentration.to(compute), squared, plan.terms)
    score, gain = increment_pair(plan.pot, concentration.to(compute), squared.to(compute), plan.terms)
    return score.to(squared.dtype), gain.to(squared.dtype)


def _visit_linear(
    plan: Plan,
    linear: LinearSums | None,
    logit: torch.Tensor,
    gain: torch.Tensor,
    rates: torch.Tensor,
    rows: torch.Tensor,
    targets: torch.Tensor,
) -> LinearSums:
    targets = targets.expand_as(logit)
    # a class that cannot occur (logit -inf) and has no weight contributes nothing, not NaN
    score = torch.where(targets == 0, 0.0, targets * logit).sum(-1)
    weight = targets.sum(-1)
    pull = (targets * gain).sum(-1) if plan.gradient else None
    if linear is None:
        push = _plus_product(None, targets * gain * rates, rows) if plan.gradient else None
        return LinearSums(weight, score, pull, push)
    push = _plus_product(linear.push, targets * gain * rates, rows) if plan.gradient else None
    pull = pull if pull is None or linear.pull is None else linear.pull + pull
    return LinearSums(linear.weight + weight, linear.score + score, pull, push)


def _row_sums(weight: torch.Tensor) -> torch.Tensor:
    """Sums over the classes. Inductor would take the sums of few long rows in kernels of their own; sums of parts are taken where the weights are computed."""
    if torch.compiler.is_compiling() and weight.shape[-1] >= _LONG_ROW and weight.shape[-1] % _PARTS == 0:
        return weight.unflatten(-1, (_PARTS, -1)).sum(-1).sum(-1)
    return weight.sum(-1)


def _plus(sum_: torch.Tensor | None, scale: torch.Tensor | None, addend: torch.Tensor) -> torch.Tensor:
    if sum_ is None:
        return addend
    return sum_ + addend if scale is None else sum_ * scale.squeeze(-1) + addend


def _plus_product(push: torch.Tensor | None, weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """push + weight @ rows, for rows (T, p) or (V, T, p)."""
    if push is None:
        return weight @ rows
    if rows.dim() == 3:
        return torch.baddbmm(push, weight, rows)
    return torch.addmm(push.reshape(-1, push.shape[-1]), weight.reshape(-1, weight.shape[-1]), rows).view_as(push)
