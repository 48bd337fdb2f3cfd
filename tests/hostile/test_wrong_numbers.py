"""Arguments that used to be taken and gave a wrong number, one test for each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pairgrad as pg
from tests.hostile.calls.given import COUNTS, FEATURES, LABELS, LOGITS, SHARES, STATE, UNIT, B, K, P, draw


def patt(**options: Any) -> pg.PATTLoss:
    torch.manual_seed(0)
    return pg.PATTLoss(K, P, class_counts=COUNTS, **options)


LONG = 30 * draw(8, 16)
MANY = pg.ClassState(torch.nn.functional.normalize(draw(50, 16, seed=1), dim=1), 500 * draw(50, seed=2).abs())
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # the loss was off by 8.6 in 244
    "a bound that is none": (
        lambda: pg.vmf_cross_entropy(LONG, torch.arange(8), MANY, max_norm=0.1),
        "max_norm must be a bound on the length of the features, got max_norm = 0.1",
    ),
    # a direction of length 1e20 counted as none, and so did one of 1e-30
    "a long direction": (
        lambda: pg.ClassState(1e20 * STATE.mean_direction, STATE.concentration),
        "mean_direction must have rows of a length",
    ),
    "a short direction": (
        lambda: pg.ClassState(1e-30 * STATE.mean_direction, STATE.concentration),
        "mean_direction must have rows of a length",
    ),
    # normalised to 0
    "long features": (lambda: pg.ProCoLoss(K, P)(1e20 * FEATURES, LABELS), "features must not be longer than 1e+18"),
    "long features, scores": (lambda: pg.ProCoLoss(K, P).scores(1e20 * FEATURES), "features must not be longer than 1e+18"),
    "long features, bank": (
        lambda: pg.ClassBank(K, P, dtype=torch.float64).update(1e200 * FEATURES.double(), LABELS),
        "features must not be longer than",
    ),
    # NaN
    "a radius that overflows": (lambda: pg.vmf_scores(1e20 * FEATURES, STATE), "features, temperature and concentrations must keep"),
    "a temperature that vanishes": (lambda: pg.vmf_cross_entropy(FEATURES, LABELS, STATE, temperature=1e-45), "features, temperature and"),
    "a logit temperature that vanishes": (
        lambda: pg.TemperatureLogitAdjust(COUNTS, 1e-45)(LOGITS, LABELS),
        "logits must leave every row a class",
    ),
    "a row without a class": (lambda: pg.LogitAdjust(COUNTS)(torch.full((B, K), -math.inf), LABELS), "logits must leave every row a class"),
    "a prior strength of NaN": (
        lambda: pg.ProCoLoss(K, P, class_counts=COUNTS, prior_strength=math.nan),
        "prior_strength must be a finite number",
    ),
    "a weight of NaN": (lambda: pg.ProCoLoss(K, P, weight=math.nan), "weight must be a finite number"),
    "an outlier weight of NaN": (lambda: patt(outlier_weight=math.nan), "outlier_weight must be a finite number"),
    "no class can occur": (
        lambda: pg.vmf_cross_entropy(FEATURES, LABELS, STATE, log_prior=torch.full((K,), -math.inf)),
        "log_prior must have a finite entry",
    ),
    # a number of another meaning
    "negative weights": (lambda: pg.vmf_cross_entropy(FEATURES, LABELS, STATE, weight=-COUNTS), "weight must be >= 0"),
    "negative probabilities": (lambda: pg.vmf_cross_entropy(FEATURES, -SHARES, STATE), "labels as probabilities must be >= 0"),
    "an index that is no integer": (
        lambda: pg.vmf_cross_entropy(FEATURES, LABELS, STATE, ignore_index=0.0),
        "ignore_index must be an integer",
    ),
    "an index that is a truth value": (
        lambda: pg.vmf_cross_entropy(FEATURES, LABELS, STATE, ignore_index=True),
        "ignore_index must be an integer",
    ),
    "tiles of nothing": (lambda: pg.vmf_cross_entropy(FEATURES, LABELS, STATE, tile=0), "tile must be an integer >= 1"),
    "a word for a truth value": (lambda: pg.ProCoLoss(K, P, normalize="False"), "normalize must be True or False, got 'False'"),
    "a word for a check": (lambda: pg.ClassBank(K, P, validate="no"), "validate must be True, False or None, got 'no'"),
    "outliers of other classes": (lambda: patt()(UNIT, LABELS, LOGITS, draw(3, 2)), "outlier_logits must have shape (batch, 3)"),
    "labels that broadcast": (lambda: _density().loss(FEATURES, LABELS[:1]), "labels must have shape (5,)"),
    "a prior that broadcasts": (lambda: _density().loss(FEATURES, LABELS, log_prior=torch.zeros(B, 1)), "log_prior must have shape (3,)"),
    "a decay in a string": (lambda: pg.ClassBank(K, P, decay="0.5"), "decay must be a number between 0 and 1"),
    "bytes for a shape": (lambda: pg.HypersphericalUniform(3).sample(b"2"), "sample_shape must be a tuple of integers"),
    # no answer at all
    "a recurrence without end": (lambda: pg.potential(8, "original", start=2**62), "'original' takes 4611686018427387904 sequential steps"),
}


def _density() -> pg.VMFClassifier:
    return pg.VMFClassifier(K, P, score="density")


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


def test_no_strength_is_no_prior() -> None:
    """0 times the -inf of a class without samples was NaN."""
    torch.manual_seed(0)
    loss = pg.ProCoLoss(K, P, class_counts=[5, 3, 0], prior_strength=0)
    assert torch.equal(loss.log_prior, torch.zeros(K))
    assert bool(loss(FEATURES[:2], LABELS[:2]).isfinite())


def test_narrow_labels_of_many_classes() -> None:
    """uint8 labels were compared with the number of classes modulo 256."""
    weight, prior = draw(300, P), torch.ones(300)
    labels = torch.tensor([200, 100, 250], dtype=torch.uint8)
    wide, narrow = (pg.ood.FeatureCalibration(weight, None, prior) for _ in range(2))
    wide.update(FEATURES[:3], labels.long(), FEATURES[3:], torch.tensor([7, 255]))
    narrow.update(FEATURES[:3], labels, FEATURES[3:], torch.tensor([7, 255], dtype=torch.uint8))
    assert torch.equal(narrow.total, wide.total)


@pytest.mark.parametrize("method", ["reset", "start_epoch"])
def test_a_bank_survives_a_generator_that_is_none(method: str) -> None:
    """It was emptied before torch complained."""
    bank = pg.ClassBank(K, P, memory="two-epochs")
    bank.update(UNIT, LABELS)
    before = {name: tensor.clone() for name, tensor in bank.state_dict().items()}
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator or None, got 7 \(int\)"):
        getattr(bank, method)(generator=7)
    assert all(torch.equal(tensor, before[name]) for name, tensor in bank.state_dict().items())
