"""Losses with a class bank for tests, and how two of them are compared."""

from __future__ import annotations

import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.losses import BankLoss

DIM, BATCH, TAU = 64, 4, 0.1
MANY, FEW = 40, 6  # at least twice the batch, and less: two ways through `views`
LABELS = {"distinct": (3, 0, 5, 1), "repeated": (3, 0, 3, 3), "equal": (2, 2, 2, 2)}
# Logits of size 10 with 16 roundings each (tests/tolerances.py), in the loss and, doubled, in the gradient relative to its norm.
LOSS = {dtype: 16 * 10 * torch.finfo(dtype).eps / 2 for dtype in (torch.float32, torch.float64)}


def counts(classes: int) -> list[float]:
    return [float(2 ** (k % 7) + 1) for k in range(classes)]


def views_of(count: int, batch: int = BATCH, dtype: torch.dtype = torch.float64, length: float = 1.7) -> torch.Tensor:
    return (length * F.normalize(torch.randn(count, batch, DIM, dtype=torch.float64), dim=-1)).to(dtype)


def warm(loss: BankLoss) -> BankLoss:
    """Some classes have samples, 0 .. 3 of them; the others are unseen."""
    bank = loss.bank
    features = F.normalize(torch.randn(12, bank.dim, dtype=torch.float64) + 0.3, dim=1).to(bank.sums.dtype)
    bank.update(features, torch.arange(12) % 4)
    return loss


def run(loss: BankLoss, views: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses (V, B) and the gradient of each, (V, B, p)."""
    leaf = views.clone().requires_grad_()
    rows = loss.rows(leaf, labels)
    return rows.detach(), torch.autograd.grad(rows.sum(), leaf)[0]


def agree(got: tuple[torch.Tensor, torch.Tensor], want: tuple[torch.Tensor, torch.Tensor], tolerance: float) -> None:
    """`want` by torch's cross-entropy, whose p - 1 is rounded as 1 is: relative to the pull of a whole class, which is 1 / tau, where a loss is small."""
    torch.testing.assert_close(got[0], want[0], rtol=tolerance, atol=tolerance)
    error = (got[1] - want[1]).norm(dim=-1) / want[1].norm(dim=-1).clamp_min(1.0)
    assert error.max() <= 4 * tolerance, error


def same_state(a: pg.ClassBank, b: pg.ClassBank) -> None:
    """Equal bits: the same sums are formed in the same order."""
    for name, tensor in a.state_dict().items():
        assert torch.equal(tensor, b.state_dict()[name]), name
    assert torch.equal(a.concentration, b.concentration)
    assert torch.equal(a.mean_direction, b.mean_direction)
