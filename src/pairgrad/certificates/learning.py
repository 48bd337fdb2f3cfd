r"""What a ratio bound is worth to an optimizer: certificates of scores, losses, probabilities, predictions and gradients at a learning state.

Theorem thm:patt and Corollary cor:groups, for any realization with a proven bound \(\varepsilon \ge \sup|A - R|\) of its slope, and with rounding as a term of
its own. Everything is said about a fixed class state: the exact quantity is that of the vMF score (eq. exact-score) at the features, mean directions,
concentrations and log priors as they are stored, in real arithmetic; the computed one is what `vmf_scores` and `vmf_cross_entropy` return.
docs/derivations/learning.md has the proofs of the truncation terms, docs/learning-certificates.md what is counted as rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from pairgrad.certificates.running import HYPOTHESIS
from pairgrad.certificates.state_rounding import Rows, StateRounding
from pairgrad.ground.certificate import Certificate, rounded_up
from pairgrad.ground.checks import describe, floating_tensor
from pairgrad.ground.devices import has_values, need_float64
from pairgrad.losses.bank_loss import BankLoss
from pairgrad.losses.cross_entropy import checked_per_class
from pairgrad.losses.fused.views import lengths_of
from pairgrad.losses.options import Options, check_temperature
from pairgrad.losses.patt import PATTLoss
from pairgrad.losses.scores import State, checked_state
from pairgrad.potentials import Potential
from pairgrad.potentials.expansion import Expansion
from pairgrad.potentials.reference import Balls
from pairgrad.sphere.geometry import Temperature
from pairgrad.sphere.inputs import checked_features, checked_labels
from pairgrad.sphere.state import Classes

_UPWARDS = 1 + 1e-8  # the bounds themselves are computed in float64


def _finite(number: float) -> float | None:
    """For JSON, which has no infinity."""
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Bound:
    """Of |computed - exact|: what the formula leaves out, and what rounding adds. Tensors in float64."""

    truncation: torch.Tensor
    rounding: torch.Tensor

    @property
    def total(self) -> torch.Tensor:
        return self.truncation + self.rounding

    def __getitem__(self, place: Any) -> Bound:
        return Bound(self.truncation[place], self.rounding[place])

    def largest(self) -> tuple[float, float, float]:
        """Of total, truncation and rounding, each over all samples; they need not belong to the same one."""
        return float(self.total.max()), float(self.truncation.max()), float(self.rounding.max())

    def to_dict(self) -> dict[str, float | None]:
        """`largest` by name; None for a bound that is infinite."""
        return {name: _finite(part) for name, part in zip(("total", "truncation", "rounding"), self.largest(), strict=True)}

    def __str__(self) -> str:
        total, truncation, rounding = (rounded_up(part, 3) for part in self.largest())
        return f"at most {total}, of which truncation at most {truncation}, rounding at most {rounding}"


class Uniform(NamedTuple):
    """Theorem thm:patt as it stands, (B,) each: it needs to know of the state only how long the features are."""

    score: torch.Tensor
    loss: torch.Tensor
    total_variation: torch.Tensor
    gradient: torch.Tensor


def uniform_bounds(lengths: torch.Tensor, ratio_bound: float, temperature: float) -> Uniform:
    r"""For features of these lengths, with \(\delta = \varepsilon\lVert f\rVert/\tau\).

    Every score is bounded by \(\delta\) (eqs. patt-score-bound, score-proof-app), the loss of the sample by \(2\delta\) (eq. ce-proof-app), the total
    variation by \(\tanh(\delta/2)\) (eq. patt-tv) and the gradient of its loss by \((2/\tau)\tanh(\delta/2) + 2\varepsilon/\tau\) (eq. patt-grad-bound).

    With the paper's constant: `uniform_bounds(lengths, paper_theorem(nu).bound, temperature)`.
    """
    delta = lengths.double() * (ratio_bound / temperature) * _UPWARDS
    variation = torch.tanh(delta / 2) * _UPWARDS
    return Uniform(delta, 2 * delta, variation, (2 / temperature * variation + 2 * ratio_bound / temperature) * _UPWARDS)


@dataclass(frozen=True)
class Margin:
    """Between the two best classes. Where it exceeds twice the bound of a score, the exact scores give the same prediction.

    Args:
        prediction: the class with the largest score plus log prior, as computed.
        observed: its distance to the runner-up, as computed.
        needed: the distance from which on nothing can change.
    """

    prediction: torch.Tensor
    observed: torch.Tensor
    needed: torch.Tensor

    @property
    def unchanged(self) -> torch.Tensor:
        """Where the prediction is provably that of the exact scores."""
        return self.observed > self.needed


@dataclass(frozen=True)
class GroupCertificate:
    """Of the mean loss of a group of samples (Corollary cor:groups).

    Args:
        size: number of samples.
        views: its mean loss in each view, (V,) (eq. group-loss-bound).
        loss: the mean over the views (eq. group-two-view-bound).
        gradient: its gradient in each feature of the group, (V, size) (eq. group-gradient-bound).
    """

    size: int
    views: Bound
    loss: Bound
    gradient: Bound


@dataclass(frozen=True)
class LearningCertificate:
    """Bounds of what is computed at a learning state against the exact vMF objective. Per sample: (B,), or (V, B) for V views.

    Args:
        score: of every class score of the sample.
        sample_loss: of its cross-entropy.
        loss: of the mean over samples and views, L_ISAC (eqs. patt-loss-bound, main-learning-certificate); terms that do not contain the scores, as PATT has,
            add no truncation to it.
        total_variation: between the exact class probabilities and those of the computed scores (eq. patt-tv).
        margin: between the two best classes, and which predictions are therefore those of the exact scores.
        sample_gradient: of the gradient of the sample's loss in its feature, in Euclidean length, in the dtype of the features.
        gradient: of the gradient of the mean loss in that feature (eq. patt-grad-bound).
        groups: by name.
        ratio: the bound of the slope that all truncation terms come from.
        title: what was certified.
        mean_loss: itself, in float64; the exact one is within `loss` of it.
        hypothesis: what is assumed of floating point for the rounding terms.
    """

    score: Bound
    sample_loss: Bound
    loss: Bound
    total_variation: Bound
    margin: Margin
    sample_gradient: Bound
    gradient: Bound
    groups: Mapping[str, GroupCertificate]
    ratio: Certificate
    title: str
    mean_loss: torch.Tensor
    hypothesis: str = field(default=HYPOTHESIS, repr=False)

    def lines(self) -> list[tuple[str, ...]]:
        """For every bound its name, and the largest total, truncation and rounding as text, rounded upwards."""
        named = [
            ("score of any class", self.score),
            ("loss of a sample", self.sample_loss),
            ("mean loss", self.loss),
            ("total variation", self.total_variation),
            ("gradient of a sample's loss", self.sample_gradient),
            ("gradient of the mean loss", self.gradient),
        ]
        for name, group in self.groups.items():
            named += [(f"{name}: mean loss of {group.size}", group.loss), (f"{name}: gradient of it", group.gradient)]
        return [(name, *(rounded_up(part, 3) for part in bound.largest())) for name, bound in named]

    def to_dict(self) -> dict[str, Any]:
        """As plain data: of every bound the largest over all samples, and how many predictions are certain. None stands for infinity."""
        margin = self.margin
        return {
            "title": self.title,
            "mean_loss": _finite(float(self.mean_loss)),
            "ratio_bound": self.ratio.bound,
            "score": self.score.to_dict(),
            "sample_loss": self.sample_loss.to_dict(),
            "loss": self.loss.to_dict(),
            "total_variation": self.total_variation.to_dict(),
            "margin": {
                "predictions": margin.unchanged.numel(),
                "unchanged": int(margin.unchanged.sum()),
                "smallest": _finite(float(margin.observed.min())),
                "needed": _finite(float(margin.needed.max())),
            },
            "sample_gradient": self.sample_gradient.to_dict(),
            "gradient": self.gradient.to_dict(),
            "groups": {
                name: {"size": group.size, "loss": group.loss.to_dict(), "gradient": group.gradient.to_dict()}
                for name, group in self.groups.items()
            },
        }

    def verdict(self) -> str:
        """Where the exact loss lies, and how many predictions are certain."""
        loss = f"The exact mean loss is {float(self.mean_loss):.6g} up to {rounded_up(float(self.loss.total), 3)}.\n"
        unchanged, margin = self.margin.unchanged, self.margin.observed
        sure, every = int(unchanged.sum()), unchanged.numel()
        if sure == every:
            return f"{loss}All {every} predictions are those of the exact scores; the smallest margin is {float(margin.min()):.3g}."
        needed = rounded_up(float(self.margin.needed[~unchanged].max()), 3)
        return f"{loss}{sure} of {every} predictions are provably those of the exact scores; the others have margins of at most {needed}."

    def __str__(self) -> str:
        lines = [("", "at most", "truncation", "rounding"), *self.lines()]
        width = max(len(name) for name, *_ in lines)
        rows = [f"{name:{width}}  " + "  ".join(f"{number:>10}" for number in numbers) for name, *numbers in lines]
        return "\n".join([self.title, "", *rows, "", self.verdict(), str(self.ratio), f"rounding: {self.hypothesis}"])


def certify(
    features: torch.Tensor | Sequence[torch.Tensor],
    labels: torch.Tensor,
    state: State | Sequence[State],
    temperature: Temperature = 0.1,
    log_prior: torch.Tensor | None = None,
    realization: str | Potential = "arfr",
    *,
    groups: Mapping[str, torch.Tensor] | None = None,
    geometry_dtype: torch.dtype | None = None,
    validate: bool | None = None,
) -> LearningCertificate:
    """Bound how far scores, losses, probabilities, predictions and feature gradients are from those of the exact vMF objective, at this state.

    The truncation terms are Theorem thm:patt and Corollary cor:groups with the realization's own proven `ratio_bound`, made sharper by what is known of
    the state: how far each radius really is from its concentration, and how sure each sample is of its label. The rounding terms bound the evaluation in
    the working dtype, in every order of summation.

    What is bounded is what `vmf_scores` returns, and loss and first gradient of `vmf_cross_entropy` and the losses on it, eager or compiled, in tiles of at
    least 256 classes, as they are chosen by default. Second derivatives, `torch.func`, forward mode and `geometry="expanded"` take another way, on which the
    loss of a sure sample has an absolute rounding error: they are not covered.

    Args:
        features: (B, p), or a sequence of views of one batch, each (B, p).
        labels: (B,), shared by the views.
        state: a [`ClassBank`][pairgrad.ClassBank] or a [`ClassState`][pairgrad.ClassState], or one for each view.
        temperature: tau > 0.
        log_prior: (K,), added to the scores; -inf for a class that cannot occur.
        realization: by name or as a `Potential`; it must have a `ratio_bound`.
        groups: for each name a mask (B,) of booleans or the indices of its samples; [`shot_groups`][pairgrad.certificates.learning.shot_groups] makes
            those of head, medium and tail.
        geometry_dtype: as in `vmf_cross_entropy`: features and state are converted to it first, and taken for exact then.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).

    Raises:
        ValueError: among others, for a realization of which nothing is proven, with the reason.

    Examples:
        >>> import torch, pairgrad as pg
        >>> state = pg.ClassState(torch.eye(3, 128), torch.tensor([50.0, 100.0, 200.0]))
        >>> certificate = pg.certify(torch.eye(128)[:2].double(), torch.tensor([0, 1]), state)
        >>> bool(certificate.score.total.max() < 4e-5), bool(certificate.margin.unchanged.all())
        (True, True)
    """
    single = isinstance(features, torch.Tensor)
    if groups is not None and not isinstance(groups, Mapping):
        raise TypeError(f"groups must be a mapping from names to masks or indices of samples, or None, got {describe(groups)}")
    if not isinstance(features, (torch.Tensor, tuple, list)):
        raise TypeError(f"features must be a tensor (batch, dim) or a sequence of such views, got {describe(features)}")
    views = [features] if isinstance(features, torch.Tensor) else list(features)
    states = list(state) if isinstance(state, Sequence) else [state] * len(views)
    if not views:
        raise ValueError("features must be a tensor (batch, dim) or a sequence of such views, got an empty sequence")
    if len(states) != len(views):
        raise ValueError(f"state must be one state for all views or one for each of the {len(views)}, got {len(states)}")
    for view in views:
        need_float64("features", floating_tensor("features", view), "a certificate")
    temperature = check_temperature(temperature)
    if isinstance(temperature, torch.Tensor):
        if not has_values(temperature):
            raise ValueError(f"temperature must be a positive number or a tensor with one, got {describe(temperature)}")
        temperature = float(temperature.detach())
    tau = temperature
    if not 1e-30 <= tau <= 1e30:
        raise ValueError(f"temperature must be a positive finite number, for a certificate from 1e-30 to 1e30, got {tau!r}")
    options = Options.checked(checked_state(states[0]).dim, tau, realization, geometry_dtype=geometry_dtype, validate=validate)
    task = _Task(labels, options, log_prior, groups, views[0].dtype, single=single)
    return task.certificate(views, states)


@dataclass(frozen=True)
class _Task:
    """What is certified, but for the views and the states that these are scored with."""

    labels: torch.Tensor
    options: Options
    log_prior: torch.Tensor | None
    groups: Mapping[str, torch.Tensor] | None
    given: torch.dtype  # of the features as the caller has them: where the gradients go to
    lengths: torch.Tensor | None = None  # (V, B), of the features, if they were normalised
    single: bool = False  # one view, without a dimension for it

    @property
    def pot(self) -> Potential:
        return self.options.potential

    @property
    def temperature(self) -> float:
        return float(self.options.temperature)

    def certificate(self, views: Sequence[torch.Tensor], states: Sequence[State]) -> LearningCertificate:
        prepared = [self._prepared(view, state) for view, state in zip(views, states, strict=True)]
        dtypes = {view.features.dtype for view in prepared}
        if len(dtypes) > 1:
            raise ValueError(f"features and state must give one working dtype for all views, got {', '.join(sorted(map(str, dtypes)))}")
        dtype, state = prepared[0].features.dtype, states[0]
        ratio = _ratio(self.pot, dtype)
        rows = Rows(*(torch.stack(parts) for parts in zip(*(view.rows() for view in prepared), strict=True)))
        where = f"{len(views)} views of {len(self.labels)} samples" if len(views) > 1 else f"{len(self.labels)} samples"
        sizes = f"{state.num_classes} classes, dim {state.dim}, tau = {self.temperature:g}"
        title = f"{where}, {sizes}: {self.pot!r} in {dtype} against the exact vMF objective".replace("torch.", "")
        return self._assembled(rows, ratio, _Delivery.of(dtype, self.given, self.lengths, state.dim, rows.gradient_size), title)

    def _prepared(self, view: torch.Tensor, state: State) -> StateRounding:
        """One view, checked and in the working dtype."""
        if checked_state(state).dim != self.pot.dim:
            raise ValueError(f"state must have the same dimension for all views, got {self.pot.dim} and {state.dim}")
        classes = Classes(*(tensor.detach() for tensor in state.classes()))
        view = checked_features(view, state.dim, classes.rows, validate=self.options.validate).detach()
        if view.dim() != 2:
            raise ValueError(f"features must have shape (batch, dim={state.dim}), got {describe(view)}; several views are passed as a list")
        if not len(view):
            raise ValueError("features must have at least one row: nothing can be said of an empty batch")
        labels = checked_labels(self.labels, len(view), state.num_classes, classes.rows, validate=self.options.validate)
        dtype = self.options.dtype(view, classes)
        self.options.check_reach(view, classes, dtype)
        prior = checked_per_class("log_prior", self.log_prior, state.num_classes, classes.rows, dtype)
        prior, prior_error = None if prior is None else prior.detach(), None
        if prior is not None and self.log_prior is not None:
            prior_error = torch.nan_to_num((prior.double() - self.log_prior.detach().double()).abs(), nan=0.0)  # -inf is exact
        if prior is not None and bool(torch.isinf(prior[labels]).any()):
            raise ValueError("labels must be of classes that can occur: the log_prior of some of them is -inf, and their loss infinite")
        relative = self.pot.ratio_certificate(self.pot.compute_dtype(dtype)).relative_bound
        # R / x <= 1 / (2 nu + 2)
        largest_gain = float("inf") if relative is None else (1 + relative) / float(2 * self.pot.nu + 2) * (1 + 2.0**-8)
        return StateRounding(self.options, view.to(dtype), labels, classes.to(dtype), prior, prior_error, largest_gain)

    def _assembled(self, rows: Rows, ratio: Certificate, delivery: _Delivery, title: str) -> LearningCertificate:
        """From what was found for every view and sample, (V, B)."""
        epsilon = float(ratio.bound or 0.0)
        delta = rows.path * epsilon
        # between the probabilities found and those anywhere between exact and computed
        slack = torch.exp((2 * delta + 4 * rows.logit).clamp_max(600.0))
        doubt = (rows.doubt * slack).clamp_max(1.0)

        score = _bound(delta, delta + rows.score)
        sample_loss = _bound(2 * delta * doubt, (2 * delta + rows.logit + rows.label) * doubt + rows.evaluation)
        variation = _bound(_variation(delta, rows.rest, slack), _variation(delta + rows.logit, rows.rest, slack))
        slope = 2 * epsilon / self.temperature * doubt
        sizes = rows.gradient_size * delivery.factor
        gradients = _bound(
            (2 / self.temperature * variation.truncation + slope) * delivery.factor,
            (2 / self.temperature * variation.total + slope + rows.gradient + delivery.projection * rows.gradient_size) * delivery.factor,
        )
        margin = Margin(rows.prediction, rows.margin, 2 * (delta + rows.logit) * _UPWARDS)

        unit = delivery.unit

        def averaged(losses: Bound, size: torch.Tensor) -> Bound:
            """Of a mean of losses of this `size`: the sum has as many roundings as it has terms."""
            count = losses.total.numel()
            return _bound(losses.truncation.mean(), losses.total.mean() + (count + 3) * unit * (size.mean() + losses.total.mean()))

        def shared(gradients: Bound, sizes: torch.Tensor, count: int) -> Bound:
            """Of gradients divided by a number of losses, and rounded to the dtype of the features then."""
            return _bound(gradients.truncation / count, (gradients.total + (3 * unit + delivery.narrow) * sizes) / count + delivery.floor)

        certified = {}
        for name, members in (self.groups or {}).items():
            chosen = _members(name, members, rows.loss.shape[1]).to(rows.loss.device)
            size = int(chosen.numel())
            losses, own = sample_loss[:, chosen], gradients[:, chosen]
            each = [averaged(losses[view], one) for view, one in enumerate(rows.loss[:, chosen])]
            certified[name] = GroupCertificate(
                size,
                Bound(torch.stack([b.truncation for b in each]), torch.stack([b.rounding for b in each])),
                averaged(losses, rows.loss[:, chosen]),
                shared(own, sizes[:, chosen], size * len(rows.loss)),
            )

        def shaped(bound: Bound) -> Bound:
            return bound[0] if self.single else bound

        if self.single:
            margin = Margin(margin.prediction[0], margin.observed[0], margin.needed[0])
        return LearningCertificate(
            shaped(score),
            shaped(sample_loss),
            averaged(sample_loss, rows.loss),
            shaped(variation),
            margin,
            shaped(shared(gradients, sizes, 1)),
            shaped(shared(gradients, sizes, rows.loss.numel())),
            certified,
            ratio,
            title,
            rows.loss.mean(),
        )


class _Delivery(NamedTuple):
    """What happens to losses and gradients after they are found: means, division by the length of a normalised feature, a narrower dtype."""

    unit: float
    factor: torch.Tensor  # (V, B), 1 / length
    projection: float  # roundings of the backward of a normalisation, relative to the size of the gradient
    narrow: float  # roundoff of a narrower dtype of the features, or 0
    floor: float  # underflow in that dtype, in every coordinate

    @staticmethod
    def of(dtype: torch.dtype, given: torch.dtype, lengths: torch.Tensor | None, dim: int, like: torch.Tensor) -> _Delivery:
        unit, info = torch.finfo(dtype).eps / 2, torch.finfo(given)
        narrow = info.eps / 2 if info.eps / 2 > unit else 0.0
        # subnormal numbers of float16 are kept everywhere
        smallest = info.smallest_normal * (info.eps if given == torch.float16 else 1)
        floor = dim**0.5 * max(smallest, torch.finfo(dtype).smallest_normal)
        if lengths is None:
            return _Delivery(unit, torch.ones_like(like), 0.0, narrow, floor)
        return _Delivery(unit, (1 + 1e-6) / lengths.double(), (2 * dim + 16) * unit, narrow, floor)


def certify_step(
    loss: BankLoss | PATTLoss,
    features: torch.Tensor | Sequence[torch.Tensor],
    labels: torch.Tensor,
    *,
    groups: Mapping[str, torch.Tensor] | None = None,
) -> LearningCertificate:
    """`certify` for the next step of a loss with a bank: what it will report for these views, each against the state that the loss will score it with.

    The loss and its bank are left as they are. In training mode a copy of the bank is updated in between as the loss would. Features are normalised first
    if the loss does so, and taken for exact then; gradients are those in the features as they are passed. For a `PATTLoss` this is its augmentation term:
    the truncation of the whole objective is the same, because the other terms do not contain the score (eq. patt-total-bound); their rounding is not included.

    Args:
        loss: a `ProCoLoss`, a `PATTLoss`, or another loss with a bank, of the factorised geometry.
        features: (B, p), (V, B, p), or a sequence of views.
        labels: (B,).
        groups: as in [`certify`][pairgrad.certify].

    Examples:
        >>> import torch, pairgrad as pg
        >>> from pairgrad.certificates.learning import certify_step
        >>> loss, views, labels = pg.ProCoLoss(3, 32), torch.eye(32)[:6].reshape(2, 3, 32), torch.arange(3)
        >>> certificate = certify_step(loss, views, labels)
        >>> bool((loss(views, labels) - certificate.mean_loss).abs() <= certificate.loss.total)
        True
    """
    loss = loss.augmentation if isinstance(loss, PATTLoss) else loss
    if not isinstance(loss, BankLoss):
        raise TypeError(f"loss must be a loss with a bank, such as pairgrad.ProCoLoss or pairgrad.PATTLoss, got {describe(loss)}")
    if loss.options.geometry != "factorised":
        raise ValueError(f"loss must have geometry='factorised': the rounding of {loss.options.geometry!r} has not been analysed")
    if loss.options.geometry_dtype not in (None, loss.bank.sums.dtype):
        raise ValueError(
            f"loss must compute in the dtype of its bank, {loss.bank.sums.dtype}, got geometry_dtype={loss.options.geometry_dtype}: the rounding of its plain "
            "scores has not been analysed; give the bank that dtype"
        )
    if loss.options.scalar_dtype not in (None, loss.bank.sums.dtype):
        raise ValueError(
            f"loss must compute its potential in the dtype of its bank, {loss.bank.sums.dtype}, got scalar_dtype={loss.options.scalar_dtype}: the rounding of "
            "mixed scores has not been analysed"
        )
    step = loss.step(features, labels)
    raw = step.views.detach()
    bank, states, seen = copy.deepcopy(loss.bank), [], step.unit(raw)
    for view in seen:
        if step.order == "after-update":
            bank.update(view, labels)
        states.append(copy.deepcopy(bank))
        if step.order == "before-update":
            bank.update(view, labels)
    lengths = lengths_of(raw).squeeze(-1) if loss.normalize else None
    given = features.dtype if isinstance(features, torch.Tensor) else features[0].dtype
    task = _Task(step.labels, loss.options, loss.log_prior, groups, given, lengths)
    return task.certificate(list(seen), states)


def shot_groups(labels: torch.Tensor, counts: torch.Tensor, many: int = 100, few: int = 20) -> dict[str, torch.Tensor]:
    """Masks (B,) of the samples whose classes have more than `many` training samples (head), fewer than `few` (tail), or in between (medium).

    The numbers are the same whatever the benchmark. [`pairgrad.ood.shot_groups`][pairgrad.ood.shot_groups], after which accuracies are reported, cuts one
    of up to 100 classes into thirds of its classes instead.

    Args:
        labels: (B,).
        counts: (K,), training samples per class.

    Returns:
        only the groups that have samples.
    """
    if not isinstance(counts, torch.Tensor) or counts.dim() != 1:
        raise TypeError(f"counts must be a tensor (num_classes,) of training samples per class, got {describe(counts)}")
    labels = checked_labels(labels, len(labels), len(counts), labels)
    size = counts.to(labels.device)[labels]
    groups = {"head": size > many, "medium": (size <= many) & (size >= few), "tail": size < few}
    return {name: mask for name, mask in groups.items() if bool(mask.any())}


def _ratio(pot: Potential, dtype: torch.dtype) -> Certificate:
    certificate = pot.ratio_certificate(pot.compute_dtype(dtype))
    if certificate.bound is None or not certificate.bound < float("inf"):
        raise ValueError(f"realization must have a proven ratio bound, got {pot!r}. {certificate.reason}")
    if not isinstance(pot.formulas(dtype), (Expansion, Balls)):
        raise ValueError(f"realization must be 'paired', 'arfr' or 'reference': the rounding of {pot!r} has not been analysed")
    return certificate


def _bound(truncation: torch.Tensor, total: torch.Tensor) -> Bound:
    rounding = (total - truncation).clamp_min(0) * _UPWARDS
    return Bound(truncation * _UPWARDS, torch.nan_to_num(rounding, nan=torch.inf, posinf=torch.inf))


def _variation(delta: torch.Tensor, rest: torch.Tensor, slack: torch.Tensor) -> torch.Tensor:
    """Total variation for logits off by at most delta: tanh(delta / 2), and less where all classes but one together stay below one half."""
    uniform = torch.tanh(delta / 2)
    rest = rest * slack
    return torch.where(rest < 0.5, torch.minimum(uniform, 2 * delta * rest), uniform)


def _members(name: str, members: torch.Tensor, batch: int) -> torch.Tensor:
    """The indices of a group's samples."""
    if not isinstance(members, torch.Tensor) or members.dim() != 1 or members.is_floating_point() or members.is_complex():
        raise TypeError(f"groups[{name!r}] must be a mask ({batch},) of booleans or a tensor of indices, got {describe(members)}")
    if members.dtype == torch.bool:
        if len(members) != batch:
            raise ValueError(f"groups[{name!r}] must have one boolean for each of the {batch} samples, got {len(members)}")
        members = members.nonzero()[:, 0]
    if not len(members):
        raise ValueError(f"groups[{name!r}] must have at least one sample, got none: leave it out")
    if len(members.unique()) < len(members):
        raise ValueError(f"groups[{name!r}] must name every sample once, got repeated indices")
    if int(members.min()) < 0 or int(members.max()) >= batch:
        raise ValueError(
            f"groups[{name!r}] must be indices in [0, {batch - 1}], got values from {int(members.min())} to {int(members.max())}"
        )
    return members.long()
