"""The loss both host systems share: cross-entropy of vMF scores against a bank that the batch's own views update."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import distributed, nn
from torch.nn import functional

from pairgrad.ground._torch_private import is_functorch_wrapped_tensor, version
from pairgrad.ground.checks import (
    boolean,
    computing_dtype,
    describe,
    floating_tensor,
    known_options,
    one_of,
    real_number,
    wide_dtype,
)
from pairgrad.ground.compilation import checked_mode
from pairgrad.ground.compilation import compile as compile_
from pairgrad.losses import fused
from pairgrad.losses.adjust import check_possible, check_strength, kept_counts
from pairgrad.losses.adjust import log_prior as log_prior_of
from pairgrad.losses.cross_entropy import given, is_transformed, longest, vmf_cross_entropy
from pairgrad.losses.reduction import check_reduction, reduce
from pairgrad.losses.scores import (
    check_squares,
    check_temperature,
    checked_scalars,
    full_precision,
    longest_of,
    plain_scores,
    resolve,
    vmf_scores,
)
from pairgrad.losses.views import cross_entropy_of_views, every_state
from pairgrad.potentials import Potential
from pairgrad.sphere.bank import ClassBank, Touched
from pairgrad.sphere.geometry import GEOMETRIES
from pairgrad.sphere.inputs import checked_batch, checked_features, looks
from pairgrad.sphere.state import Classes

_SHORTEST = 1e-12  # a feature shorter than this is not brought to unit length
SCORING = ("after-update", "before-update")
Views = torch.Tensor | Sequence[torch.Tensor]


class Team(Protocol):
    """Several processes that compute a loss together (`pairgrad.distributed`)."""

    num_classes: int
    whole: bool  # whether every process has all classes
    alone: bool  # whether there is one process, and nothing that it would do in another way

    def loss(self, loss: BankLoss, features: Views, labels: torch.Tensor, reduction: str, further: int | None = None) -> torch.Tensor: ...
    def set_prior(self, log_prior: torch.Tensor) -> None: ...
    def part(self, log_prior: torch.Tensor) -> torch.Tensor: ...
    def share_of_mean(self, mean: torch.Tensor, size: int, rows: str) -> torch.Tensor: ...
    def refusing(self) -> AbstractContextManager[None]: ...


class BankLoss(nn.Module):
    r"""Mean over views and samples of the cross-entropy \(\ell_i^{(v)}\) (eqs. view-loss, isac), with a class bank that learns from every view.

    In training mode each view first updates the bank and is then scored against it, the views in order; the class statistics are detached. In evaluation
    mode nothing is updated. `scores` gives the scores themselves.

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
        compile: run the step (update, scores, loss, gradient) through `torch.compile`, once per shape of the batch. With `"reduce-overhead"`, or another
            mode of torch.compile, in that mode.
        **bank: options of [`ClassBank`][pairgrad.ClassBank].
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
        compile: bool | str = False,
        **bank: Any,
    ) -> None:
        super().__init__()
        if isinstance(temperature, torch.Tensor):
            raise TypeError("temperature of a loss with a bank must be a number; use vmf_cross_entropy to learn it")
        temperature = float(check_temperature(temperature))
        known_options(type(self).__name__, bank, ClassBank, type(self), BankLoss)
        self.bank = ClassBank(num_classes, dim, **bank)
        self.team: Team | None = None
        self.class_counts: torch.Tensor | None = None  # of the last prior that was set, to make it again where it got lost (device "meta")
        self._impossible = False  # whether a class has count 0
        self._looked = False  # whether there are other processes
        self.temperature = float(temperature)
        self.normalize = boolean("normalize", normalize)
        self.potential = resolve(realization, self.bank.dim)
        self.score = one_of("score", score, SCORING)
        self.geometry = one_of("geometry", geometry, GEOMETRIES)
        self.geometry_dtype = None if geometry_dtype is None else wide_dtype("geometry_dtype", geometry_dtype)
        self.scalar_dtype = checked_scalars(scalar_dtype)
        self.reduction = check_reduction(reduction)
        self.prior_strength = real_number(
            "prior_strength", prior_strength, "a finite number >= 0", lambda strength: 0 <= strength < math.inf
        )
        dtype = self.bank.sums.dtype if self.geometry_dtype is None else self.geometry_dtype
        check_squares(1.0, self.bank.rule.cap, self.bank.rule.cap, self.temperature, dtype)
        self._spread = 0.0
        self._plans: dict[Any, fused.Plan] = {}
        self.register_buffer("log_prior", None, persistent=False)
        self.register_load_state_dict_post_hook(BankLoss._after_loading)
        if class_counts is not None:
            self.set_prior(class_counts)
        if not isinstance(compile, (bool, str)):
            raise TypeError(f"compile must be True, False or a mode of torch.compile, got {describe(compile)}")
        self.compile_mode = checked_mode("compile", compile) if isinstance(compile, str) else compile
        self._compiled: Callable[..., tuple[fused.Result, Touched | None]] | None = None

    @property
    def num_classes(self) -> int:
        """K, of all ranks where several share the classes out."""
        return self.bank.num_classes if self.team is None else self.team.num_classes

    def set_prior(self, class_counts: Sequence[float] | torch.Tensor) -> None:
        """Add prior_strength * log(n_k / sum n) to the scores from now on."""
        prior = log_prior_of(class_counts)
        prior = self.prior_strength * prior if self.prior_strength else torch.zeros_like(prior)  # 0 times -inf: no prior
        if len(prior) != self.num_classes:
            raise ValueError(f"class_counts must have one number for each of the {self.num_classes} classes, got {len(prior)}")
        check_strength("prior_strength", self.prior_strength, prior, self.bank.sums.dtype)
        self.class_counts = kept_counts(class_counts)
        finite = prior[torch.isfinite(prior)]
        self._impossible = len(finite) < len(prior)
        self._spread = float(finite.max() - finite.min())
        self._plans.clear()
        if self.team is not None:
            self.team.set_prior(prior)
            prior = self.team.part(prior)
        self.log_prior = prior.to(device=self.bank.sums.device, dtype=self.bank.sums.dtype)

    def without_prior(self) -> None:
        """Make what depends on the prior for one that is the same for all classes, where the bank is now."""
        self._spread, self._impossible, self.log_prior = 0.0, False, None
        self._plans.clear()

    def forward(self, features: Views, labels: torch.Tensor) -> torch.Tensor:
        """The loss of one view (B, p), or of several: (V, B, p), or a sequence of (B, p). Updates the bank in training mode."""
        return self._reduced(features, labels, self.reduction)

    def rows(self, features: Views, labels: torch.Tensor) -> torch.Tensor:
        """The loss of each view of each sample, (V, B)."""
        return self._reduced(features, labels, "none")

    def with_further(self, features: Views, labels: torch.Tensor, further: int | None) -> torch.Tensor:
        """`forward`, of an objective with another term over `further` rows (None: without one), whose mean `of_all` will be asked for."""
        return self._reduced(features, labels, self.reduction, further)

    def _reduced(self, features: Views, labels: torch.Tensor, reduction: str, further: int | None = None) -> torch.Tensor:
        if self.team is not None and not self.team.alone:
            return self.team.loss(self, features, labels, reduction, further)
        if self.training and not self._looked and not torch.compiler.is_compiling():
            self._look_for_others()
        views = self._views(features)
        bank = self.bank
        self._check_rows(views, labels)
        views, labels = checked_batch(views, labels, bank.num_classes, bank.dim, bank.sums, validate=bank.validate, squared=True)
        if self._impossible and self.log_prior is not None and looks(views, bank.validate):
            check_possible("labels", labels, torch.isneginf(self.log_prior)[labels])
        if self.training and not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(views):
            raise RuntimeError(
                "inside torch.func a loss cannot update its bank: call loss.eval() first, and loss.bank.update(features, labels) outside"
            )
        dtype = bank.sums.dtype if self.geometry_dtype is None else self.geometry_dtype
        if not self.normalize and looks(views, bank.validate):
            check_squares(longest_of(views), bank.rule.cap, bank.rule.cap, self.temperature, dtype)
        with full_precision(views.device.type):
            views = views.to(bank.sums.dtype)
            bank.refresh()
            if self._plain_only(dtype) or is_transformed(views):
                loss = reduce(self._plain(views, labels, dtype), reduction)
            else:
                loss = self._fused(views, labels, reduction)
            self.bank.settle()
        return loss

    def of_own(self, term: Callable[..., Any], *arguments: Any) -> Any:
        """`term` of arguments that it checks, before forward; other processes that wait for this one hear of an error."""
        if self.team is None:
            return term(*arguments)
        with self.team.refusing():
            return term(*arguments)

    def of_all(self, mean: torch.Tensor, size: int, rows: str = "samples") -> torch.Tensor:
        """A mean over `size` rows of this process as its share of the mean over those of all; the same in one process.

        Args:
            rows: `"samples"` of the last forward, the `"further"` rows that it was told of, or `"others"`: then the processes ask each other now.
        """
        return mean if self.team is None or self.team.alone else self.team.share_of_mean(mean, size, rows)

    def _plain_only(self, dtype: torch.dtype) -> bool:
        return self.geometry == "expanded" or dtype != self.bank.sums.dtype or self.scalar_dtype not in (None, dtype)

    def soft(self, features: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
        """The loss of features (B, p) against class probabilities (B, K), for mixed samples; the bank is read, not updated.

        Data parallel, a mean is over the samples of all ranks, as in forward, and all ranks call it.
        """
        if self.team is not None and not self.team.whole:
            raise RuntimeError("soft needs all classes in one process, and this loss shares them out: use labels, or data parallelism")
        loss = self.of_own(self._soft, features, probabilities)
        return self.of_all(loss, len(features), "others") if self.reduction == "mean" else loss

    def _soft(self, features: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
        given = self._scored(features), probabilities, _Snapshot(self.bank), self.temperature, self.log_prior
        return vmf_cross_entropy(*given, self.reduction, self.potential, **self._computed())

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Scores (B, K) of features (B, p) against the bank as it is, without prior and without update; differentiable in the features.

        Where several processes share the classes out, of those held here.
        """
        return vmf_scores(self._scored(features), _Snapshot(self.bank), self.temperature, self.potential, **self._computed())

    def _scored(self, features: torch.Tensor) -> torch.Tensor:
        """Features as they are scored, checked before anything is computed with them."""
        if not self.normalize:
            return features
        features = checked_features(features, self.bank.dim, self.bank.sums, validate=self.bank.validate, squared=True)
        return self.scaled(features.to(computing_dtype("features", features.dtype)))

    def _computed(self) -> dict[str, Any]:
        """How scores and losses are to be computed, as keyword arguments of the functions that do it."""
        return {
            "geometry": self.geometry,
            "geometry_dtype": self.geometry_dtype,
            "scalar_dtype": self.scalar_dtype,
            "validate": self.bank.validate,
        }

    def _fused(self, views: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
        compiled = bool(self.compile_mode) and not torch.compiler.is_compiling()
        plan = self._plan(views)
        step = self._step
        if compiled and not plan.compiled_tiles:
            if self._compiled is None:
                self._compiled = compile_(self._step, mode=self.compile_mode if isinstance(self.compile_mode, str) else None)
            step = self._compiled
        with torch.no_grad():
            result, touched = step(plan, views.detach(), labels, self.training)
        again = None if torch.compiler.is_compiling() else Again(self, labels, touched)
        return given(views, result.loss, result.gradient, again, reduction)

    def _plan(self, views: torch.Tensor, *, gradient: bool | None = None, extra_spread: float = 0.0) -> fused.Plan:
        rows = views.shape[0] * views.shape[1]
        if gradient is None:
            gradient = views.requires_grad and torch.is_grad_enabled()
        compiling = torch.compiler.is_compiling()
        bound = 1.001 if self.normalize else None if self.compile_mode or compiling else longest(views, None)
        key = (rows, gradient, views.dtype, bound, self.temperature, self.potential, self.compile_mode, extra_spread)
        if key in self._plans:
            return self._plans[key]
        compiled = bool(self.compile_mode) or compiling
        if self.team is not None and not self.team.alone:  # what several processes do is compiled tile by tile or not at all
            compiled = compiled and fused.streams(rows, self.bank.num_classes)
        plan = fused.plan(
            self.potential,
            self.temperature,
            views.dtype,
            rows=rows,
            num_classes=self.bank.num_classes,
            longest=bound,
            spread=self._spread + extra_spread,
            gradient=gradient,
            compiled=compiled,
            tangential=self.normalize,
        )
        if self.normalize and not compiling:
            self._plans[key] = plan
        return plan

    def _step(self, plan: fused.Plan, views: torch.Tensor, labels: torch.Tensor, update: bool) -> tuple[fused.Result, Touched | None]:
        lengths = self.lengths(views) if self.normalize else None
        unit = views if lengths is None else views / lengths
        before = self.score == "before-update"
        result, touched = cross_entropy_of_views(plan, self.bank, unit, labels, self.log_prior, before=before, update=update)
        if lengths is not None and result.gradient is not None:
            along = (result.gradient * unit).sum(-1, keepdim=True)
            result = result._replace(gradient=result.gradient.addcmul_(unit, -along).div_(lengths))
        return result, touched

    def lengths(self, views: torch.Tensor) -> torch.Tensor:
        """What features are divided by where the loss normalises them, (V, B, 1)."""
        return torch.linalg.vector_norm(views, dim=-1, keepdim=True).clamp_min(_SHORTEST)

    def scaled(self, views: torch.Tensor) -> torch.Tensor:
        """The views as they are scored: of unit length, where the loss normalises."""
        return functional.normalize(views, dim=-1, eps=_SHORTEST) if self.normalize else views

    def _plain(self, views: torch.Tensor, labels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """View by view in operations that autograd records, with a copy of the class rows for each."""
        rows = []
        for view in self.scaled(views):
            if self.training and self.score == "after-update":
                self.bank.absorb(view.detach()[None], labels)
            known = Classes(*(tensor.clone() for tensor in self.bank.current()))
            rows.append(self._plain_rows(view, labels, known, dtype))
            if self.training and self.score == "before-update":
                self.bank.absorb(view.detach()[None], labels)
        return torch.stack(rows)

    def _plain_rows(self, view: torch.Tensor, labels: torch.Tensor, classes: Classes, dtype: torch.dtype) -> torch.Tensor:
        logits = plain_scores(view, classes, self.temperature, self.potential, self.geometry, dtype, self.scalar_dtype)
        if self.log_prior is not None:
            logits = logits + self.log_prior.to(dtype)
        return functional.cross_entropy(logits, labels, reduction="none")

    def _look_for_others(self) -> None:
        """Warn, once, where several processes train and each keeps class statistics of its own samples."""
        self._looked = True
        processes = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
        if self.team is None and processes > 1:
            warnings.warn(
                f"{processes} processes train, and this loss keeps the class statistics of one: call pairgrad.distributed.distribute(loss) first, so that "
                "each class learns from the samples of all of them (every process sees all samples already? Then ignore this)",
                stacklevel=4,
            )

    def _check_rows(self, views: torch.Tensor, labels: torch.Tensor) -> None:
        """One label for each row of a view: where the layout is another, in the words of the layout."""
        rows = views.shape[1]
        if isinstance(labels, torch.Tensor) and labels.dim() == 1 and len(labels) != rows and len(labels):
            raise ValueError(
                f"labels must have shape ({rows},), one per row of features (views, batch, dim), got {len(labels)} for {describe(views)}: torch.stack the "
                "views of one batch along the first axis, or repeat the labels"
            )

    def stacked_views(self, features: Views) -> torch.Tensor:
        """The views (V, B, p), checked and in the dtype of the bank."""
        views = checked_features(self._views(features), self.bank.dim, self.bank.sums, validate=self.bank.validate)
        return views.to(self.bank.sums.dtype)

    def _views(self, features: Views) -> torch.Tensor:
        """(V, B, p)"""
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

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> BankLoss:
        before = self.log_prior
        super()._apply(fn, recurse)
        if before is not None and self.log_prior is not None and self.log_prior.dtype != self.bank.sums.dtype:
            self.log_prior = before.to(self.log_prior.device)  # .half() leaves the bank alone, and the prior with it
        self._compiled = None
        self._place_prior(before)
        return self

    def _place_prior(self, before: torch.Tensor | None = None) -> None:
        """The log prior anew where it has no numbers: a bank that comes from the device "meta" brings none along."""
        lost = any(prior is not None and prior.device.type == "meta" for prior in (before, self.log_prior))
        if lost and self.bank.sums.device.type != "meta" and self.class_counts is not None:
            self.set_prior(self.class_counts)

    @staticmethod
    def _after_loading(module: nn.Module, _keys: Any) -> None:
        assert isinstance(module, BankLoss)
        module._place_prior()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None}

    def extra_repr(self) -> str:
        prior = self.log_prior is not None
        return (
            f"temperature={self.temperature}, realization={self.potential.realization!r}, normalize={self.normalize}, "
            f"score={self.score!r}, prior={prior}"
        )


class _Snapshot:
    """A bank as a state whose rows autograd may keep while the bank goes on."""

    def __init__(self, bank: ClassBank) -> None:
        self.num_classes, self.dim, self._bank = bank.num_classes, bank.dim, bank

    def classes(self) -> Classes:
        return Classes(*(tensor.clone() for tensor in self._bank.classes()))


class Again:
    """The rows of a fused loss once more, in operations that can be differentiated, as long as the bank has not changed."""

    def __init__(self, loss: BankLoss, labels: torch.Tensor, touched: Touched | None) -> None:
        self.loss, self.labels, self.touched = loss, labels, touched
        self.gone = loss.score == "before-update" and loss.training
        self.versions = (version(loss.bank.sums), version(loss.bank.counts))

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        bank = self.loss.bank
        if self.gone:
            raise RuntimeError("a second derivative is not available with score='before-update': the states the views saw are gone")
        if (version(bank.sums), version(bank.counts)) != self.versions:
            raise RuntimeError("the class bank was updated between forward and a backward with create_graph=True: call backward first")
        if self.touched is None:
            states = [bank.current()] * len(views)
        else:
            full = every_state(bank.current(), self.touched)
            states = [Classes(*(tensor[v] for tensor in full)) for v in range(len(views))]
        pairs = zip(self.loss.scaled(views), states, strict=True)
        return torch.stack([self.loss._plain_rows(view, self.labels, state, view.dtype) for view, state in pairs])
