"""Cross-entropy of vMF scores: fused, over tiles of classes, with the options of torch's cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function, forward_ad

from pairgrad.ground._torch_private import is_functorch_wrapped_tensor, version
from pairgrad.ground.checks import (
    LARGEST,
    describe,
    floating_tensor,
    integer_at_least,
    on_device,
    one_of,
    readable,
    real_number,
)
from pairgrad.losses import fused
from pairgrad.losses.reduction import check_reduction, reduce
from pairgrad.losses.scores import (
    State,
    check_reach,
    check_temperature,
    checked_scalars,
    checked_state,
    full_precision,
    longest_of,
    plain_scores,
    resolve,
    working_dtype,
)
from pairgrad.losses.views import cross_entropy_of_batch, label_bias, largest_bias
from pairgrad.potentials import Potential
from pairgrad.sphere.geometry import GEOMETRIES, Temperature
from pairgrad.sphere.inputs import checked_features, checked_labels, looks
from pairgrad.sphere.state import Classes, ClassState, with_norms

_BOUND_TOL = 1e-3  # by which a feature may exceed max_norm: unit vectors in half precision do, and the margins of the series are wider
_INPUTS = ("features", "rows", "concentration", "temperature", "log_prior")  # what a fused loss may be differentiated by
Again = Callable[[torch.Tensor], torch.Tensor]


def vmf_cross_entropy(
    features: torch.Tensor,
    labels: torch.Tensor,
    state: State,
    temperature: Temperature = 0.1,
    log_prior: torch.Tensor | None = None,
    reduction: str = "mean",
    realization: str | Potential = "paired",
    *,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    geometry: str = "factorised",
    geometry_dtype: torch.dtype | None = None,
    scalar_dtype: torch.dtype | None = None,
    max_norm: float | None = None,
    tile: int | None = None,
    validate: bool | None = None,
) -> torch.Tensor:
    r"""Cross-entropy of [`vmf_scores`][pairgrad.vmf_scores] plus a log prior (eq. view-loss), without ever holding the scores of all classes.

    Loss and feature gradient come from one pass over tiles of classes: two matrix products per tile, memory for one tile. Gradients for mean directions,
    concentrations, temperature and log prior, where these require them, take a second pass in backward. `create_graph=True`, `torch.func` and forward mode
    go through the plain scores, at their memory.

    Args:
        features: (B, p); they need not be normalised.
        labels: (B,) integers, or (B, K) class probabilities.
        state: a [`ClassBank`][pairgrad.ClassBank] or a [`ClassState`][pairgrad.ClassState]. A bank is read, not updated.
        temperature: tau > 0, a number or a tensor with one element.
        log_prior: (K,), added to the scores; -inf for a class that cannot occur.
        reduction: `"mean"`, `"sum"` or `"none"`, as in `torch.nn.functional.cross_entropy`; the mean of no rows is 0.
        weight: (K,), per class, as there.
        ignore_index: a label whose rows do not count, as there.
        label_smoothing: in [0, 1], as there.
        realization: of the potential, by name or as a `Potential`; the feature gradient is the one it supplies.
        geometry: `"factorised"` (fused) or `"expanded"`, through a (B, K, p) tensor.
        geometry_dtype: compute and return in this dtype; None: in that of the features.
        scalar_dtype: of the potential alone, as in `vmf_scores`; where it differs from that of the geometry, the plain scores are formed.
        max_norm: a bound on the length of the features, if you know one: it spares the running maximum and the logarithms. Found by itself on the CPU.
        tile: classes per tile; None chooses.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).

    Examples:
        >>> import torch, pairgrad as pg
        >>> state = pg.ClassState(torch.eye(3, 8), torch.tensor([5.0, 10.0, 100.0]))
        >>> features = torch.eye(8)[:2].requires_grad_()
        >>> loss = pg.vmf_cross_entropy(features, torch.tensor([0, 1]), state)
        >>> loss.backward()
        >>> round(loss.item(), 4), tuple(features.grad.shape)
        (0.023, (2, 8))
    """
    one_of("geometry", geometry, GEOMETRIES)
    check_reduction(reduction)
    temperature = check_temperature(temperature)
    ignore_index, label_smoothing = checked_options(ignore_index, label_smoothing)
    tile = None if tile is None else integer_at_least("tile", tile, 1)
    pot = resolve(realization, checked_state(state).dim)
    classes = state.classes()
    features = checked_features(features, state.dim, classes.rows, validate=validate, single=True)
    labels = checked_targets(labels, len(features), state.num_classes, classes.rows, ignore_index, validate)
    dtype = working_dtype(features, classes, geometry_dtype)
    scalars = checked_scalars(scalar_dtype)
    log_prior = checked_per_class("log_prior", log_prior, state.num_classes, classes.rows, dtype)
    weight = checked_per_class("weight", weight, state.num_classes, classes.rows, dtype)
    check_reach(features, classes, temperature, dtype, validate)

    with full_precision(features.device.type):
        learned = [classes.rows, classes.concentration, temperature, log_prior]
        needs_state = any(isinstance(t, torch.Tensor) and t.requires_grad for t in learned) and torch.is_grad_enabled()
        transformed = any(isinstance(t, torch.Tensor) and is_transformed(t) for t in [features, *learned])
        targets = Targets.of(labels, weight, ignore_index, label_smoothing, state.num_classes, dtype)
        plain = geometry == "expanded" or scalars not in (None, dtype)
        if plain or transformed or (needs_state and torch.compiler.is_compiling()):
            scores = plain_scores(features, classes, temperature, pot, geometry, dtype, scalars)
            rows = targets.losses(scores if log_prior is None else scores + log_prior)
            return reduce(rows, reduction, targets.share.sum())
        job = Job(pot, targets, dtype, isinstance(state, ClassState))
        plan = fused.plan(
            pot,
            temperature.detach().to(dtype) if isinstance(temperature, torch.Tensor) else temperature,
            dtype,
            rows=len(features),
            num_classes=state.num_classes,
            longest=longest(features, max_norm, validate),
            spread=spread(log_prior),
            gradient=features.requires_grad and torch.is_grad_enabled(),
            tile=tile,
        )
        rows = job.run(plan, features, classes, temperature, log_prior)
        return reduce(rows, reduction, targets.share.sum())


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
    """

    labels: torch.Tensor | None
    hard: torch.Tensor | None
    soft: torch.Tensor | None
    counted: torch.Tensor
    share: torch.Tensor
    soft_total: torch.Tensor | None = None

    @staticmethod
    def of(
        labels: torch.Tensor, weight: torch.Tensor | None, ignore_index: int, smoothing: float, num_classes: int, dtype: torch.dtype
    ) -> Targets:
        if labels.is_floating_point():
            soft = labels.to(dtype) * (1 - smoothing) + smoothing / num_classes
            ones = torch.ones(len(labels), dtype=dtype, device=labels.device)
            return Targets(None, None, soft if weight is None else soft * weight, ones, ones)
        ignored = labels == ignore_index
        counted = (~ignored).to(dtype)
        labels = torch.where(ignored, 0, labels)
        share = counted if weight is None else counted * weight[labels]
        if not smoothing:
            return Targets(labels, share, None, counted, share)
        even = torch.full((1, num_classes), smoothing / num_classes, dtype=dtype, device=labels.device)
        return Targets(labels, share * (1 - smoothing), even if weight is None else even * weight, counted, share)

    def visit(
        self, plan: fused.Plan, sums: fused.Sums, view: torch.Tensor, own: torch.Tensor, classes: Classes, bias: torch.Tensor | None
    ) -> tuple[fused.Sums, fused.LinearSums]:
        """Both kinds of sums over all classes, for soft targets; those of exponentials without the label of each row."""
        linear = None
        assert self.soft is not None
        for first, last in plan.tiles(len(classes.rates)):
            own_class = None if self.labels is None else self.labels[:, None] == torch.arange(first, last, device=view.device)
            tile_bias = view.new_zeros(()) if bias is None else bias[first:last]
            part = classes.tile(first, last)
            sums, linear = fused.visit(plan, sums, view, own, part, tile_bias, own_class, self.soft[:, first:last], linear)
        assert linear is not None
        return sums, linear

    def finish(
        self, plan: fused.Plan, sums: fused.Sums, linear: fused.LinearSums, view: torch.Tensor, label: fused.Label | None
    ) -> fused.Result:
        """Loss and gradient from the sums of `visit`: the soft part first, since `fused.finish` writes over the sums."""
        soft = weighted(fused.finish_linear(plan, sums, linear, view, label), self.counted)
        if label is None or self.hard is None:
            return soft
        hard = weighted(fused.finish(plan, sums, view, label), self.hard)
        gradient = None if soft.gradient is None or hard.gradient is None else soft.gradient + hard.gradient
        return fused.Result(soft.loss + hard.loss, gradient, hard.normaliser)

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


@dataclass(frozen=True)
class Job:
    """One evaluation: the fused pass, and what backward may ask for beyond it."""

    pot: Potential
    targets: Targets
    dtype: torch.dtype
    free_norms: bool  # the norms are those of the rows; a bank has them cached

    def run(
        self, plan: fused.Plan, features: torch.Tensor, classes: Classes, temperature: Temperature, log_prior: torch.Tensor | None
    ) -> torch.Tensor:
        """Loss per row, (B,), with its gradients attached."""
        known = Classes(*(tensor.detach() for tensor in classes)).to(self.dtype)
        bias = None if log_prior is None else log_prior.detach()
        with torch.no_grad():
            result = self._pass(plan, features.detach().to(self.dtype)[None], known, bias)
        if torch.compiler.is_compiling():
            return given(features, result.loss[0], None if result.gradient is None else result.gradient[0])
        return _Fused.apply(self, plan, classes, result, features, classes.rows, classes.concentration, temperature, log_prior)

    def _pass(self, plan: fused.Plan, view: torch.Tensor, classes: Classes, bias: torch.Tensor | None) -> fused.Result:
        targets = self.targets
        if targets.soft is None:
            assert targets.labels is not None
            assert targets.hard is not None
            result = cross_entropy_of_batch(plan, view, targets.labels, classes, bias)
            return weighted(result, targets.hard)
        own = fused.own_square(view, plan.temperature)
        label = None
        if targets.labels is not None:
            target = Classes(*(tensor.index_select(0, targets.labels)[None] for tensor in classes))
            label = fused.label_terms(plan, view, own, target, label_bias(bias, targets.labels, view))
        else:
            plan = plan.without_fixed_top()
        sums = fused.start(plan, view, own, label, largest_bias(bias, view))
        sums, linear = targets.visit(plan, sums, view, own, classes, bias)
        return targets.finish(plan, sums, linear, view, label)

    def plain(
        self,
        features: torch.Tensor,
        rows: torch.Tensor,
        concentration: torch.Tensor,
        temperature: Temperature,
        log_prior: torch.Tensor | None,
        classes: Classes,
    ) -> torch.Tensor:
        """Loss per row in operations that can be differentiated again."""
        known = with_norms(rows, concentration) if self.free_norms else classes
        logits = plain_scores(features, known, temperature, self.pot, "factorised", self.dtype)
        return self.targets.losses(logits if log_prior is None else logits + log_prior)

    def state_gradients(
        self, plan: fused.Plan, grad: torch.Tensor, saved: dict[str, Any], classes: Classes, normaliser: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Gradients in rows, concentration, temperature and log prior, those of `saved` that require them, by a second pass over the tiles."""
        wanted = [name for name, value in saved.items() if isinstance(value, torch.Tensor) and value.requires_grad and name != "features"]
        features = saved["features"].detach().to(self.dtype)
        totals: dict[str, torch.Tensor] = {name: torch.zeros_like(saved[name]) for name in wanted}
        for first, last in plan.tiles(len(classes.rates)):
            tile: dict[str, Any] = {}
            for name in _INPUTS[1:]:
                value = saved[name]
                if isinstance(value, torch.Tensor):
                    value = value.detach() if name == "temperature" else value.detach()[first:last]
                    value = value.requires_grad_(name in wanted)
                tile[name] = value
            with torch.enable_grad():
                known = with_norms(tile["rows"], tile["concentration"]) if self.free_norms else classes.tile(first, last)
                logits = plain_scores(features, known, tile["temperature"], self.pot, "factorised", self.dtype)
                logits = logits if tile["log_prior"] is None else logits + tile["log_prior"]
            d_logits = self._d_logits(logits.detach(), normaliser, first, last) * grad[:, None]
            parts = torch.autograd.grad(logits, [tile[name] for name in wanted], d_logits)
            for name, part in zip(wanted, parts, strict=True):
                if name == "temperature":
                    totals[name] += part
                else:
                    totals[name][first:last] = part
        return totals

    def _d_logits(self, logits: torch.Tensor, normaliser: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Derivative of the loss per row in the logits of a tile."""
        probability = torch.exp(logits - normaliser[:, None])
        total = torch.zeros_like(probability)
        if self.targets.labels is not None and self.targets.hard is not None:
            own_class = self.targets.labels[:, None] == torch.arange(first, last, device=logits.device)
            at_label = torch.expm1(logits - normaliser[:, None])  # p_y - 1
            total = self.targets.hard[:, None] * torch.where(own_class, at_label, probability)
        if self.targets.soft is not None:
            soft = self.targets.soft
            whole = soft.sum(1, keepdim=True) if self.targets.soft_total is None else self.targets.soft_total
            total = total + self.targets.counted[:, None] * (whole * probability - soft[:, first:last])
        return total


class _Fused(Function):
    """The rows of a loss whose gradient in the features is known already."""

    @staticmethod
    def forward(ctx: Any, job: Job, plan: fused.Plan, classes: Classes, result: fused.Result, *values: Any) -> torch.Tensor:
        """`values`: of `_INPUTS`, in their order."""
        # a bank that is updated before backward runs must not stop it: what needs no gradient is kept, not saved
        inputs: dict[str, Any] = dict(zip(_INPUTS, values, strict=True))
        ctx.names = [
            name for name, value in inputs.items() if isinstance(value, torch.Tensor) and (value.requires_grad or name == "features")
        ]
        ctx.kept = {name: value for name, value in inputs.items() if name not in ctx.names}
        ctx.versions = {
            name: version(value) for name, value in ctx.kept.items() if isinstance(value, torch.Tensor) and not value.is_inference()
        }
        ctx.job, ctx.plan, ctx.classes, ctx.normaliser = job, plan, classes, result.normaliser[0]
        ctx.save_for_backward(result.gradient, *(inputs[name] for name in ctx.names))
        return result.loss[0].clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        gradient, *tensors = ctx.saved_tensors
        saved = {**ctx.kept, **dict(zip(ctx.names, tensors, strict=True))}
        needed = dict(zip(_INPUTS, ctx.needs_input_grad[4:], strict=True))
        if torch.is_grad_enabled():
            _unchanged(ctx.kept, ctx.versions)
            wanted = [name for name in _INPUTS if needed[name]]
            loss = ctx.job.plain(*(saved[name] for name in _INPUTS), ctx.classes)
            parts = torch.autograd.grad(loss, [saved[name] for name in wanted], grad, create_graph=True)
            found = dict(zip(wanted, parts, strict=True))
        else:
            found = {}
            if any(needed[name] for name in _INPUTS[1:]):
                _unchanged(ctx.kept, ctx.versions)
                found = ctx.job.state_gradients(ctx.plan, grad, saved, ctx.classes, ctx.normaliser)
            if needed["features"]:
                found["features"] = (grad[:, None] * gradient[0]).to(saved["features"].dtype)
        return None, None, None, None, *(found.get(name) for name in _INPUTS)


def _unchanged(kept: dict[str, Any], versions: dict[str, int]) -> None:
    for name, before in versions.items():
        if version(kept[name]) != before:
            raise RuntimeError(
                f"the class state ({name}) was changed between the forward and a backward that evaluates it again, with create_graph=True or for "
                "gradients in the state, the temperature or the prior: update the bank after backward, or take the scores of a copy"
            )


class _Given(Function):
    """`loss` with the gradient that is given for it: (..., p) for losses (...)."""

    @staticmethod
    def forward(features: torch.Tensor, loss: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * gradient, None, None


class _GivenOnce(Function):
    """The same in eager mode, reduced at once, where a second derivative goes through `again`."""

    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, loss: torch.Tensor, gradient: torch.Tensor, again: Again, reduction: str) -> torch.Tensor:
        ctx.save_for_backward(features, gradient)
        ctx.again, ctx.reduction, ctx.rows = again, reduction, max(loss.numel(), 1)
        return loss.clone() if reduction == "none" else reduce(loss, reduction)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        features, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            (total,) = torch.autograd.grad(reduce(ctx.again(features), ctx.reduction), features, grad, create_graph=True)
        elif ctx.reduction == "none":
            total = grad.unsqueeze(-1) * gradient
        else:
            total = gradient * (grad / ctx.rows if ctx.reduction == "mean" else grad)
        return total, None, None, None, None


def given(
    features: torch.Tensor, loss: torch.Tensor, gradient: torch.Tensor | None, again: Again | None = None, reduction: str = "none"
) -> torch.Tensor:
    """`loss` (...), whose gradient in the features (..., p) is `gradient`, reduced; without a gradient, a constant.

    `again` computes the loss from the features in differentiable operations, for a second derivative.
    """
    if gradient is None:
        return reduce(loss, reduction)
    if again is None:
        return reduce(_Given.apply(features, loss, gradient), reduction)
    return _GivenOnce.apply(features, loss, gradient, again, reduction)


def weighted(result: fused.Result, weight: torch.Tensor) -> fused.Result:
    """A row of weight 0 contributes 0, even where its loss is infinite."""
    counts = weight != 0
    loss = torch.where(counts, result.loss * weight, 0.0)
    gradient = result.gradient
    if gradient is not None:
        gradient = torch.where(counts.unsqueeze(-1), gradient * weight.unsqueeze(-1), 0.0)
    return fused.Result(loss, gradient, result.normaliser)


def is_transformed(tensor: torch.Tensor) -> bool:
    """Whether torch.func or forward-mode differentiation looks on."""
    if torch.compiler.is_compiling():
        return False
    return is_functorch_wrapped_tensor(tensor) or forward_ad.unpack_dual(tensor).tangent is not None


def checked_options(ignore_index: int, label_smoothing: float) -> tuple[int, float]:
    """As an int of 64 bits and a float."""
    if torch.compiler.is_compiling():
        return ignore_index, label_smoothing
    label_smoothing = real_number("label_smoothing", label_smoothing, "a number in [0, 1]", lambda share: 0 <= share <= 1)
    return integer_at_least("ignore_index", ignore_index, -LARGEST - 1), label_smoothing


def longest(features: torch.Tensor, max_norm: float | None, validate: bool | None = None) -> float | None:
    """A bound on the length of the features: `max_norm`, which must be one, or what they have; None where that cannot be read."""
    if max_norm is None:
        return longest_of(features) + 1e-30 if readable(features) and features.numel() else None
    expected = "a positive number, a bound on the length of the features"
    bound = real_number("max_norm", max_norm, expected, lambda length: 0 < length < math.inf, kind=ValueError)
    if looks(features, validate) and features.numel() and longest_of(features) > bound * (1 + _BOUND_TOL):
        raise ValueError(
            f"max_norm must be a bound on the length of the features, got max_norm = {bound:g} and a feature of length {longest_of(features):g}: the loss "
            "would be wrong; give a larger one, or None to have it found"
        )
    return bound


def spread(log_prior: torch.Tensor | None) -> float | None:
    """Largest minus smallest finite log prior; None where it cannot be read."""
    if log_prior is None:
        return 0.0
    if not readable(log_prior):
        return None
    finite = log_prior.detach()[torch.isfinite(log_prior.detach())]
    return float(finite.max() - finite.min()) if len(finite) else None


def checked_per_class(
    name: str, value: torch.Tensor | None, num_classes: int, like: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor | None:
    """One number for each class in `dtype`, or None; NaN and plus infinity are refused."""
    if value is None:
        return None
    floating_tensor(name, value)
    if value.shape != (num_classes,) or value.device != like.device:
        raise ValueError(f"{name} must have shape ({num_classes},), one number per class, on {like.device}, got {describe(value)}")
    if readable(value):
        if bool((torch.isnan(value) | (value == torch.inf)).any()):
            raise ValueError(f"{name} must not contain NaN or +inf, got {describe(value)}")
        if name == "weight" and bool((value < 0).any()):
            raise ValueError(f"{name} must be >= 0, got {value.min():g} in {describe(value)}: it is a factor of the loss of a class")
        if name == "log_prior" and not bool(torch.isfinite(value).any()):
            raise ValueError(f"{name} must have a finite entry, got -inf for all {num_classes} classes: no class could occur")
        if not bool(torch.isfinite(value.detach().to(dtype)[torch.isfinite(value)]).all()):
            raise ValueError(
                f"{name} must stay finite in {dtype}, got {describe(value)} with larger values: compute in float64 (geometry_dtype)"
            )
    return value.to(dtype)


def checked_targets(
    labels: torch.Tensor, batch: int, num_classes: int, like: torch.Tensor, ignore_index: int, validate: bool | None
) -> torch.Tensor:
    """Labels, one per sample: classes or `ignore_index`, or the probabilities of all classes."""
    if isinstance(labels, torch.Tensor) and labels.is_floating_point():
        floating_tensor("labels", labels)
        on_device("labels", labels, like.device, move="them")
        if labels.shape != (batch, num_classes):
            raise ValueError(f"labels as probabilities must have shape ({batch}, {num_classes}), got {describe(labels)}")
        if readable(labels) and not bool(torch.isfinite(labels).all()):
            raise ValueError(f"labels as probabilities must be finite, got NaN or infinity in {describe(labels)}")
        if readable(labels) and bool((labels < 0).any()):
            raise ValueError(f"labels as probabilities must be >= 0, got {labels.min():g} in {describe(labels)}")
        if readable(labels) and not bool(torch.isfinite(labels.sum(-1, dtype=torch.float32)).all()):
            raise ValueError(f"labels as probabilities must have sums that are numbers in float32, got infinity in {describe(labels)}")
        return labels
    return checked_labels(labels, batch, num_classes, like, validate=validate, ignore_index=ignore_index)
