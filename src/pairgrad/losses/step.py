"""One step of a loss with a class bank, and the strategy that decides which processes take part in it."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import distributed
from torch.nn import functional

from pairgrad.ground._torch_private import is_functorch_wrapped_tensor, version
from pairgrad.losses.fused.autograd import attached, is_transformed
from pairgrad.losses.fused.plan import Plan, sizes, streams
from pairgrad.losses.fused.triton import say
from pairgrad.losses.fused.views import every_state, of_unit_length
from pairgrad.losses.options import Options
from pairgrad.losses.reduction import reduce
from pairgrad.losses.scores import plain_scores
from pairgrad.sphere.bank import ClassBank, Touched, Updating
from pairgrad.sphere.state import Classes

_UNIT_BOUND = 1.001  # on the length of features that were normalised, with room for half precision


@dataclass(frozen=True, eq=False)
class Step:
    """What a loss with a bank hands to its strategy: a batch that was checked, and everything that says what its loss is.

    Args:
        options: how scores and losses are computed.
        bank: the class bank.
        views: (V, B, p), before normalisation, in the dtype of the bank or, where the execution takes that, in half precision.
        labels: (B,).
        log_prior: of the classes that the bank holds, or None.
        spread: largest minus smallest finite log prior of all classes.
        normalize: scale the views to unit length.
        order: `"after-update"`, `"before-update"` or `"no-update"`: when the bank learns a view.
        reduction: `"mean"`, `"sum"` or `"none"`.
        further: rows of another term of the objective, whose mean over all processes `Strategy.share_of_mean` will be asked for; None: no such term.
    """

    options: Options
    bank: ClassBank
    views: torch.Tensor
    labels: torch.Tensor
    log_prior: torch.Tensor | None
    spread: float
    normalize: bool
    order: str
    reduction: str
    further: int | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Of scores and losses."""
        return self.bank.sums.dtype if self.options.geometry_dtype is None else self.options.geometry_dtype

    @property
    def plain(self) -> bool:
        """Whether the scores of all classes are formed, instead of the fused pass."""
        return self.options.plain(self.dtype) or self.dtype != self.bank.sums.dtype

    @property
    def wants_gradient(self) -> bool:
        """Whether anything will be differentiated by the views."""
        return self.views.requires_grad and torch.is_grad_enabled()

    def unit(self, views: torch.Tensor) -> torch.Tensor:
        """Views as they are scored, differentiable."""
        views = views.to(self.bank.sums.dtype)  # an execution may have asked for them as they were
        return of_unit_length(views) if self.normalize else views

    def plan(self, views: torch.Tensor, *, gradient: bool, extra_spread: float = 0.0, whole: bool = True) -> Plan:
        """For a fused pass of views over the classes of the bank.

        Args:
            extra_spread: of the log prior, beyond its own.
            whole: the pass may be compiled as one; else it is compiled tile by tile or not at all.
        """
        rows, num_classes = views.shape[0] * views.shape[1], self.bank.num_classes
        compiled = self.options.execution.compiled or torch.compiler.is_compiling()
        return self.options.plan(
            self.bank.sums.dtype,
            views.device,
            rows=rows,
            num_classes=num_classes,
            longest=_UNIT_BOUND if self.normalize else self.options.longest(views, None),
            spread=self.spread + extra_spread,
            gradient=gradient,
            compiled=compiled and (whole or streams(rows, num_classes, sizes(views.device))),
            tangential=self.normalize,
        )

    def plain_rows(self, view: torch.Tensor, labels: torch.Tensor, classes: Classes) -> torch.Tensor:
        """Loss of each row of a view as it is scored, from the scores of all classes."""
        return functional.cross_entropy(self.logits(view, classes), labels, reduction="none")

    def logits(self, view: torch.Tensor, classes: Classes) -> torch.Tensor:
        """Scores (B, K) of a view, with the log prior."""
        logits = plain_scores(view, classes, self.options, self.dtype)
        return logits if self.log_prior is None else logits + self.log_prior.to(self.dtype)

    def loss(self) -> torch.Tensor:
        """The loss of this process alone."""
        if self.plain or is_transformed(self.views):
            if self.options.execution.half:
                say(
                    "execution='triton': the scores of all classes are formed, as geometry='expanded', scalar_dtype and torch.func need them"
                )
            with self.bank.updating() as state:
                return reduce(torch.stack([self._plain_row(state, view) for view in self.unit(self.views)]), self.reduction)
        plan = self.plan(self.views, gradient=self.wants_gradient)
        if self.options.execution.half and self.reduction == "mean" and not torch.compiler.is_compiling():
            plan = replace(plan, share=1 / max(self.views.shape[:2].numel(), 1))
        with torch.no_grad(), self.bank.updating() as state:
            result, touched = self.options.execution.of_views(plan, state, self.views.detach(), self.labels, self.log_prior, self.order)
        again = Again(self, self.labels, touched)
        return attached(result.loss, result.gradient, self.views, again=again, reduction=self.reduction, share=result.share)

    def _plain_row(self, state: Updating, view: torch.Tensor) -> torch.Tensor:
        """In operations that autograd records, with a copy of the class rows."""
        if self.order == "after-update":
            state.absorb(view.detach()[None], self.labels)
        known = Classes(*(tensor.clone() for tensor in state.classes()))
        if self.order == "before-update":
            state.absorb(view.detach()[None], self.labels)
        return self.plain_rows(view, self.labels, known)


class Again:
    """The rows of a fused step once more, in operations that can be differentiated, as long as the bank has not changed."""

    def __init__(self, step: Step, labels: torch.Tensor, touched: Touched | None) -> None:
        self.step, self.labels, self.touched = step, labels, touched
        self.versions = None if torch.compiler.is_compiling() else _versions(step.bank)

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        step = self.step
        if step.order == "before-update":
            raise RuntimeError("a second derivative is not available with score='before-update': the states the views saw are gone")
        if _versions(step.bank) != self.versions:
            raise RuntimeError("the class bank was updated between forward and a backward with create_graph=True: call backward first")
        final = Updating(step.bank).classes()
        if self.touched is None:
            states = [final] * len(features)
        else:
            full = every_state(final, self.touched)
            states = [Classes(*(tensor[v] for tensor in full)) for v in range(len(features))]
        pairs = zip(step.unit(features), states, strict=True)
        return torch.stack([step.plain_rows(view, self.labels, state) for view, state in pairs])


def _versions(bank: ClassBank) -> tuple[int, int]:
    return version(bank.sums), version(bank.counts)


class Strategy(Protocol):
    """Which processes compute a loss with a bank together. A loss asks its strategy and knows nothing of other processes.

    Attributes:
        num_classes: of all processes.
        whole: whether every process has all classes.
    """

    num_classes: int
    whole: bool

    def checking(self) -> AbstractContextManager[None]:
        """Around the checks of arguments: processes that wait for this one learn of an error."""
        ...

    def loss(self, step: Step) -> torch.Tensor:
        """The loss of this process's samples, from the batch of all; the bank learns as `step.order` says."""
        ...

    def share_of_mean(self, mean: torch.Tensor, size: int, rows: str) -> torch.Tensor:
        """A mean over `size` rows of this process as its share of the mean over those of all.

        Args:
            rows: `"samples"` of the last step, its `"further"` rows, or `"others"`, which are counted now.
        """
        ...

    def set_prior(self, log_prior: torch.Tensor) -> torch.Tensor:
        """Take note of the log prior of all classes; returns that of the classes held here."""
        ...


class OneProcess:
    """The strategy of a loss that was not distributed."""

    whole = True

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._looked = False  # whether there are other processes

    def checking(self) -> AbstractContextManager[None]:
        return nullcontext()

    def loss(self, step: Step) -> torch.Tensor:
        if step.order != "no-update" and not torch.compiler.is_compiling():
            if is_functorch_wrapped_tensor(step.views):
                raise RuntimeError(
                    "inside torch.func a loss cannot update its bank: call loss.eval() first, and loss.bank.update(features, labels) outside"
                )
            self._look_for_others()
        return step.loss()

    def share_of_mean(self, mean: torch.Tensor, size: int, rows: str) -> torch.Tensor:
        return mean

    def set_prior(self, log_prior: torch.Tensor) -> torch.Tensor:
        return log_prior

    def _look_for_others(self) -> None:
        """Warn, once, where several processes train and each keeps class statistics of its own samples."""
        if self._looked:
            return
        self._looked = True
        processes = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
        if processes > 1:
            warnings.warn(
                f"{processes} processes train, and this loss keeps the class statistics of one: call pairgrad.distributed.distribute(loss) first, so that "
                "each class learns from the samples of all of them (every process sees all samples already? Then ignore this)",
                stacklevel=7,
            )
