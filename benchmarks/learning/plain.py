"""The learning step in plain torch: the dense layout of the public code, and the same with its parts exchanged one at a time.

| part | choices |
|---|---|
| evaluator | a realization of the potential, on float64 radii |
| statistics | `"dense"`: class means through a (B, K, p) product of features and assignments; `"touched"`: sums and counts of the labelled rows |
| geometry | `"expanded"`: radii as norms of (B, K, p) resultants; `"factorised"`: radii from a (B, K) matrix product |

Features and statistics are float32, potentials, scores and loss float64, as in the public code. Statistics are detached.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.nn.functional import cross_entropy, normalize, one_hot

import pairgrad
from benchmarks.learning.step import Snapshot
from benchmarks.learning.workload import CAP, TEMPERATURE, Workload

Statistics = Literal["dense", "touched"]
Geometry = Literal["expanded", "factorised"]


class Bank:
    """Per class a mean and a count (dense) or a sum and a count (touched), and for a bank that scores what is derived from them."""

    def __init__(self, workload: Workload, statistics: Statistics, potential: pairgrad.Potential | None) -> None:
        size, device = workload.size, workload.device
        self._dense = statistics == "dense"
        self._potential = potential
        self.total = torch.zeros(size.classes, size.dim, device=device)  # sums; means in the dense layout
        self.count = torch.zeros(size.classes, device=device)
        for features, labels in workload.seen():
            self._add(features, labels)
        if self._dense:
            self.total /= self.count[:, None]
        if potential is not None:
            mean = self.total if self._dense else self.total / self.count[:, None]
            self.direction, self.concentration, self.log_normaliser = self._derived(mean)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}

    def _add(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        self.total.index_add_(0, labels, features)
        self.count.index_add_(0, labels, torch.ones_like(labels, dtype=self.count.dtype))

    def _derived(self, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Direction, concentration p R / (1 - R^2) held to (0, cap], and the potential there."""
        assert self._potential is not None
        length = mean.norm(dim=1)
        concentration = mean.shape[1] * length / (1 - length**2)
        concentration = torch.where((concentration < 0) | (concentration > CAP), CAP, concentration)
        return normalize(mean, dim=1), concentration, self._potential.value(concentration.double())

    @torch.no_grad()
    def update(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        if self._dense:
            self._update_dense(features, labels)
        else:
            self._update_touched(features, labels)

    def _update_dense(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        assigned = one_hot(labels, len(self.count)).to(features.dtype)  # (B, K)
        products = features[:, None, :] * assigned[:, :, None]  # (B, K, p)
        new = assigned.sum(0)
        weight = (new / (new + self.count)).nan_to_num()[:, None]
        batch_mean = products.sum(0) / new.clamp(min=1)[:, None]
        self.total.copy_((1 - weight) * self.total + weight * batch_mean)
        self.count += new
        if self._potential is not None:
            for kept, derived in zip((self.direction, self.concentration, self.log_normaliser), self._derived(self.total), strict=True):
                kept.copy_(derived)

    def _update_touched(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        self._add(features, labels)
        if self._potential is not None:  # a class that occurs twice is written twice, with the same numbers
            mean = self.total[labels] / self.count[labels, None]
            self.direction[labels], self.concentration[labels], self.log_normaliser[labels] = self._derived(mean)


class PlainStep:
    """Each view updates both banks and is then scored with the first; the loss is the mean of the two cross-entropies.

    Where rows of the bank are changed in place, a factorised score cannot wait for its backward until the second view has come: its half of
    the loss is differentiated at once, which gives the same gradient.
    """

    def __init__(self, workload: Workload, realization: str, statistics: Statistics, geometry: Geometry, **options: Any) -> None:
        self._potential = pairgrad.potential(workload.size.dim, realization, **options)
        self._one_run = (
            options.get("derivative") != "autograd"
        )  # value and slope of one run; a recorded recurrence has its slope by backward
        self._expanded = geometry == "expanded"
        self._at_once = geometry == "factorised" and statistics == "touched"
        self._labels, self._log_prior = workload.labels, workload.log_prior
        self._scoring = Bank(workload, statistics, self._potential)
        self._other = Bank(workload, statistics, None)
        self.features = workload.features()
        self._snapshots = [Snapshot(bank.tensors, workload.size.classes, self._labels) for bank in (self._scoring, self._other)]

    def run(self) -> torch.Tensor:
        halves = []
        for i in range(2):
            view = self.features[i]
            self._scoring.update(view, self._labels)
            self._other.update(view, self._labels)
            half = cross_entropy(self._scores(view) + self._log_prior, self._labels) / 2
            if self._at_once:
                half.backward()
                half = half.detach()
            halves.append(half)
        loss = halves[0] + halves[1]
        if not self._at_once:
            loss.backward()
        return loss.detach()

    def restore(self) -> None:
        for snapshot in self._snapshots:
            snapshot.restore()
        self.features.grad = None

    def _scores(self, features: torch.Tensor) -> torch.Tensor:
        """Potential at the radius minus potential at the concentration, (B, K) float64."""
        bank = self._scoring
        if not self._expanded:
            return self._potential.difference(bank.concentration.double(), self._factorised_radius(features))
        resultant = (bank.concentration[:, None] * bank.direction)[None] + features[:, None, :] / TEMPERATURE  # (B, K, p)
        radius = resultant.norm(dim=2).double()
        value = self._potential.pair(radius).value if self._one_run else self._potential.value(radius)
        return value - bank.log_normaliser

    def _factorised_radius(self, features: torch.Tensor) -> torch.Tensor:
        concentration = self._scoring.concentration.double()
        projection = (features @ self._scoring.direction.T).double()
        squared_norm = features.double().square().sum(1, keepdim=True)
        return torch.sqrt(concentration**2 + 2 * concentration * projection / TEMPERATURE + squared_norm / TEMPERATURE**2)
