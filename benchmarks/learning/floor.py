"""What no step can do without: two float32 matrix products over both views, and the sums and counts of the labelled rows.

Outputs are allocated beforehand. The streaming floor makes the same two products tile by tile, so that no (B, K) matrix exists.
"""

from __future__ import annotations

import torch

from benchmarks.learning.step import Snapshot
from benchmarks.learning.workload import Workload

TILE = 1024  # classes per tile; the fastest of the powers of two from 512 to 16384 at a million classes


class Floor:
    """forward F S^T with F (2B, p) and S (K, p), backward W S with W (2B, K), and `index_add_` of each view into each bank."""

    def __init__(self, workload: Workload) -> None:
        size, device = workload.size, workload.device
        self._labels = workload.labels
        self._views = workload.features().detach()
        self._stacked = self._views.reshape(-1, size.dim)
        self._ones = torch.ones(size.batch, device=device)
        self._sums = [torch.zeros(size.classes, size.dim, device=device) for _ in range(workload.banks)]
        self._counts = [torch.zeros(size.classes, device=device) for _ in range(workload.banks)]
        for features, labels in workload.seen():
            self._sums[0].index_add_(0, labels, features)
        for sums in self._sums[1:]:
            sums.copy_(self._sums[0])
        self._width = min(TILE, size.classes) if workload.streaming else size.classes
        self._scores = torch.zeros(len(self._stacked), self._width, device=device)
        self._weights = torch.rand(len(self._stacked), self._width, generator=torch.Generator().manual_seed(workload.seed)).to(device)
        self._gradient = torch.zeros_like(self._stacked)
        self._snapshot = Snapshot(self._tensors, size.classes, self._labels)

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {f"{kind}{i}": t for kind, ts in (("sums", self._sums), ("counts", self._counts)) for i, t in enumerate(ts)}

    def run(self) -> None:
        for view in self._views:
            for sums, counts in zip(self._sums, self._counts, strict=True):
                sums.index_add_(0, self._labels, view)
                counts.index_add_(0, self._labels, self._ones)
        rows = self._sums[0]
        if self._width == len(rows):
            torch.mm(self._stacked, rows.T, out=self._scores)
            torch.mm(self._weights, rows, out=self._gradient)
            return
        self._gradient.zero_()
        for tile in rows.split(self._width):
            torch.mm(self._stacked, tile.T, out=self._scores[:, : len(tile)])
            self._gradient.addmm_(self._weights[:, : len(tile)], tile)

    def restore(self) -> None:
        self._snapshot.restore()
