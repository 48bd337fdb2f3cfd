"""Class banks for tests, the public estimator in rational arithmetic, and what must hold of any bank."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch

import pairgrad as pg

U = 2.0**-24  # unit roundoff of float32
DTYPES = (torch.float32, torch.float64)

# 0.9 v / ||v|| in float32: the norm, the division and the product make at most 4 u of error in the length; d log kappa / d log R is
# (1 + R^2) / (1 - R^2) = 9.6 at R = 0.9, and kappa is rounded once. In float64 likewise, with its own unit.
INITIAL = 9.6 * 4 + 1
# S / n, S / ||S||: the sum is exact, the divisor is rounded to the dtype, the quotient is rounded, and the norm is good to a few units of float64.
QUOTIENT = 3


def dyadic(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random k / 4096 with |k| < 2048: some thousand of them add up without rounding in float32."""
    return torch.randint(-2047, 2048, shape).to(dtype) / 4096


class PublicEstimator:
    """The estimator of the public code, by class and in rationals: a <- (1 - w) a + w mean of the batch, w = m / (m + n)."""

    def __init__(self, bank: pg.ClassBank, prefix: str = "") -> None:
        self.mean = [[Fraction(x) for x in row] for row in getattr(bank, prefix + "sums").tolist()]  # the initialiser
        self.amount = [Fraction(0)] * bank.num_classes

    def update(self, features: torch.Tensor, labels: torch.Tensor, decay: Fraction = Fraction(1)) -> None:
        for label in range(len(self.amount)):
            mine = [[Fraction(x) for x in row] for row, other in zip(features.tolist(), labels.tolist(), strict=True) if other == label]
            m, n = len(mine), self.amount[label] * (decay if label in labels else 1)
            weight = Fraction(m) / (m + n) if m else Fraction(0)
            average = [sum(column) / m for column in zip(*mine, strict=True)] if m else self.mean[label]
            self.mean[label] = [(1 - weight) * a + weight * b for a, b in zip(self.mean[label], average, strict=True)]
            self.amount[label] = n + m

    def one_at_a_time(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        for i in range(len(labels)):
            self.update(features[i : i + 1], labels[i : i + 1])

    def agrees_with(self, bank: pg.ClassBank, prefix: str = "") -> None:
        """The two words are the sum n a exactly, and the counts are exact; without samples they hold the initialiser."""
        words = (getattr(bank, prefix + name).tolist() for name in ("sums", "compensation"))
        got = [[Fraction(h) + Fraction(l) for h, l in zip(*rows, strict=True)] for rows in zip(*words, strict=True)]
        assert got == [[(n or 1) * a for a in mean] for mean, n in zip(self.mean, self.amount, strict=True)]
        assert getattr(bank, prefix + "counts").tolist() == [float(n) for n in self.amount]


def derived_from_buffers(bank: pg.ClassBank) -> None:
    """What the bank reports belongs to the sums and counts it holds, and so do the cached tensors."""
    counts = torch.where(bank.counts > 0, bank.counts, 1.0)
    norms = bank.sums.double().norm(dim=1)
    length, kappa, direction = bank.resultant_length, bank.concentration, bank.mean_direction
    torch.testing.assert_close(length, norms / counts, rtol=8 * 2.0**-53, atol=0)
    # the rule amplifies the rounding of R in float64 near R = 1, where the cap keeps kappa below 1e5 >= p / (2 (1 - R)): by 1e5
    torch.testing.assert_close(kappa.double(), bank.rule(norms / counts, bank.counts), rtol=4 * torch.finfo(bank.sums.dtype).eps, atol=0)
    unit = bank.sums.double() / torch.where(norms > 0, norms, 1.0)[:, None]
    torch.testing.assert_close(direction.double(), unit, rtol=QUOTIENT * torch.finfo(bank.sums.dtype).eps, atol=0)
    torch.testing.assert_close(bank._norms, norms, rtol=8 * 2.0**-53, atol=0)
    assert torch.equal(bank._concentrations, kappa)
    rates = torch.where(norms > 0, bank.rule(norms / counts, bank.counts) / norms, 0.0)
    torch.testing.assert_close(bank._rates.double(), rates, rtol=4 * torch.finfo(bank.sums.dtype).eps, atol=0)
    assert bank._rates.dtype == bank.sums.dtype
    assert kappa.dtype == bank.sums.dtype
    classes = bank.classes()
    assert classes.rows is bank.sums
    assert classes.rates is bank._rates
    assert classes.concentration is bank._concentrations


def snapshot(bank: pg.ClassBank) -> dict[str, Any]:
    """Every buffer with its bits, its identity and its version."""
    kept: dict[str, Any] = {name: (tensor, tensor.clone(), tensor._version) for name, tensor in bank.named_buffers()}
    return kept | {"bookkeeping": bank._versions}


def untouched(bank: pg.ClassBank, before: dict[str, Any]) -> None:
    assert before["bookkeeping"] == bank._versions
    for name, tensor in bank.named_buffers():
        same, bits, version = before[name]
        assert tensor is same, name
        assert torch.equal(tensor, bits), name
        assert tensor._version == version, name


def filled(classes: int = 4, dim: int = 3, batch: int = 6, **options: Any) -> pg.ClassBank:
    """A bank with samples in classes 0 .. classes - 2, whose last one has none, and whose sums have a low word."""
    bank = pg.ClassBank(classes, dim, **options)
    for _ in range(5):
        bank.update(0.5 * torch.rand(batch, dim), torch.arange(batch) % (classes - 1))
    assert bank.compensation.any() or bank.sums.dtype == torch.float64
    return bank


LONG = torch.tensor([[1.5, 0.0, 0.0]])


GOOD, LABELS = torch.full((4, 3), 0.25), torch.tensor([0, 1, 1, 2])
