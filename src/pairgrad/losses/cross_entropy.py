"""Cross-entropy of vMF scores: fused, over tiles of classes, with the options of torch's cross-entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from pairgrad.ground.checks import HALF_DTYPES, LARGEST, describe, floating_tensor, integer_at_least, on_device, readable, real_number
from pairgrad.ground.precision import full_precision
from pairgrad.losses.fused.autograd import attached, is_transformed
from pairgrad.losses.fused.execution import execution_of
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.targets import Targets
from pairgrad.losses.fused.triton import say
from pairgrad.losses.options import Options
from pairgrad.losses.reduction import check_reduction, reduce
from pairgrad.losses.scores import State, checked_state, plain_scores
from pairgrad.potentials import Potential
from pairgrad.sphere.geometry import Temperature
from pairgrad.sphere.inputs import check_order, checked_features, checked_labels
from pairgrad.sphere.state import Classes, ClassState, with_norms


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
    execution: str = "eager",
    compile_mode: str | None = None,
    products: str | None = None,
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
        execution: `"eager"`; `"compiled"`, the pass through `torch.compile`, once per value of the options, for the first batch and again for a larger
            one, while a smaller one is computed in eager mode (give a temperature that changes as a tensor; the length of the features is not looked up:
            give `max_norm`); `"triton"`, two kernels on a GPU; or `"auto"`, one of these by device and size, which the logger `pairgrad` names.
            [What they trade](how-to/gpu.md#executions).
        compile_mode: of torch.compile, such as `"reduce-overhead"`, for `execution="compiled"`.
        products: of float32 in `execution="triton"`: `"ieee"`; `"3xtf32"`, as accurate, by tensor cores; or `"tf32"`, three digits. None: `"3xtf32"`, and
            `"ieee"` on AMD's GPUs.

    Examples:
        >>> import torch, pairgrad as pg
        >>> state = pg.ClassState(torch.eye(3, 8), torch.tensor([5.0, 10.0, 100.0]))
        >>> features = torch.eye(8)[:2].requires_grad_()
        >>> loss = pg.vmf_cross_entropy(features, torch.tensor([0, 1]), state)
        >>> loss.backward()
        >>> round(loss.item(), 4), tuple(features.grad.shape)
        (0.023, (2, 8))
    """
    check_reduction(reduction)
    options = Options.checked(
        checked_state(state).dim,
        temperature,
        realization,
        geometry=geometry,
        geometry_dtype=geometry_dtype,
        scalar_dtype=scalar_dtype,
        max_norm=max_norm,
        tile=tile,
        validate=validate,
        execution=execution_of(execution, compile_mode, products, shared=True),
    )
    problem = Problem.checked(
        options, features, labels, state.classes(), state.num_classes, log_prior, weight, ignore_index, label_smoothing
    )
    with full_precision(problem.features.device.type):
        targets = problem.targets(problem.labels)
        return problem.reduced(targets, reduction, norms_known=not isinstance(state, ClassState))


@dataclass(frozen=True, eq=False)
class Problem:
    """The arguments of a cross-entropy, checked: what every execution, in one process or in several, starts from.

    Args:
        options: how it is computed.
        features: (B, p).
        labels: (B,) classes of all `num_classes`, or probabilities (B, K).
        classes: those held here.
        num_classes: of all processes.
        dtype: of the loss.
        log_prior: (K,) in that dtype, or None.
        weight: (K,) in that dtype, or None.
        ignore_index: a label that does not count.
        label_smoothing: in [0, 1].
        length: of the longest feature, if it is known.
    """

    options: Options
    features: torch.Tensor
    labels: torch.Tensor
    classes: Classes
    num_classes: int
    dtype: torch.dtype
    log_prior: torch.Tensor | None
    weight: torch.Tensor | None
    ignore_index: int
    label_smoothing: float
    length: float | None

    @staticmethod
    def checked(
        options: Options,
        features: torch.Tensor,
        labels: torch.Tensor,
        classes: Classes,
        num_classes: int,
        log_prior: torch.Tensor | None,
        weight: torch.Tensor | None,
        ignore_index: int,
        label_smoothing: float,
        *,
        probabilities: bool = True,
    ) -> Problem:
        """From what a user gave; `probabilities` says whether they may take the place of labels."""
        ignore_index, label_smoothing = checked_options(ignore_index, label_smoothing)
        check_order(features, labels)
        features = checked_features(features, classes.rows.shape[1], classes.rows, validate=options.validate, single=True)
        labels = checked_targets(
            labels, len(features), num_classes, classes.rows, ignore_index, options.validate, probabilities=probabilities
        )
        dtype = options.dtype(features, classes)
        log_prior = checked_per_class("log_prior", log_prior, num_classes, classes.rows, dtype)
        weight = checked_per_class("weight", weight, num_classes, classes.rows, dtype)
        length = options.check_reach(features, classes, dtype)
        options = options.settled(dtype, features.device, features.shape[0], num_classes)
        return Problem(options, features, labels, classes, num_classes, dtype, log_prior, weight, ignore_index, label_smoothing, length)

    def targets(self, labels: torch.Tensor) -> Targets:
        """What is asked of rows with these labels."""
        return Targets.of(labels, self.weight, self.ignore_index, self.label_smoothing, self.num_classes, self.dtype)

    def plan(self, view: torch.Tensor, num_classes: int, *, gradient: bool, validate: bool | None, normaliser: bool = True) -> Plan:
        """For a pass of a view over `num_classes` classes."""
        return self.options.plan(
            self.dtype,
            view.device,
            rows=len(view),
            num_classes=num_classes,
            longest=self.options.longest(view, validate, self.length if view is self.features else None),
            spread=spread(self.log_prior),
            gradient=gradient,
            compiled=self.options.execution.compiled,
            normaliser=normaliser,
        )

    def reduced(self, targets: Targets, reduction: str, *, norms_known: bool) -> torch.Tensor:
        """The loss with its gradients attached; `norms_known`: those of the class rows are constants, as a bank has them."""
        options, features, classes, log_prior = self.options, self.features, self.classes, self.log_prior
        learned = [classes.rows, classes.concentration, options.temperature, log_prior]
        needs_state = any(isinstance(t, torch.Tensor) and t.requires_grad for t in learned) and torch.is_grad_enabled()
        transformed = any(isinstance(t, torch.Tensor) and is_transformed(t) for t in [features, *learned])
        if options.plain(self.dtype) or transformed or (needs_state and torch.compiler.is_compiling()):
            if options.execution.half:
                say(
                    "execution='triton': the scores of all classes are formed, as geometry='expanded', scalar_dtype and torch.func need them"
                )
            scores = plain_scores(features, classes, options, self.dtype)
            return reduce(targets.losses(scores if log_prior is None else scores + log_prior), reduction, targets.mean_weight())
        wanted = features.requires_grad and torch.is_grad_enabled()
        plan = self.plan(features, self.num_classes, gradient=wanted, validate=options.validate, normaliser=needs_state)
        half = options.execution.half
        if needs_state and half:
            say("execution='triton': gradients in class state, temperature and prior are computed operation by operation, in a second pass")
        known = Classes(*(tensor.detach() for tensor in classes)).to(self.dtype, rows=not half)
        view = features.detach() if half and features.dtype in HALF_DTYPES else features.detach().to(self.dtype)
        bias = None if log_prior is None else log_prior.detach()
        with torch.no_grad():
            result = options.execution.of_targets(plan, view[None], targets, known, bias)
        again = Recomputed(
            options, targets, self.dtype, plan, classes, None if result.normaliser is None else result.normaliser[0], norms_known
        )
        gradient = None if result.gradient is None else result.gradient[0]
        at_once = reduction if targets.plain and not needs_state else "none"
        rows = attached(
            result.loss[0], gradient, features, *learned, again=again.rows, state_gradients=again.state_gradients, reduction=at_once
        )
        return rows if at_once == reduction else reduce(rows, reduction, targets.mean_weight())


@dataclass(frozen=True, eq=False)
class Recomputed:
    """What backward may ask of a cross-entropy beyond the gradient in the features. Its state is (rows, concentration, temperature, log prior)."""

    options: Options
    targets: Targets
    dtype: torch.dtype
    plan: Plan
    classes: Classes
    normaliser: torch.Tensor | None
    norms_known: bool

    def rows(
        self,
        features: torch.Tensor,
        rows: torch.Tensor,
        concentration: torch.Tensor,
        temperature: Temperature,
        log_prior: torch.Tensor | None,
    ) -> torch.Tensor:
        classes = self.classes if self.norms_known else with_norms(rows, concentration)
        return self.targets.losses(self._logits(features, classes, temperature, log_prior))

    def state_gradients(self, grad: torch.Tensor, features: torch.Tensor, *state: Any) -> list[torch.Tensor | None]:
        """By a second pass over the tiles."""
        wanted = [place for place, value in enumerate(state) if isinstance(value, torch.Tensor) and value.requires_grad]
        assert self.normaliser is not None
        features = features.detach().to(self.dtype)
        totals: list[torch.Tensor | None] = [torch.zeros_like(value) if place in wanted else None for place, value in enumerate(state)]
        for first, last in self.plan.in_eager().tiles(len(self.classes.rates)):
            tile: list[Any] = []
            for place, value in enumerate(state):
                if isinstance(value, torch.Tensor):
                    value = value.detach() if value.dim() == 0 else value.detach()[first:last]
                    value = value.requires_grad_(place in wanted)
                tile.append(value)
            with torch.enable_grad():
                classes = self.classes.tile(first, last) if self.norms_known else with_norms(tile[0], tile[1])
                logits = self._logits(features, classes, tile[2], tile[3])
            d_logits = self._d_logits(logits.detach(), self.normaliser, first, last) * grad[:, None]
            parts = torch.autograd.grad(logits, [tile[place] for place in wanted], d_logits)
            for place, part in zip(wanted, parts, strict=True):
                total = totals[place]
                assert total is not None
                if total.dim() == 0:
                    total += part
                else:
                    total[first:last] = part
        return totals

    def _logits(self, features: torch.Tensor, classes: Classes, temperature: Temperature, log_prior: torch.Tensor | None) -> torch.Tensor:
        logits = plain_scores(features, classes, self.options, self.dtype, temperature)
        return logits if log_prior is None else logits + log_prior

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


def checked_options(ignore_index: int, label_smoothing: float) -> tuple[int, float]:
    """As an int of 64 bits and a float."""
    if torch.compiler.is_compiling():
        return ignore_index, label_smoothing
    label_smoothing = real_number("label_smoothing", label_smoothing, "a number in [0, 1]", lambda share: 0 <= share <= 1)
    return integer_at_least("ignore_index", ignore_index, -LARGEST - 1), label_smoothing


def spread(log_prior: torch.Tensor | None) -> float | None:
    """Largest minus smallest finite log prior; None where it cannot be read."""
    if log_prior is None:
        return 0.0
    if not readable(log_prior):
        return None
    low, high = torch.aminmax(log_prior.detach())
    if math.isfinite(width := float(high - low)):
        return width
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
    if readable(value) and not _in_range(name, value.detach(), dtype):
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


def _in_range(name: str, value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether smallest and largest value say that there is nothing to refuse; where one is infinite they do not."""
    low, high = map(float, torch.aminmax(value))
    most = torch.finfo(dtype).max
    return (0 if name == "weight" else -most) <= low <= high <= most


def checked_targets(
    labels: torch.Tensor,
    batch: int,
    num_classes: int,
    like: torch.Tensor,
    ignore_index: int,
    validate: bool | None,
    *,
    probabilities: bool = True,
) -> torch.Tensor:
    """Labels, one per sample: classes or `ignore_index`, or the probabilities of all classes."""
    if probabilities and isinstance(labels, torch.Tensor) and labels.is_floating_point():
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
