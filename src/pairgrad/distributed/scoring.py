r"""Cross-entropy over classes that are sharded over ranks: each visits its own, and two collectives put the parts together.

With the sums of `pairgrad.losses.fused` restricted to the classes of rank c,

    total = sum_c total_c,     gradient = sum_c gradient_c,     gradient_c = share * (push_c + pull_c f) - [y in c] (the label's own term),

where share = 1 / (total + exp(z_y - top)) needs the totals of all ranks and the label's logit, which only the rank that holds the label's class knows. So the
ranks first add up totals and label logits, a few numbers per row, in one all-reduce; then each finishes its part of the gradient, and the parts are added in
one reduce-scatter, which hands every rank the gradient of its own samples. Nothing is left for backward to communicate.

Where the scores are not known to lie close together, ranks have different values of `top`; then the numbers per row are gathered instead of added, and brought
to the largest.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

import torch

from pairgrad.distributed.communicator import Communicator
from pairgrad.distributed.layout import Layout
from pairgrad.distributed.meeting import Samples
from pairgrad.ground.devices import widest
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.tiles import Label, LinearSums, Result, Sums, finish, label_terms, own_square, start, visit
from pairgrad.losses.fused.views import every_state, label_bias, occurring, sums_over_classes
from pairgrad.sphere.bank import Touched
from pairgrad.sphere.state import Classes


class Shard(NamedTuple):
    """The classes of one rank as a pass over them reads them."""

    classes: Classes  # (k, p)
    log_prior: torch.Tensor | None  # (k,)
    highest_prior: torch.Tensor  # of all classes, on all ranks; where classes are drawn, with the largest weight that one stands for
    touched: Touched | None = None  # what the views saw of the batch's classes, where that is not the final state


def cross_entropy_of_shard(
    plan: Plan, group: Communicator, views: torch.Tensor, places: torch.Tensor, shard: Shard, sampled: int | None = None
) -> Result:
    """Loss of each row of views (V, B, p), the same on all ranks of the group, and this rank's part of its gradient.

    Args:
        places: (B,), of the labels in the shard; outside of it for those of other ranks.
        sampled: visit this many classes, drawn at random, instead of all.
    """
    own = own_square(views, plan.temperature)
    if sampled is not None:
        label = label_of_shard(plan, views, own, places, shard)
        sums = _sums_over_sample(plan, views, own, places, shard, sampled)
    else:
        if shard.touched is not None and len(shard.classes.rates) < 2 * len(shard.touched.labels):
            shard = shard._replace(classes=every_state(shard.classes, shard.touched), touched=None)
        label = label_of_shard(plan, views, own, places, shard)
        sums = sums_over_classes(plan, views, own, None, places, shard.classes, shard.log_prior, shard.highest_prior, shard.touched)
    sums, label, _ = combined(group, sums, label, fixed=plan.fixed)
    return finish(plan, sums, views, label)


def label_of_shard(plan: Plan, views: torch.Tensor, own: torch.Tensor, places: torch.Tensor, shard: Shard) -> Label:
    """Logit and gain of the labels whose classes are held here; 0 for the others."""
    classes = shard.classes
    inside = (places >= 0) & (places < classes.rates.shape[-1])
    held = torch.where(inside, places, 0)
    if shard.touched is not None:
        target = shard.touched.of_samples()
    elif classes.rows.dim() == 3:
        target = Classes(*(tensor.index_select(1, held) for tensor in classes))
    else:
        target = Classes(*(tensor.index_select(0, held).unsqueeze(0) for tensor in classes))
    label = label_terms(plan, views, own, target, label_bias(shard.log_prior, held, views))
    return Label(torch.where(inside, label.logit, 0.0), torch.where(inside, label.gain, 0.0), target)


def combined(
    group: Communicator, sums: Sums, label: Label, linear: LinearSums | None = None, *, fixed: bool
) -> tuple[Sums, Label, LinearSums | None]:
    """Totals, label logits and linear scores of all ranks, in one collective; what belongs to the gradient stays this rank's part.

    Args:
        fixed: whether all ranks have the same `top`.
    """
    if group.size == 1:
        return sums, label, linear
    mine = [sums.total, label.logit] if linear is None else [sums.total, label.logit, linear.score, linear.weight.expand_as(sums.total)]
    top = sums.top.squeeze(-1)
    if fixed:
        total, logit, *rest = group.total("normaliser", torch.stack(mine))
        scale = None
    else:
        found = group.gather("normaliser", torch.stack([top, *mine])).view(group.size, len(mine) + 1, *top.shape)
        totals, (logit, *rest) = found[:, 1], found[:, 2:].sum(0)
        highest = torch.maximum(found[:, 0].amax(0), logit)
        total = (totals * torch.exp(found[:, 0] - highest)).sum(0)
        scale, top = torch.exp(top - highest), highest
    pull = sums.pull if sums.pull is None or scale is None else sums.pull * scale
    push = sums.push if sums.push is None or scale is None else sums.push * scale.unsqueeze(-1)
    if linear is not None:
        linear = linear._replace(score=rest[0], weight=rest[1])
    return Sums(top.unsqueeze(-1), total, pull, push), label._replace(logit=logit), linear


def own_gradient(layout: Layout, samples: Samples, gradient: torch.Tensor) -> torch.Tensor:
    """Of the parts (V, B, p) that the ranks of a class group have of a gradient, the sum, for the samples of this rank."""
    group = layout.classes
    if group.size == 1:
        return gradient
    if layout.inputs == "replicated":
        return group.total("gradient", gradient.contiguous())
    number, _, dim = gradient.shape
    capacity = max(samples.sizes)
    parts = gradient.new_zeros(group.size, capacity, number * dim)
    rows = gradient.transpose(0, 1).reshape(gradient.shape[1], number * dim)
    for part, own in zip(parts, rows.split(samples.sizes), strict=True):
        part[: len(own)] = own
    mine = group.total_of_parts("gradient", parts.view(-1, number * dim))
    size = samples.sizes[group.rank]
    return mine[:size].view(size, number, dim).transpose(0, 1)


def _sums_over_sample(plan: Plan, views: torch.Tensor, own: torch.Tensor, places: torch.Tensor, shard: Shard, number: int) -> Sums:
    r"""Sums in which `number` classes stand for all: one drawn from each of as many stretches of equal length, with the weight k / number.

    Every class is drawn with the same probability number / k, so total, pull and push have the right expectation. The logarithm of the total has not: by
    Jensen's inequality it is too small on average, by about half the squared relative deviation of the total. The classes of the batch always count, once and
    exactly, so that what is drawn has no part in the label's own term.
    """
    classes, touched = shard.classes, shard.touched
    size = len(classes.rates)
    stretch, drawn = size / number, drawn_classes(size, number, views.device)
    chosen = Classes(*(tensor.index_select(0, drawn) for tensor in classes))
    bias = label_bias(shard.log_prior, drawn, views).expand(number) + math.log(stretch)
    sums = start(plan, views, own, None, shard.highest_prior)
    if touched is not None:
        bias = bias.masked_fill(occurring(touched.labels, size).index_select(0, drawn), -torch.inf)
    for first, last in plan.in_eager().tiles(number):
        excluded = places[:, None] == drawn[first:last]
        sums, _ = visit(plan, sums, views, own, chosen.tile(first, last), bias[first:last], excluded)
    if touched is None:
        return sums
    repeated = touched.slots != torch.arange(len(touched.slots), device=views.device)
    prior = label_bias(shard.log_prior, touched.labels, views).expand(repeated.shape).masked_fill(repeated, -torch.inf)
    states = touched.states()
    for first, last in plan.in_eager().tiles(len(prior)):
        excluded = places[:, None] == touched.labels[first:last]
        sums, _ = visit(plan, sums, views, own, states.tile(first, last), prior[first:last], excluded)
    return sums


def drawn_classes(size: int, number: int, device: torch.device) -> torch.Tensor:
    """One of the places 0 .. size - 1 from each of `number` stretches of equal length, every place with probability number / size.

    In float64 where the device has it: in float32 a million stretches would leave sixteen values for where in a stretch a place lies, and some classes
    would come twice as often.
    """
    within = torch.rand(number, device=device, dtype=widest(device))
    return ((torch.arange(number, device=device) + within) * (size / number)).long().clamp_max(size - 1)


def no_second_derivative(*_: Any) -> NoReturn:
    """The losses again, where they cannot be: an error that says why."""
    raise RuntimeError(
        "a second derivative (create_graph=True) is not available where ranks hold different classes, or classes are sampled: "
        "it needs the scores of all classes on one rank, as data parallelism has them"
    )
