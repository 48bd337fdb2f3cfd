"""Losses with a class bank on several ranks: [`distribute`][pairgrad.distributed.distribute] turns one that was written for a single process into one."""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from pairgrad.distributed.bank import DistributedClassBank
from pairgrad.distributed.communicator import Group
from pairgrad.distributed.layout import Layout, shard
from pairgrad.distributed.meeting import SCORES, TRAINING, Samples
from pairgrad.distributed.scoring import Shard, combined, cross_entropy_of_shard, no_second_derivative, own_gradient
from pairgrad.ground.checks import describe
from pairgrad.losses.bank_loss import Again, BankLoss, Views
from pairgrad.losses.cross_entropy import given, is_transformed
from pairgrad.losses.fused import Label, Plan, Result, Sums
from pairgrad.losses.patt import PATTLoss
from pairgrad.losses.scores import full_precision, plain_scores
from pairgrad.losses.views import cross_entropy_after, cross_entropy_of_batch
from pairgrad.sphere.bank import ClassBank, Touched
from pairgrad.sphere.inputs import checked_batch
from pairgrad.sphere.state import Classes

Module = TypeVar("Module", bound=nn.Module)
Differentiable = Callable[[torch.Tensor], torch.Tensor]  # the rows of a loss once more, in operations that can be differentiated
_EVERYONE = "everyone"
_PRIOR = "class_counts (by a checksum of the log prior)"


def distribute(
    module: Module,
    *,
    data: Group = _EVERYONE,
    classes: Group = None,
    inputs: str = "sharded",
    exchange: str = "auto",
    static: bool = False,
    averaged: bool = True,
    sample: int | float | None = None,
    seed: int | None = None,
    device: Any = None,
) -> Module:
    r"""Let a loss with a class bank run on several ranks, as one process with all their samples would; `module` itself is changed and returned.

    Losses and gradients are those of the whole batch, banks have the same bits on all ranks that hold the same classes, and local batches may have any size,
    0 included. Every forward is a collective: all ranks call it, as often as each other. Without a process group nothing changes.

        loss = pg.distributed.distribute(pg.ProCoLoss(num_classes=1000, dim=128))                            # every rank has all classes
        loss = pg.distributed.distribute(pg.ProCoLoss(10**6, 128), data=None, classes=dist.group.WORLD)      # classes shared out
        mesh = init_device_mesh("cuda", (8, 4), mesh_dim_names=("data", "classes"))                          # both
        loss = pg.distributed.distribute(pg.ProCoLoss(10**7, 512, device="meta"), data=mesh["data"], classes=mesh["classes"], device="cuda")

    Args:
        module: a `ProCoLoss`, a `PATTLoss`, a [`BankLoss`][pairgrad.losses.BankLoss], or a module that has some. A bank on the device `"meta"` is made here,
            with the classes that this rank holds and no others; one that exists is shared out, and comes from the first rank where several hold it.
        data: the ranks that hold the same classes and see different samples: a process group, a mesh with one dimension, or None; by default all ranks, if
            `classes` is None.
        classes: the ranks that share the classes out, likewise.
        inputs: `"sharded"`: the ranks of `classes` bring different samples; `"replicated"`: the same.
        exchange: how ranks that hold the same classes bring their banks up to date: `"gather"`, `"reduce"`, or `"auto"`, the cheaper one
            ([`DistributedClassBank`][pairgrad.distributed.DistributedClassBank]).
        static: batch sizes never change, so that they need not be exchanged at every step, which waits for the device.
        averaged: gradients will be averaged over all ranks, as `DistributedDataParallel` and FSDP do: `reduction="mean"` then gives every rank a loss whose
            *mean over the ranks* is the loss of the whole batch. False: they will be summed, and so the losses.
        sample: in training, score this many classes of a rank (an integer), or this share of them (a number below 1), drawn anew at every step, besides those
            of the batch: partial softmax [an2021partial]. The normaliser is then estimated, without bias; its logarithm, and so the loss, is too small on
            average.
        seed: of the initial directions of unseen classes of a bank that is made here; None: agreed on.
        device: of the banks that are made here; None: where the module's are, or the CPU.

    Returns:
        The module.
    """
    if isinstance(data, str) and data == _EVERYONE:
        there = dist.is_available() and dist.is_initialized()
        data = dist.group.WORLD if classes is None and there else None
    losses = [part for part in module.modules() if isinstance(part, BankLoss)] if isinstance(module, nn.Module) else []
    if not losses:
        raise TypeError(f"module must be a loss with a class bank, or contain one, got {describe(module)}: e.g. pairgrad.ProCoLoss(...)")
    for loss in losses:
        if loss.team is not None:
            raise ValueError("module is distributed already: distribute a new one, or a copy from before")
        layout = Layout(loss.bank.num_classes, data=data, classes=classes, inputs=inputs)
        imagined = loss.bank.sums.device.type == "meta"
        place = torch.zeros(0, device=device if device is not None else "cpu" if imagined else loss.bank.sums.device).device
        with layout.beginning("settings", place):
            _number_of(sample, layout.rows)
            bank = _shared_out(
                loss.bank, layout, exchange=exchange, static=static, seed=seed, device=place, facts=_options_of(loss, averaged, sample)
            )
        team = Team(bank, averaged=averaged, sample=sample)
        prior = loss.log_prior
        loss.bank = bank
        loss.team = team
        loss._plans.clear()
        if imagined:
            loss.without_prior()
            if loss.class_counts is not None:
                loss.set_prior(loss.class_counts)
        elif prior is not None:
            team.set_prior(prior)
            loss.log_prior = team.part(prior).to(bank.sums.device)
    for part in module.modules():
        if isinstance(part, PATTLoss) and part.class_counts is not None:
            part.set_prior(part.class_counts)
    if any(tensor.device.type == "meta" for tensor in [*module.parameters(), *module.buffers()]):
        raise ValueError("a part of the module other than its bank is on the device 'meta': make that part on a real device")
    return module


def _shared_out(
    bank: ClassBank, layout: Layout, *, exchange: str, static: bool, seed: int | None, device: torch.device, facts: dict[str, Any]
) -> DistributedClassBank:
    """The rows of a bank that belong here; of one on the device "meta", new ones."""
    empty = bank.sums.device.type == "meta"
    new = DistributedClassBank(
        layout,
        bank.dim,
        exchange=exchange,
        static=static,
        seed=seed,
        facts=facts,
        estimator=bank.rule.estimator,
        cap=bank.rule.cap,
        on_resultant_above_one=bank.on_resultant_above_one,
        unseen=bank.unseen if empty else "uniform",  # nothing is drawn that would be overwritten
        small_samples=bank.rule.small_samples,
        decay=bank.decay,
        memory=bank.memory,
        validate=bank.validate,
        device=device,
        dtype=bank.sums.dtype,
    )
    new.unseen = bank.unseen
    new.train(bank.training)
    if not empty:
        with torch.no_grad():
            for name in bank.state_dict():
                own = getattr(new, name)
                own.copy_(getattr(bank, name)[layout.first : layout.last])
                layout.data.of_first("bank", own)
        new._versions = None
        new.refresh()
    return new


class Team:
    """What a [`BankLoss`][pairgrad.losses.BankLoss] asks instead of computing alone.

    Attributes:
        layout: who has which classes and samples; its `data` and `classes` count the collectives.
        num_classes: of all ranks.
        whole: whether every rank holds all of them.
        alone: whether there is one rank, and nothing to do that it would not do without a team.
        sample: how many classes are drawn from those held here; None: all count.
    """

    def __init__(self, bank: DistributedClassBank, *, averaged: bool = True, sample: int | float | None = None) -> None:
        self.bank, self.layout = bank, bank.layout
        self.num_classes, self.whole = self.layout.num_classes, self.layout.classes.size == 1
        self.averaged = bool(averaged)
        self.sample = _number_of(sample, bank.num_classes)
        self.alone = self.layout.ranks == 1 and self.sample is None
        self._stretch = _longest_stretch(sample, self.layout)
        self._highest = 0.0
        self._total = 0  # samples of all ranks in the last forward

    def set_prior(self, log_prior: torch.Tensor) -> None:
        """Note what ranks must know of the log prior of all classes."""
        self.layout.agree("prior", {_PRIOR: _checksum(log_prior)}, self.bank.sums.device)
        finite = log_prior[torch.isfinite(log_prior)]
        self._highest = float(finite.max())

    def part(self, log_prior: torch.Tensor) -> torch.Tensor:
        """That of the classes held here."""
        return log_prior[self.layout.first : self.layout.last].clone()

    def refusing(self) -> AbstractContextManager[None]:
        """Where this rank checks more than the loss does, so that the others hear of it if it refuses."""
        return self.bank.meeting.refusing(self.bank.sums.device)

    def loss(self, loss: BankLoss, features: Views, labels: torch.Tensor, reduction: str, further: int | None = None) -> torch.Tensor:
        """What `BankLoss` returns, for the samples of this rank, from the batch of all.

        Args:
            further: rows of another term of the objective, whose number in all ranks `share_of_mean` will want to know; None: it has no such term.
        """
        if torch.compiler.is_compiling():  # torch.compile leaves a graph here and goes on without one; with fullgraph=True it says this
            raise RuntimeError(
                "a loss on several ranks reads on the host what they tell each other: call it outside of the compiled region"
            )
        bank = self.bank
        with bank.meeting.refusing(bank.sums.device):
            if loss.training:
                bank.check_undisturbed()
            views, labels = checked_batch(loss._views(features), labels, self.num_classes, bank.dim, bank.sums, validate=bank.validate)
            if is_transformed(views):
                raise RuntimeError(
                    "torch.func and forward-mode differentiation are not available for a loss on several ranks, or with sampled classes: use backward"
                )
        with bank.meeting.bringing(further), full_precision(views.device.type):
            views = views.to(bank.sums.dtype)
            bank.refresh()
            unit = loss.scaled(views)
            samples = bank.meeting.together(
                unit.detach(),
                labels,
                gradient=views.requires_grad and torch.is_grad_enabled(),
                asked=TRAINING if loss.training else SCORES,
            )
            dtype = bank.sums.dtype if loss.geometry_dtype is None else loss.geometry_dtype
            evaluate = self._plain if loss._plain_only(dtype) else self._fused
            result, again, self._total = evaluate(loss, samples, dtype)
            bank.settle()
            own = slice(samples.first, samples.first + len(labels))
            gradient = result.gradient
            if gradient is not None:
                gradient = own_gradient(self.layout, samples, gradient)
                if loss.normalize:
                    lengths = loss.lengths(views.detach())
                    direction = views.detach() / lengths
                    gradient = (gradient - direction * (gradient * direction).sum(-1, keepdim=True)) / lengths
            rows = result.loss[:, own]
            if not self.whole or self.sample is not None:
                again = no_second_derivative
            if not (views.requires_grad and torch.is_grad_enabled()):
                gradient = None
            if reduction != "mean":
                return given(views, rows, gradient, again, reduction)
            return given(views, rows, gradient, again, "sum") * self._share(len(views) * self._total)

    def share_of_mean(self, mean: torch.Tensor, size: int, rows: str) -> torch.Tensor:
        """A mean over `size` rows of this rank, so weighed that it adds up, or averages, to the mean over all ranks.

        Args:
            rows: `"samples"` of the last forward, its `"further"` rows, or `"others"`, which are counted now.
        """
        if rows == "others":
            total = self.bank.meeting.count(size, self.bank.sums.device)
        else:
            total = self._total if rows == "samples" else self.bank.meeting.further_total
        return mean * (size * self._share(total))

    def _share(self, rows: int) -> float:
        """What the sum over a rank's rows is multiplied with, where all ranks have this many."""
        copies = self.layout.classes.size if self.layout.inputs == "replicated" else 1
        return (self.layout.ranks if self.averaged else 1) / (max(rows, 1) * copies)

    def _fused(self, loss: BankLoss, samples: Samples, _dtype: torch.dtype) -> tuple[Result, Differentiable, int]:
        bank, views, labels = self.bank, samples.views, samples.labels
        sampled = self.sample if loss.training else None
        extra = math.log(self._stretch) if loss.training else 0.0  # the same on all ranks, as what depends on it must be
        plan = loss._plan(views, gradient=samples.gradient, extra_spread=extra)
        with torch.no_grad():
            if not loss.training:
                rows = self._rows(loss, plan, views, labels, None, None, extra)
                return rows, Again(loss, labels, None), bank.meeting.total(len(views), len(labels), labels.device)
            if loss.score == "before-update":
                total, results = 0, []
                for view in views:
                    results.append(self._rows(loss, plan, view[None], labels, None, sampled, extra))
                    _, total = self._update(view[None], labels, len(views))
                losses, gradients, normalisers = zip(*results, strict=True)
                result = Result(torch.cat(losses), torch.cat(gradients) if plan.gradient else None, torch.cat(normalisers))
                return result, Again(loss, labels, None), total
            touched, total = self._update(views, labels, len(views))
            seen = touched if touched is not None and len(touched.labels) and (len(views) > 1 or sampled is not None) else None
            rows = self._rows(loss, plan, views, labels, seen, sampled, extra)
            return rows, Again(loss, labels, touched if len(views) > 1 else None), total

    def _update(self, views: torch.Tensor, labels: torch.Tensor, number: int) -> tuple[Touched | None, int]:
        """Take the batches of all ranks, or some of their `number` views, into the bank, or hold them back."""
        found = self.bank.exchanged(views, labels, number)
        if found.batch is None:
            return None, found.total
        return self.bank.absorb_batch(found.batch)._replace(samples=found.entries), found.total

    def _rows(
        self,
        loss: BankLoss,
        plan: Plan,
        views: torch.Tensor,
        labels: torch.Tensor,
        touched: Touched | None,
        sampled: int | None,
        extra: float,
    ) -> Result:
        classes = self.bank.current()
        if self.layout.classes.size == 1 and sampled is None:
            if touched is None:
                return cross_entropy_of_batch(plan, views, labels, classes, loss.log_prior)
            return cross_entropy_after(plan, views, labels, classes, touched, loss.log_prior)
        held = Shard(classes, loss.log_prior, views.new_full((), self._highest + extra), touched)
        return cross_entropy_of_shard(plan, self.layout.classes, views, labels - self.layout.first, held, sampled)

    def _plain(self, loss: BankLoss, samples: Samples, dtype: torch.dtype) -> tuple[Result, Differentiable, int]:
        """View by view from the scores of all classes held here, in the arithmetic that the loss asks for."""
        if self._stretch > 1:
            raise ValueError("sample needs the fused pass: leave geometry='factorised' and scalar_dtype, or geometry_dtype, as they are")
        total, results, states = 0, [], []
        for view in samples.views:
            if loss.training and loss.score == "after-update":
                _, total = self._update(view[None], samples.labels, len(samples.views))
            known = Classes(*(tensor.clone() for tensor in self.bank.current()))
            results.append(self._plain_rows(loss, view, samples, known, dtype))
            if self.whole:  # else there is no second derivative
                states.append(known)
            if loss.training and loss.score == "before-update":
                _, total = self._update(view[None], samples.labels, len(samples.views))
        if not loss.training:
            total = self.bank.meeting.total(len(samples.views), len(samples.labels), samples.labels.device)
        losses, gradients = zip(*results, strict=True)
        gradient = torch.stack(gradients) if samples.gradient else None

        def again(views: torch.Tensor) -> torch.Tensor:
            pairs = zip(loss.scaled(views), states, strict=True)
            return torch.stack([loss._plain_rows(view, samples.labels, known, dtype).to(view.dtype) for view, known in pairs])

        return Result(torch.stack(losses), gradient, torch.stack(losses)), again, total

    def _plain_rows(
        self, loss: BankLoss, view: torch.Tensor, samples: Samples, known: Classes, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        view = view.detach().requires_grad_(samples.gradient)
        with torch.enable_grad() if samples.gradient else torch.no_grad():
            logits = plain_scores(view, known, loss.temperature, loss.potential, loss.geometry, dtype, loss.scalar_dtype)
            if loss.log_prior is not None:
                logits = logits + loss.log_prior.to(dtype)
        places = samples.labels - self.layout.first
        values = logits.detach()
        own_class = places[:, None] == torch.arange(values.shape[1], device=values.device)
        label = torch.where(own_class, values, 0.0).sum(1)
        others = values.masked_fill(own_class, -torch.inf)
        top = others.amax(1).clamp_min(torch.finfo(dtype).min / 2)
        sums = Sums(top[None, :, None], torch.exp(others - top[:, None]).sum(1)[None], None, None)
        nothing = Label(label[None], label[None], known)
        plan = loss._plan(samples.views, gradient=False).without_fixed_top()
        sums, nothing, _ = combined(self.layout.classes, plan, sums, nothing)
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Team:
        new = Team.__new__(Team)
        memo[id(self)] = new
        new.__dict__ = {key: value if key == "layout" else copy.deepcopy(value, memo) for key, value in self.__dict__.items()}
        return new


def _options_of(loss: BankLoss, averaged: bool, sample: int | float | None) -> dict[str, Any]:
    """What ranks must have in common besides what a bank is made with."""
    prior, imagined = loss.log_prior, loss.bank.sums.device.type == "meta"
    return {
        "whether the loss is on the device 'meta'": imagined,
        "unseen": loss.bank.unseen,
        "temperature": loss.temperature,
        "realization": loss.potential.realization,
        "normalize": loss.normalize,
        "score": loss.score,
        "geometry": loss.geometry,
        "geometry_dtype": loss.geometry_dtype,
        "scalar_dtype": loss.scalar_dtype,
        "averaged": bool(averaged),
        "sample": sample,
        _PRIOR: None if prior is None or imagined else _checksum(prior),
    }


def _checksum(prior: torch.Tensor) -> int:
    return zlib.crc32(prior.cpu().numpy().tobytes())


def _longest_stretch(sample: int | float | None, layout: Layout) -> float:
    """The most classes that a drawn one stands for, on any rank; 1 where all are scored."""
    shards = (shard(layout.num_classes, layout.classes.size, rank) for rank in range(layout.classes.size))
    return max(held / (_number_of(sample, held) or held) for held in (last - first for first, last in shards))


def _number_of(sample: int | float | None, held: int) -> int | None:
    if sample is None:
        return None
    if isinstance(sample, bool) or not isinstance(sample, (int, float)) or not sample > 0 or (isinstance(sample, float) and sample > 1):
        raise ValueError(
            f"sample must be a number of classes per rank (an integer >= 1), a share of them (a number up to 1), or None, got {describe(sample)}"
        )
    number = sample if isinstance(sample, int) else math.ceil(sample * held)
    return None if number >= held else number
