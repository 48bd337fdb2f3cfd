"""Sums and counts of labelled batches: exact, compensated, touching only the rows of the classes that occur (prop. state-reduction).

All shapes depend on the batch alone, nothing is indexed by a boolean, and no tensor has a row per sample *and* class.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from pairgrad.ground.devices import kind, widest

_COMPARED = 1024  # up to this many labels each is compared with each where that is compiled; the square of a larger number would cost more than a sort


class Batch(NamedTuple):
    """Views of a labelled batch, summed by class; entry b is about the class of sample b. A class whose multiplicity is 0 is not in the batch."""

    labels: torch.Tensor  # (B,)
    slots: torch.Tensor  # (B,), the first entry with the same label
    totals: tuple[torch.Tensor, ...]  # per view (B, p)
    multiplicity: torch.Tensor  # (B,)

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
        return Statistics(*(tensor.index_select(0, labels) for tensor in self))

    def write(self, labels: torch.Tensor, rows: Statistics) -> None:
        """Samples of one class carry equal rows, so it does not matter which of them is written last."""
        for tensor, new in zip(self, rows, strict=True):
            tensor.index_copy_(0, labels, new)


def gathered(views: torch.Tensor, labels: torch.Tensor, multiplicity: torch.Tensor | None = None, *, repeatable: bool = False) -> Batch:
    """Sums by class within each view of a batch, views (V, B, p).

    Args:
        multiplicity: (B,), in the widest dtype of the device, how many samples a row is the sum of; None: each is one. A row of 0 samples must be 0.
        repeatable: the same bits every time on every device, so that several processes that hold the same batch agree; always so in deterministic mode
            (`torch.use_deterministic_algorithms`).
    """
    slots = _first_places(labels)
    # index_add_ adds in any order on some devices, and index_put_ sorts
    sort = (repeatable or torch.are_deterministic_algorithms_enabled()) and not kind(views.device).ordered_sums

    def summed(view: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros_like(view)
        return zeros.index_put_((slots,), view, accumulate=True) if sort else zeros.index_add_(0, slots, view)

    totals = tuple(summed(view).index_select(0, slots) for view in views)
    if multiplicity is None:
        multiplicity = torch.ones(len(labels), dtype=widest(labels.device), device=labels.device)
    multiplicity = summed(multiplicity).index_select(0, slots)
    return Batch(labels, slots, totals, multiplicity)


def _first_places(labels: torch.Tensor) -> torch.Tensor:
    """For each label the first place with the same one."""
    place = torch.arange(len(labels), device=labels.device)
    if torch.compiler.is_compiling() and len(labels) <= _COMPARED:
        # every pair in one loop: a sort would be a graph of several kernels, which take seconds to compile
        return torch.where(labels[:, None] == labels, place, len(labels)).amin(1)
    order = torch.argsort(labels, stable=True)
    ordered = labels[order]
    changes = torch.nn.functional.pad(ordered[1:] != ordered[:-1], (1, 0), value=True)
    start = torch.cummax(torch.where(changes, place, 0), 0).values
    return torch.empty_like(order).index_copy_(0, order, order[start])


def absorbed(rows: Statistics, batch: Batch, decay: float | None) -> list[Statistics]:
    """The rows of the batch's classes after each view in turn: a+ = (N a + s) / (N + m) as sums and counts (eq. sum-count-update).

    The first samples of a class replace what its row held before, an initial direction. With `decay`, a class forgets by that factor whenever
    it occurs. Rows of classes that are not in the batch stay as they are.
    """
    after = []
    occurs = batch.multiplicity > 0
    # in the dtype of the sums, not the default one: sums and counts must forget by the same factor, or R drifts away from the mean's length
    factor = torch.full_like(rows.high[:, 0], 1.0 if decay is None else decay)
    keep: torch.Tensor | None = torch.where(occurs, (rows.counts > 0) * factor, 1.0)
    for total in batch.totals:
        high, low, counts = rows
        if keep is not None:
            high, low, counts = high * keep[:, None], low * keep[:, None], counts * keep
        rows = Statistics(*_two_words(high, low, total), counts + batch.multiplicity)
        after.append(rows)
        keep = None if decay is None else torch.where(occurs, factor, 1.0)
    return after


def _two_words(high: torch.Tensor, low: torch.Tensor, addend: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """high + low + addend, renormalised: the rounding error of the sum is exactly representable [knuth1997art] and is carried in the low word."""
    total = high + addend
    part = total - high
    low = low + ((high - (total - part)) + (addend - part))
    top = total + low
    return top, low - (top - total)
