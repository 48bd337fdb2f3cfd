"""ProCo's class state out of a checkpoint."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.compat import read_proco_checkpoint
from pairgrad.compat.proco import ProCoLoss, load_checkpoint

from .checkpoints import K as SAVED_CLASSES
from .checkpoints import P as SAVED_DIM
from .criterion import (
    CAP,
    LOGITS,
    TAU,
    Estimator,
    assert_same_bits,
    bits,
)


def fill(criterion, _module=None) -> None:
    """Class statistics like those of a run: lengths below, at and above 1, a class without samples, large counts."""
    generator = torch.Generator().manual_seed(1)
    for estimator, counts in ((criterion.estimator_old, [0, 3, 1, 70_001, 12]), (criterion.estimator, [5, 0, 2, 1_234, 1])):
        direction = F.normalize(torch.randn(SAVED_CLASSES, SAVED_DIM, generator=generator), dim=1)
        estimator.Ave = direction * torch.tensor([0.9, 0.3, 1.0, 0.7, 24.0])[:, None]
        estimator.Amount = torch.tensor(counts, dtype=torch.float32)


def loaded(path, **options) -> ProCoLoss:
    criterion = ProCoLoss(SAVED_DIM, TAU, SAVED_CLASSES, **options)
    assert load_checkpoint(criterion, path) is criterion
    return criterion


@pytest.fixture
def checkpoint(save):
    path, _ = save(fill)
    return path, read_proco_checkpoint(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_checkpoint_restores_the_class_state(checkpoint, dtype):
    """The logits are those of a state made by hand from the same numbers, now, after the next hook, and after further updates."""
    path, found = checkpoint
    criterion = loaded(path, dtype=dtype)
    features, labels = F.normalize(torch.randn(5, SAVED_DIM, dtype=dtype), dim=1), torch.tensor([0, 1, 2, 3, 3])
    eps = torch.finfo(dtype).eps
    # float32: the direction and kappa are rounded, so q is off by their rounding times the size of q, at most 1 / tau
    tolerance = max(64 * eps / TAU, LOGITS)
    for estimator, saved in ((criterion.estimator_old, found.old), (criterion.estimator, found.new)):
        assert estimator.Amount.tolist() == saved.count.tolist()
        torch.testing.assert_close(estimator.Ave, saved.mean.to(dtype), rtol=2 * eps, atol=0)
    for saved in (found.old, found.new):
        length = saved.mean.double().norm(dim=1)
        kappa = SAVED_DIM * length / (1 - length**2)
        kappa = torch.where((length >= 1 - 1e-7) | (kappa > CAP), CAP, kappa)
        state = pg.ClassState(saved.mean.to(dtype), kappa.to(dtype))
        torch.testing.assert_close(criterion(features), pg.vmf_scores(features, state, TAU), rtol=0, atol=tolerance)
        criterion._hook_before_epoch(4, 5)
    again = loaded(path, dtype=dtype)
    again(features, labels)
    for estimator, saved in ((again.estimator_old, found.old), (again.estimator, found.new)):
        model = Estimator(saved.mean)
        model.Amount = saved.count.double()
        model.update(features, labels)
        assert torch.equal(estimator.Amount, model.Amount)
        torch.testing.assert_close(estimator.Ave.double(), model.Ave, rtol=0, atol=4 * 24 * eps)


def test_sums_of_a_checkpoint_are_kept_in_two_words(checkpoint):
    """mean * count to the precision of float64, although the bank is float32; nothing of what was there before is left."""
    path, found = checkpoint
    criterion = ProCoLoss(SAVED_DIM, TAU, SAVED_CLASSES)
    criterion.bank.compensation.fill_(7.0)
    load_checkpoint(criterion, path)
    for prefix, saved in (("", found.old), ("next_", found.new)):
        sums, low = (getattr(criterion.bank, prefix + name).double() for name in ("sums", "compensation"))
        exact_sums = saved.mean.double() * saved.count.double().clamp_min(1)[:, None]
        torch.testing.assert_close(sums + low, exact_sums, rtol=2.0**-48, atol=0)
        assert (low != 0).any()
        assert torch.equal(sums, exact_sums.float().double())


def test_a_checkpoint_replaces_a_state_in_use(checkpoint):
    path, _ = checkpoint
    criterion = ProCoLoss(SAVED_DIM, TAU, SAVED_CLASSES)
    features = torch.randn(5, SAVED_DIM)
    criterion(features, torch.arange(5))
    load_checkpoint(criterion, path)
    assert_same_bits(criterion, bits(loaded(path)))
    assert torch.equal(criterion(features), loaded(path)(features))


def test_a_cumulative_criterion_takes_the_scored_state(checkpoint):
    path, found = checkpoint
    criterion, both = loaded(path, memory="cumulative"), loaded(path)
    assert "criterion.bank.next_sums" not in criterion.state_dict()
    assert criterion.estimator_old.Amount.tolist() == found.old.count.tolist()
    features = torch.randn(5, SAVED_DIM)
    assert torch.equal(criterion(features), both(features))


@pytest.mark.parametrize("memory", ["two-epochs", "cumulative"])
@pytest.mark.parametrize(("dim", "classes"), [(SAVED_DIM + 1, SAVED_CLASSES), (SAVED_DIM, SAVED_CLASSES + 1), (SAVED_CLASSES, SAVED_DIM)])
def test_a_checkpoint_of_another_shape_changes_nothing(checkpoint, memory, dim, classes):
    path, _ = checkpoint
    criterion = ProCoLoss(dim, TAU, classes, memory=memory)
    criterion(torch.randn(3, dim), torch.tensor([0, 1, 1]))
    before = bits(criterion)
    with pytest.raises(ValueError, match=rf"\(5, 8\).*\({classes}, {dim}\).*ProCoLoss\(contrast_dim=8, num_classes=5\)"):
        load_checkpoint(criterion, path)
    assert_same_bits(criterion, before)


def test_a_checkpoint_that_cannot_be_read_changes_nothing(save, tmp_path):
    def broken(criterion, _module):
        fill(criterion)
        criterion.estimator.Ave[2, 3] = torch.nan  # the second estimator: the first one is good

    path, _ = save(broken)
    criterion = ProCoLoss(SAVED_DIM, TAU, SAVED_CLASSES)
    before = bits(criterion)
    with pytest.raises(ValueError, match="not finite for class 2"):
        load_checkpoint(criterion, path)
    with pytest.raises(FileNotFoundError):
        load_checkpoint(criterion, tmp_path / "absent")
    assert_same_bits(criterion, before)


def test_a_checkpoint_whose_scores_would_not_be_finite_changes_nothing(save):
    """In float64 it can be used, in float32 not."""

    def huge(criterion, _module):
        fill(criterion)
        criterion.estimator.Ave = criterion.estimator.Ave.double()
        criterion.estimator.Ave[2] *= 1e100

    path, _ = save(huge)
    criterion = ProCoLoss(SAVED_DIM, TAU, SAVED_CLASSES)
    before = bits(criterion)
    message = rf"the class state in '{path}' cannot be used: estimator\.Ave \* estimator\.Amount of class 2 must be finite numbers in torch\.float32"
    with pytest.raises(ValueError, match=message):
        load_checkpoint(criterion, path)
    assert_same_bits(criterion, before)
    assert loaded(path, dtype=torch.float64)(torch.ones(1, SAVED_DIM, dtype=torch.float64)).isfinite().all()


def test_a_checkpoint_under_another_key(save):
    def renamed(criterion, _module):
        fill(criterion)
        return {"criterion_scl": None, "scl": criterion}

    path, _ = save(renamed)
    criterion = ProCoLoss(SAVED_DIM, TAU, SAVED_CLASSES)
    with pytest.raises(ValueError, match="criterion_scl"):
        load_checkpoint(criterion, path)
    load_checkpoint(criterion, path, key="scl")
    assert criterion.estimator_old.Amount.tolist() == [0, 3, 1, 70_001, 12]
