"""ProCo's names against a small model of its public criterion: scores, memories, saving."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch

import pairgrad as pg
from pairgrad.compat.proco import ProCoLoss

from .criterion import (
    CAP,
    GRADIENT,
    KAPPA,
    LOGITS,
    MEAN,
    TAU,
    U32,
    Criterion,
    Estimator,
    K,
    P,
    U,
    assert_agree,
    assert_same_bits,
    batches,
    bits,
    build,
    exact,
    finite,
    random_batch,
)


@pytest.mark.parametrize("scale", [1.0, 0.7, 30.0], ids=["unit", "short", "R > 1"])
def test_three_epochs_are_those_of_the_public_criterion(scale):
    criterion = build()
    model = Criterion(criterion)
    capped = set()
    for epoch, step, features, labels in batches(scale):
        if step == 0:
            criterion._hook_before_epoch(epoch, 3)
            model.next_epoch(criterion)
        logits, expected = criterion(features, labels), model(features, labels)
        assert_agree(criterion.estimator_old, model.old)
        assert_agree(criterion.estimator, model.new)
        torch.testing.assert_close(criterion.estimator_old.kappa, model.old.kappa, rtol=KAPPA, atol=0)
        capped.add((model.old.kappa == CAP).sum().item())
        assert torch.equal(criterion.estimator_old.kappa == CAP, model.old.kappa == CAP)
        assert logits.dtype == torch.float64
        torch.testing.assert_close(logits, expected, rtol=0, atol=LOGITS * max(scale, 1))
        torch.testing.assert_close(criterion.estimator_old.logc, exact(model.old.kappa), rtol=KAPPA, atol=LOGITS)
    # the first batch of an epoch has five singletons, later ones have classes with two samples; with R > 1 every class that was seen is at the cap
    assert {1.0: {0, 5} <= capped, 0.7: capped == {0}, 30.0: capped == {5, 6}}[scale], capped


@pytest.mark.parametrize("geometry", ["factorised", "expanded"])
def test_original_has_the_scores_and_the_gradient_of_the_public_code(geometry):
    """Scores: the finite recurrence at the explicit norm. Gradient: min(raw ratio, 1), which is not their derivative, times the unit resultant / tau."""
    criterion = build(realization="original", geometry=geometry)
    model = Criterion(criterion, potential=lambda x: finite(x)[0])
    potential = pg.potential(P, "original")
    clipped = 0
    for _, _, features, labels in batches(epochs=2):
        features.requires_grad_()
        logits, expected = criterion(features, labels), model(features, labels)
        torch.testing.assert_close(logits, expected, rtol=0, atol=LOGITS)
        resultants, radii = model.resultants(features), model.radii(features)
        torch.testing.assert_close(logits, potential.value(radii) - potential.value(model.old.kappa), rtol=0, atol=LOGITS)
        torch.testing.assert_close(criterion.estimator_old.logc, finite(model.old.kappa)[0], rtol=KAPPA, atol=LOGITS)
        weights = torch.randn_like(logits)
        logits.backward(weights)
        raw = finite(radii)[1]
        clipped += int((raw > 1).sum())
        slopes = (weights * raw.clamp(max=1) / radii)[..., None] * resultants / TAU
        torch.testing.assert_close(features.grad, slopes.sum(1), rtol=0, atol=GRADIENT)
    assert clipped  # the singletons' concentration is the cap, where the raw ratio exceeds 1


def test_float32_expanded_radii_round_like_the_public_code():
    """r and kappa in float32, the recurrence in float64. The public scores differ from ours by the rounding of r: p = 64 products, summed in blocks, and one
    of kappa mu."""
    criterion = ProCoLoss(P, TAU, K, realization="original", geometry="expanded")
    model = Criterion(criterion, potential=lambda x: finite(x)[0])
    for _, _, features, labels in batches(epochs=1, dtype=torch.float32):
        logits = criterion(features, labels)
        assert logits.dtype == torch.float32
        model(features, labels)
        kappa = criterion.estimator_old.kappa
        direction = criterion.bank.mean_direction
        radii = (kappa[:, None] * direction + (features / TAU)[:, None]).norm(dim=2)
        expected = finite(radii.double())[0] - finite(kappa.double())[0]
        assert torch.all((logits - expected).abs() <= 8 * U32 * radii)


def test_original_is_immune_to_where_the_public_recurrence_overwrites_itself():
    """p = 512: a smallest radius of the batch in [46.65, 47.10] ruins the public gradient, one in [47.10, 47.54] the public scores, of all of the batch."""
    dim = 512
    criterion = ProCoLoss(dim, TAU, 2, realization="original", dtype=torch.float64)
    mean = torch.zeros(2, dim, dtype=torch.float64)
    mean[:, 0] = 0.0896
    criterion.bank.update(mean, torch.arange(2))
    kappa = criterion.estimator_old.kappa[0].item()
    for radius, low, high in ((46.9, 46.65, 47.10), (47.3, 47.10, 47.54)):
        cosine = (radius**2 - kappa**2 - 100) / (20 * kappa)
        rows = torch.zeros(2, dim, dtype=torch.float64)
        rows[0, :2] = torch.tensor([cosine, math.sqrt(1 - cosine**2)], dtype=torch.float64)
        rows[1, 0] = 1.0  # at radius kappa + 10
        features = rows.clone().requires_grad_()
        logits = criterion(features)
        logits[:, 0].sum().backward()
        at = torch.tensor([radius, kappa + 10], dtype=torch.float64)
        assert low < radius < high
        truth = pg.potential(dim)  # the finite recurrence is right to rounding at such small x / nu
        torch.testing.assert_close(logits[:, 0], truth.difference(torch.tensor(kappa, dtype=torch.float64), at), rtol=0, atol=1e-11)
        resultants = rows / TAU
        resultants[:, 0] += kappa
        expected = (truth.slope(at) / at)[:, None] * resultants / TAU
        torch.testing.assert_close(features.grad, expected, rtol=0, atol=1e-12)


def test_before_the_first_batch_of_an_epoch_concentrations_are_derived_already():
    """The public code keeps the initial kappa until the next update; here the scored state is complete at once."""
    criterion = build()
    for _, _, features, labels in batches(epochs=1):
        criterion(features, labels)
    model = Estimator(criterion.estimator.Ave)
    model.update_kappa()
    torch.testing.assert_close(criterion.estimator.kappa, model.kappa, rtol=KAPPA, atol=0)
    criterion._hook_before_epoch(1, 2)
    torch.testing.assert_close(criterion.estimator_old.kappa, model.kappa, rtol=KAPPA, atol=0)
    state = pg.ClassState(model.Ave, model.kappa)
    features, _ = random_batch()
    torch.testing.assert_close(criterion(features), pg.vmf_scores(features, state, TAU), rtol=0, atol=LOGITS)


def test_initial_memories_are_random_independent_and_erased_by_the_first_sample():
    criterion = build()
    old, new = criterion.estimator_old, criterion.estimator
    for estimator in (old, new):
        assert estimator.Amount.tolist() == [0] * K
        torch.testing.assert_close(estimator.Ave.norm(dim=1), torch.full((K,), 0.9, dtype=torch.float64), rtol=4 * U, atol=0)
        torch.testing.assert_close(estimator.kappa, torch.full((K,), P * 90 / 19, dtype=torch.float64), rtol=KAPPA, atol=0)
    assert not torch.isclose(old.Ave, new.Ave).all(1).any()
    assert not torch.isclose(old.Ave[0], old.Ave[1]).all()
    first = new.Ave.clone()
    features, _ = random_batch(1)
    criterion(features, torch.tensor([2]))
    assert torch.equal(criterion.estimator_old.Ave[2], features[0])
    assert torch.equal(criterion.estimator.Ave[2], features[0])
    criterion._hook_before_epoch(0, 1)
    assert torch.equal(criterion.estimator_old.Ave[0], first[0])
    assert torch.equal(criterion.estimator_old.Ave[2], features[0])
    assert criterion.estimator.Amount.tolist() == [0] * K
    assert not torch.equal(criterion.estimator.Ave[0], first[0])


def test_without_the_hook_the_memory_is_cumulative():
    """As in PATT's public code, which never calls it."""
    criterion = build()
    single = build(memory="cumulative")
    single.bank.sums.copy_(criterion.bank.sums)
    for epoch, _, features, labels in batches():
        single._hook_before_epoch(epoch, 3)  # nothing to do
        assert torch.equal(criterion(features, labels), single(features, labels))
    assert torch.equal(single.estimator_old.Ave, criterion.estimator_old.Ave)
    assert not hasattr(single, "estimator")
    with pytest.raises(AttributeError, match="memory='two-epochs' only"):
        single.estimator  # noqa: B018
    assert hasattr(criterion, "estimator")


def test_without_labels_nothing_changes():
    criterion = build()
    features, labels = random_batch()
    after = criterion(features, labels)
    before = bits(criterion)
    assert torch.equal(criterion(features, None), after)
    assert torch.equal(criterion(features), after)
    assert_same_bits(criterion, before)


@pytest.mark.parametrize("training", [True, False])
def test_with_labels_it_learns_in_either_mode(training):
    criterion = build().train(training)
    features, labels = random_batch()
    criterion(features, labels)
    assert criterion.estimator_old.Amount.sum() == len(labels)


def test_sup_logits_and_args_are_not_used():
    criterion = build()
    twin = copy.deepcopy(criterion)
    features, labels = random_batch()
    assert torch.equal(criterion(features, labels), twin(features, labels, torch.full((8, K), torch.nan), object()))
    assert torch.equal(criterion(features), twin(features, labels=None, sup_logits=torch.randn(1), args={"any": "thing"}))


def test_arguments_and_attributes_have_the_public_names():
    criterion = ProCoLoss(contrast_dim=16)
    assert (criterion.feature_num, criterion.temperature, criterion.num_classes) == (16, 1.0, 1000)
    assert (criterion.criterion.temperature, criterion.criterion.normalize, criterion.bank.memory) == (1.0, False, "two-epochs")
    assert criterion.bank.rule.cap == CAP
    criterion = ProCoLoss(16, 0.07, 5)
    for estimator in (criterion.estimator, criterion.estimator_old):
        assert (estimator.class_num, estimator.feature_num) == (5, 16)
        assert (estimator.Ave.shape, estimator.Amount.shape, estimator.kappa.shape, estimator.logc.shape) == ((5, 16), (5,), (5,), (5,))
        assert estimator.Ave.dtype == estimator.kappa.dtype == torch.float32
        assert estimator.logc.dtype == torch.float64
    assert criterion.criterion.temperature == 0.07


def test_features_are_not_normalised():
    criterion = build()
    features, labels = random_batch()
    criterion(3 * features, labels)
    torch.testing.assert_close(criterion.estimator_old.Ave[2:], 3 * features[2:6], rtol=0, atol=MEAN)
    assert not torch.allclose(criterion(features), criterion(3 * features))


def test_class_frequencies():
    criterion = build()
    assert criterion.weight is None
    criterion.cal_weight_for_classes([50, 20, 10, 10, 5, 5])
    assert criterion.weight.shape == (1, K)
    torch.testing.assert_close(criterion.weight[0], torch.tensor([0.5, 0.2, 0.1, 0.1, 0.05, 0.05]), rtol=2 * U32, atol=0)
    for wrong in ([1, 2, 3], [[1] * K]):
        with pytest.raises(
            ValueError, match=r"cls_num_list must have one (count for each of the 6 classes|dimension and at least one entry), got a"
        ):
            criterion.cal_weight_for_classes(wrong)
    assert criterion.weight[0, 0] == 0.5


def test_reload_memory_changes_nothing():
    criterion = build()
    criterion(*random_batch())
    before = bits(criterion)
    assert criterion.reload_memory() is None
    assert_same_bits(criterion, before)


def test_state_dict_carries_the_class_state():
    """In the public code it is empty. A resumed run goes on with the same bits, the next epoch included."""
    criterion = build()
    stream = list(batches())
    for _, _, features, labels in stream[:4]:
        criterion(features, labels)
    file = io.BytesIO()
    torch.save(criterion.state_dict(), file)
    file.seek(0)
    resumed = build()
    resumed.load_state_dict(torch.load(file))
    assert_same_bits(resumed, bits(criterion))
    features, _ = random_batch()
    assert torch.equal(resumed(features), criterion(features))
    for which in (criterion, resumed):
        which._hook_before_epoch(1, 2)
    seen = criterion.estimator_old.Amount > 0
    assert seen.tolist() == [True] * 5 + [False]
    assert torch.equal(resumed(features), criterion(features))
    for _, _, features, labels in stream[4:]:
        assert torch.equal(resumed(features, labels), criterion(features, labels))


def test_state_dict_round_trip_after_a_loss_with_a_prior():
    criterion = build()
    features, labels = random_batch()
    criterion.loss(features, labels, [1] * K)
    resumed = build()
    resumed.load_state_dict(criterion.state_dict())
    assert torch.equal(resumed(features), criterion(features))


def test_copies_are_independent():
    criterion = build()
    criterion(*random_batch())
    twin = copy.deepcopy(criterion)
    before = bits(criterion)
    twin(*random_batch())
    assert_same_bits(criterion, before)
