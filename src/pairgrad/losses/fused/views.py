"""One labelled batch against fixed classes, or several views of it against a class bank that each of them updates: the host systems' step, in two products.

The order is the hosts': update with the first view, score it, update with the second, score it; or score before each update. A view therefore sees the bank
as it was in between, which differs from the final bank in the rows of the batch's own classes only. With few classes, every view is given its own copy of
the rows. With many, all views share one product with the final rows, in which the batch's classes count for the last view alone; for the others these
are visited as a tile of their own, with the rows they had at that point. Either way the result is that of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch.nn import functional

from pairgrad.ground.arithmetic import once
from pairgrad.ground.compilation import compiled_copy
from pairgrad.ground.devices import on_host
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets, weighted
from pairgrad.losses.fused.tiles import Label, Result, Sums, finish, in_one_pass, in_one_tile, label_terms, own_square, start, visit
from pairgrad.potentials import Potential
from pairgrad.sphere.bank import Touched, Updating
from pairgrad.sphere.state import Classes

_SHORTEST = 1e-12  # a feature shorter than this is not brought to unit length


class Eager:
    """The execution `"eager"`: operation by operation."""

    name = "eager"
    compiled = False
    half = False

    def check(self, pot: Potential) -> None:
        """It has every potential."""

    def check_place(self, dtype: torch.dtype, device: torch.device) -> None:
        """And every dtype and device."""

    def of_targets(self, plan: Plan, view: torch.Tensor, targets: Targets, classes: Classes, log_prior: torch.Tensor | None) -> Result:
        return cross_entropy_of_targets(plan, view, targets, classes, log_prior)

    def of_views(
        self, plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
    ) -> tuple[Result, Touched | None]:
        return cross_entropy_of_views(plan, state, views, labels, log_prior, order)

    def of_seen(
        self,
        plan: Plan,
        views: torch.Tensor,
        labels: torch.Tensor,
        classes: Classes,
        touched: Touched | None,
        log_prior: torch.Tensor | None,
    ) -> Result:
        if touched is None:
            return cross_entropy_of_batch(plan, views, labels, classes, log_prior)
        return cross_entropy_after(plan, views, labels, classes, touched, log_prior)


def cross_entropy_of_views(
    plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
) -> tuple[Result, Touched | None]:
    """Loss and gradient of each row of views (V, B, p), with the bank updated on the way, and the states of the batch's classes that the views saw
    where these are not the final ones. Traceable; arguments are checked already.

    Args:
        order: `"after-update"` scores a view after the bank is updated with it, `"before-update"` before; with `"no-update"` the bank is only read.
    """
    if not plan.tangential:
        return _against_bank(plan, state, views, labels, log_prior, order)
    lengths = lengths_of(views)
    unit = views / lengths
    result, touched = _against_bank(plan, state, unit, labels, log_prior, order)
    if result.gradient is not None:
        along = (result.gradient * unit).sum(-1, keepdim=True)
        gradient = result.gradient.addcmul_(unit, along, value=-1).div_(lengths)
        result = Result(result.loss, gradient, result.normaliser)  # before 2.12, torch.compile cannot return what _replace makes
    return result, touched


def _against_bank(
    plan: Plan, state: Updating, views: torch.Tensor, labels: torch.Tensor, log_prior: torch.Tensor | None, order: str
) -> tuple[Result, Touched | None]:
    if order == "no-update":
        return cross_entropy_of_batch(plan, views, labels, state.classes(), log_prior), None
    if order == "before-update":
        results = []
        for view in views:
            results.append(cross_entropy_of_batch(plan, view[None], labels, state.classes(), log_prior))
            state.absorb(view[None], labels)
        return joined(results), None
    touched = state.absorb(views, labels)
    if views.shape[0] == 1:
        return cross_entropy_of_batch(plan, views, labels, state.classes(), log_prior), None
    return cross_entropy_after(plan, views, labels, state.classes(), touched, log_prior), touched


def joined(results: list[Result]) -> Result:
    """The results of several views as one."""
    loss, gradient, normaliser, share = zip(*results, strict=True)
    gradient, normaliser = (None if parts[0] is None else torch.cat(parts) for parts in (gradient, normaliser))
    return Result(torch.cat(loss), gradient, normaliser, share[0])


def lengths_of(views: torch.Tensor) -> torch.Tensor:
    """What features are divided by where a loss normalises them, (V, B, 1)."""
    return torch.linalg.vector_norm(views, dim=-1, keepdim=True).clamp_min(_SHORTEST)


def of_unit_length(views: torch.Tensor) -> torch.Tensor:
    """Features divided by their lengths, differentiable."""
    return functional.normalize(views, dim=-1, eps=_SHORTEST)


def cross_entropy_of_targets(plan: Plan, view: torch.Tensor, targets: Targets, classes: Classes, log_prior: torch.Tensor | None) -> Result:
    """Loss and gradient of each row of one view (1, B, p) against fixed classes, with class weights, smoothing or probabilities."""
    if targets.soft is None:
        assert targets.labels is not None
        assert targets.hard is not None
        result = cross_entropy_of_batch(plan, view, targets.labels, classes, log_prior)
        return result if targets.plain else weighted(result, targets.hard)
    own = own_square(view, plan.temperature)
    label = None
    if targets.labels is not None:
        target = Classes(*(tensor.index_select(0, targets.labels)[None] for tensor in classes))
        label = label_terms(plan, view, own, target, label_bias(log_prior, targets.labels, view))
    else:
        plan = plan.without_fixed_top()
    sums = start(plan, view, own, label, largest_bias(log_prior, view))
    sums, linear = targets.visit(plan, sums, view, own, classes, log_prior)
    return targets.finish(plan, sums, linear, view, label)


def cross_entropy_after(
    plan: Plan, views: torch.Tensor, labels: torch.Tensor, classes: Classes, touched: Touched, log_prior: torch.Tensor | None
) -> Result:
    """Each view against the classes as it saw them: as in `touched` after it, and as in `classes`, the final ones, elsewhere."""
    num_classes = classes.rates.shape[0]
    one_tile = plan.tile >= num_classes and not torch.compiler.is_compiling()
    if num_classes < 2 * max(labels.shape[0], touched.labels.shape[0]):
        states = every_state(classes, touched)
        if not one_tile:
            return cross_entropy_of_batch(plan, views, labels, states, log_prior)
        return in_one_tile(plan, views, labels, states, log_prior, touched.rows_of_samples())
    if one_tile:
        places, bias = _beside_touched(views, labels, num_classes, touched, log_prior)
        return in_one_pass(plan, views, places, classes, touched.states(), bias, touched.rows_of_samples())
    own = own_square(views, plan.temperature)
    label = label_terms(plan, views, own, touched.of_samples(), label_bias(log_prior, labels, views))
    sums = sums_over_classes(plan, views, own, label, labels, classes, log_prior, largest_bias(log_prior, views), touched)
    return finish(plan, sums, views, label)


def _beside_touched(
    views: torch.Tensor, labels: torch.Tensor, num_classes: int, touched: Touched, log_prior: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the K final classes are followed by the T touched ones as each view saw them: places of the labels, (V, B), and biases, (V, 1, K + T).

    The last view sees the final classes; the others the touched ones, each once, and of the final ones those that were not touched.
    """
    entries = touched.slots if touched.samples is None else touched.slots.index_select(0, touched.samples)
    places = torch.cat([(entries + num_classes).expand(len(views) - 1, -1), labels[None]])
    further = _once_each(touched, log_prior, views)
    bias = torch.cat([views.new_zeros(num_classes) if log_prior is None else log_prior, further]).repeat(len(views), 1, 1)
    bias[:-1].index_fill_(2, touched.labels, -torch.inf)
    bias[-1, :, num_classes:].fill_(-torch.inf)
    return places, bias


def _once_each(touched: Touched, log_prior: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """The biases of the entries, (T,), of which each class has one that is finite."""
    bias = label_bias(log_prior, touched.labels, like).expand(touched.slots.shape)
    if touched.distinct:
        return bias
    return bias.masked_fill(touched.slots != torch.arange(len(touched.slots), device=like.device), -torch.inf)


def cross_entropy_of_batch(
    plan: Plan, views: torch.Tensor, labels: torch.Tensor, classes: Classes, log_prior: torch.Tensor | None
) -> Result:
    """Against fixed classes, (K, p) for all views or (V, K, p) with one state per view."""
    by_view, num_classes = classes.rows.dim() - 2, classes.rates.shape[-1]
    if plan.tile >= num_classes and not torch.compiler.is_compiling():
        return in_one_tile(plan, views, labels, classes, log_prior, classes.rows.index_select(by_view, labels))
    own = own_square(views, plan.temperature)
    target = Classes(*(tensor.index_select(by_view, labels) for tensor in classes))
    if not by_view:
        target = Classes(*(tensor.unsqueeze(0) for tensor in target))
    label = label_terms(plan, views, own, target, label_bias(log_prior, labels, views))
    sums = sums_over_classes(plan, views, own, label, labels, classes, log_prior, largest_bias(log_prior, views))
    return finish(plan, sums, views, label)


def every_state(classes: Classes, touched: Touched) -> Classes:
    """All classes for every view, (V, K, ...), with the batch's classes as that view saw them."""
    if touched.every:
        return touched.states()
    return Classes(*(copies(final, seen, touched.labels) for final, seen in zip(classes, touched.states(), strict=True)))


def copies(final: torch.Tensor, seen: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A copy of `final` (K, ...) for each of those in `seen` (V, T, ...), with these in the places of the labels."""
    return torch.stack([final.to(seen.dtype)] * seen.shape[0]).index_copy_(1, labels, seen)


def sums_over_classes(
    plan: Plan,
    views: torch.Tensor,
    own: torch.Tensor,
    label: Label | None,
    labels: torch.Tensor,
    classes: Classes,
    log_prior: torch.Tensor | None,
    highest_prior: torch.Tensor,
    touched: Touched | None = None,
) -> Sums:
    """Sums over all classes (K, p) but each row's own.

    Args:
        label: a first guess of where the largest logit lies; None where it is not known here.
        labels: (B,), as places in `classes`; a place outside leaves out nothing.
        highest_prior: the largest log prior of any class.
        touched: what all views but the last saw of the classes that it names; None: every view sees `classes`.
    """
    sums = start(plan, views, own, label, highest_prior)
    num_classes = classes.rates.shape[-1]
    apart = None if touched is None else occurring(touched.labels, num_classes)
    streams = plan.compiled_tiles and not torch.compiler.is_compiling()
    if streams and plan.gradient:  # from sums that exist, so that the first tile needs no graph of its own
        sums = Sums(sums.top, sums.total, None if plan.tangential else torch.zeros_like(sums.total), torch.zeros_like(views))
    square = own
    for first, last in plan.tiles(num_classes):
        prior = views.new_zeros(last - first) if log_prior is None else log_prior[first:last]
        visited = _compiled_visit(labels.numel() * len(views), plan.tile) if streams and last - first == plan.tile else _visit_tile
        # the place of a tile is a tensor, so that one compiled function serves all of them
        place = torch.full((), first, device=labels.device) if streams else first
        tile_apart = None if apart is None else apart[first:last]
        sums = visited(plan, sums, views, square, labels, classes.tile(first, last), prior, place, tile_apart)
        if torch.compiler.is_compiling() and last < num_classes:
            # what follows depends on all results of this tile, or inductor would work on several tiles at once and keep them all
            done = sums.total if sums.push is None else sums.total + sums.push[..., 0]
            square = own + 0 * done[..., None]
    if touched is None:
        return sums
    # the batch's classes as the earlier views saw them, each class once
    bias = _once_each(touched, log_prior, views)
    early = Classes(*(tensor[:-1] for tensor in touched.states()))
    part = sums.earlier()
    for first, last in plan.tiles(len(bias)):
        excluded = labels[:, None] == touched.labels[first:last]
        part, _ = visit(plan, part, views[:-1], own[:-1], early.tile(first, last), bias[first:last], excluded)
    return _put_back(part, sums)


def _visit_tile(
    plan: Plan,
    sums: Sums,
    views: torch.Tensor,
    own: torch.Tensor,
    labels: torch.Tensor,
    classes: Classes,
    bias: torch.Tensor,
    first: torch.Tensor | int,
    apart: torch.Tensor | None,
) -> Sums:
    """Visit the classes first .. first + T - 1, each row without its label, and all but the last view without those that are true in `apart`, (T,)."""
    # (B, T); in 32 bits, which a vector of the processor holds as many of as of float32
    places = once(torch.arange(len(bias), dtype=torch.int32, device=labels.device))
    excluded = (labels - first).to(torch.int32)[:, None] == places
    # through the bias, which on a device would be one more kernel for each compiled tile
    by_bias = on_host(views) or not torch.compiler.is_compiling()
    if apart is not None and by_bias:
        bias = torch.stack([bias.masked_fill(apart, -torch.inf)] * (len(views) - 1) + [bias])[:, None]
    if classes.rows.dim() == 3 or not torch.compiler.is_compiling():
        return visit(plan, sums, views, own, classes, bias, excluded)[0]
    # in one loop over rows and classes: views and samples are one dimension
    rows, excluded = views.shape[:2], excluded.repeat(len(views), 1)
    if apart is not None and by_bias:
        bias = once(bias).expand(*rows, -1).flatten(0, 1)
    elif apart is not None:
        last_view = torch.arange(len(excluded), device=labels.device) >= len(excluded) - len(labels)
        excluded = excluded | (apart & ~last_view[:, None])
    flat = Sums(*(None if tensor is None else tensor.flatten(0, 1) for tensor in sums))  # type: ignore[arg-type]
    flat, _ = visit(plan, flat, views.flatten(0, 1), own.flatten(0, 1), classes, bias, excluded)
    return Sums(*(None if tensor is None else tensor.unflatten(0, rows) for tensor in flat))  # type: ignore[arg-type]


@cache
def _compiled_visit(rows: int, tile: int) -> Callable[..., Sums]:
    return compiled_copy(_visit_tile)


def _put_back(part: Sums, sums: Sums) -> Sums:
    """The sums with those of the earlier views replaced."""
    pull = None if part.pull is None or sums.pull is None else torch.cat([part.pull, sums.pull[-1:]])
    if part.push is not None and sums.push is not None:
        sums.push[:-1] = part.push  # in place: it is the largest tensor here
    return Sums(torch.cat([part.top, sums.top[-1:]]), torch.cat([part.total, sums.total[-1:]]), pull, sums.push)


def occurring(places: torch.Tensor, size: int) -> torch.Tensor:
    """Which of 0 .. size - 1 are among the places, (size,)."""
    outside = (places < 0) | (places >= size)
    marks = torch.zeros(size + 1, dtype=torch.bool, device=places.device)
    return marks.index_fill_(0, torch.where(outside, size, places), True)[:-1]


def label_bias(log_prior: torch.Tensor | None, labels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The log prior of each label; 0 without a prior."""
    return like.new_zeros(()) if log_prior is None else log_prior.index_select(0, labels)


def largest_bias(log_prior: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """The largest log prior of any class; 0 without a prior."""
    return like.new_zeros(()) if log_prior is None else log_prior.amax()
