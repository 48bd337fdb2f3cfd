r"""The class bank of several ranks: each holds the classes of its shard, with the same bits as every other rank that holds them.

A batch reaches the bank in two steps. The ranks that shard the classes show each other their samples, so that each can take those of its own classes; then
the ranks that hold the same classes exchange what they found, summed by class: sums and counts of samples add up over ranks as they do over time
(prop. state-reduction). Two ways to exchange are known, and the cheaper is taken at every step:

| exchange | one rank hands in | cheap where |
|---|---|---|
| `"gather"` | the U rows of the classes that occur in its batch, in one packed buffer: U (V p s + 16) bytes | there are many more classes than samples |
| `"reduce"` | a row for every class: K (V p + 1) s bytes | there are more samples than classes |

With D ranks a ring sends D - 1 times the first, or 2 (D - 1) / D times the second, so `"auto"` gathers if D U (V p s + 16) <= 2 K (V p + 1) s, with the
largest U of the ranks. Either way every rank adds the same numbers in the same order, or is handed the sums of the others: the banks stay equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from pairgrad._version import __version__
from pairgrad.distributed.checkpoint import mesh_of, part, whole
from pairgrad.distributed.collectives import EXCHANGES, statistics_exchange
from pairgrad.distributed.layout import Layout
from pairgrad.distributed.meeting import UPDATE, Meeting, words_of
from pairgrad.distributed.watch import RankError
from pairgrad.ground.checks import describe, one_of
from pairgrad.ground.devices import has_values, host_or, widest
from pairgrad.sphere.bank import ClassBank, Updating
from pairgrad.sphere.inputs import checked_batch
from pairgrad.sphere.statistics import Batch, Statistics, gathered

_BLOCK = 4096  # rows that are looked at at once


class Exchanged(NamedTuple):
    """What all ranks that hold the same classes know of a batch."""

    batch: Batch | None  # None: it was held back
    entries: torch.Tensor | None  # (B,), where the samples scored here are in it; None: sample b is entry b
    total: int  # samples of all ranks


class DistributedClassBank(ClassBank):
    """A [`ClassBank`][pairgrad.ClassBank] whose updates take in the batches of all ranks; made by [`distribute`][pairgrad.distributed.distribute].

    `num_classes`, `counts`, `sums`, `concentration` and the like are about the classes held here, `layout.first` to `layout.last - 1` of
    `layout.num_classes`. Every update is a collective: all ranks call it, with batches of any size, empty ones included.

    Args:
        layout: who has what.
        bank: of all classes, whose options it takes, and the rows of the classes held here; one on the device `"meta"` has no rows, and they are made.
        exchange: `"gather"`, `"reduce"` or `"auto"`, the cheaper of the two (see above).
        static: batch sizes never change: they are compared at the first update and not asked for again, so that nothing waits for the device. Every sample is
            then a row of the exchange.
        seed: of the initial directions of unseen classes, equal on all ranks; None: agreed on. A class has the same direction in every layout.
        facts: further settings that the ranks compare before anything is drawn.
        device: of the buffers.
    """

    def __init__(
        self,
        layout: Layout,
        bank: ClassBank,
        *,
        exchange: str = "auto",
        static: bool = False,
        seed: int | None = None,
        facts: dict[str, Any] | None = None,
        device: Any = None,
    ) -> None:
        made = not has_values(bank.sums)  # else the rows exist
        device = host_or(bank.sums.device) if device is None else torch.device(device)
        for group in (layout.classes, layout.data):
            group.check_device(device)
        self.layout = layout  # before the buffers are made: drawing them asks for it
        self._held_back: list[tuple[torch.Tensor, ...]] | None = None
        self._kept: list[tuple[torch.Tensor, ...]] = []
        self._given_seed = seed
        self._generator: torch.Generator | None = None
        self.exchange = one_of("exchange", exchange, EXCHANGES)
        self._to_compare: dict[str, Any] | None = {"static": bool(static), "seed": seed, **(facts or {})}
        super().__init__(
            layout.rows,
            bank.dim,
            estimator=bank.rule.estimator,
            cap=bank.rule.cap,
            on_resultant_above_one=bank.on_resultant_above_one,
            unseen=bank.unseen if made else "uniform",  # nothing is drawn that would be overwritten
            small_samples=bank.rule.small_samples,
            decay=bank.decay,
            memory=bank.memory,
            validate=bank.validate,
            device=device,
            dtype=bank.sums.dtype,
        )
        self.unseen = bank.unseen
        self.train(bank.training)
        self.meeting = Meeting(layout, self.dim, self.sums.dtype, static=static)
        if layout.classes.size > 1:
            self._mesh = mesh_of(layout, self.sums.device.type)
            self.register_state_dict_post_hook(DistributedClassBank._saved)
        if not made:
            self._take(bank)

    @torch.no_grad()
    def _take(self, bank: ClassBank) -> None:
        """The rows of a bank of all classes that belong here; of the first rank, where several hold them."""
        for name in self._rows():
            own = getattr(self, name)
            own.copy_(getattr(bank, name)[self.layout.first : self.layout.last])
            self.layout.data.of_first("bank", own)
        self._versions = None
        self._refresh()

    def _facts(self) -> dict[str, Any]:
        return {
            "pairgrad": __version__,
            "torch": ".".join(torch.__version__.split(".")[:2]),
            **self.layout.facts(),
            "dim": self.dim,
            "dtype": str(self.sums.dtype),
            "estimator": self.rule.estimator,
            "cap": self.rule.cap,
            "small_samples": self.rule.small_samples,
            "on_resultant_above_one": self.on_resultant_above_one,
            "unseen": self.unseen,
            "memory": self.memory,
            "decay": self.decay,
            "exchange": self.exchange,
        }

    @property
    def whole(self) -> bool:
        """Whether all classes are held here."""
        return self.layout.classes.size == 1

    def update(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        """Add the labelled batches of all ranks, here features (B, p) and labels (B,) from 0 to `layout.num_classes` - 1.

        On an error nothing has changed, on any rank.
        """
        with self.meeting.refusing(self.sums.device):
            features, labels = checked_batch(features, labels, self.layout.num_classes, self.dim, self.sums, validate=self.validate)
            if features.dim() != 2:
                raise ValueError(f"features must have shape (batch, dim={self.dim}), got {describe(features)}")
        if self._held_back is not None and self.layout.data.size > 1:
            raise RuntimeError(
                "the bank holds back its updates inside no_sync(): update it outside, or score with a loss that was distributed"
            )
        with self.updating() as state:
            samples = self.meeting.together(features.detach().to(self.sums.dtype)[None], labels, gradient=False, asked=UPDATE)
            found = self.exchanged(samples.views, samples.labels)
            assert found.batch is not None
            state.absorb_batch(found.batch)

    @torch.no_grad()
    def exchanged(self, views: torch.Tensor, labels: torch.Tensor, number: int | None = None) -> Exchanged:
        """Views (V, B, p) of the samples of a class group, summed by class, with what the other ranks that hold the same classes have.

        Args:
            number: of the views of the batch, where they come one by one, so that ranks with more of them are found at the first; None: V.
        """
        number = len(views) if number is None else number
        places = labels - self.layout.first
        if self.layout.classes.size > 1:
            inside = (places >= 0) & (places < self.num_classes)
            views = torch.where(inside[:, None], self.summed(views), 0.0)
            batch = gathered(views, torch.where(inside, places, 0), inside.to(widest(inside.device)))
        else:
            batch = gathered(self.summed(views), places)
        if self.layout.data.size == 1:
            return Exchanged(batch, None, len(labels))
        if self._held_back is not None:
            total = self.meeting.total(number, len(labels), labels.device)
            self._held_back.append(_packed(batch.merged()))
            return Exchanged(None, None, total)
        self._release()
        return self._exchanged(batch, len(labels), number)

    def _exchanged(self, batch: Batch, size: int, number: int) -> Exchanged:
        place = torch.arange(len(batch.labels), device=batch.labels.device)
        own = (batch.slots == place) & (batch.multiplicity > 0)  # each class once
        kept = place if self.meeting.static else torch.nonzero(own).squeeze(1)
        sizes, total = self.meeting.sizes(number, size, len(kept), batch.labels.device)
        if self._gathers(len(batch.totals), max(sizes), batch.totals[0].dtype):
            return Exchanged(*self._gathered(batch, own, kept, sizes), total)
        return Exchanged(*self._reduced(batch, own), total)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, batches are held back on their rank: the bank stays as it is, and the next update outside takes them in first, in one exchange.

        For gradient accumulation with a slow network; all ranks must hold back alike. With one data-parallel rank there is nothing to hold back. What is held
        back counts as one occurrence of its classes (`decay`), is not part of `state_dict`, and belongs to the epoch in which it is taken in; `reset` and
        loading a state drop it.
        """
        if self._held_back is not None:  # inside another
            yield
            return
        self._held_back = []
        try:
            yield
        finally:
            self._kept.extend(self._held_back)
            self._held_back = None

    def check_undisturbed(self) -> None:
        """A ValueError if something else wrote to the rows since the last step, where ranks hold different ones.

        Loading a checkpoint and `.to` are known.
        """
        if self.layout.classes.size > 1 and self._versions is not None and self._versions != self._buffer_versions():
            raise ValueError(
                "something wrote to the class bank between two steps. DistributedDataParallel around a module that contains a loss whose classes are sharded "
                "does: it copies the buffers of rank 0 over those of the others. Wrap the network alone, or give it broadcast_buffers=False; to write rows "
                "on purpose, use load_state_dict"
            )

    @torch.no_grad()
    def compare_replicas(self) -> None:
        """A `RankError` that names the first rank whose bank is not that of the first replica, bit for bit; 8 bytes per rank and buffer.

        They stay equal by construction. Between the epochs of a long run this finds out about a defective device, or about code that wrote to one of them.
        """
        names = self._rows()
        marks = self.layout.data.headers("bits", [_mark(getattr(self, name)) for name in names], self.sums.device)
        for rank, row in zip(self.layout.data.ranks, marks, strict=True):
            for name, mine, first in zip(names, row, marks[0], strict=True):
                if mine != first:
                    raise RankError(
                        f"the replicas of the class bank have come apart: {name} of rank {rank} is not that of rank {self.layout.data.ranks[0]}. "
                        "Go on from a checkpoint, and look for what writes to the bank of one rank alone",
                        "data: bits",
                        (rank,),
                    )

    def _release(self) -> None:
        """Take in what was held back."""
        if not self._kept:
            return
        totals, labels, multiplicity = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        found = self._exchanged(gathered(totals[None], labels, multiplicity), 0, 0)
        self._kept.clear()  # not before: where a rank refuses its batch, all of them keep what they held back
        assert found.batch is not None
        try:
            Updating(self).absorb_batch(found.batch)
        except ValueError as error:
            raise ValueError(f"{error}. These samples were held back by no_sync(), and are dropped") from error

    def _gathers(self, views: int, rows: int, dtype: torch.dtype) -> bool:
        way = statistics_exchange(
            self.exchange,
            data=self.layout.data.size,
            class_rows=self.num_classes,
            dim=self.dim,
            itemsize=dtype.itemsize,
            distinct=rows,
            views=views,
        )
        return way == "gather"

    def _gathered(self, batch: Batch, own: torch.Tensor, kept: torch.Tensor, sizes: list[int]) -> tuple[Batch, torch.Tensor]:
        group, number, dtype = self.layout.data, len(batch.totals), batch.totals[0].dtype
        words, n, widest = words_of(dtype), len(kept), max(*sizes, 1)  # one row at least: what has no entry could not be looked up
        totals = torch.stack([torch.where(own[:, None], total, 0.0)[kept] for total in batch.totals], dim=1)  # (U, V, p)
        packed = totals.new_zeros(widest, number * self.dim + 2 * words)
        packed[:n, : -2 * words] = totals.view(n, number * self.dim)
        packed[:n, -2 * words : -words] = batch.labels[kept].view(dtype).view(n, words)
        packed[:n, -words:] = torch.where(own, batch.multiplicity, 0.0)[kept].view(dtype).view(n, words)
        found = group.gather("statistics", packed).view(group.size, widest, number * self.dim + 2 * words)
        rows = torch.cat([found[rank, :size] for rank, size in enumerate(sizes)]) if any(sizes) else found[0, :1]
        labels = rows[:, -2 * words : -words].contiguous().view(torch.int64).view(-1)
        counts = rows[:, -words:].contiguous().view(torch.float64).view(-1)
        totals = rows[:, : -2 * words].reshape(len(rows), number, self.dim).transpose(0, 1)
        entries = torch.zeros_like(batch.slots).index_copy_(0, kept, sum(sizes[: group.rank]) + torch.arange(n, device=kept.device))
        return gathered(totals, labels, counts, repeatable=True), entries.index_select(0, batch.slots)

    def _reduced(self, batch: Batch, own: torch.Tensor) -> tuple[Batch, torch.Tensor]:
        rows = torch.cat([*batch.totals, batch.multiplicity.to(batch.totals[0].dtype)[:, None]], dim=1)
        every = rows.new_zeros(self.num_classes, rows.shape[1])
        every.index_add_(0, batch.labels, torch.where(own[:, None], rows, 0.0))  # one row per class: in no other order
        self.layout.data.total("statistics", every)
        labels = torch.arange(self.num_classes, device=rows.device)
        totals = every[:, :-1].reshape(self.num_classes, len(batch.totals), self.dim).transpose(0, 1)
        return Batch(labels, labels, tuple(totals), every[:, -1].double()), batch.labels

    def _refuse_above_one(self, lengths: torch.Tensor, labels: torch.Tensor) -> None:
        """Where the classes are sharded, the other ranks must learn of it before they continue without this one."""
        group = self.layout.classes
        if group.size == 1:
            return super()._refuse_above_one(lengths, labels)
        reason: ValueError | None = None
        try:
            super()._refuse_above_one(lengths, labels + self.layout.first)
        except ValueError as error:
            reason = error
        flags = group.headers("refusals", [int(reason is not None)], lengths.device)
        if reason is not None:
            raise reason
        refused = tuple(rank for rank, (flag,) in zip(group.ranks, flags, strict=True) if flag)
        if refused:
            raise RankError(f"rank {refused[0]} refused the batch, and says why; nothing changed on any rank", "classes: refusals", refused)

    def reset(self, *, generator: torch.Generator | None = None) -> None:
        """`ClassBank.reset`, of what was held back too."""
        if self._to_compare is not None:  # while it is made, and before anything is drawn together
            self.layout.agree("settings", {**self._facts(), **self._to_compare}, self.sums.device)
            self._to_compare = None
        self._kept.clear()
        super().reset(generator=generator)

    def _reset(self, statistics: Statistics, generator: torch.Generator | None) -> None:
        if generator is None and self.unseen == "random" and has_values(statistics.high):
            generator = self._agreed_generator()
        super()._reset(statistics, generator)

    def _held(self) -> tuple[int, int]:
        return self.layout.first, self.layout.num_classes

    def _agreed_generator(self) -> torch.Generator:
        """One generator, in the same state on all ranks; its seed is that of the first rank where none was given."""
        if self._generator is None:
            device = host_or(self.sums.device)
            seed = torch.tensor(torch.randint(2**62, ()).item() if self._given_seed is None else self._given_seed, device=device)
            for group in (self.layout.classes, self.layout.data):
                group.of_first("seed", seed)
            self._generator = torch.Generator(device).manual_seed(int(seed))
        return self._generator

    @staticmethod
    def _saved(module: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
        """Rows leave as parts of a tensor of all classes."""
        assert isinstance(module, DistributedClassBank)
        for name in module._rows():
            state[prefix + name] = whole(state[prefix + name], module.layout, module._mesh)

    def _own_rows(self, state: dict[str, Any], prefix: str) -> None:
        """Rows come as parts of a tensor of all classes, or as all of it."""
        if self.layout.classes.size > 1:
            for name in self._rows():
                if prefix + name in state:
                    state[prefix + name] = part(state[prefix + name], prefix + name, self.layout)

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        super()._load_from_state_dict(*arguments, **named)
        self._kept.clear()

    def _rows(self) -> list[str]:
        return [name for name, _ in self.named_buffers(recurse=False) if not name.startswith("_")]  # those are derived, and not saved

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> DistributedClassBank:
        super()._apply(fn, recurse)
        self.meeting.dtype = self.sums.dtype
        return self

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.layout!r}, exchange={self.exchange!r}"


def _mark(tensor: torch.Tensor) -> int:
    """A number that another bit anywhere changes, and other places of the same numbers: their bits added up, with another odd factor for each."""
    bits = tensor.contiguous().view(torch.int64 if tensor.element_size() == 8 else torch.int32).view(len(tensor), -1)
    place, mark = 2 * torch.arange(bits.shape[1], device=bits.device) + 1, 0
    for start in range(0, len(bits), _BLOCK):  # no copy of a large bank
        rows = (bits[start : start + _BLOCK].long() * place).sum(1)
        mark += int((rows * (2 * torch.arange(start, start + len(rows), device=rows.device) + 1)).sum())
    return (mark + 2**63) % 2**64 - 2**63


def _packed(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Totals, labels and multiplicity of a merged batch, each class once; what is not the first of its class becomes nothing."""
    own = batch.slots == torch.arange(len(batch.slots), device=batch.slots.device)
    return torch.where(own[:, None], batch.totals[0], 0.0), batch.labels, torch.where(own, batch.multiplicity, 0.0)
