"""The loss both host systems share: cross-entropy of vMF scores against a bank that the batch's own views update."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from pairgrad.ground.checks import HALF_DTYPES, boolean, computing_dtype, describe, floating_tensor, one_of, real_number
from pairgrad.ground.devices import has_values
from pairgrad.ground.precision import full_precision
from pairgrad.losses.adjust import check_possible, check_strength, kept_counts
from pairgrad.losses.adjust import log_prior as log_prior_of
from pairgrad.losses.cross_entropy import Problem
from pairgrad.losses.fused.execution import execution_of
from pairgrad.losses.fused.views import of_unit_length
from pairgrad.losses.options import Options, check_squares, check_temperature, longest_of, resolve
from pairgrad.losses.reduction import check_reduction
from pairgrad.losses.scores import plain_scores
from pairgrad.losses.step import OneProcess, Step, Strategy
from pairgrad.potentials import Potential
from pairgrad.sphere.bank import ClassBank
from pairgrad.sphere.inputs import check_order, checked_batch, checked_features, looks
from pairgrad.sphere.saved import SavedOptions
from pairgrad.sphere.state import Classes

SCORING = ("after-update", "before-update")
Views = torch.Tensor | Sequence[torch.Tensor]


class BankLoss(SavedOptions):
    r"""Mean over views and samples of the cross-entropy \(\ell_i^{(v)}\) (eqs. view-loss, isac), with a class bank that learns from every view.

    In training mode each view first updates the bank and is then scored against it, the views in order; the class statistics are detached. In evaluation
    mode nothing is updated. `scores` gives the scores themselves. The state has the options with which it was saved: loading it into a loss with others warns.

    Args:
        num_classes: K.
        dim: feature dimension p.
        temperature: tau.
        class_counts: samples per class in the training set, for the log prior that is added to the scores; None: no prior.
        prior_strength: factor of the log prior.
        normalize: scale the features to unit length first, as a vMF model wants them. Without, they are taken as they come.
        realization: of the potential, by name or as a `Potential`: `"paired"`, or one of the arms of the paper, `"original"`, `"consistent"`, `"arfr"`.
        score: `"after-update"`, as the hosts do, or `"before-update"`, against a bank that has not seen the view.
        geometry: `"factorised"` (fused) or `"expanded"`, through (B, K, p) tensors, as the public code.
        geometry_dtype: compute scores and loss in this dtype; None: in that of the bank.
        scalar_dtype: compute the potential in this dtype, between radii and scores in that of the geometry, as the paper's training does with torch.float64;
            None: in that of the geometry. Where the two differ, the plain path is taken.
        reduction: `"mean"`, `"sum"` or `"none"` (one loss per view and sample, (V, B)).
        execution: `"eager"`; `"compiled"`, the step (update, scores, loss, gradient) through `torch.compile`, for the first batch and again for a
            larger one, while a smaller one, such as the last of an epoch, is computed in eager mode; `"triton"`, three kernels on a GPU; or `"auto"`, one
            of these by device and size, which the logger `pairgrad` names. [What they trade](how-to/gpu.md#executions).
        compile_mode: of torch.compile, such as `"reduce-overhead"`, for `execution="compiled"`.
        products: of float32 in `execution="triton"`: `"ieee"`; `"3xtf32"`, as accurate, by tensor cores; or `"tf32"`, three digits. None: `"3xtf32"`, and
            `"ieee"` on AMD's GPUs.
        estimator: of the concentrations, this and what follows as in [`ClassBank`][pairgrad.ClassBank].
        cap: the largest concentration.
        on_resultant_above_one: `"cap"`, `"error"` or `"normalize"`.
        unseen: `"random"` or `"uniform"`, what a class without samples is.
        small_samples: `"plain"` or `"unbiased"`.
        decay: forget a class by this factor whenever it occurs; None: never.
        memory: `"cumulative"` or `"two-epochs"`.
        validate: check values on every device (True), on the CPU (None) or nowhere (False).
        generator: for the random directions of unseen classes.
        device: of the bank.
        dtype: of the bank, float32 (default) or float64, and of the loss.
    """

    log_prior: torch.Tensor | None

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        temperature: float = 0.1,
        class_counts: Sequence[float] | torch.Tensor | None = None,
        prior_strength: float = 1.0,
        normalize: bool = True,
        realization: str | Potential = "paired",
        score: str = "after-update",
        geometry: str = "factorised",
        geometry_dtype: torch.dtype | None = None,
        scalar_dtype: torch.dtype | None = None,
        reduction: str = "mean",
        execution: str = "eager",
        compile_mode: str | None = None,
        products: str | None = None,
        estimator: str = "closed-form",
        cap: float = 1e5,
        on_resultant_above_one: str = "cap",
        unseen: str = "random",
        small_samples: str = "plain",
        decay: float | None = None,
        memory: str = "cumulative",
        validate: bool | None = None,
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.bank = ClassBank(
            num_classes,
            dim,
            estimator=estimator,
            cap=cap,
            on_resultant_above_one=on_resultant_above_one,
            unseen=unseen,
            small_samples=small_samples,
            decay=decay,
            memory=memory,
            validate=validate,
            generator=generator,
            device=device,
            dtype=dtype,
        )
        self.options = Options.checked(
            self.bank.dim,
            _number(temperature),
            realization,
            geometry=geometry,
            geometry_dtype=geometry_dtype,
            scalar_dtype=scalar_dtype,
            validate=validate,
            execution=execution_of(execution, compile_mode, products),
        )
        self.strategy: Strategy = OneProcess(self.bank.num_classes)
        self.class_counts: torch.Tensor | None = None  # of the last prior that was set, to make it again where it got lost (device "meta")
        self.normalize = boolean("normalize", normalize)
        self.score = one_of("score", score, SCORING)
        self.reduction = check_reduction(reduction)
        self.prior_strength = real_number(
            "prior_strength", prior_strength, "a finite number >= 0", lambda strength: 0 <= strength < math.inf
        )
        self._check_squares(1.0, self.temperature)
        self._spread = 0.0
        self._impossible: torch.Tensor | None = None  # which classes have count 0, if any has
        self._warned = False  # of features that are wider than the bank
        self.register_buffer("log_prior", None, persistent=False)
        self.register_load_state_dict_post_hook(BankLoss._after_loading)
        if class_counts is not None:
            self.set_prior(class_counts)

    @property
    def num_classes(self) -> int:
        """K; where several processes hold the classes, of all of them."""
        return self.strategy.num_classes

    @property
    def potential(self) -> Potential:
        """The realization."""
        return self.options.potential

    @potential.setter
    def potential(self, potential: Potential) -> None:
        potential = resolve(potential, self.bank.dim)
        self.options.execution.check(potential)
        self.options = replace(self.options, potential=potential)

    @property
    def temperature(self) -> float:
        """tau; a schedule may set it between steps. With `execution="compiled"` every value gets a graph of its own, so change it seldom."""
        return float(self.options.temperature)

    @temperature.setter
    def temperature(self, temperature: float) -> None:
        temperature = _number(temperature)
        self._check_squares(1.0, temperature)
        self.options = replace(self.options, temperature=temperature)

    def set_prior(self, class_counts: Sequence[float] | torch.Tensor | None) -> None:
        """Add prior_strength * log(n_k / sum n) to the scores from now on; None: nothing."""
        if class_counts is None:
            self._spread, self._impossible, self.class_counts, self.log_prior = 0.0, None, None, None
            return
        prior = log_prior_of(class_counts)
        prior = self.prior_strength * prior if self.prior_strength else torch.zeros_like(prior)  # 0 times -inf: no prior
        if len(prior) != self.num_classes:
            raise ValueError(f"class_counts must have one number for each of the {self.num_classes} classes, got {len(prior)}")
        check_strength("prior_strength", self.prior_strength, prior, self.bank.sums.dtype)
        self.class_counts = kept_counts(class_counts)
        finite = prior[torch.isfinite(prior)]
        self._impossible = torch.isneginf(prior) if len(finite) < len(prior) else None
        self._spread = float(finite.max() - finite.min())
        self.log_prior = self.strategy.set_prior(prior).to(device=self.bank.sums.device, dtype=self.bank.sums.dtype)

    def use(self, bank: ClassBank, strategy: Strategy) -> None:
        """Take another bank, with the classes of this process, and the strategy that knows of the others."""
        self.bank, self.strategy = bank, strategy
        self.set_prior(self.class_counts)

    def forward(self, features: Views, labels: torch.Tensor) -> torch.Tensor:
        """The loss of one view (B, p), or of several: (V, B, p), or a sequence of (B, p). Updates the bank in training mode."""
        return self._loss(features, labels, self.reduction)

    def rows(self, features: Views, labels: torch.Tensor) -> torch.Tensor:
        """The loss of each view of each sample, (V, B)."""
        return self._loss(features, labels, "none")

    def with_terms(
        self, features: Views, labels: torch.Tensor, terms: Callable[[], Sequence[torch.Tensor]], further: int | None = None
    ) -> tuple[torch.Tensor, ...]:
        """`forward` beside other terms of an objective, all of them as shares of the mean over all processes.

        Args:
            terms: makes the means over the samples and, where `further` is given, last the mean over further rows. It is called first: it checks its
                arguments before the bank changes.
            further: how many further rows there are, such as outliers; None: none.
        """
        with self.strategy.checking():
            means = list(terms())
        loss = self._loss(features, labels, self.reduction, further)
        if self.reduction != "mean":
            return loss, *means
        sizes = [(len(labels), "samples")] * len(means)
        if further is not None:
            sizes[-1] = (further, "further")
        return loss, *(self.strategy.share_of_mean(mean, *size) for mean, size in zip(means, sizes, strict=True))

    def soft(self, features: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
        """The loss of features (B, p) against class probabilities (B, K), for mixed samples; the bank is read, not updated.

        Data parallel, a mean is over the samples of all ranks, as in forward, and all ranks call it.
        """
        if not self.strategy.whole:
            raise RuntimeError("soft needs all classes in one process, and this loss shards them: use labels, or data parallelism")
        with self.strategy.checking():
            classes, options = self._snapshot(), replace(self.options, execution=execution_of("eager"))
            problem = Problem.checked(
                options, self._scored(features), probabilities, classes, self.bank.num_classes, self.log_prior, None, -100, 0.0
            )
        with full_precision(problem.features.device.type):
            targets = problem.targets(problem.labels)
            loss = problem.reduced(targets, self.reduction, norms_known=True)
        return self.strategy.share_of_mean(loss, len(features), "others") if self.reduction == "mean" else loss

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Scores (B, K) of features (B, p) against the bank as it is, without prior and without update; differentiable in the features.

        Where several processes hold the classes, of those held here.
        """
        classes = self._snapshot()
        features = checked_features(self._scored(features), self.bank.dim, classes.rows, validate=self.options.validate)
        dtype = self.options.dtype(features, classes)
        self.options.check_reach(features, classes, dtype)
        with full_precision(features.device.type):
            scores = plain_scores(features.reshape(-1, self.bank.dim), classes, self.options, dtype)
        return scores.reshape(*features.shape[:-1], -1)

    def _snapshot(self) -> Classes:
        """The bank's classes, which autograd may keep while the bank learns."""
        return Classes(*(tensor.clone() for tensor in self.bank.classes()))

    def _scored(self, features: torch.Tensor) -> torch.Tensor:
        """Features as they are scored, checked before anything is computed with them."""
        if not self.normalize:
            return features
        features = checked_features(features, self.bank.dim, self.bank.sums, validate=self.options.validate, squared=True)
        return of_unit_length(features.to(computing_dtype("features", features.dtype)))

    def _loss(self, features: Views, labels: torch.Tensor, reduction: str, further: int | None = None) -> torch.Tensor:
        with self.strategy.checking():
            step = self.step(features, labels, reduction, further)
        with full_precision(step.views.device.type):
            return self.strategy.loss(step)

    def step(self, features: Views, labels: torch.Tensor, reduction: str = "none", further: int | None = None) -> Step:
        """What a strategy is handed for one view or several, once they are checked; nothing has changed yet."""
        check_order(features, labels)
        views, bank = _stacked(features), self.bank
        rows = views.shape[1]
        if isinstance(labels, torch.Tensor) and labels.dim() == 1 and len(labels) != rows and len(labels):
            raise ValueError(
                f"labels must have shape ({rows},), one per row of features (views, batch, dim), got {len(labels)} for {describe(views)}: torch.stack the "
                "views of one batch along the first axis, or repeat the labels"
            )
        views, labels = checked_batch(views, labels, self.num_classes, bank.dim, bank.sums, validate=bank.validate, squared=True)
        if looks(views, bank.validate):
            if self._impossible is not None:
                check_possible("labels", labels, self._impossible.to(labels.device)[labels])
            if not self.normalize:
                self._check_squares(longest_of(views), self.temperature)
        if views.dtype == torch.float64 and bank.sums.dtype == torch.float32 and not self._warned and not torch.compiler.is_compiling():
            self._warned = True
            warnings.warn(
                "features are float64 and the class bank is float32: they are converted, and the loss is float32. Make the loss with dtype=torch.float64, or "
                "convert the features, to say which you want",
                stacklevel=6,
            )
        order = self.score if self.training else "no-update"
        dtype = bank.sums.dtype if self.options.geometry_dtype is None else self.options.geometry_dtype
        options = self.options.settled(dtype, views.device, views.shape[0] * rows, bank.num_classes)
        if not (options.execution.half and views.dtype in HALF_DTYPES):
            views = views.to(bank.sums.dtype)
        return Step(options, bank, views, labels, self.log_prior, self._spread, self.normalize, order, reduction, further)

    def _check_squares(self, length: float, temperature: float) -> None:
        dtype = self.bank.sums.dtype if self.options.geometry_dtype is None else self.options.geometry_dtype
        check_squares(length, self.bank.rule.cap, self.bank.rule.cap, temperature, dtype)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> BankLoss:
        before = self.log_prior
        super()._apply(fn, recurse)
        if before is not None and self.log_prior is not None and self.log_prior.dtype != self.bank.sums.dtype:
            self.log_prior = before.to(self.log_prior.device)  # .half() leaves the bank alone, and the prior with it
        self._place_prior(before)
        return self

    def _place_prior(self, before: torch.Tensor | None = None) -> None:
        """Make the log prior again where it has no numbers: a bank that comes from the device "meta" brings none along."""
        lost = any(prior is not None and not has_values(prior) for prior in (before, self.log_prior))
        if lost and has_values(self.bank.sums) and self.class_counts is not None:
            self.set_prior(self.class_counts)

    @staticmethod
    def _after_loading(module: nn.Module, _keys: Any) -> None:
        assert isinstance(module, BankLoss)
        module._place_prior()

    def saved_options(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "realization": self.potential.realization,
            "prior_strength": self.prior_strength,
            "normalize": self.normalize,
            "score": self.score,
        }

    def extra_repr(self) -> str:
        prior = self.log_prior is not None
        return (
            f"temperature={self.temperature}, realization={self.potential.realization!r}, normalize={self.normalize}, "
            f"score={self.score!r}, prior={prior}"
        )


def _number(temperature: float) -> float:
    if isinstance(temperature, torch.Tensor):
        raise TypeError("temperature of a loss with a bank must be a number; use vmf_cross_entropy to learn it")
    return float(check_temperature(temperature))


def _stacked(features: Views) -> torch.Tensor:
    """One view or several as (V, B, p)."""
    if not isinstance(features, torch.Tensor):
        if not isinstance(features, (tuple, list)) or not features:
            raise TypeError(
                f"features must be a tensor (batch, dim) or (views, batch, dim), or a sequence of at least one view, got {describe(features)}"
            )
        shapes = {tuple(view.shape) if isinstance(view, torch.Tensor) else type(view).__name__ for view in features}
        if len(shapes) != 1 or not all(isinstance(view, torch.Tensor) for view in features):
            raise ValueError(f"features must be views of one batch, tensors of one shape (batch, dim), got {sorted(map(str, shapes))}")
        for view in features:
            floating_tensor("features", view)
            if view.device != features[0].device:
                raise ValueError(
                    f"features must be on one device, got views on {features[0].device} and {view.device}: move one with .to(...)"
                )
        features = torch.stack(list(features))
    floating_tensor("features", features)
    if features.dim() == 3 and not len(features):
        raise ValueError(f"features must have at least one view, got {describe(features)}")
    if features.dim() not in (2, 3):
        raise ValueError(f"features must have shape (batch, dim) or (views, batch, dim), got {describe(features)}")
    return features[None] if features.dim() == 2 else features
