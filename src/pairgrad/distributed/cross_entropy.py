"""Cross-entropy of vMF scores against a class state that several ranks hold: the options of `pairgrad.vmf_cross_entropy`, without its second derivatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from pairgrad.distributed.bank import DistributedClassBank
from pairgrad.distributed.layout import Layout
from pairgrad.distributed.meeting import Meeting, Samples, number_of
from pairgrad.distributed.scoring import Shard, combined, label_of_shard, no_second_derivative, own_gradient
from pairgrad.ground.checks import describe
from pairgrad.ground.precision import full_precision
from pairgrad.losses.cross_entropy import Problem, Recomputed
from pairgrad.losses.fused.autograd import attached, is_transformed
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets, weighted
from pairgrad.losses.fused.tiles import Result, finish, own_square, start
from pairgrad.losses.fused.views import sums_over_classes
from pairgrad.losses.options import Options
from pairgrad.losses.reduction import check_reduction, reduce
from pairgrad.potentials import Potential
from pairgrad.sphere.state import Classes, ClassState


class ShardedClassState(ClassState):
    """The rows of a [`ClassState`][pairgrad.ClassState] that this rank holds, fixed or with parameters that get gradients.

    Args:
        mean_direction: (k, p), those of the classes `layout.first` to `layout.last - 1`.
        concentration: (k,), >= 0.
        layout: who has what.
        static: batch sizes never change.
    """

    def __init__(self, mean_direction: torch.Tensor, concentration: torch.Tensor, layout: Layout, *, static: bool = False) -> None:
        super().__init__(mean_direction, concentration)
        if self.num_classes != layout.rows:
            raise ValueError(
                f"mean_direction must have a row for each of the {layout.rows} classes that this rank holds ({layout.first} to {layout.last - 1} of "
                f"{layout.num_classes}), got {describe(mean_direction)}"
            )
        self.layout = layout
        self.whole = layout.classes.size == 1
        dtype = mean_direction.dtype if mean_direction.dtype == torch.float64 else torch.float32
        self.meeting = Meeting(layout, self.dim, dtype, static=static)


def vmf_cross_entropy(
    features: torch.Tensor,
    labels: torch.Tensor,
    state: DistributedClassBank | ShardedClassState,
    temperature: float = 0.1,
    log_prior: torch.Tensor | None = None,
    reduction: str = "mean",
    realization: str | Potential = "paired",
    *,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    geometry_dtype: torch.dtype | None = None,
    max_norm: float | None = None,
    tile: int | None = None,
    averaged: bool = True,
    validate: bool | None = None,
) -> torch.Tensor:
    r"""[`pairgrad.vmf_cross_entropy`][pairgrad.vmf_cross_entropy] with the classes of all ranks, for the samples of this one.

    A collective: all ranks call it, with batches of any size. Every rank streams over its own classes; a few numbers per sample are added up over the ranks
    that shard the classes, and one collective more brings each the gradient of its own features. Where the state has parameters that require gradients,
    backward is a collective too.

    Args:
        features: (B, p), of this rank.
        labels: (B,) integers from 0 to K - 1, K the classes of all ranks.
        state: a bank that was distributed, or a [`ShardedClassState`][pairgrad.distributed.ShardedClassState].
        temperature: tau > 0.
        log_prior: (K,), of all classes.
        reduction: `"none"`, `"sum"` (over this rank's samples), or `"mean"`: what its mean over the ranks is the mean of the whole batch of
            (see `averaged`).
        realization: of the potential, by name or as a `Potential`.
        weight: (K,), per class.
        ignore_index: a label whose rows do not count.
        label_smoothing: in [0, 1].
        geometry_dtype: compute and return in this dtype; None: in that of the features.
        max_norm: a bound on the length of the features of all ranks; it spares running maxima. Found by itself on the CPU.
        tile: classes per tile; None chooses.
        averaged: gradients will be averaged, those of the network over all ranks, and those of class states over the replicas that hold the same classes;
            False: summed.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).
    """
    check_reduction(reduction)
    if not isinstance(state, (DistributedClassBank, ShardedClassState)):
        raise TypeError(
            f"state must be a bank that was distributed or a ShardedClassState, got {describe(state)}: see pairgrad.distributed.distribute"
        )
    layout, meeting = state.layout, state.meeting
    classes = state.classes()
    device = classes.rows.device
    with meeting.refusing(device):
        if isinstance(temperature, torch.Tensor):
            raise TypeError("temperature must be a number where several ranks hold the classes")
        options = Options.checked(
            state.dim, temperature, realization, geometry_dtype=geometry_dtype, max_norm=max_norm, tile=tile, validate=validate
        )
        problem = Problem.checked(
            options,
            features,
            labels,
            classes,
            layout.num_classes,
            log_prior,
            weight,
            ignore_index,
            label_smoothing,
            probabilities=False,
        )
        if is_transformed(problem.features):
            raise RuntimeError(
                "torch.func and forward-mode differentiation are not available where several ranks hold the classes: use backward, or "
                "pairgrad.vmf_cross_entropy in one process"
            )
        options.longest(problem.features, validate)
        if log_prior is not None and log_prior.requires_grad:
            raise ValueError("log_prior must not require a gradient where several ranks hold the classes: detach it")
    with full_precision(device.type):
        return _cross_entropy(problem, layout, meeting, reduction, averaged)


def _cross_entropy(problem: Problem, layout: Layout, meeting: Meeting, reduction: str, averaged: bool) -> torch.Tensor:
    options, features, classes, dtype, log_prior = problem.options, problem.features, problem.classes, problem.dtype, problem.log_prior
    learned = any(tensor.requires_grad for tensor in (classes.rows, classes.concentration)) and torch.is_grad_enabled()
    asked = number_of(
        "cross-entropy",
        options.temperature,
        options.potential.realization,
        problem.label_smoothing,
        problem.ignore_index,
        log_prior is None,
        problem.weight is None,
        options.max_norm,
        learned,
    )
    needed = features.requires_grad and torch.is_grad_enabled()
    samples = meeting.together(features.detach().to(dtype)[None], problem.labels, gradient=needed, asked=asked)
    meeting.total(1, len(samples.labels), features.device)  # replicas learn of it if one refused its batch
    targets = problem.targets(samples.labels)
    plan = problem.plan(samples.views[0], layout.rows, gradient=samples.gradient, validate=False)  # every rank has looked at its own
    known = Classes(*(tensor.detach() for tensor in classes)).to(dtype)
    highest = classes.rows.new_zeros((), dtype=dtype) if log_prior is None else log_prior.amax()
    shard = Shard(known, None if log_prior is None else log_prior[layout.first : layout.last], highest)
    own = slice(samples.first, samples.first + len(problem.labels))
    with torch.no_grad():
        local = _local(targets, layout)
        result = _pass(plan, layout, samples, shard, local)
        gradient = None if result.gradient is None else own_gradient(layout, samples, result.gradient)[0]
        total = layout.data.total("weights", targets.share.sum().reshape(1).clone())[0]  # what the mean over all samples divides by
    copies = layout.classes.size if layout.inputs == "replicated" else 1
    # rows of classes are averaged over the replicas that hold them, not over the ranks that share the classes
    owners = 1.0
    if reduction == "mean":
        owners = (layout.classes.size / copies) if averaged else 1 / copies
    recomputed = Recomputed(options, local, dtype, plan, classes, None if result.normaliser is None else result.normaliser[0], False)
    gradients = _StateGradients(recomputed, samples, shard.log_prior, layout, owners)
    state = (classes.rows, classes.concentration) if learned else ()
    gradient = gradient if needed else None
    rows = attached(result.loss[0, own], gradient, features, *state, again=no_second_derivative, state_gradients=gradients)
    if reduction != "mean":
        return reduce(rows, reduction)
    return rows.sum() * ((layout.ranks if averaged else 1) / copies / torch.where(total == 0, 1.0, total))


def _local(targets: Targets, layout: Layout) -> Targets:
    """What is asked for, of the classes held here; labels elsewhere match none of them."""
    assert targets.labels is not None
    if targets.soft is None:
        return replace(targets, labels=targets.labels - layout.first)
    held = targets.soft[:, layout.first : layout.last]
    return replace(targets, labels=targets.labels - layout.first, soft=held, soft_total=targets.soft.sum(1, keepdim=True))


def _pass(plan: Plan, layout: Layout, samples: Samples, shard: Shard, targets: Targets) -> Result:
    """One pass over the classes held here, and the sums of all ranks: loss (1, B), and this rank's part of the gradient."""
    views, places = samples.views, targets.labels
    assert places is not None
    assert targets.hard is not None
    own = own_square(views, plan.temperature)
    label = label_of_shard(plan, views, own, places, shard)
    if targets.soft is None:
        sums = sums_over_classes(plan, views, own, None, places, shard.classes, shard.log_prior, shard.highest_prior)
        sums, label, _ = combined(layout.classes, sums, label, fixed=plan.fixed)
        return weighted(finish(plan, sums, views, label), targets.hard)
    sums = start(plan, views, own, None, shard.highest_prior)
    sums, linear = targets.visit(plan, sums, views, own, shard.classes, shard.log_prior)
    sums, label, linear = combined(layout.classes, sums, label, linear, fixed=plan.fixed)
    assert linear is not None
    return targets.finish(plan, sums, linear, views, label)


@dataclass(frozen=True, eq=False)
class _StateGradients:
    """Gradients in the rows and concentrations held here, from those of the losses of all samples that were scored."""

    recomputed: Recomputed
    samples: Samples
    log_prior: torch.Tensor | None
    layout: Layout
    owners: float

    def __call__(self, grad: torch.Tensor, features: torch.Tensor, *state: Any) -> list[torch.Tensor | None]:
        temperature = self.recomputed.options.temperature
        views = self.samples.views[0]
        return self.recomputed.state_gradients(self._of_all(grad) / self.owners, views, *state, temperature, self.log_prior)[:2]

    def _of_all(self, grad: torch.Tensor) -> torch.Tensor:
        """Of the samples of the whole class group."""
        group, sizes = self.layout.classes, self.samples.sizes
        if len(sizes) == 1:
            return grad
        padded = grad.new_zeros(max(sizes))
        padded[: len(grad)] = grad
        found = group.gather("derivatives", padded).view(group.size, -1)
        return torch.cat([found[rank, :size] for rank, size in enumerate(sizes)])
