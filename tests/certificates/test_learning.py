"""`pairgrad.certify`: what it says, of what, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.learning.certified_states import random_state, used

import pairgrad as pg
from pairgrad.certificates import certify_step, paper_theorem, shot_groups, uniform_bounds

TAU = 0.1


def example(dtype=torch.float64, *, batch=6, classes=9, dim=64):
    """Features near their classes, of unit length."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.nn.functional.normalize(torch.randn(classes, dim, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.randint(classes, (batch,), generator=generator)
    features = torch.nn.functional.normalize(rows[labels] + 0.2 * torch.randn(batch, dim, generator=generator, dtype=torch.float64), dim=1)
    kappa = torch.logspace(0.5, 4, classes, dtype=torch.float64)
    return features.to(dtype), labels, pg.ClassState(rows.to(dtype), kappa.to(dtype))


def test_truncation_follows_the_theorem():
    """At no state is the truncation above the uniform bound of thm:patt, and with every class parallel to the feature it is that bound."""
    features, labels, state = example()
    certificate = pg.certify(features, labels, state, TAU)
    epsilon = pg.potential(64, "arfr").ratio_bound()
    uniform = uniform_bounds(torch.linalg.vector_norm(features, dim=1), epsilon, TAU)
    for mine, theorem in (
        (certificate.score, uniform.score),
        (certificate.sample_loss, uniform.loss),
        (certificate.total_variation, uniform.total_variation),
        (certificate.sample_gradient, uniform.gradient),
    ):
        assert (mine.truncation <= theorem).all()
    parallel = pg.ClassState(features[:1].expand(2, 64), torch.tensor([3.0, 5.0], dtype=torch.float64))
    certificate = pg.certify(features[:1], torch.tensor([0]), parallel, TAU)
    torch.testing.assert_close(certificate.score.truncation, uniform.score[:1], rtol=1e-7, atol=0)


def test_the_uniform_bounds_are_the_formulas_of_the_paper():
    lengths = torch.tensor([1.0, 0.5])
    epsilon = paper_theorem(63).bound
    uniform = uniform_bounds(lengths, epsilon, TAU)
    delta = [1 / (TAU * 63**3), 0.5 / (TAU * 63**3)]
    assert uniform.score.tolist() == pytest.approx(delta, rel=1e-7)
    assert uniform.loss.tolist() == pytest.approx([2 * d for d in delta], rel=1e-7)
    assert uniform.total_variation.tolist() == pytest.approx([math.tanh(d / 2) for d in delta], rel=1e-7)
    assert uniform.gradient.tolist() == pytest.approx([2 / TAU * math.tanh(d / 2) + 2 / (TAU * 63**3) for d in delta], rel=1e-7)
    assert (uniform.score >= torch.tensor(delta, dtype=torch.float64)).all()  # rounded upwards


def test_mean_loss_and_gradient_are_averages():
    features, labels, state = example()
    views = pg.certify([features, -features], labels, state, TAU)
    assert views.score.total.shape == views.sample_gradient.total.shape == views.margin.observed.shape == (2, 6)
    assert views.loss.truncation.item() == pytest.approx(views.sample_loss.truncation.mean().item(), rel=1e-7)
    assert views.loss.total >= views.sample_loss.total.mean()
    torch.testing.assert_close(views.gradient.truncation, views.sample_gradient.truncation / 12, rtol=1e-7, atol=0)
    torch.testing.assert_close(views.gradient.rounding, views.sample_gradient.rounding / 12, rtol=1e-2, atol=0)
    one = pg.certify(features, labels, state, TAU)
    assert one.score.total.shape == (6,)
    torch.testing.assert_close(one.sample_loss.total, views.sample_loss.total[0], rtol=0, atol=0)
    losses = pg.vmf_cross_entropy(features, labels, state, TAU, realization="paired")
    assert abs(one.mean_loss - losses) <= one.loss.total


def test_a_view_is_certified_against_the_state_it_sees():
    features, labels, state = example()
    other = pg.ClassState(state.mean_direction.flip(0), state.concentration)
    both = pg.certify([features, features], labels, [state, other], TAU)
    for view, own in enumerate((state, other)):
        torch.testing.assert_close(both.sample_loss.total[view], pg.certify(features, labels, own, TAU).sample_loss.total, rtol=0, atol=0)


def test_groups():
    features, labels, state = example()
    mask = torch.tensor([True, False, True, False, False, False])
    certificate = pg.certify([features, -features], labels, state, TAU, groups={"some": mask, "same": torch.tensor([0, 2])})
    some, same = certificate.groups["some"], certificate.groups["same"]
    assert some.size == 2
    assert some.loss.total == same.loss.total
    assert some.views.total.shape == (2,)
    assert some.loss.truncation.item() == pytest.approx(some.views.truncation.mean().item(), rel=1e-7)
    torch.testing.assert_close(some.gradient.truncation, certificate.sample_gradient.truncation[:, mask] / 4, rtol=1e-7, atol=0)
    assert "some: mean loss of 2" in str(certificate)


def test_head_medium_and_tail():
    labels = torch.tensor([0, 1, 2, 3, 4])
    groups = shot_groups(labels, torch.tensor([500, 101, 100, 20, 19]))
    assert {name: mask.nonzero()[:, 0].tolist() for name, mask in groups.items()} == {"head": [0, 1], "medium": [2, 3], "tail": [4]}
    assert list(shot_groups(labels[:2], torch.tensor([500, 101]))) == ["head"]


def test_confident_samples_have_sharper_certificates():
    """The loss moves by the doubt 1 - p_y times what its logits move by."""
    features, labels, state = example()
    for asked in (labels, (labels + 1) % 9):
        certificate = pg.certify(features * 5, asked, state, TAU)
        probability = torch.softmax(pg.vmf_scores(features * 5, state, TAU), 1)[torch.arange(6), asked]
        expected = 2 * certificate.score.truncation * (1 - probability)
        torch.testing.assert_close(certificate.sample_loss.truncation, expected, rtol=1e-2, atol=0)


def test_predictions_near_a_tie_are_not_called_certain():
    rows = torch.nn.functional.normalize(torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [1.0, 1e-3, 0, 0, 0, 0, 0, 0]]), dim=1)
    state = pg.ClassState(rows, torch.tensor([20.0, 20.0]))
    features = torch.tensor([[1.0, 5e-4, 0, 0, 0, 0, 0, 0], [0.0, 1.0, 0, 0, 0, 0, 0, 0]])
    certificate = pg.certify(features, torch.tensor([0, 1]), state, TAU, realization="paired")
    assert certificate.margin.unchanged.tolist() == [False, True]
    assert certificate.margin.prediction[1] == 1
    text = str(certificate)
    assert "1 of 2 predictions are provably those of the exact scores" in text
    assert "TF32" in text


@pytest.mark.parametrize("batch", [64, pytest.param(1500, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_tiles_change_nothing(batch):
    """3000 classes, all of which count: with this many samples they are gone through in tiles, once or twice; with a few samples at once."""
    features, labels, state = example(batch=batch, classes=3000, dim=8)
    state = pg.ClassState(state.mean_direction, torch.full((3000,), 2.0, dtype=torch.float64))
    certificate = pg.certify(features, labels, state, TAU, realization="paired")
    few = slice(5, 8)
    alone = pg.certify(features[few], labels[few], state, TAU, realization="paired")
    for name in ("score", "sample_loss", "total_variation", "sample_gradient"):
        torch.testing.assert_close(getattr(certificate, name).total[few], getattr(alone, name).total, rtol=1e-6, atol=0, msg=name)
    torch.testing.assert_close(certificate.margin.observed[few], alone.margin.observed, rtol=1e-9, atol=0)
    # one class that is left out moves a loss by its probability, about 1 / 3000; the bound is rounding
    assert certificate.loss.total < 1e-9
    assert abs(certificate.mean_loss - pg.vmf_cross_entropy(features, labels, state, TAU)) <= certificate.loss.total


def test_a_single_class_has_no_loss_and_no_doubt():
    features, _, state = example()
    alone = pg.ClassState(state.mean_direction[:1], state.concentration[:1])
    certificate = pg.certify(features, torch.zeros(6, dtype=torch.int64), alone, TAU)
    assert certificate.loss.total < 1e-300
    assert (certificate.sample_gradient.total < 1e-290).all()
    assert certificate.margin.unchanged.all()


def test_classes_that_cannot_occur_do_not_count():
    features, labels, state = example()
    few = pg.ClassState(state.mean_direction[:7], state.concentration[:7])
    prior = torch.zeros(9, dtype=torch.float64)
    prior[7:] = -torch.inf
    labels = labels.clamp_max(6)
    masked, plain = pg.certify(features, labels, state, TAU, prior), pg.certify(features, labels, few, TAU, prior[:7])
    torch.testing.assert_close(masked.sample_loss.truncation, plain.sample_loss.truncation, rtol=0.5, atol=0)
    assert masked.loss.total.isfinite()
    with pytest.raises(ValueError, match="labels must be of classes that can occur"):
        pg.certify(features, torch.full((6,), 8), state, TAU, prior)


def test_half_precision_features_are_bounded_with_the_rounding_of_their_gradient():
    features, labels, state = example(torch.float32)
    half, full = pg.certify(features.bfloat16(), labels, state, TAU), pg.certify(features.bfloat16().float(), labels, state, TAU)
    torch.testing.assert_close(half.sample_loss.total, full.sample_loss.total, rtol=0, atol=0)
    leaf = features.bfloat16().requires_grad_()
    pg.vmf_cross_entropy(leaf, labels, state, TAU, reduction="sum").backward()
    exact = features.bfloat16().double().requires_grad_()
    double = pg.ClassState(state.mean_direction.double(), state.concentration.double())
    pg.vmf_cross_entropy(exact, labels, double, TAU, reduction="sum").backward()
    lost = torch.linalg.vector_norm(leaf.grad.double() - exact.grad, dim=1)
    assert (lost <= half.sample_gradient.total).all()
    assert (lost > full.sample_gradient.total).any()


def test_tiled_losses_are_within_their_certificate():
    for seed in (1, 4, 9):
        state = random_state(seed).to(torch.float32)
        certificate = state.certificate("paired")
        for v, view in enumerate(state.views):
            double = pg.ClassState(state.directions[v].double(), state.concentrations[v].double())
            truth = pg.vmf_cross_entropy(view.double(), state.labels, double, state.temperature, state.log_prior.double(), "none")
            for tile in (1, 3):
                tiled = pg.vmf_cross_entropy(view, state.labels, state.states[v], state.temperature, state.log_prior, "none", tile=tile)
                assert ((tiled.double() - truth).abs() <= certificate.sample_loss.total[v]).all()


def test_a_bank_and_a_loss_on_it():
    """The loss that is certified is the one that PATT's and ProCo's loss modules report."""
    features, labels, _ = example(torch.float32, batch=32)
    loss = pg.ProCoLoss(9, 64, temperature=TAU)
    for _ in range(3):
        loss(features, labels)
    bank = loss.bank
    reported = pg.vmf_cross_entropy(features, labels, bank, TAU, realization="paired")
    double = pg.ClassState(bank.sums.double(), bank.concentration.double())
    exact = pg.vmf_cross_entropy(features.double(), labels, double, TAU, realization="paired")
    certificate = pg.certify(features, labels, bank, TAU, realization="paired")
    assert abs(reported.double() - exact) <= certificate.loss.total
    assert certificate.loss.total < 1e-2


def test_the_working_dtype_can_be_chosen():
    features, labels, state = example(torch.float32)
    single, double = (pg.certify(features, labels, state, TAU, realization="paired", geometry_dtype=d) for d in (None, torch.float64))
    assert "float32" in single.title
    assert "float64" in double.title
    assert double.score.total.max() < 1e-6 * single.score.total.max()
    # float32 features get a float32 gradient back
    assert 1e-8 < double.sample_gradient.rounding.max() < single.sample_gradient.rounding.max()


def test_a_state_that_requires_gradients_is_read():
    features, labels, state = example()
    learned = pg.ClassState(state.mean_direction.clone().requires_grad_(), state.concentration.clone().requires_grad_())
    certificate = pg.certify(features.requires_grad_(), labels, learned, torch.tensor(TAU))
    assert not certificate.score.total.requires_grad
    assert used(random_state(2, most_classes=3, largest_dim=20), "paired")["score"] <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"realization": "original"}, "realization must have a proven ratio bound, got .*original.*use realization='paired'"),
        ({"realization": "scott"}, "proven ratio bound"),
        ({"temperature": 0.0}, "temperature must be a positive finite number"),
        ({"labels": torch.full((6,), 9)}, r"labels must lie in \[0, 8\]"),
        ({"features": torch.zeros(6, 63)}, r"features must have shape \(batch, dim=64\)"),
        ({"features": torch.zeros(2, 6, 64)}, "several views are passed as a list"),
        ({"features": torch.full((6, 64), torch.nan)}, "features must be finite"),
        ({"features": []}, "empty sequence"),
        ({"log_prior": torch.zeros(3)}, r"log_prior must have shape \(9,\)"),
        ({"groups": {"none": torch.zeros(6, dtype=torch.bool)}}, r"groups\['none'\] must have at least one sample"),
        ({"groups": {"x": torch.zeros(5, dtype=torch.bool)}}, "one boolean for each of the 6 samples, got 5"),
        ({"groups": {"x": torch.tensor([0, 6])}}, r"indices in \[0, 5\], got values from 0 to 6"),
        ({"groups": {"x": torch.tensor([3, 3])}}, "must name every sample once"),
        (
            {"features": [torch.zeros(6, 64), torch.zeros(6, 64, dtype=torch.float64)], "state": example(torch.float32)[2]},
            "one working dtype",
        ),
    ],
)
def test_bad_input_is_explained(change, message):
    features, labels, state = example()
    arguments = {"features": features, "labels": labels, "state": state, "temperature": TAU, **change}
    with pytest.raises(ValueError, match=message):
        pg.certify(**arguments)


def test_wrong_types_are_explained():
    features, labels, state = example()
    with pytest.raises(TypeError, match=r"state must be a pairgrad\.ClassBank"):
        pg.certify(features, labels, features)
    with pytest.raises(TypeError, match="features must be"):
        pg.certify([features.tolist()], labels, state)
    with pytest.raises(TypeError, match=r"groups\['x'\] must be a mask"):
        pg.certify(features, labels, state, groups={"x": torch.zeros(6)})
    with pytest.raises(ValueError, match="one state for all views or one for each of the 2, got 1"):
        pg.certify([features, features], labels, [state])
    with pytest.raises(ValueError, match="features must have at least one row"):
        pg.certify(features[:0], labels[:0], state)


def test_sums_over_many_classes_have_errors_of_their_own():
    """A feature of length zero has scores that are exactly zero: what is left is the rounding of the sums over classes, and it is not forgotten."""
    generator = torch.Generator().manual_seed(3)
    state = pg.ClassState(torch.randn(3000, 32, generator=generator), 10 ** (4 * torch.rand(3000, generator=generator)))
    double = pg.ClassState(state.mean_direction.double(), state.concentration.double())
    features, labels = torch.zeros(2, 32), torch.tensor([5, 2999])
    certificate = pg.certify(features, labels, state, TAU, realization="paired")
    assert (certificate.score.total < 1e-30).all()
    results = []
    for given, class_state in ((features, state), (features.double(), double)):
        leaf = given.requires_grad_()
        loss = pg.vmf_cross_entropy(leaf, labels, class_state, TAU, reduction="none")
        loss.sum().backward()
        results.append((loss.detach().double(), leaf.grad.double()))
    (loss, gradient), (exact_loss, exact_gradient) = results
    lost = (loss - exact_loss).abs()
    assert (lost <= certificate.sample_loss.total).all()
    assert (lost > certificate.sample_loss.truncation).any()
    lost = torch.linalg.vector_norm(gradient - exact_gradient, dim=1)
    assert (lost <= certificate.sample_gradient.total).all()
    assert (lost > certificate.sample_gradient.truncation).any()
    assert certificate.loss.rounding > 0


@pytest.mark.parametrize("score", ["after-update", "before-update"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_next_step_of_a_loss(score, dtype):
    """What a loss with a bank then reports, and supplies, is within the certificate of the exact objective at the states its views saw."""
    generator = torch.Generator().manual_seed(4)
    arguments = {"temperature": TAU, "class_counts": [50, 20, 10, 5, 1], "score": score, "dtype": dtype, "unseen": "uniform"}
    losses = [pg.ProCoLoss(5, 24, realization=name, normalize=False, **arguments) for name in ("arfr", "paired")]
    labels = torch.randint(5, (12,), generator=generator)
    views = torch.nn.functional.normalize(torch.randn(2, 12, 24, generator=generator, dtype=dtype), dim=-1)
    for loss in losses:
        loss(views + 0.1, labels)
    before = losses[0].bank.sums.clone()
    certificate = certify_step(losses[0], views, labels)
    assert torch.equal(losses[0].bank.sums, before)
    found = []
    for loss in losses:
        leaf = views.clone().requires_grad_()
        value = loss(leaf, labels)
        value.backward()
        found.append((value.detach(), leaf.grad))
    slack = 1 + 2e-3 if dtype == torch.float32 else 1 + 1e-6  # the other loss is not exact either
    assert abs(found[0][0] - found[1][0]) <= certificate.loss.total * slack
    assert abs(found[0][0] - certificate.mean_loss) <= certificate.loss.total
    assert (torch.linalg.vector_norm((found[0][1] - found[1][1]).double(), dim=-1) <= certificate.gradient.total * slack).all()
    other = certify_step(losses[0], views, labels)  # the bank has moved on
    assert not torch.equal(other.sample_loss.total, certificate.sample_loss.total)


def test_a_step_of_patt_and_what_is_refused():
    features, labels, _ = example(torch.float32)
    patt = pg.PATTLoss(9, 64, class_counts=list(range(9, 0, -1)), realization="arfr")
    certificate = certify_step(patt, [features, features], labels, groups={"one": torch.tensor([0])})
    assert abs(patt.augmentation([features, features], labels) - certificate.mean_loss) <= certificate.loss.total
    assert certificate.groups["one"].size == 1
    patt.eval()
    assert certify_step(patt, features, labels).score.total.shape == (1, 6)
    with pytest.raises(TypeError, match="loss must be a loss with a bank"):
        certify_step(torch.nn.CrossEntropyLoss(), features, labels)
    with pytest.raises(ValueError, match="loss must have geometry='factorised'"):
        certify_step(pg.ProCoLoss(9, 64, geometry="expanded"), features, labels)
    with pytest.raises(ValueError, match="must have a proven ratio bound"):
        certify_step(pg.ProCoLoss(9, 64, realization="original"), features, labels)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_in_half_precision_may_underflow(dtype, reduction):
    """Sure samples have gradients below the smallest numbers of float16; the mean is taken before they are rounded."""
    features, labels, state = example(torch.float32, batch=64)
    sharp = pg.ClassState(state.mean_direction, torch.full((9,), 1e4))
    given = features.to(dtype)
    certificate = pg.certify(given, labels, sharp, 0.05)
    results = []
    for leaf, own in ((given.clone(), sharp), (given.double(), pg.ClassState(sharp.mean_direction.double(), sharp.concentration.double()))):
        leaf.requires_grad_()
        pg.vmf_cross_entropy(leaf, labels, own, 0.05, reduction=reduction).backward()
        results.append(leaf.grad.double())
    lost = torch.linalg.vector_norm(results[0] - results[1], dim=1)
    bound = certificate.sample_gradient if reduction == "sum" else certificate.gradient
    assert (lost <= bound.total).all()
    assert (lost > 0).any()


@pytest.mark.parametrize("length", [1e-4, 1.0, 100.0])
def test_gradients_of_a_loss_that_normalises_are_those_in_the_features_as_passed(length):
    features, labels, _ = example(torch.float32, batch=32)
    losses = [pg.ProCoLoss(9, 64, temperature=TAU, dtype=dtype, unseen="uniform") for dtype in (torch.float32, torch.float64)]
    for loss in losses:
        loss(features.to(loss.bank.sums.dtype), labels)
        loss.eval()
    losses[1].bank.load_state_dict(losses[0].bank.state_dict())
    certificate = certify_step(losses[0], features * length, labels)
    grads = []
    for loss in losses:
        leaf = (features * length).to(loss.bank.sums.dtype).requires_grad_()
        loss(leaf, labels).backward()
        grads.append(leaf.grad.double())
    lost = torch.linalg.vector_norm(grads[0] - grads[1], dim=1)
    assert (lost <= certificate.gradient.total[0]).all()
    assert (lost >= 1e-4 * certificate.gradient.total[0]).any()


def test_a_prior_that_is_rounded_is_charged_for_it():
    features, labels, state = example(torch.float32)
    prior = -1e4 - torch.rand(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rounded, exact = pg.certify(features, labels, state, TAU, prior), pg.certify(features, labels, state, TAU, prior.float())
    moved = (prior - prior.float().double()).abs()
    assert (rounded.margin.needed >= 2 * moved.min()).all()
    assert (rounded.sample_loss.total > exact.sample_loss.total).all()


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e160])
def test_rows_whose_squares_leave_the_range_have_no_finite_bound(scale):
    """A state refuses such rows when it is made; its tensors can still come to have them."""
    features, labels, state = example()
    with pytest.raises(ValueError, match="mean_direction must have"):
        pg.ClassState(state.mean_direction * scale, state.concentration)
    with torch.no_grad():
        state.mean_direction.mul_(scale)
        certificate = pg.certify(features, labels, state, TAU)
    assert certificate.score.total.isinf().all()
    assert not certificate.margin.unchanged.any()
    assert not any(bound.total.isnan().any() for bound in (certificate.loss, certificate.gradient, certificate.total_variation))


def test_hopeless_states_give_infinities_not_nan():
    huge = torch.full((1, 16), 1e8)
    alone = pg.ClassState(torch.ones(1, 16), torch.tensor([1e6]))
    certificate = pg.certify(huge, torch.tensor([0]), alone, TAU, realization="paired")
    assert certificate.loss.total < 1e-30
    assert not certificate.sample_gradient.total.isnan().any()
    both = pg.ClassState(torch.eye(2, 16), torch.tensor([1e6, 1.0]))
    certificate = pg.certify(huge / 10, torch.tensor([0]), both, TAU, torch.tensor([0.0, -1e4]), realization="paired")
    assert not any(bound.total.isnan().any() for bound in (certificate.loss, certificate.gradient, certificate.score))


def test_groups_by_count_are_checked():
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 2\], got values from 0 to 3"):
        shot_groups(torch.tensor([0, 3]), torch.tensor([5, 6, 7]))
    with pytest.raises(TypeError, match="counts must be a tensor"):
        shot_groups(torch.tensor([0]), [5, 6, 7])


def test_a_loss_that_computes_in_another_dtype_is_refused():
    features, labels, _ = example(torch.float32)
    with pytest.raises(ValueError, match="loss must compute in the dtype of its bank"):
        certify_step(pg.ProCoLoss(9, 64, geometry_dtype=torch.float64), features, labels)
