"""Sums and counts of labelled batches: exact, compensated, touching only the rows of the classes that occur (prop. state-reduction).

All shapes depend on the batch alone, nothing is indexed by a boolean, and no tensor has a row per sample *and* class.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Batch(NamedTuple):
    """Views of a labelled batch, summed by class; entry b is about the class of sample b."""

    labels: torch.Tensor  # (B,)
    slots: torch.Tensor  # (B,), the first sample with the same label
    totals: tuple[torch.Tensor, ...]  # per view (B, p)
    multiplicity: torch.Tensor  # (B,)

    def merged(self) -> Batch:
        """All views as one."""
        if len(self.totals) == 1:
            return self
        return Batch(self.labels, self.slots, (sum(self.totals[1:], start=self.totals[0]),), self.multiplicity * len(self.totals))


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


def gathered(views: torch.Tensor, labels: torch.Tensor) -> Batch:
    """Sums by class within each view of a batch, views (V, B, p), by sorting the labels."""
    order = torch.argsort(labels, stable=True)
    ordered = labels[order]
    place = torch.arange(len(labels), device=labels.device)
    changes = torch.nn.functional.pad(ordered[1:] != ordered[:-1], (1, 0), value=True)
    start = torch.cummax(torch.where(changes, place, 0), 0).values
    slots = torch.empty_like(order).index_copy_(0, order, order[start])
    totals = tuple(torch.zeros_like(view).index_add_(0, slots, view).index_select(0, slots) for view in views)
    ones = torch.ones(len(labels), dtype=torch.float64, device=labels.device)
    multiplicity = torch.zeros_like(ones).index_add_(0, slots, ones).index_select(0, slots)
    return Batch(labels, slots, totals, multiplicity)


def absorbed(rows: Statistics, batch: Batch, decay: float | None) -> list[Statistics]:
    """The rows of the batch's classes after each view in turn: a+ = (N a + s) / (N + m) as sums and counts (eq. sum-count-update).

    The first samples of a class replace what its row held before, an initial direction. With `decay`, a class forgets by that factor whenever
    it occurs.
    """
    after = []
    # in the dtype of the sums, not the default one: sums and counts must forget by the same factor, or R drifts away from the mean's length
    keep: torch.Tensor | None = (rows.counts > 0).to(rows.high.dtype) * (1.0 if decay is None else decay)
    for total in batch.totals:
        high, low, counts = rows
        if keep is not None:
            high, low, counts = high * keep[:, None], low * keep[:, None], counts * keep
        rows = Statistics(*_two_words(high, low, total), counts + batch.multiplicity)
        after.append(rows)
        keep = None if decay is None else torch.full_like(high[:, 0], decay)
    return after


def _two_words(high: torch.Tensor, low: torch.Tensor, addend: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """high + low + addend, renormalised: the rounding error of the sum is exactly representable [knuth1997art] and is carried in the low word."""
    total = high + addend
    part = total - high
    low = low + ((high - (total - part)) + (addend - part))
    top = total + low
    return top, low - (top - total)
