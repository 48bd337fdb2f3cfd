"""The strategy of a loss on several ranks: what one process with the samples of all of them would compute."""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from pairgrad.distributed.bank import DistributedClassBank
from pairgrad.distributed.layout import Layout, shard
from pairgrad.distributed.meeting import SCORES, TRAINING, Samples
from pairgrad.distributed.scoring import Shard, combined, cross_entropy_of_shard, no_second_derivative, own_gradient
from pairgrad.ground.checks import describe
from pairgrad.losses.fused.autograd import attached, is_transformed
from pairgrad.losses.fused.plan import Plan
from pairgrad.losses.fused.tiles import Label, Result, Sums
from pairgrad.losses.fused.triton import say
from pairgrad.losses.fused.views import joined, lengths_of
from pairgrad.losses.step import Again, Step
from pairgrad.sphere.bank import Touched, Updating
from pairgrad.sphere.state import Classes

Rows = Callable[[torch.Tensor], torch.Tensor]  # of a loss, from the views, in operations that can be differentiated
PRIOR = "class_counts (by a checksum of the log prior)"


class Ranks:
    """`pairgrad.losses.Strategy` of ranks that share the samples, the classes, or both.

    Args:
        bank: the bank of the loss, with the classes held here.
        averaged: gradients will be averaged over the ranks; False: summed.
        sample: how many classes of a rank, or which share of them, are scored in training; None: all.

    Attributes:
        layout: who has which classes and samples; its `data` and `classes` count the collectives.
        num_classes: of all ranks.
        whole: whether every rank holds all of them.
        sample: how many classes are drawn from those held here; None: all count.
    """

    def __init__(self, bank: DistributedClassBank, *, averaged: bool = True, sample: int | float | None = None) -> None:
        self.bank, self.layout = bank, bank.layout
        self.num_classes, self.whole = self.layout.num_classes, self.layout.classes.size == 1
        self.averaged = bool(averaged)
        self.sample = number_of_classes(sample, bank.num_classes)
        self._alone = self.layout.ranks == 1 and self.sample is None
        self._stretch = _longest_stretch(sample, self.layout)
        self._highest = 0.0
        self._total = 0  # samples of all ranks in the last step

    def set_prior(self, log_prior: torch.Tensor) -> torch.Tensor:
        self.layout.agree("prior", {PRIOR: checksum(log_prior)}, self.bank.sums.device)
        finite = log_prior[torch.isfinite(log_prior)]
        self._highest = float(finite.max())
        return log_prior[self.layout.first : self.layout.last].clone()

    def checking(self) -> AbstractContextManager[None]:
        return self.bank.meeting.refusing(self.bank.sums.device)

    def loss(self, step: Step) -> torch.Tensor:
        if self._alone:
            return step.loss()
        if torch.compiler.is_compiling():  # torch.compile leaves a graph here and resumes without one; with fullgraph=True it says this
            raise RuntimeError(
                "a loss on several ranks reads on the host what they tell each other: call it outside of the compiled region"
            )
        bank, views = self.bank, step.views.to(self.bank.sums.dtype)
        with self.checking():
            if step.order != "no-update":
                bank.check_undisturbed()
            if is_transformed(views):
                raise RuntimeError(
                    "torch.func and forward-mode differentiation are not available for a loss on several ranks, or with sampled classes: use backward"
                )
        with bank.meeting.bringing(step.further), bank.updating() as state:
            samples = bank.meeting.together(
                step.unit(views).detach(),
                step.labels,
                gradient=step.wants_gradient,
                asked=SCORES if step.order == "no-update" else TRAINING,
            )
            evaluate = self._plain if step.plain else self._fused
            result, again, self._total = evaluate(step, state, samples)
        own = slice(samples.first, samples.first + len(step.labels))
        gradient = result.gradient
        if gradient is not None:
            gradient = own_gradient(self.layout, samples, gradient)
            if step.normalize:
                lengths = lengths_of(views.detach())
                direction = views.detach() / lengths
                gradient = (gradient - direction * (gradient * direction).sum(-1, keepdim=True)) / lengths
        if not self.whole or self.sample is not None:
            again = no_second_derivative
        if not step.wants_gradient:
            gradient = None
        if step.reduction != "mean":
            return attached(result.loss[:, own], gradient, views, again=again, reduction=step.reduction)
        total = attached(result.loss[:, own], gradient, views, again=again, reduction="sum")
        return total * self._share(len(views) * self._total)

    def share_of_mean(self, mean: torch.Tensor, size: int, rows: str) -> torch.Tensor:
        if self._alone:
            return mean
        if rows == "others":
            total = self.bank.meeting.count(size, self.bank.sums.device)
        else:
            total = self._total if rows == "samples" else self.bank.meeting.further_total
        return mean * (size * self._share(total))

    def _share(self, rows: int) -> float:
        """What the sum over a rank's rows is multiplied with, where all ranks have this many."""
        copies = self.layout.classes.size if self.layout.inputs == "replicated" else 1
        return (self.layout.ranks if self.averaged else 1) / (max(rows, 1) * copies)

    def _fused(self, step: Step, state: Updating, samples: Samples) -> tuple[Result, Rows, int]:
        views, labels, training = samples.views, samples.labels, step.order != "no-update"
        sampled = self.sample if training else None
        extra = math.log(self._stretch) if training else 0.0  # the same on all ranks, as what depends on it must be
        plan = step.plan(views, gradient=samples.gradient, extra_spread=extra, whole=False)

        def rows(views: torch.Tensor, touched: Touched | None) -> Result:
            return self._rows(step, state, plan, views, labels, touched, sampled, extra)

        with torch.no_grad():
            if not training:
                result = rows(views, None)
                return result, Again(step, labels, None), self.bank.meeting.total(len(views), len(labels), labels.device)
            if step.order == "before-update":
                total, results = 0, []
                for view in views:
                    results.append(rows(view[None], None))
                    _, total = self._update(state, view[None], labels, len(views))
                return joined(results), Again(step, labels, None), total
            touched, total = self._update(state, views, labels, len(views))
            seen = touched if touched is not None and len(touched.labels) and (len(views) > 1 or sampled is not None) else None
            return rows(views, seen), Again(step, labels, touched if len(views) > 1 else None), total

    def _update(self, state: Updating, views: torch.Tensor, labels: torch.Tensor, number: int) -> tuple[Touched | None, int]:
        """Take the batches of all ranks, or some of their `number` views, into the bank, or hold them back."""
        found = self.bank.exchanged(views, labels, number)
        if found.batch is None:
            return None, found.total
        return state.absorb_batch(found.batch)._replace(samples=found.entries), found.total

    def _rows(
        self,
        step: Step,
        state: Updating,
        plan: Plan,
        views: torch.Tensor,
        labels: torch.Tensor,
        touched: Touched | None,
        sampled: int | None,
        extra: float,
    ) -> Result:
        classes = state.classes()
        if self.whole and sampled is None:
            return step.options.execution.of_seen(plan, views, labels, classes, touched, step.log_prior)
        if step.options.execution.half:
            say("execution='triton': ranks that hold a part of the classes, or draw some of them, score operation by operation")
        held = Shard(classes, step.log_prior, views.new_full((), self._highest + extra), touched)
        return cross_entropy_of_shard(plan, self.layout.classes, views, labels - self.layout.first, held, sampled)

    def _plain(self, step: Step, state: Updating, samples: Samples) -> tuple[Result, Rows, int]:
        """View by view from the scores of all classes held here, in the arithmetic that the loss asks for."""
        if self._stretch > 1:
            raise ValueError("sample needs the fused pass: leave geometry='factorised' and scalar_dtype, or geometry_dtype, as they are")
        total, results, states, number = 0, [], [], len(samples.views)
        for view in samples.views:
            if step.order == "after-update":
                _, total = self._update(state, view[None], samples.labels, number)
            known = Classes(*(tensor.clone() for tensor in state.classes()))
            results.append(self._plain_rows(step, view, samples, known))
            if self.whole:  # else there is no second derivative
                states.append(known)
            if step.order == "before-update":
                _, total = self._update(state, view[None], samples.labels, number)
        if step.order == "no-update":
            total = self.bank.meeting.total(number, len(samples.labels), samples.labels.device)
        losses, gradients = zip(*results, strict=True)
        gradient = torch.stack(gradients) if samples.gradient else None

        def again(views: torch.Tensor) -> torch.Tensor:
            pairs = zip(step.unit(views), states, strict=True)
            return torch.stack([step.plain_rows(view, samples.labels, known).to(view.dtype) for view, known in pairs])

        return Result(torch.stack(losses), gradient, torch.stack(losses)), again, total

    def _plain_rows(self, step: Step, view: torch.Tensor, samples: Samples, known: Classes) -> tuple[torch.Tensor, torch.Tensor | None]:
        view = view.detach().requires_grad_(samples.gradient)
        with torch.enable_grad() if samples.gradient else torch.no_grad():
            logits = step.logits(view, known)
        places = samples.labels - self.layout.first
        values = logits.detach()
        own_class = places[:, None] == torch.arange(values.shape[1], device=values.device)
        label = torch.where(own_class, values, 0.0).sum(1)
        others = values.masked_fill(own_class, -torch.inf)
        top = others.amax(1).clamp_min(torch.finfo(values.dtype).min / 2)
        sums = Sums(top[None, :, None], torch.exp(others - top[:, None]).sum(1)[None], None, None)
        nothing = Label(label[None], label[None], known)
        sums, nothing, _ = combined(self.layout.classes, sums, nothing, fixed=False)
        odds = (sums.total.log() + (sums.top.squeeze(-1) - nothing.logit))[0]  # log of (1 - p_y) / p_y
        rows = torch.logaddexp(torch.zeros_like(odds), odds)
        if not samples.gradient:
            return rows, None
        # (1 - p_y) times the share of a class among the others: no number here has the rounding of the logits
        missed, total = torch.sigmoid(odds), sums.total[0]
        factor = torch.where(total > 0, missed / total, 0.0)
        derivative = torch.exp(others - sums.top[0]) * factor[:, None]
        derivative = torch.where(own_class, -missed[:, None], derivative)
        (gradient,) = torch.autograd.grad(logits, view, derivative)
        return rows, gradient

    def __deepcopy__(self, memo: dict[int, Any]) -> Ranks:
        new = Ranks.__new__(Ranks)
        memo[id(self)] = new
        new.__dict__ = {key: value if key == "layout" else copy.deepcopy(value, memo) for key, value in self.__dict__.items()}
        return new


def checksum(prior: torch.Tensor) -> int:
    """Of the numbers of a log prior, for ranks to compare."""
    return zlib.crc32(prior.cpu().numpy().tobytes())


def _longest_stretch(sample: int | float | None, layout: Layout) -> float:
    """The most classes that a drawn one stands for, on any rank; 1 where all are scored."""
    shards = (shard(layout.num_classes, layout.classes.size, rank) for rank in range(layout.classes.size))
    return max(held / (number_of_classes(sample, held) or held) for held in (last - first for first, last in shards))


def number_of_classes(sample: int | float | None, held: int) -> int | None:
    """How many of the classes held by a rank are scored; None: all."""
    if sample is None:
        return None
    if isinstance(sample, bool) or not isinstance(sample, (int, float)) or not sample > 0 or (isinstance(sample, float) and sample > 1):
        raise ValueError(
            f"sample must be a number of classes per rank (an integer >= 1), a share of them (a number up to 1), or None, got {describe(sample)}"
        )
    number = sample if isinstance(sample, int) else math.ceil(sample * held)
    return None if number >= held else number
