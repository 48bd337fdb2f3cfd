"""The loss with a class bank as a module: shapes, reductions, copies, errors, and what it does not allocate."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.losses import BankLoss
from tests.losses.bank_losses import BATCH, DIM, FEW, LABELS, MANY, TAU, counts, run, same_state, views_of, warm
from tests.losses.largest import Largest


def test_reductions_and_shapes_of_views() -> None:
    views, labels = views_of(2), torch.tensor(LABELS["repeated"])
    made = {
        r: BankLoss(FEW, DIM, reduction=r, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for r in ("mean", "sum", "none")
    }
    rows = made["none"](views, labels)
    assert rows.shape == (2, BATCH)
    torch.testing.assert_close(made["sum"](views, labels), rows.sum())
    torch.testing.assert_close(made["mean"](list(views), labels), rows.mean())
    assert BankLoss(FEW, DIM, reduction="none", dtype=torch.float64)(views[0], labels).shape == (1, BATCH)
    tied = views[0].clone().requires_grad_()
    made["mean"].eval()((tied, 2 * tied), labels).backward()
    assert tied.grad is not None
    assert bool((tied.grad.abs().amax(1) > 0).all())


def test_scores() -> None:
    """Without prior and update, differentiable also after the bank has gone on."""
    loss = warm(BankLoss(FEW, DIM, temperature=TAU, class_counts=counts(FEW), dtype=torch.float64))
    features = views_of(1)[0].requires_grad_()
    before = copy.deepcopy(loss.bank)
    scores = loss.scores(features)
    same_state(loss.bank, before)
    want = pg.vmf_scores(F.normalize(features, dim=1), before, TAU)
    torch.testing.assert_close(scores, want)
    loss(features.detach(), torch.tensor(LABELS["distinct"]))
    torch.testing.assert_close(torch.autograd.grad(scores.sum(), features)[0], torch.autograd.grad(want.sum(), features)[0])
    raw = BankLoss(FEW, DIM, temperature=TAU, normalize=False, dtype=torch.float64)
    torch.testing.assert_close(raw.scores(features), pg.vmf_scores(features, raw.bank, TAU))


@pytest.mark.parametrize("normalize", [True, False])
def test_soft_targets(normalize: bool) -> None:
    """Against probabilities, with the prior, without update; differentiable, twice, after the bank has gone on."""
    loss = warm(BankLoss(FEW, DIM, temperature=TAU, class_counts=counts(FEW), normalize=normalize, dtype=torch.float64))
    features, labels = views_of(1)[0].requires_grad_(), torch.tensor(LABELS["distinct"])
    targets = torch.softmax(torch.randn(BATCH, FEW, dtype=torch.float64), 1)
    before = copy.deepcopy(loss.bank)
    got = loss.soft(features, targets)
    same_state(loss.bank, before)
    scores = pg.vmf_scores(F.normalize(features, dim=1) if normalize else features, before, TAU)
    want = F.cross_entropy(scores + loss.log_prior, targets)
    torch.testing.assert_close(got, want)
    loss(features.detach(), labels)
    (ours,), (theirs,) = (torch.autograd.grad(value, features, create_graph=True) for value in (got, want))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(g.square().sum(), features)[0] for g in (ours, theirs)))


@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_copies_go_on_alike(way: str) -> None:
    """Equal bits in the next step: class state and cached quantities come along; the original is not touched by the copy."""
    loss = warm(BankLoss(MANY, DIM, temperature=TAU, class_counts=counts(MANY), realization="arfr"))
    views, labels = views_of(2, dtype=torch.float32), torch.tensor(LABELS["repeated"])
    loss(views, labels)
    if way == "state_dict":
        other = BankLoss(MANY, DIM, temperature=TAU, class_counts=counts(MANY), realization="arfr")
        other.load_state_dict(loss.state_dict())
    else:
        other = copy.deepcopy(loss) if way == "deepcopy" else pickle.loads(pickle.dumps(loss))
        assert other.potential == loss.potential
    assert {"bank.sums", "bank.compensation", "bank.counts"} <= set(loss.state_dict())
    before = copy.deepcopy(loss.bank)
    views = views_of(2, dtype=torch.float32)
    got = run(other, views, labels)
    same_state(loss.bank, before)
    want = run(loss, views, labels)
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])
    same_state(loss.bank, other.bank)


def test_repr() -> None:
    text = repr(BankLoss(FEW, DIM, class_counts=counts(FEW), realization="arfr"))
    assert "temperature=0.1, realization='arfr', normalize=True, score='after-update', prior=True" in text
    assert "ClassBank(6, 64" in text


def test_errors_change_nothing() -> None:
    loss = warm(BankLoss(FEW, DIM, temperature=TAU))
    before = copy.deepcopy(loss.bank)
    views, labels = views_of(2, dtype=torch.float32), torch.tensor(LABELS["distinct"])
    wrong = views.clone()
    wrong[1, 2, 3] = torch.nan
    for features, targets, error, message in (
        (wrong, labels, ValueError, "features must be finite, got NaN or infinity"),
        (views, labels + 4, ValueError, r"labels must lie in \[0, 5\], got values from 4 to 9"),
        (views, labels[:3], ValueError, r"labels must have shape \(4,\), one per row of features"),
        (views, labels.float(), TypeError, "labels must be an integer torch tensor"),
        (views[..., :5], labels, ValueError, "features must have shape"),
        (views[None], labels, ValueError, r"features must have shape \(batch, dim\) or \(views, batch, dim\)"),
        ([views[0], views[1, :2]], labels, ValueError, "features must be views of one batch, tensors of one shape"),
        ([views[0], "view"], labels, ValueError, "features must be views of one batch, tensors of one shape"),
    ):
        with pytest.raises(error, match=message):
            loss(features, targets)
        same_state(loss.bank, before)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temperature": 0.0}, ValueError, "temperature must be a positive finite number"),
        ({"temperature": torch.tensor(0.1)}, TypeError, "temperature of a loss with a bank must be a number"),
        ({"score": "now"}, ValueError, "score must be one of 'after-update', 'before-update', got 'now'"),
        ({"geometry": "dense"}, ValueError, "geometry must be one of"),
        ({"reduction": "avg"}, ValueError, "reduction must be one of"),
        ({"realization": "exact"}, ValueError, "realization must be one of"),
        ({"realization": pg.potential(10)}, ValueError, "realization must be a potential of dim=64"),
        ({"memory": "short"}, ValueError, "memory must be one of"),
        ({"class_counts": [0.0] * FEW}, ValueError, "class_counts must have a positive entry"),
    ],
    ids=lambda v: str(v)[:40] if isinstance(v, dict) else "",
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BankLoss(FEW, DIM, **options)


@pytest.mark.parametrize("count", [1, 2])
def test_no_tensor_has_a_row_per_sample_and_class(count: int) -> None:
    """Neither (V, B, K, p) nor (B, K, p), and no one-hot matrix: beside the (V, B, K) scores nothing exceeds the class rows."""
    classes, batch = 512, 8
    loss = BankLoss(classes, DIM, temperature=TAU, class_counts=counts(classes))
    views, labels = views_of(count, batch, torch.float32).requires_grad_(), torch.randint(0, classes, (batch,))
    with Largest() as seen:
        loss(views, labels).backward()
    assert seen.elements <= classes * DIM
    assert not any(classes in shape and DIM in shape and len(shape) > 2 and max(shape[:-2]) > 1 for shape in seen.shapes)
    assert (classes, batch) not in seen.shapes
    assert any(shape[-1:] == (classes,) and math.prod(shape[:-1]) == count * batch for shape in seen.shapes)
