"""What is computed another way where operations are queued, on the CPU: it takes on the traits of an accelerator, so that values can be compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.ground import devices

# Two ways to the same numbers in the dtype of the step: scores of size 1 to 10 that are right to some ten roundings each, and a sum over the classes.
ROUNDINGS = 200
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prior": {"class_counts": [3.0, *range(1, 40)]},
    "a class that cannot occur": {"class_counts": [*range(1, 40), 0.0]},
    "not normalized": {"normalize": False},
    "before update": {"score": "before-update"},
    "two epochs with decay": {"memory": "two-epochs", "decay": 0.9},
    "arfr": {"realization": "arfr"},
    "recurrence": {"realization": "original"},
}


def steps(options: dict[str, Any], dtype: torch.dtype, views: int, batch: int) -> list[torch.Tensor]:
    """Losses, gradients and states of three steps against 40 classes, some of which occur several times in a batch."""
    torch.manual_seed(0)
    loss = pg.ProCoLoss(40, 16, dtype=dtype, reduction="none", generator=torch.Generator().manual_seed(1), **options)
    found = []
    for _ in range(3):
        x = torch.randn(views, batch, 16, dtype=dtype).div_(4).requires_grad_()
        value = loss(x, torch.randint(0, 8, (batch,)))
        (gradient,) = torch.autograd.grad(value.sum(), x)
        bank = loss.bank
        found += [value.detach(), gradient, bank.sums.clone(), bank.compensation.clone(), bank.counts.clone(), bank.concentration]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPTIONS)
def test_few_operations_give_the_same_step(monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype) -> None:
    for views, batch in ((1, 7), (2, 7), (3, 6), (2, 30)):  # the last with more samples than classes
        plain = steps(OPTIONS[name], dtype, views, batch)
        with monkeypatch.context() as patch:
            patch.setitem(devices.KINDS, "cpu", devices.KINDS["cuda"])
            queued = steps(OPTIONS[name], dtype, views, batch)
        for place, (got, expected) in enumerate(zip(queued, plain, strict=True)):
            if place % 6 < 2:
                scale = expected.abs().amax().clamp_min(1.0)
                error = ((got - expected).abs().amax() / scale).item() / torch.finfo(dtype).eps
                assert error <= ROUNDINGS, (views, batch, place, error)
            else:
                assert torch.equal(got, expected), (views, batch, place)


def test_the_first_of_equal_labels_stands_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of one class, of all classes, and of none."""
    monkeypatch.setitem(devices.KINDS, "cpu", devices.KINDS["cuda"])
    for labels in ([2] * 5, [0, 1, 2, 3, 4], [4, 1, 4, 1, 0], []):
        bank = pg.ClassBank(5, 3, unseen="uniform")
        x = torch.randn(len(labels), 3)
        bank.update(x, torch.tensor(labels, dtype=torch.int64))
        expected = torch.zeros(5, 3).index_add_(0, torch.tensor(labels, dtype=torch.int64), x)
        torch.testing.assert_close(bank.sums, expected)
        assert bank.counts.tolist() == [labels.count(k) for k in range(5)]
