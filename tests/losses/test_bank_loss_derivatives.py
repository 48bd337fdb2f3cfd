"""The loss with a class bank: second derivatives, `torch.func` and a second backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from pairgrad.losses import BankLoss
from tests.losses.bank_losses import DIM, FEW, LABELS, MANY, TAU, counts, run, same_state, views_of, warm


def test_gradcheck_in_evaluation_mode() -> None:
    for classes, batch in ((5, 1), (3, 2)):
        loss = BankLoss(classes, 4, temperature=0.4, class_counts=counts(classes), dtype=torch.float64).eval()
        labels = torch.arange(batch)
        views = torch.randn(2, batch, 4, dtype=torch.float64, requires_grad=True)
        assert gradcheck(lambda v, loss=loss, labels=labels: loss.rows(v, labels), views)
        assert gradgradcheck(lambda v, loss=loss, labels=labels: loss(v, labels), views, fast_mode=True)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("classes", [MANY, FEW])
def test_second_derivatives_after_an_update(classes: int, normalize: bool) -> None:
    """Of a gradient penalty, against the graph that the expanded geometry records for the same states."""
    options: dict[str, Any] = {
        "temperature": 0.5,
        "normalize": normalize,
        "class_counts": counts(classes),
        "dtype": torch.float64,
        "cap": 50.0,
    }
    fused = warm(BankLoss(classes, DIM, **options))
    recorded = BankLoss(classes, DIM, geometry="expanded", **options)
    recorded.load_state_dict(fused.state_dict())
    views, labels = views_of(2), torch.tensor(LABELS["repeated"])
    found = []
    for loss in (fused, recorded):
        leaf = views.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, labels), leaf, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
        found.append((gradient.detach(), second))
    for got, want in zip(*found, strict=True):
        assert (got - want).norm() <= 1e-9 * want.norm()


def test_second_derivatives_need_the_bank_as_it_was() -> None:
    loss = warm(BankLoss(MANY, DIM, temperature=TAU))
    views, labels = views_of(2, dtype=torch.float32).requires_grad_(), torch.tensor(LABELS["distinct"])
    value = loss(views, labels)
    loss(views, labels)
    torch.autograd.grad(value, views, retain_graph=True)
    with pytest.raises(RuntimeError, match="the class bank was updated between forward and a backward with create_graph=True"):
        torch.autograd.grad(value, views, create_graph=True)
    before = BankLoss(MANY, DIM, temperature=TAU, score="before-update")
    value = before(views, labels)
    before.eval()  # too late: the states are gone whatever the mode is now
    with pytest.raises(RuntimeError, match="a second derivative is not available with score='before-update'"):
        torch.autograd.grad(value, views, create_graph=True)
    (gradient,) = torch.autograd.grad(before(views, labels), views, create_graph=True)
    assert gradient.requires_grad


def test_torch_func_and_forward_mode() -> None:
    """No derivative is lost on the way through the fused pass: grad, vmap and jvp in evaluation mode, dual numbers in training mode too."""
    loss = warm(BankLoss(FEW, DIM, temperature=TAU, class_counts=counts(FEW), dtype=torch.float64)).eval()
    views, labels = views_of(2), torch.tensor(LABELS["repeated"])
    direction = torch.randn_like(views)
    rows, want = run(loss, views, labels)
    torch.testing.assert_close(torch.func.grad(lambda v: loss.rows(v, labels).sum())(views), want)
    torch.testing.assert_close(torch.func.vmap(lambda v: loss.rows(v, labels))(views[None])[0], rows)
    value, tangent = torch.func.jvp(lambda v: loss.rows(v, labels).sum(), (views,), (direction,))
    torch.testing.assert_close(value, rows.sum())
    torch.testing.assert_close(tangent, (want * direction).sum())
    other = copy.deepcopy(loss).train()
    _, want = run(loss.train(), views, labels)
    with torch.autograd.forward_ad.dual_level():
        result = other.rows(torch.autograd.forward_ad.make_dual(views, direction), labels).sum()
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(result).tangent, (want * direction).sum())
    same_state(loss.bank, other.bank)


def test_second_backward_with_retain_graph() -> None:
    """The public code cannot; here the gradient is kept as it was, also when other losses were taken from the bank."""
    loss = warm(BankLoss(MANY, DIM, temperature=TAU, realization="original"))
    views, labels = views_of(2, dtype=torch.float32).requires_grad_(), torch.tensor(LABELS["repeated"])
    value = loss(views, labels)
    (first,) = torch.autograd.grad(value, views, retain_graph=True)
    loss(views, labels)
    (second,) = torch.autograd.grad(value, views)
    assert torch.equal(first, second)
