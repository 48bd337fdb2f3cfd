"""The loss under ProCo's names: views, priors, corners of the score, logit adjustment."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.compat.proco import LogitAdjust, ProCoLoss

from .criterion import (
    CAP,
    GRADIENT,
    LOGITS,
    LOSS,
    MEAN,
    TAU,
    U32,
    Criterion,
    K,
    P,
    batches,
    build,
    exact,
    random_batch,
)


@pytest.mark.parametrize("realization", ["paired", "original"])
@pytest.mark.parametrize("counts", [None, [500, 200, 100, 50, 20, 10]], ids=["no prior", "prior"])
def test_the_loss_is_cross_entropy_of_the_logits_plus_the_prior_view_by_view(counts, realization):
    criterion = build(realization=realization)
    criterion(*random_batch())
    twin = copy.deepcopy(criterion)
    first, labels = random_batch()
    second, _ = random_batch()
    views = torch.stack([first, second]).requires_grad_()
    loss = criterion.loss(views, labels, counts)
    loss.backward()
    by_hand = torch.stack([first, second]).requires_grad_()
    prior = torch.zeros(K) if counts is None else (torch.tensor(counts).double() / sum(counts)).log()
    expected = sum(F.cross_entropy(twin(view, labels) + prior, labels) for view in by_hand) / 2
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=0, atol=LOSS)
    torch.testing.assert_close(views.grad, by_hand.grad, rtol=0, atol=GRADIENT)
    for estimator, other in ((criterion.estimator_old, twin.estimator_old), (criterion.estimator, twin.estimator)):
        assert torch.equal(estimator.Amount, other.Amount)
        torch.testing.assert_close(estimator.Ave, other.Ave, rtol=0, atol=MEAN)


def test_the_loss_takes_one_view_and_a_list_of_views():
    criterion = build()
    twins = [copy.deepcopy(criterion) for _ in range(3)]
    first, labels = random_batch()
    second, _ = random_batch()
    assert torch.equal(criterion.loss([first, second], labels), twins[0].loss(torch.stack([first, second]), labels))
    single = twins[1].loss(first, labels)
    torch.testing.assert_close(single, F.cross_entropy(twins[2](first, labels), labels), rtol=0, atol=LOSS)
    with pytest.raises(ValueError, match="class_counts must have one number for each of the 6 classes, got 2"):
        criterion.loss(first, labels, [1, 2])


@pytest.mark.parametrize("realization", ["paired", "original"])
def test_a_second_backward_with_retain_graph_gives_the_same_gradient(realization):
    criterion = build(realization=realization)
    features, labels = random_batch()
    for call in (lambda f: criterion(f, labels).square().sum(), lambda f: criterion.loss(f, labels)):
        leaf = features.clone().requires_grad_()
        value = call(leaf)
        (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
        (second,) = torch.autograd.grad(value, leaf)
        assert first.abs().max() > 0
        assert torch.equal(first, second)


@pytest.mark.parametrize("geometry", ["factorised", "expanded"])
def test_logits_keep_their_gradient_while_the_bank_goes_on(geometry):
    """Logits of two views and one backward at the end, as the public training script does it."""
    criterion = build(geometry=geometry)
    features, labels = random_batch()
    twin = copy.deepcopy(criterion)
    now, later = features.clone().requires_grad_(), features.clone().requires_grad_()
    twin(now, labels).square().sum().backward()
    logits = criterion(later, labels)
    criterion(*random_batch())
    criterion._hook_before_epoch(1, 2)
    logits.square().sum().backward()
    assert torch.equal(now.grad, later.grad)


@pytest.mark.parametrize("dim", [2, 3, 5, 17, 63, 65])
def test_odd_dimensions_have_a_half_integer_order(dim):
    """The public code truncates nu = p / 2 - 1 to an integer."""
    criterion = build(dim)
    model = Criterion(criterion, potential=lambda x: exact(x, dim))
    for _, _, features, labels in batches(0.9, epochs=1, dim=dim):
        features.requires_grad_()
        logits = criterion(features, labels)
        torch.testing.assert_close(logits, model(features, labels), rtol=0, atol=LOGITS)
        logits.sum().backward()
        assert features.grad.isfinite().all()


def test_original_refuses_odd_dimensions_with_the_way_out():
    with pytest.raises(ValueError, match=r"integer Bessel order.*dim 65.*use realization='paired'"):
        ProCoLoss(65, TAU, K, realization="original")


@pytest.mark.parametrize("realization", ["paired", "original"])
@pytest.mark.parametrize("geometry", ["factorised", "expanded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_feature_scores_zero(realization, geometry, dtype):
    """f = 0 is at r = kappa. p = 6 and R = 1/2 make kappa = 4 exactly."""
    criterion, axes = four(realization, geometry, dtype)
    features = torch.zeros(2, 6, dtype=dtype).requires_grad_()
    logits = criterion(features)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(logits, torch.zeros(2, 4, dtype=dtype), rtol=0, atol=16 * eps)
    logits[:, 0].sum().backward()
    slope = pg.potential(6, realization).slope(torch.tensor(4.0, dtype=dtype))
    torch.testing.assert_close(features.grad, (axes[0] * slope / 0.5).expand(2, 6), rtol=0, atol=32 * eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("realization", "geometry"),
    [
        ("paired", "factorised"),
        ("paired", "expanded"),
        ("original", "factorised"),
        ("original", "expanded"),
    ],
)
def test_a_zero_radius_has_the_limit_of_the_score(realization, geometry, dtype):
    """f = -tau kappa mu, or f = 0 and a class without direction: r = 0, where the public code stops with an error about shapes. tau = 1/2 and kappa = 4
    make the feature -2 exactly."""
    criterion, axes = four(realization, geometry, dtype)
    features = torch.cat([-2 * axes[:1], torch.zeros(1, 6, dtype=dtype)]).requires_grad_()
    criterion.bank.update(torch.zeros(1, 6, dtype=dtype), torch.tensor([3]))
    logits = criterion(features)
    four_, zero = torch.tensor(4.0, dtype=dtype), torch.tensor(0.0, dtype=dtype)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(logits[0, 0], pg.potential(6, realization).difference(four_, zero), rtol=16 * eps, atol=0)
    assert logits[1, 3] == 0
    (logits[0, 0] + logits[1, 3]).backward()
    assert torch.equal(features.grad, torch.zeros(2, 6, dtype=dtype))


def four(realization: str, geometry: str, dtype: torch.dtype) -> tuple[ProCoLoss, torch.Tensor]:
    """Three classes on the axes with kappa = 6 (1/2) / (1 - 1/4) = 4, and tau = 1/2."""
    criterion = ProCoLoss(6, 0.5, 4, realization=realization, geometry=geometry, dtype=dtype)
    axes = torch.eye(3, 6, dtype=dtype)
    criterion.bank.update(torch.cat([axes / 2, axes[2:] / 2]), torch.tensor([0, 1, 2, 2]))
    assert criterion.estimator_old.kappa[:3].tolist() == [4.0] * 3
    return criterion, axes


@pytest.mark.parametrize("realization", ["paired", "original"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_singleton_and_long_means(realization, dtype):
    """R = 0 is a class without direction, kappa = 0; R = 1 and R > 1 have the cap. Logits, loss and gradients stay finite."""
    criterion = build(dtype=dtype, realization=realization)
    features, _ = random_batch(4, dtype=dtype)
    features = features * torch.tensor([0.0, 1.0, 30.0, 0.5], dtype=dtype)[:, None]
    labels = torch.tensor([0, 1, 2, 3])
    leaf = features.clone().requires_grad_()
    logits = criterion(leaf, labels)
    kappa = criterion.estimator_old.kappa
    assert kappa[:3].tolist() == [0.0, CAP, CAP]
    torch.testing.assert_close(kappa[3].item(), P * 0.5 / 0.75, rtol=1e-6, atol=0)
    assert logits.isfinite().all()
    radii = features.norm(dim=1) / TAU
    expected = pg.potential(P, realization).difference(torch.zeros_like(radii), radii)
    eps = torch.finfo(dtype).eps  # the values of "original" that are subtracted have the size of log(2^nu nu!) = 100
    torch.testing.assert_close(logits[1:, 0], expected[1:], rtol=64 * eps, atol=8 * 100 * eps)
    logits.sum().backward()
    assert leaf.grad.isfinite().all()
    leaf = features.clone().requires_grad_()
    loss = criterion.loss(leaf, labels)
    loss.backward()
    assert loss.isfinite()
    assert leaf.grad.isfinite().all()


def test_bank_options_reach_the_bank():
    criterion = ProCoLoss(
        P, TAU, K, cap=500.0, unseen="uniform", on_resultant_above_one="normalize", memory="cumulative", dtype=torch.float64
    )
    assert criterion.estimator_old.kappa.tolist() == [0.0] * K
    features, labels = random_batch()
    criterion(30 * features, labels)
    assert criterion.estimator_old.kappa[5] == 500.0
    torch.testing.assert_close(criterion.estimator_old.Ave[5].norm().item(), 1.0)
    assert torch.equal(criterion.estimator_old.kappa, criterion.bank.concentration)


@pytest.mark.parametrize("tau", [None, 0.5, 2])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.5, 1.0, 3.0, 0.0]], ids=["plain", "weighted"])
def test_logit_adjustment_by_hand(tau, weight):
    counts = [500, 200, 100, 50, 20, 10]
    weight = None if weight is None else torch.tensor(weight)
    loss = LogitAdjust(counts, weight=weight) if tau is None else LogitAdjust(counts, tau, weight)
    x, target = torch.randn(8, K, requires_grad=True), torch.arange(8) % K
    value = loss(x, target)
    (gradient,) = torch.autograd.grad(value, x)
    prior = (torch.tensor(counts).double() / sum(counts)).log()
    by_hand = F.cross_entropy(x.double() + (1 if tau is None else tau) * prior, target, None if weight is None else weight.double())
    (expected,) = torch.autograd.grad(by_hand, x)
    torch.testing.assert_close(value.double(), by_hand, rtol=0, atol=16 * 16 * U32)  # adjusted logits below 16, some ten roundings
    torch.testing.assert_close(gradient, expected, rtol=0, atol=16 * 16 * U32)


def test_logit_adjustment_takes_its_arguments_by_the_public_names():
    x, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    named = LogitAdjust(cls_num_list=[3, 2, 1], tau=2.0, weight=torch.ones(3))
    assert torch.equal(named(x=x, target=target), LogitAdjust([3, 2, 1], 2.0, torch.ones(3))(x, target))
    assert LogitAdjust([3, 2, 1]).criterion.strength == 1
