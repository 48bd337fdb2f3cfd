"""PATT's objective: numbers of the presets, terms and their sum, in PATT's regime of long features; nothing half done."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from tests.losses.sequence import sequence

CLASSES, DIM, BATCH = 20, 64, 4
COUNTS = [float(100 // (k + 1) + 1) for k in range(CLASSES)]


def prior() -> torch.Tensor:
    counts = torch.tensor(COUNTS, dtype=torch.float64)
    return torch.log(counts / counts.sum())


def batch(dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Rectified features of length about 4, two views; the classifier's logits; outliers."""
    return {
        "features": torch.randn(2, BATCH, DIM, dtype=torch.float64).relu().to(dtype),
        "labels": torch.tensor([3, 0, 3, 7]),
        "logits": 3 * torch.randn(BATCH, CLASSES, dtype=torch.float64).to(dtype),
        "outlier_logits": torch.randn(9, CLASSES, dtype=torch.float64).to(dtype),
    }


@pytest.mark.parametrize(
    ("preset", "adjustment", "outliers", "temperature"),
    [("cifar", 0.5, 0.1, 0.9), ("imagenet", 0.5, 0.02, 0.7), ("cifar-readme", 0.1, 0.5, 0.9)],
)
def test_presets(preset: str, adjustment: float, outliers: float, temperature: float) -> None:
    """ISAC + l2 CE(z / T + log pi) + l1 mean(logsumexp z - mean z), with the numbers of the public code."""
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, preset=preset, dtype=torch.float64)
    assert tuple(loss.weights) == (adjustment, outliers, temperature)
    # five samples per class, or every view finds its own class at once
    loss.bank.update(torch.randn(100, DIM, dtype=torch.float64).relu(), torch.arange(100) % CLASSES)
    bank, inputs = copy.deepcopy(loss.bank), batch()
    terms = loss.terms(**inputs)
    assert terms.augmentation > 0.1
    rows, _ = sequence(bank, inputs["features"], inputs["labels"], log_prior=prior(), normalize=False)
    scale = 50  # ||f|| / tau
    torch.testing.assert_close(terms.augmentation, rows.mean(), rtol=16 * scale * torch.finfo(torch.float64).eps, atol=0)
    torch.testing.assert_close(terms.adjustment, F.cross_entropy(inputs["logits"] / temperature + prior(), inputs["labels"]))
    z = inputs["outlier_logits"]
    torch.testing.assert_close(terms.outliers, (torch.logsumexp(z, 1) - z.mean(1)).mean())
    torch.testing.assert_close(terms.total, terms.augmentation + adjustment * terms.adjustment + outliers * terms.outliers)


def test_numbers_instead_of_a_preset() -> None:
    loss = pg.PATTLoss(
        CLASSES, DIM, class_counts=COUNTS, adjustment_weight=0.0, outlier_weight=2, logit_temperature=1.5, dtype=torch.float64
    )
    assert tuple(loss.weights) == (0.0, 2.0, 1.5)
    assert loss.adjustment.temperature == 1.5
    inputs = batch()
    terms = loss.terms(**inputs)
    torch.testing.assert_close(terms.total, terms.augmentation + 2 * terms.outliers)
    partly = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, outlier_weight=0.3)
    assert tuple(partly.weights) == (0.5, 0.3, 0.9)


def test_the_total_and_its_gradients() -> None:
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, dtype=torch.float64)
    other = copy.deepcopy(loss)
    inputs = {name: tensor.requires_grad_(tensor.is_floating_point()) for name, tensor in batch().items()}
    leaves = [inputs[name] for name in ("features", "logits", "outlier_logits")]
    total = loss(**inputs)
    gradients = torch.autograd.grad(total, leaves)
    terms = other.terms(**inputs)
    assert torch.equal(terms.total, total)
    for leaf, gradient, term, weight in zip(leaves, gradients, terms[1:], (1.0, 0.5, 0.1), strict=True):
        torch.testing.assert_close(gradient, weight * torch.autograd.grad(term, leaf)[0])


def test_without_outliers() -> None:
    inputs = batch()
    del inputs["outlier_logits"]
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, dtype=torch.float64)
    terms = loss.terms(**inputs)
    assert terms.outliers.item() == 0
    torch.testing.assert_close(terms.total, terms.augmentation + 0.5 * terms.adjustment)


def test_features_as_they_come_or_normalised() -> None:
    """As in the public code, unnormalised features longer than 1 have resultant lengths above 1 and the capped concentration."""
    inputs = batch()
    raw = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, dtype=torch.float64)
    unit = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, normalize=True, dtype=torch.float64)
    assert not raw.augmentation.normalize
    for loss in (raw, unit):
        loss(**inputs)
    assert raw.bank.resultant_length[3] > 1
    assert raw.bank.concentration[[0, 3, 7]].tolist() == [1e5] * 3
    assert unit.bank.resultant_length[3] < 1
    assert unit.bank.concentration[3] < 1e5
    want = pg.vmf_scores(inputs["features"][0], raw.bank)
    torch.testing.assert_close(raw.scores(inputs["features"][0]), want)


@pytest.mark.parametrize("name", ["original", "consistent", "arfr", "paired"])
def test_arms(name: str) -> None:
    """One argument; the class state, the adjustment and the outliers do not depend on it."""
    inputs = batch(torch.float32)
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, realization=name, generator=torch.Generator().manual_seed(1))
    base = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, realization="original", generator=torch.Generator().manual_seed(1))
    terms, want = loss.terms(**inputs), base.terms(**inputs)
    assert loss.augmentation.potential == pg.potential(DIM, name)
    assert torch.equal(terms.adjustment, want.adjustment)
    assert torch.equal(terms.outliers, want.outliers)
    assert torch.equal(loss.bank.sums, base.bank.sums)
    assert torch.equal(terms.augmentation, want.augmentation) == (name in ("original", "consistent"))


def test_errors_come_before_the_bank_changes() -> None:
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS)
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    good = batch(torch.float32)
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"logits": good["logits"][:, 1:]}, ValueError, r"logits must have shape \(batch, 20\)"),
        ({"logits": good["logits"][1:]}, ValueError, "labels must be integers of shape"),
        ({"logits": torch.full_like(good["logits"], torch.nan)}, ValueError, "logits must not be NaN"),
        ({"outlier_logits": [0.0]}, TypeError, "outlier_logits must be a tensor of shape"),
        ({"outlier_logits": torch.full((2, CLASSES), torch.inf)}, ValueError, "logits must be finite"),
        ({"labels": good["labels"] + 15}, ValueError, r"labels must lie in \[0, 19\]"),
        ({"features": good["features"][..., 1:]}, ValueError, "features must have shape"),
        ({"features": torch.full_like(good["features"], torch.nan)}, ValueError, "features must be finite"),
    ]
    for change, error, message in wrong:
        with pytest.raises(error, match=message):
            loss(**{**good, **change})
        assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items()), change


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"preset": "mine"}, ValueError, "preset must be one of 'cifar', 'imagenet', 'cifar-readme', got 'mine'"),
        ({"class_counts": [1.0, 2.0]}, ValueError, "class_counts must have one number for each of the 20 classes, got 2"),
        ({"logit_temperature": 0.0}, ValueError, "temperature must be a finite number > 0"),
        ({"realization": "exact"}, ValueError, "realization must be one of"),
    ],
    ids=lambda v: str(v)[:40] if isinstance(v, dict) else "",
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.PATTLoss(CLASSES, DIM, **{"class_counts": COUNTS, **options})


def test_a_prior_that_cannot_be_taken_changes_nothing() -> None:
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS)
    before = loss.augmentation.log_prior
    with pytest.raises(TypeError, match="class_counts must be"):
        loss.set_prior(None)  # type: ignore[arg-type]
    assert loss.augmentation.log_prior is before


def test_copies_and_repr() -> None:
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, realization="consistent")
    inputs = batch(torch.float32)
    loss(**inputs)
    other = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, realization="consistent")
    other.load_state_dict(loss.state_dict())
    copies = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), other]
    want = loss(**inputs)
    assert all(torch.equal(each(**inputs), want) for each in copies)
    assert "preset='cifar', Weights(adjustment=0.5, outliers=0.1, logit_temperature=0.9)" in repr(loss)


def test_evaluation_does_not_update_and_dtype_and_device_are_those_of_the_bank() -> None:
    loss = pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, dtype=torch.float64).eval()
    inputs = batch()
    first = loss(**inputs)
    assert torch.equal(loss(**inputs), first)
    assert loss.bank.counts.sum() == 0
    assert loss.adjustment.log_prior.dtype == torch.float64
    assert pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, device="meta").adjustment.log_prior.device.type == "meta"
