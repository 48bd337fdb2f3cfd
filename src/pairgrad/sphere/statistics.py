"""Sums and counts of labelled batches: exact, compensated, touching only the rows of the classes that occur (prop. state-reduction).

Nothing is indexed by a boolean, and no tensor has a row per sample *and* class. Shapes depend on that of the batch alone, except in `distinct`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from pairgrad.ground.checks import readable
from pairgrad.ground.devices import kind, widest

# Up to this many labels each is compared with each: where that is compiled, and on a device in eager mode, for 16 MB of comparisons.
_COMPARED_COMPILED, _COMPARED = 1024, 4096


class Batch(NamedTuple):
    """Views of a labelled batch, summed by class; entry b is about the class of sample b. A class whose multiplicity is 0 is not in the batch."""

    labels: torch.Tensor  # (B,)
    slots: torch.Tensor  # (B,), the first entry with the same label
    totals: tuple[torch.Tensor, ...]  # per view (B, p)
    multiplicity: torch.Tensor  # (B,)
    complete: bool = False  # no multiplicity is 0
    samples: torch.Tensor | None = None  # (B,), the entry of each sample's class, where there is one for each class; None: entry b
    every: bool = False  # entry k is about class k, for all classes of the bank

    def merged(self) -> Batch:
        """All views as one."""
        if len(self.totals) == 1:
            return self
        return self._replace(totals=(sum(self.totals[1:], start=self.totals[0]),), multiplicity=self.multiplicity * len(self.totals))


class Statistics(NamedTuple):
    """Per class a sum in two words, high + low, and a count."""

    high: torch.Tensor  # (K, p)
    low: torch.Tensor  # (K, p)
    counts: torch.Tensor  # (K,)

    def rows(self, labels: torch.Tensor) -> Statistics:
        return Statistics(self.high.index_select(0, labels), self.low.index_select(0, labels), self.counts.index_select(0, labels))

    def write(self, labels: torch.Tensor, rows: Statistics) -> None:
        """Samples of one class carry equal rows, so it does not matter which of them is written last."""
        self.high.index_copy_(0, labels, rows.high)
        self.low.index_copy_(0, labels, rows.low)
        self.counts.index_copy_(0, labels, rows.counts)


def gathered(views: torch.Tensor, labels: torch.Tensor, multiplicity: torch.Tensor | None = None, *, repeatable: bool = False) -> Batch:
    """Sums by class within each view of a batch, views (V, B, p).

    Args:
        multiplicity: (B,), in the widest dtype of the device, how many samples a row is the sum of; None: each is one. A row of 0 samples must be 0.
        repeatable: the same bits every time on every device, so that several processes that hold the same batch agree; always so in deterministic mode
            (`torch.use_deterministic_algorithms`).
    """
    # index_add_ adds in any order on some devices, and index_put_ sorts
    device = kind(views.device)
    sort = (repeatable or torch.are_deterministic_algorithms_enabled()) and not device.ordered_sums
    if device.queued and not sort and multiplicity is None and 0 < len(labels) <= _COMPARED and not torch.compiler.is_compiling():
        return _compared(views, labels)
    slots = _first_places(labels)

    def summed(view: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros_like(view)
        return zeros.index_put_((slots,), view, accumulate=True) if sort else zeros.index_add_(0, slots, view)

    totals = tuple(summed(view).index_select(0, slots) for view in views)
    complete = multiplicity is None
    if multiplicity is None:
        multiplicity = torch.ones(len(labels), dtype=widest(labels.device), device=labels.device)
    multiplicity = summed(multiplicity).index_select(0, slots)
    return Batch(labels, slots, totals, multiplicity, complete)


def distinct(views: torch.Tensor, labels: torch.Tensor) -> Batch:
    """`gathered` with one entry for each class, in fewer operations on fewer rows: for the host, where a shape may depend on values."""
    classes, samples, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    rows = classes.shape[0]
    place, counts = torch.arange(rows, device=labels.device), counts.to(widest(labels.device))
    return Batch(classes, place, _sums(views, samples, rows), counts, complete=True, samples=samples)


def summed_by_class(views: torch.Tensor, labels: torch.Tensor, num_classes: int) -> Batch:
    """`gathered` with an entry for each of all classes, in the fewest operations: for few classes on the host."""
    classes = torch.arange(num_classes, device=labels.device)
    counts = torch.bincount(labels, minlength=num_classes).to(widest(labels.device))
    return Batch(classes, classes, _sums(views, labels, num_classes), counts, samples=labels, every=True)


def _sums(views: torch.Tensor, places: torch.Tensor, rows: int) -> tuple[torch.Tensor, ...]:
    return tuple(view.new_zeros(rows, view.shape[1]).index_add_(0, places, view) for view in views.unbind())


def _compared(views: torch.Tensor, labels: torch.Tensor) -> Batch:
    """`gathered` in few operations, by comparing each label with every other: for small batches on a device that queues its operations."""
    same = labels[:, None] == labels
    slots = same.to(torch.uint8).argmax(1)  # the first of equals
    totals = torch.zeros_like(views).index_add_(1, slots, views).index_select(1, slots)
    return Batch(labels, slots, totals.unbind(), same.sum(1, dtype=widest(labels.device)), complete=True)


def _first_places(labels: torch.Tensor) -> torch.Tensor:
    """For each label the first place with the same one."""
    place = torch.arange(len(labels), device=labels.device)
    if torch.compiler.is_compiling() and len(labels) <= _COMPARED_COMPILED:
        # every pair in one loop: a sort would be a graph of several kernels, which take seconds to compile
        return torch.where(labels[:, None] == labels, place, len(labels)).amin(1)
    order = torch.argsort(labels, stable=True)
    ordered = labels[order]
    changes = torch.nn.functional.pad(ordered[1:] != ordered[:-1], (1, 0), value=True)
    start = torch.cummax(torch.where(changes, place, 0), 0).values
    return torch.empty_like(order).index_copy_(0, order, order[start])


def absorbed(
    rows: Statistics, batch: Batch, decay: float | None, into: torch.Tensor | None = None, last: Statistics | None = None
) -> list[Statistics]:
    """The rows of the batch's classes after each view in turn: a+ = (N a + s) / (N + m) as sums and counts (eq. sum-count-update).

    The first samples of a class replace what its row held before, an initial direction. With `decay`, a class forgets by that factor whenever
    it occurs. Rows of classes that are not in the batch stay as they are.

    Args:
        into: (V, B, p), where the high words are written, if given.
        last: where what the last view leaves is written, if given; `into` has precedence. It may be `rows`.
    """
    after = []
    keep: torch.Tensor | None = None
    later: torch.Tensor | None = None
    if decay is not None or not all_seen(rows):
        keep = (rows.counts > 0).to(rows.high.dtype)  # a product with booleans is slow on the CPU
    if keep is not None and (decay is not None or not batch.complete):
        occurs = batch.multiplicity > 0
        # in the dtype of the sums, not the default one: sums and counts must forget by the same factor, or R drifts away from the mean's length
        factor = torch.full_like(rows.high[:, 0], 1.0 if decay is None else decay)
        keep = torch.where(occurs, keep * factor, 1.0)
        later = None if decay is None else torch.where(occurs, factor, 1.0)
    final = len(batch.totals) - 1
    for view, total in enumerate(batch.totals):
        high, low, counts = rows
        if keep is not None:
            high, low, counts = high * keep[:, None], low * keep[:, None], counts * keep
        to_high, to_low, to_counts = (None, None, None) if last is None or view < final else last
        words = _two_words(high, low, total, to_high if into is None else into[view], to_low)
        rows = Statistics(*words, torch.add(counts, batch.multiplicity, out=to_counts))
        after.append(rows)
        keep = later
    return after


def all_seen(rows: Statistics) -> bool:
    """Whether all rows are known to have samples, without waiting for a device."""
    return readable(rows.counts) and rows.counts.shape[0] > 0 and float(rows.counts.min()) > 0


def _two_words(
    high: torch.Tensor, low: torch.Tensor, addend: torch.Tensor, to_high: torch.Tensor | None, to_low: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """high + low + addend, renormalised: the rounding error of the sum is exactly representable [knuth1997art] and is carried in the low word."""
    total = high + addend
    part = total - high
    rest = (part - total).add_(high).sub_(part.sub_(addend)).add_(low)  # in few buffers, which stay in cache
    del part
    top = torch.add(total, rest, out=to_high)
    return top, torch.add(rest, total.sub_(top), out=rest if to_low is None else to_low)
