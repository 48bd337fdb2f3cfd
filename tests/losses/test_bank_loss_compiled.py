"""The loss with a class bank under `torch.compile`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.losses import BankLoss, fused
from pairgrad.losses import views as views_module
from tests.losses.bank_losses import DIM, FEW, LABELS, LOSS, MANY, TAU, counts, run, views_of, warm


def compiled_pair(classes: int, **options: Any) -> tuple[BankLoss, BankLoss]:
    torch._dynamo.reset()
    eager = warm(BankLoss(classes, DIM, temperature=TAU, class_counts=counts(classes), **options))
    compiled = BankLoss(classes, DIM, temperature=TAU, class_counts=counts(classes), compile=True, **options)
    compiled.load_state_dict(eager.state_dict())
    return eager, compiled


def check_compiled(eager: BankLoss, compiled: Any, views: int) -> None:
    """Twice, so that the second step starts from a bank that compiled code has written."""
    for step in range(2):
        batch, labels = views_of(views, dtype=torch.float32), torch.tensor(LABELS["repeated"]) + step
        want, leaf = run(eager, batch, labels), batch.clone().requires_grad_()
        value = compiled(leaf, labels)
        torch.testing.assert_close(value.detach(), want[0].mean(), rtol=LOSS[torch.float32], atol=0)
        (gradient,) = torch.autograd.grad(value, leaf)
        assert (gradient * want[0].numel() - want[1]).norm() <= 4 * LOSS[torch.float32] * want[1].norm()


def test_compiled_step_is_the_eager_one() -> None:
    eager, compiled = compiled_pair(MANY)
    check_compiled(eager, compiled, 2)
    assert torch.equal(eager.bank.counts, compiled.bank.counts)
    torch.testing.assert_close(eager.bank.sums, compiled.bank.sums, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(eager.bank.concentration, compiled.bank.concentration, rtol=1e-4, atol=0)
    assert compiled._compiled is not None
    assert copy.deepcopy(compiled)._compiled is None
    assert pickle.loads(pickle.dumps(compiled))._compiled is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "views", "options"),
    [
        (MANY, 1, {}),
        (FEW, 2, {}),
        (MANY, 3, {"normalize": False}),
        (MANY, 2, {"score": "before-update"}),
        (MANY, 2, {"realization": "arfr"}),
        (MANY, 2, {"memory": "two-epochs"}),
    ],
    ids=str,
)
def test_other_compiled_steps(classes: int, views: int, options: dict[str, Any]) -> None:
    check_compiled(*compiled_pair(classes, **options), views)


@pytest.mark.slow
def test_compiled_evaluation_and_second_derivatives() -> None:
    eager, compiled = compiled_pair(MANY)
    check_compiled(eager.eval(), compiled.eval(), 2)
    leaf = views_of(2, dtype=torch.float32).requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(leaf, torch.tensor(LABELS["distinct"])), leaf, create_graph=True)
    assert gradient.requires_grad


@pytest.mark.slow
def test_a_module_compiled_from_outside() -> None:
    eager, other = compiled_pair(MANY)
    other.compile_mode = False
    check_compiled(eager, pg.compile(other), 2)
    assert torch.equal(eager.bank.counts, other.bank.counts)


@pytest.mark.slow
def test_compiled_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a size, tiles are compiled instead of the whole step."""
    monkeypatch.setattr(fused, "_COMPILED_WHOLE", 1000)
    monkeypatch.setattr(fused, "_COMPILED_TILE", 1)
    views_module._compiled_visit.cache_clear()
    eager, compiled = compiled_pair(600)
    plan = compiled._plan(views_of(2, dtype=torch.float32).requires_grad_())
    assert plan.compiled_tiles
    assert plan.tile == 256
    check_compiled(eager, compiled, 2)
    assert compiled._compiled is None
