"""One evaluation of the cross-entropy: its leaves, its loss, and torch's on the scores."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

import pairgrad as pg

TAU = 0.2
DIM, CLASSES, BATCH = 64, 11, 5
LABELS = (0, 3, 10, 3, 7)
# Sums of some ten terms in another order, and exponentials of logits of size 10: a hundred roundings.
FLOAT64 = 100 * torch.finfo(torch.float64).eps


class Problem:
    """Leaves of one evaluation, equal for equal seeds."""

    def __init__(
        self,
        *,
        dtype: torch.dtype = torch.float64,
        dim: int = DIM,
        classes: int = CLASSES,
        batch: int = BATCH,
        length: float = 1.0,
        learned: bool = True,
        prior: bool = True,
        tensor_temperature: bool = True,
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def leaf(value: torch.Tensor, wanted: bool = True) -> torch.Tensor:
            return value.to(dtype).requires_grad_(wanted)

        def randn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.features = leaf(length * F.normalize(randn(batch, dim), dim=1))
        rows = randn(classes, dim)
        rows[0] = self.features.detach()[0].double() + rows[0] / dim  # a class that wins
        self.rows = leaf(rows, learned)
        self.concentration = leaf(10 ** (4 * torch.rand(classes, generator=generator, dtype=torch.float64)), learned)
        self.temperature: Any = leaf(torch.tensor(TAU, dtype=torch.float64), learned) if tensor_temperature else TAU
        self.prior = leaf(torch.log_softmax(torch.linspace(0, 3, classes, dtype=torch.float64), 0), learned) if prior else None

    @property
    def state(self) -> pg.ClassState:
        return pg.ClassState(self.rows, self.concentration)

    @property
    def leaves(self) -> list[torch.Tensor]:
        every = [self.features, self.rows, self.concentration, self.temperature, self.prior]
        return [t for t in every if isinstance(t, torch.Tensor) and t.requires_grad]

    def loss(self, labels: torch.Tensor, **options: Any) -> torch.Tensor:
        return pg.vmf_cross_entropy(self.features, labels, self.state, self.temperature, self.prior, **options)

    def plain(self, labels: torch.Tensor, realization: str = "paired", **options: Any) -> torch.Tensor:
        """What it has to equal."""
        scores = pg.vmf_scores(self.features, self.state, self.temperature, realization)
        return F.cross_entropy(scores if self.prior is None else scores + self.prior, labels, **options)


def careful(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Loss per row as log(1 + odds of the others): unlike torch's, right to the last digits where it is small."""
    own = torch.zeros_like(logits, dtype=torch.bool).scatter(1, labels[:, None], True)
    odds = torch.logsumexp(logits.masked_fill(own, -torch.inf), 1) - logits.gather(1, labels[:, None])[:, 0]
    return torch.logaddexp(torch.zeros_like(odds), odds)


def compare(
    got: torch.Tensor, want: torch.Tensor, got_leaves: list[torch.Tensor], want_leaves: list[torch.Tensor], tolerance: float = FLOAT64
) -> None:
    """Values, and gradients element by element, relative to the largest of each tensor."""
    assert got.shape == want.shape
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    cotangent = torch.linspace(0.5, 1.5, got.numel(), dtype=got.dtype).reshape(got.shape)
    gradients = zip(torch.autograd.grad(got, got_leaves, cotangent), torch.autograd.grad(want, want_leaves, cotangent), strict=True)
    for number, (ours, theirs) in enumerate(gradients):
        assert ours.shape == theirs.shape
        error = (ours - theirs).abs().max() / theirs.abs().max()
        assert error <= tolerance, f"gradient {number}: relative error {error:.3g} > {tolerance:.3g}\n{ours}\n{theirs}"


def hard(*, ignored: bool = False) -> torch.Tensor:
    labels = torch.tensor(LABELS)
    if ignored:
        labels[[1, 4]] = -100
    return labels


def soft(seed: int = 1) -> torch.Tensor:
    return torch.softmax(torch.randn(BATCH, CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), 1)


WEIGHT = 0.1 + torch.linspace(0, 1, CLASSES, dtype=torch.float64)
