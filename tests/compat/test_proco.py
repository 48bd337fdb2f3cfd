"""ProCo's names against a small model of its public criterion, and its class state out of a checkpoint."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
from scipy import special
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.compat import read_proco_checkpoint
from pairgrad.compat.proco import LogitAdjust, ProCoLoss, load_checkpoint

from .checkpoints import K as SAVED_CLASSES
from .checkpoints import P as SAVED_DIM

K, P, TAU, CAP = 6, 64, 0.1, 1e5
U = 2.0**-53  # unit roundoff of float64
U32 = 2.0**-24

# A mean of unit features: some ten roundings, relative to 1.
MEAN = 16 * U
# kappa = p R / (1 - R^2) multiplies the rounding of R by (1 + R^2) / (1 - R^2), at most 40 for the lengths R <= 0.975 here that the cap does not take.
KAPPA = 40 * 32 * U
# The model subtracts two potentials of the size of r <= 1.1e5, each with some ten roundings of that size, and so has the error; ours has less.
LOGITS = 16 * 1.1e5 * U
# Each coordinate of the gradient: a sum over K classes of terms below 1 / tau, with ratios near 1 and vectors of length 1 that carry some ten roundings.
# The ratio of the finite recurrence has two roundings per step, which do not grow; 2 nu = 62 steps.
GRADIENT = K / TAU * 128 * U
# A mean over rows of cross-entropies below 200: both sides round logits below 300 some ten times.
LOSS = 16 * 300 * U


# Known: where r = 0 exactly, the factorised score takes r = sqrt(smallest normal number), at which the source's stabiliser log(r + 1e-20) is far from log r;
# the realization's own convention is to leave it out at 0.

# The model: two independent estimators, of which the old one is scored after both have seen the batch ---------------------------------------------------


class Estimator:
    def __init__(self, mean: torch.Tensor) -> None:
        """With a random initial mean of length 0.9, and its concentration p * 90 / 19."""
        self.Ave, self.Amount = mean.double().clone(), torch.zeros(len(mean), dtype=torch.float64)
        self.kappa = torch.full((len(mean),), mean.shape[1] * 90 / 19, dtype=torch.float64)

    def update(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        for label in range(len(self.Ave)):
            mine = features.detach().double()[labels == label]
            m, n = len(mine), self.Amount[label].item()
            if m:
                weight = m / (m + n)
                self.Ave[label] = (1 - weight) * self.Ave[label] + weight * mine.mean(0)
            self.Amount[label] += m

    def update_kappa(self, cap: float = CAP) -> None:
        length = self.Ave.norm(dim=1)
        kappa = self.Ave.shape[1] * length / (1 - length**2)
        self.kappa = torch.where((kappa > cap) | (kappa < 0), cap, kappa)


class Criterion:
    """The public call: update the old estimator, update the new one, derive the old one's concentrations, score."""

    def __init__(self, ours: ProCoLoss, potential=None) -> None:
        self.old, self.new = Estimator(ours.estimator_old.Ave), Estimator(ours.estimator.Ave)
        self.temperature, self.potential = ours.temperature, potential or exact

    def __call__(self, features: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        if labels is not None:
            self.old.update(features, labels)
            self.new.update(features, labels)
            self.old.update_kappa()
        return self.potential(self.radii(features)) - self.potential(self.old.kappa)

    def resultants(self, features: torch.Tensor) -> torch.Tensor:
        direction = self.old.Ave / self.old.Ave.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return (self.old.kappa[:, None] * direction) + (features.detach().double() / self.temperature)[:, None]

    def radii(self, features: torch.Tensor) -> torch.Tensor:
        return self.resultants(features).norm(dim=2)

    def next_epoch(self, ours: ProCoLoss) -> None:
        """The new estimator becomes the old one; the next is as random as ours."""
        self.old, self.new = self.new, Estimator(ours.estimator.Ave)


def exact(x: torch.Tensor, dim: int = P) -> torch.Tensor:
    """Phi(x), by scipy's Bessel functions, where these do not underflow."""
    nu = dim / 2 - 1
    array = x.detach().numpy()
    return torch.from_numpy(special.ive(nu, array)).log() + x - nu * x.log()


def finite(x: torch.Tensor, dim: int = P) -> tuple[torch.Tensor, torch.Tensor]:
    """The finite recurrence b_{i-1} = (2 i / x) b_i + b_{i+1} from M = 2 nu: the value the public code computes, and the slope it supplies. Nothing
    overflows at this dimension."""
    nu = dim // 2 - 1
    upper, lower, b = torch.zeros_like(x), torch.ones_like(x), {}
    for i in range(2 * nu, 0, -1):
        b[i] = lower
        upper, lower = lower, 2 * i / x * lower + upper
    b[0] = lower
    log_i0e = torch.from_numpy(special.i0e(x.numpy())).log()
    return log_i0e + (b[nu] / b[0]).log() + x - nu * torch.log(x + 1e-20), b[nu + 1] / b[nu]


# Batches: every epoch leaves classes out, has singletons (R = 1) and, by the scale, lengths above 1 ------------------------------------------------------


def batches(scale: float = 1.0, epochs: int = 3, dim: int = P, dtype: torch.dtype = torch.float64):
    centres = F.normalize(torch.randn(K, dim, dtype=dtype), dim=1)
    absent = ([5], [4, 5], [0])  # class 5 comes in the last epoch only
    for epoch in range(epochs):
        for step in range(3):
            present = [label for label in range(K) if label not in absent[epoch]]
            labels = torch.tensor([present[i % len(present)] for i in range(len(present) + step)])  # singletons in the first step
            features = F.normalize(centres[labels] + 0.08 * torch.randn(len(labels), dim, dtype=dtype), dim=1)
            yield epoch, step, scale * features, labels


def build(dim: int = P, dtype: torch.dtype | None = torch.float64, **options) -> ProCoLoss:
    return ProCoLoss(dim, TAU, K, dtype=dtype, **options)


def random_batch(size: int = 8, dim: int = P, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return F.normalize(torch.randn(size, dim, dtype=dtype), dim=1), torch.arange(size) % K


def bits(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All buffers, the derived ones included."""
    return {name: tensor.clone() for name, tensor in module.named_buffers()}


def assert_same_bits(module: torch.nn.Module, before: dict[str, torch.Tensor]) -> None:
    after = dict(module.named_buffers())
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name


def assert_agree(estimator, model: Estimator) -> None:
    assert torch.equal(estimator.Amount, model.Amount)
    scale = model.Ave.norm(dim=1).amax().clamp_min(1).item()
    torch.testing.assert_close(estimator.Ave.double(), model.Ave, rtol=0, atol=MEAN * scale)


# The criterion --------------------------------------------------------------------------------------------------------------------------------------------


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


# Saving ---------------------------------------------------------------------------------------------------------------------------------------------------


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


# The loss -------------------------------------------------------------------------------------------------------------------------------------------------


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


# Corners --------------------------------------------------------------------------------------------------------------------------------------------------


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


# Logit adjustment -----------------------------------------------------------------------------------------------------------------------------------------


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


# Checkpoints of the public code ---------------------------------------------------------------------------------------------------------------------------


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
