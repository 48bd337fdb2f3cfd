"""Our losses as pytorch-metric-learning and timm call them: the same numbers, the same updates, and errors that change nothing."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.compat import MetricLearningLoss, TimmLoss

K, P, B = 5, 16, 6
COUNTS = [50, 20, 10, 5, 1]
# Both sides are means of six cross-entropies below 200 in float64, of logits below 300 with some ten roundings, by a fused pass and by torch's.
LOSS = 16 * 300 * 2.0**-53
# The gradient of a row is at most (1 / tau) / ||f|| = 10 / 3 times such errors relative to 1, and is divided by the number of rows.
GRADIENT = 64 * 2.0**-53


def build(**options) -> pg.ProCoLoss:
    """A loss whose bank has seen something. Its features are not of unit length: the loss normalises them."""
    loss = pg.ProCoLoss(K, P, class_counts=COUNTS, dtype=torch.float64, **options)
    loss.bank.update(F.normalize(torch.randn(20, P, dtype=torch.float64), dim=1), torch.arange(20) % K)
    return loss


def batch(views: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return 3 * torch.randn(views * B, P, dtype=torch.float64), torch.arange(B) % (K - 1)


def bits(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.named_buffers()}


def assert_same_bits(module: nn.Module, before: dict[str, torch.Tensor]) -> None:
    for name, tensor in module.named_buffers():
        assert torch.equal(tensor, before[name]), name


def gradient(value: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize("wrapper", [MetricLearningLoss, TimmLoss])
@pytest.mark.parametrize("training", [True, False])
def test_labels_give_the_loss_itself(wrapper, training):
    plain = build()
    wrapped = wrapper(copy.deepcopy(plain)).train(training)
    plain.train(training)
    for _ in range(2):
        features, labels = batch()
        leaf, other = features.clone().requires_grad_(), features.clone().requires_grad_()
        value, expected = wrapped(leaf, labels), plain(other, labels)
        assert value.shape == ()
        assert torch.equal(value, expected)
        assert torch.equal(gradient(value, leaf), gradient(expected, other))
    assert_same_bits(wrapped.loss, bits(plain))
    assert plain.bank.counts.sum() == (20 + 2 * B if training else 20)


@pytest.mark.parametrize("wrapper", [MetricLearningLoss, TimmLoss])
def test_the_class_state_is_saved_with_the_wrapper(wrapper):
    wrapped, fresh = wrapper(build()), wrapper(build())
    fresh.load_state_dict(wrapped.state_dict())
    features, labels = batch()
    assert torch.equal(fresh(features, labels), wrapped(features, labels))


@pytest.mark.parametrize("wrapper", [MetricLearningLoss, TimmLoss])
@pytest.mark.parametrize("wrong", [nn.CrossEntropyLoss(), None, pg.ProCoLoss, pg.compat.proco.ProCoLoss(P, 0.1, K)])
def test_only_losses_with_a_bank_are_wrapped(wrapper, wrong):
    """The criterion under ProCo's names returns logits, so it is none of them."""
    with pytest.raises(TypeError, match=r"loss must be a loss with a class bank, such as pairgrad\.ProCoLoss, got "):
        wrapper(wrong)


@pytest.mark.parametrize("views", [2, 3])
def test_views_one_after_the_other(views):
    """(views * B, p) with the labels repeated is the loss of that many views, in this order: each is scored with those before it in the bank."""
    plain = build()
    wrapped, reversed_ = MetricLearningLoss(copy.deepcopy(plain), views=views), copy.deepcopy(plain)
    features, labels = batch(views)
    leaf = features.clone().requires_grad_()
    value = wrapped(leaf, labels.repeat(views))
    other = features.clone().requires_grad_()
    expected = plain(list(other.split(B)), labels)
    assert torch.equal(value, expected)
    assert torch.equal(gradient(value, leaf), gradient(expected, other))
    assert_same_bits(wrapped.loss, bits(plain))
    assert wrapped.loss.bank.counts.sum() == 20 + views * B
    assert not torch.isclose(value, reversed_(list(features.split(B))[::-1], labels), rtol=1e-9)


def test_views_of_columns_of_a_larger_tensor():
    """Embeddings that are not contiguous."""
    plain = build()
    wrapped = MetricLearningLoss(copy.deepcopy(plain), views=2)
    features, labels = batch(2)
    wide = torch.cat([features, features], 1)[:, :P]
    assert not wide.is_contiguous()
    assert torch.equal(wrapped(wide, labels.repeat(2)), plain(features.view(2, B, P), labels))


def test_two_views_are_not_one_batch_of_twice_the_size():
    one = MetricLearningLoss(build())
    two = MetricLearningLoss(copy.deepcopy(one.loss), views=2)
    features, labels = batch(2)
    assert not torch.isclose(one(features, labels.repeat(2)), two(features, labels.repeat(2)), rtol=1e-9)


@pytest.mark.parametrize("argument", ["indices_tuple", "ref_emb", "ref_labels"])
def test_pairs_and_references_are_refused(argument):
    wrapped = MetricLearningLoss(build())
    before = bits(wrapped.loss)
    features, labels = batch()
    with pytest.raises(ValueError, match="indices_tuple, ref_emb and ref_labels must be None"):
        wrapped(features, labels, **{argument: labels})
    assert_same_bits(wrapped.loss, before)
    wrapped(features, labels, None, None, None)  # as a trainer without a miner calls it


@pytest.mark.parametrize(("rows", "shown"), [(2 * B - 1, r"\(11, 16\)"), (1, r"\(1, 16\)")])
def test_rows_that_are_no_multiple_of_the_views(rows, shown):
    wrapped = MetricLearningLoss(build(), views=2)
    before = bits(wrapped.loss)
    features, labels = batch(2)
    with pytest.raises(ValueError, match=f"2 views of one batch, got a float64 tensor of shape {shown}"):
        wrapped(features[:rows], labels.repeat(2)[:rows])
    assert_same_bits(wrapped.loss, before)


def test_labels_that_do_not_repeat():
    wrapped = MetricLearningLoss(build(), views=2)
    before = bits(wrapped.loss)
    features, labels = batch(2)
    with pytest.raises(ValueError, match="labels must repeat in the same order for each of the 2 views"):
        wrapped(features, torch.cat([labels, labels.flip(0)]))
    with pytest.raises(ValueError, match="labels must repeat in the same order"):
        wrapped(features, labels.repeat_interleave(2))  # sample by sample instead of view by view
    assert_same_bits(wrapped.loss, before)


@pytest.mark.parametrize(("views", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_views_must_be_a_number_of_views(views, error):
    with pytest.raises(error, match="views must be an integer >= 1, got"):
        MetricLearningLoss(build(), views)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", [{}, {"normalize": False}, {"geometry": "expanded"}, {"realization": "original", "temperature": 0.5}])
def test_mixed_samples_are_scored_and_not_learned(training, options):
    wrapped = TimmLoss(build(**options)).train(training)
    before = bits(wrapped.loss)
    features, labels = batch()
    mixed = 0.7 * F.one_hot(labels, K) + 0.3 * F.one_hot(labels.flip(0), K).double()
    leaf, other = features.clone().requires_grad_(), features.clone().requires_grad_()
    value = wrapped(leaf, mixed)
    prior = (torch.tensor(COUNTS).double() / sum(COUNTS)).log()
    unit = F.normalize(other, dim=1) if options.get("normalize", True) else other
    tau = options.get("temperature", 0.1)
    scores = pg.vmf_scores(unit, wrapped.loss.bank, tau, options.get("realization", "paired"))
    expected = F.cross_entropy(scores + prior, mixed)
    torch.testing.assert_close(wrapped.loss.scores(features), scores, rtol=0, atol=LOSS)
    torch.testing.assert_close(value, expected, rtol=0, atol=LOSS)
    torch.testing.assert_close(gradient(value, leaf), gradient(expected, other), rtol=0, atol=GRADIENT)
    assert_same_bits(wrapped.loss, before)


def test_certain_probabilities_are_labels_that_are_not_learned():
    wrapped = TimmLoss(build()).eval()
    features, labels = batch()
    torch.testing.assert_close(wrapped(features, F.one_hot(labels, K).double()), wrapped(features, labels), rtol=0, atol=LOSS)


@pytest.mark.parametrize("shape", [(B,), (B, K - 1), (B - 1, K)])
def test_probabilities_of_another_shape(shape):
    wrapped = TimmLoss(build())
    before = bits(wrapped.loss)
    features, _ = batch()
    with pytest.raises(ValueError, match=rf"probabilities must have shape \({B}, {K}\), got a float32 tensor of shape"):
        wrapped(features, torch.full(shape, 1 / K))
    assert_same_bits(wrapped.loss, before)


def test_what_is_no_label_for_each_row_is_refused_and_changes_nothing():
    loss = build()
    before = bits(loss)
    features, labels = batch(views=2)
    for wrong in (labels, torch.cat([labels, labels, labels]), labels.tolist()):
        with pytest.raises(ValueError, match=r"labels must have shape \(12,\), one per row of embeddings, got "):
            MetricLearningLoss(loss, views=2)(features, wrong)
    with pytest.raises(TypeError, match=r"target must be a tensor of labels \(batch,\) or of class probabilities .*, got "):
        TimmLoss(loss)(features[:B], labels.tolist())
    assert_same_bits(loss, before)
