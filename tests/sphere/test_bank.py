"""The class bank against the public estimator in rational arithmetic, and as the module that training code copies, moves, saves and averages."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._python_dispatch import TorchDispatchMode

import pairgrad as pg
from pairgrad.sphere import bank as bank_module
from pairgrad.sphere.resultant import ConcentrationRule

U = 2.0**-24  # unit roundoff of float32
DTYPES = (torch.float32, torch.float64)

# 0.9 v / ||v|| in float32: the norm, the division and the product make at most 4 u of error in the length; d log kappa / d log R is
# (1 + R^2) / (1 - R^2) = 9.6 at R = 0.9, and kappa is rounded once. In float64 likewise, with its own unit.
INITIAL = 9.6 * 4 + 1
# S / n, S / ||S||: the sum is exact, the divisor is rounded to the dtype, the quotient is rounded, and the norm is good to a few units of float64.
QUOTIENT = 3


def dyadic(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random k / 4096 with |k| < 2048: some thousand of them add up without rounding in float32."""
    return torch.randint(-2047, 2048, shape).to(dtype) / 4096


class PublicEstimator:
    """The estimator of the public code, by class and in rationals: a <- (1 - w) a + w mean of the batch, w = m / (m + n)."""

    def __init__(self, bank: pg.ClassBank, prefix: str = "") -> None:
        self.mean = [[Fraction(x) for x in row] for row in getattr(bank, prefix + "sums").tolist()]  # the initialiser
        self.amount = [Fraction(0)] * bank.num_classes

    def update(self, features: torch.Tensor, labels: torch.Tensor, decay: Fraction = Fraction(1)) -> None:
        for label in range(len(self.amount)):
            mine = [[Fraction(x) for x in row] for row, other in zip(features.tolist(), labels.tolist(), strict=True) if other == label]
            m, n = len(mine), self.amount[label] * (decay if label in labels else 1)
            weight = Fraction(m) / (m + n) if m else Fraction(0)
            average = [sum(column) / m for column in zip(*mine, strict=True)] if m else self.mean[label]
            self.mean[label] = [(1 - weight) * a + weight * b for a, b in zip(self.mean[label], average, strict=True)]
            self.amount[label] = n + m

    def one_at_a_time(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        for i in range(len(labels)):
            self.update(features[i : i + 1], labels[i : i + 1])

    def agrees_with(self, bank: pg.ClassBank, prefix: str = "") -> None:
        """The two words are the sum n a exactly, and the counts are exact; without samples they hold the initialiser."""
        words = (getattr(bank, prefix + name).tolist() for name in ("sums", "compensation"))
        got = [[Fraction(h) + Fraction(l) for h, l in zip(*rows, strict=True)] for rows in zip(*words, strict=True)]
        assert got == [[(n or 1) * a for a in mean] for mean, n in zip(self.mean, self.amount, strict=True)]
        assert getattr(bank, prefix + "counts").tolist() == [float(n) for n in self.amount]


def derived_from_buffers(bank: pg.ClassBank) -> None:
    """What the bank reports belongs to the sums and counts it holds, and so do the cached tensors."""
    counts = torch.where(bank.counts > 0, bank.counts, 1.0)
    norms = bank.sums.double().norm(dim=1)
    length, kappa, direction = bank.resultant_length, bank.concentration, bank.mean_direction
    torch.testing.assert_close(length, norms / counts, rtol=8 * 2.0**-53, atol=0)
    # the rule amplifies the rounding of R in float64 near R = 1, where the cap keeps kappa below 1e5 >= p / (2 (1 - R)): by 1e5
    torch.testing.assert_close(kappa.double(), bank.rule(norms / counts, bank.counts), rtol=4 * torch.finfo(bank.sums.dtype).eps, atol=0)
    unit = bank.sums.double() / torch.where(norms > 0, norms, 1.0)[:, None]
    torch.testing.assert_close(direction.double(), unit, rtol=QUOTIENT * torch.finfo(bank.sums.dtype).eps, atol=0)
    torch.testing.assert_close(bank._norms, norms, rtol=8 * 2.0**-53, atol=0)
    assert torch.equal(bank._concentrations, kappa)
    rates = torch.where(norms > 0, bank.rule(norms / counts, bank.counts) / norms, 0.0)
    torch.testing.assert_close(bank._rates.double(), rates, rtol=4 * torch.finfo(bank.sums.dtype).eps, atol=0)
    assert bank._rates.dtype == bank.sums.dtype
    assert kappa.dtype == bank.sums.dtype
    classes = bank.classes()
    assert classes.rows is bank.sums
    assert classes.rates is bank._rates
    assert classes.concentration is bank._concentrations


def snapshot(bank: pg.ClassBank) -> dict[str, Any]:
    """Every buffer with its bits, its identity and its version."""
    kept: dict[str, Any] = {name: (tensor, tensor.clone(), tensor._version) for name, tensor in bank.named_buffers()}
    return kept | {"bookkeeping": bank._versions}


def untouched(bank: pg.ClassBank, before: dict[str, Any]) -> None:
    assert before["bookkeeping"] == bank._versions
    for name, tensor in bank.named_buffers():
        same, bits, version = before[name]
        assert tensor is same, name
        assert torch.equal(tensor, bits), name
        assert tensor._version == version, name


def filled(classes: int = 4, dim: int = 3, batch: int = 6, **options: Any) -> pg.ClassBank:
    """A bank with samples in classes 0 .. classes - 2, whose last one has none, and whose sums have a low word."""
    bank = pg.ClassBank(classes, dim, **options)
    for _ in range(5):
        bank.update(0.5 * torch.rand(batch, dim), torch.arange(batch) % (classes - 1))
    assert bank.compensation.any() or bank.sums.dtype == torch.float64
    return bank


# The public estimator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_are_the_public_estimator(dtype: torch.dtype) -> None:
    bank = pg.ClassBank(5, 3, dtype=dtype)
    by_batch, by_sample = PublicEstimator(bank), PublicEstimator(bank)
    for _ in range(20):
        features, labels = dyadic(7, 3, dtype=dtype), torch.randint(4, (7,))  # class 4 never occurs
        bank.update(features, labels)
        by_batch.update(features, labels)
        by_sample.one_at_a_time(features, labels)
        by_batch.agrees_with(bank)
        by_sample.agrees_with(bank)
        derived_from_buffers(bank)
    assert bank.counts[:4].sum() == 140
    eps = torch.finfo(dtype).eps
    want = torch.tensor([[float(x) for x in row] for row in by_batch.mean], dtype=torch.float64)
    torch.testing.assert_close(bank.mean.double(), want, rtol=QUOTIENT * eps, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_features_to_rounding(dtype: torch.dtype) -> None:
    """Features of full width, a class 40 times in a batch: per batch m - 1 additions are rounded, between batches nothing is lost."""
    bank = pg.ClassBank(3, 4, dtype=dtype)
    total = torch.zeros(3, 4, dtype=torch.float64)
    size = torch.zeros_like(total)
    for _ in range(30):
        features, labels = torch.randn(50, 4, dtype=dtype), torch.cat([torch.zeros(40), torch.ones(9), torch.tensor([2.0])]).long()
        bank.update(features, labels)
        total.index_add_(0, labels, features.double())
        size.index_add_(0, labels, features.double().abs())
    roundings = torch.tensor([40.0, 9, 1])[:, None]
    allowed = torch.finfo(dtype).eps / 2 * roundings * size + 1500 * 2.0**-53 * size
    assert ((bank.sums.double() + bank.compensation.double() - total).abs() <= allowed).all()
    derived_from_buffers(bank)


def test_no_samples_change_nothing() -> None:
    bank = filled()
    before = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    bank.update(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("decay", [None, 0.5])
@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_views_in_turn(memory: str, decay: float | None) -> None:
    """absorb of V views is V updates, with the states in between; with decay 1/2 all of it is still exact."""
    bank = pg.ClassBank(5, 3, memory=memory, decay=decay)
    twin = copy.deepcopy(bank)
    old, factor = PublicEstimator(bank), Fraction(decay or 1)
    new = PublicEstimator(bank, "next_") if memory == "two-epochs" else None
    for _ in range(4):
        views, labels = dyadic(3, 6, 3), torch.tensor([0, 3, 0, 1, 3, 0])
        touched = bank.absorb(views, labels)
        assert touched.slots.tolist() == [0, 1, 0, 3, 1, 0]
        for v, view in enumerate(views):
            twin.update(view, labels)
            old.update(view, labels, factor)
            if new is not None:
                new.update(view, labels, factor)
            assert torch.equal(touched.rows[v], twin.sums[labels])
            assert torch.equal(touched.rates[v], twin._rates[labels])
            assert torch.equal(touched.concentration[v], twin.concentration[labels])
        old.agrees_with(bank)
        if new is not None:
            new.agrees_with(bank, "next_")
        for name, tensor in bank.named_buffers():
            assert torch.equal(tensor, twin.get_buffer(name)), name
        assert touched.concentration.dtype == bank.sums.dtype
        assert (touched.rows.shape, touched.rates.shape) == ((3, 6, 3), (3, 6))


def test_decay_counts_occurrences_of_the_class_not_updates() -> None:
    bank = pg.ClassBank(3, 2, decay=0.5)
    model = PublicEstimator(bank)
    for labels in ([0, 0, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0]):
        features = dyadic(3, 2)
        bank.update(features, torch.tensor(labels))
        model.update(features, torch.tensor(labels), Fraction(1, 2))
        model.agrees_with(bank)
        derived_from_buffers(bank)
    assert bank.counts.tolist() == [2 / 8 + 3 / 4 + 2 / 2 + 3, 1 / 2 + 1, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_long_decay_keeps_unit_features_at_length_one(dtype: torch.dtype) -> None:
    """Sums and counts forget at one rate: the resultant length of equal unit features stays 1, so that "error" accepts them."""
    bank = pg.ClassBank(1, 2, decay=0.999, on_resultant_above_one="error", dtype=dtype)
    for _ in range(600):
        bank.update(torch.tensor([[0.6, 0.8]]), torch.tensor([0]))
    # the product with the factor is rounded at each step and remembered for about 1 / (1 - decay) of them
    assert bank.resultant_length.item() == pytest.approx(1, abs=torch.finfo(dtype).eps / 2 / 0.001 + 2 * U)
    factor = torch.tensor(0.999, dtype=dtype).item()
    assert bank.counts.item() == pytest.approx((1 - factor**600) / (1 - factor), rel=1e-12)


# Memory -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [None, 0.5])
def test_two_epochs(decay: float | None) -> None:
    """OLD is scored and updated, NEW is updated; an epoch begins with OLD <- NEW and NEW reset."""
    bank = pg.ClassBank(4, 3, memory="two-epochs", decay=decay)
    old, new, factor = PublicEstimator(bank), PublicEstimator(bank, "next_"), Fraction(decay or 1)
    for epoch in range(4):
        bank.start_epoch()
        fresh = PublicEstimator(bank, "next_")
        old, new = new if epoch else PublicEstimator(bank), fresh
        old.agrees_with(bank)
        new.agrees_with(bank, "next_")
        assert not bank.next_counts.any()
        derived_from_buffers(bank)
        for _ in range(3):
            features, labels = dyadic(5, 3), torch.randint(3, (5,))
            bank.update(features, labels)
            old.update(features, labels, factor)
            new.update(features, labels, factor)
            old.agrees_with(bank)
            new.agrees_with(bank, "next_")
            derived_from_buffers(bank)
    # class 3 has never been seen: its direction is the one NEW drew when the previous epoch began, and NEW has drawn another
    assert bank.concentration[3].item() == pytest.approx(3 * 0.9 / 0.19, rel=INITIAL * U)
    assert not torch.equal(bank.sums[3], bank.next_sums[3])


def test_an_epoch_carries_both_words() -> None:
    bank = filled(memory="two-epochs")
    kept = [bank.get_buffer("next_" + name).clone() for name in ("sums", "compensation", "counts")]
    assert kept[1].any()
    bank.start_epoch()
    assert all(torch.equal(bank.get_buffer(name), old) for name, old in zip(("sums", "compensation", "counts"), kept, strict=True))
    assert not bank.next_compensation.any()
    assert bank.sums.data_ptr() != bank.next_sums.data_ptr()


def test_a_cumulative_bank_has_no_epochs() -> None:
    bank = filled()
    before = snapshot(bank)
    with pytest.raises(RuntimeError, match="start_epoch needs memory='two-epochs': this bank has one cumulative memory; use reset"):
        bank.start_epoch()
    untouched(bank, before)


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_reset(memory: str) -> None:
    bank = filled(memory=memory, generator=torch.Generator().manual_seed(5))
    assert bank.concentration.max() > 0
    bank.reset(generator=torch.Generator().manual_seed(5))
    fresh = pg.ClassBank(4, 3, memory=memory, generator=torch.Generator().manual_seed(5))
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, fresh.get_buffer(name)), name
    bank.reset()
    assert not torch.equal(bank.sums, fresh.sums)
    derived_from_buffers(bank)


# Unseen classes and the edges of the resultant ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 7, 512])
def test_an_unseen_class_is_random_with_length_nine_tenths(dim: int, dtype: torch.dtype) -> None:
    bank = pg.ClassBank(6, dim, dtype=dtype)
    u = torch.finfo(dtype).eps / 2
    # the norm of p random numbers: p roundings in the worst case, some sqrt(p) of them in practice, in blocks
    wide = 1 + math.sqrt(dim) / 8
    torch.testing.assert_close(bank.resultant_length, torch.full((6,), 0.9, dtype=torch.float64), rtol=4 * wide * u, atol=0)
    torch.testing.assert_close(bank.concentration, torch.full((6,), dim * 0.9 / 0.19, dtype=dtype), rtol=INITIAL * wide * u, atol=0)
    torch.testing.assert_close(bank.mean, bank.sums, rtol=0, atol=0)
    torch.testing.assert_close(bank.mean_direction.norm(dim=1), torch.ones(6, dtype=dtype), rtol=8 * wide * u, atol=0)
    assert not bank.counts.any()
    assert (torch.pdist(bank.sums) > 1e-3).all()
    derived_from_buffers(bank)


def test_random_directions_are_uniform() -> None:
    """The mean of 4000 uniform directions times 0.9 has 4000 ||mean||^2 / 0.81 ~ chi^2_3 / 3: above 10 with probability 2e-6."""
    mean = pg.ClassBank(4000, 3).sums.mean(0)
    assert 4000 * mean.square().sum() / 0.81 < 10


def test_every_row_of_a_large_bank_is_drawn() -> None:
    """More rows than are drawn at a time."""
    bank = pg.ClassBank(65536 + 3, 2)
    torch.testing.assert_close(bank.resultant_length, torch.full((65539,), 0.9, dtype=torch.float64), rtol=8 * U, atol=0)
    assert len(torch.unique(bank.sums[:, 0])) > 60000


def test_generators_and_seeds_reproduce_the_directions() -> None:
    def drawn(seed: int) -> torch.Tensor:
        return pg.ClassBank(3, 4, generator=torch.Generator().manual_seed(seed)).sums

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    torch.manual_seed(9)
    first = pg.ClassBank(3, 4).sums
    state = torch.get_rng_state()
    drawn(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(9)
    assert torch.equal(pg.ClassBank(3, 4).sums, first)
    bank = pg.ClassBank(3, 4, memory="two-epochs", generator=torch.Generator().manual_seed(1))
    bank.start_epoch(generator=torch.Generator().manual_seed(2))
    assert torch.equal(bank.next_sums, drawn(2))


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_unseen_uniform(memory: str) -> None:
    bank = pg.ClassBank(3, 4, unseen="uniform", memory=memory)
    state = torch.get_rng_state()
    bank.reset()
    assert torch.equal(torch.get_rng_state(), state)
    bank.update(torch.eye(4)[:2], torch.tensor([0, 0]))
    assert not bank.sums[1:].any()
    assert bank.concentration[1:].tolist() == [0, 0]
    assert bank.resultant_length[1:].tolist() == [0, 0]
    assert not bank.mean_direction[1:].any()
    assert bank.concentration[0].item() == pytest.approx(4 * math.sqrt(0.5) / 0.5, rel=4 * U)


@pytest.mark.parametrize("estimator", ["closed-form", "mle"])
@pytest.mark.parametrize("small_samples", ["plain", "unbiased"])
def test_opposite_features_have_no_direction(estimator: str, small_samples: str) -> None:
    bank = pg.ClassBank(2, 3, concentration=estimator, small_samples=small_samples)
    feature = torch.tensor([[0.6, -0.8, 0.1]])
    bank.update(torch.cat([feature, -feature]), torch.tensor([1, 1]))
    assert bank.resultant_length[1].item() == 0
    assert bank.concentration[1].item() == 0
    assert bank.mean_direction[1].tolist() == [0, 0, 0]
    assert bank.mean[1].tolist() == [0, 0, 0]
    assert bank.classes().rates[1].item() == 0
    assert bank.counts[1].item() == 2


@pytest.mark.parametrize("estimator", ["closed-form", "mle"])
def test_a_single_unit_feature_has_the_cap(estimator: str) -> None:
    bank = pg.ClassBank(3, 4, concentration=estimator)
    bank.update(torch.eye(4)[[2, 1, 1]], torch.tensor([0, 1, 1]))
    assert bank.resultant_length[:2].tolist() == [1, 1]
    assert bank.concentration[:2].tolist() == [1e5, 1e5]
    small = pg.ClassBank(3, 4, concentration=estimator, cap=50.0)
    small.update(torch.eye(4)[:1], torch.tensor([0]))
    assert small.concentration[0].item() == 50


def test_a_single_feature_says_nothing_when_unbiased() -> None:
    bank = pg.ClassBank(3, 4, small_samples="unbiased")
    bank.update(torch.eye(4)[[2, 0, 1, 0]], torch.tensor([0, 1, 1, 1]))
    squared = (3 * 5 / 9 - 1) / 2  # R^2 = (2^2 + 1^2) / 3^2
    want = [0, 4 * math.sqrt(squared) / (1 - squared), 4 * 0.9 / 0.19]
    assert bank.concentration.tolist() == pytest.approx(want, rel=INITIAL * U)


def test_the_rule_of_the_bank() -> None:
    bank = filled(concentration="mle", cap=77.0, small_samples="unbiased")
    assert bank.rule == ConcentrationRule(3, "mle", 77.0, "unbiased")
    plain = filled(concentration="mle")
    inverse = pg.potential(3).concentration(plain.resultant_length)
    torch.testing.assert_close(plain.concentration, inverse.float(), rtol=0, atol=0)


def test_longer_features_are_capped() -> None:
    bank = pg.ClassBank(2, 3)
    bank.update(torch.full((2, 3), 2.0), torch.tensor([0, 0]))
    assert bank.concentration[0].item() == 1e5
    assert bank.resultant_length[0].item() == pytest.approx(math.sqrt(12), rel=1e-15)
    assert bank.mean[0].tolist() == [2, 2, 2]


LONG = torch.tensor([[1.5, 0.0, 0.0]])


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_longer_features_are_refused_before_anything_changes(memory: str) -> None:
    bank = filled(on_resultant_above_one="error", memory=memory)
    fresh = bank.num_classes - 1
    before = snapshot(bank)
    with pytest.raises(
        ValueError,
        match=rf"features must have length at most 1 here: class {fresh} would get the resultant length 1\.5; normalise them, or",
    ):
        bank.update(torch.cat([0.1 * LONG, LONG]), torch.tensor([1, fresh]))
    untouched(bank, before)
    bank.update(LONG / 2, torch.tensor([fresh]))
    assert bank.counts[fresh].item() == 1


def test_a_view_is_refused_even_if_the_next_would_make_up_for_it() -> None:
    bank = pg.ClassBank(2, 3, on_resultant_above_one="error")
    before = snapshot(bank)
    views = torch.stack([LONG, -LONG])
    with pytest.raises(ValueError, match=r"class 1 would get the resultant length 1\.5"):
        bank.absorb(views, torch.tensor([1]))
    with pytest.raises(ValueError, match=r"class 1 would get the resultant length 1\.125"):
        bank.absorb(torch.stack([LONG / 2, LONG]), torch.tensor([1]))
    untouched(bank, before)


def test_refusing_allows_for_rounding() -> None:
    for length, good in ((1 + 5e-6, True), (1 + 2e-5, False)):
        bank = pg.ClassBank(2, 3, on_resultant_above_one="error", dtype=torch.float64)
        features = torch.tensor([[length, 0, 0]], dtype=torch.float64)
        if good:
            bank.update(features, torch.tensor([0]))
            assert bank.concentration[0].item() == 1e5
        else:
            with pytest.raises(ValueError, match="features must have length at most 1"):
                bank.update(features, torch.tensor([0]))


def test_features_are_normalised_one_by_one() -> None:
    bank, plain = pg.ClassBank(2, 3, on_resultant_above_one="normalize", unseen="uniform"), pg.ClassBank(2, 3, unseen="uniform")
    features, labels = torch.randn(6, 3) * torch.tensor([0.1, 1, 10, 100, 3, 7])[:, None], torch.tensor([0, 0, 0, 0, 0, 1])
    original = features.clone()
    bank.update(features, labels)
    assert torch.equal(features, original)
    plain.update(features / features.norm(dim=1, keepdim=True), labels)
    # twice a norm and a division
    torch.testing.assert_close(bank.sums, plain.sums, rtol=0, atol=5 * 8 * U)
    assert bank.resultant_length[0].item() < 1
    assert bank.concentration[1].item() == pytest.approx(1e5, rel=0.3)  # R = 1 up to rounding, p / (2 (1 - R)) may be below the cap
    zero = pg.ClassBank(2, 3, on_resultant_above_one="normalize")
    zero.update(torch.zeros(1, 3), torch.tensor([0]))
    assert (zero.concentration[0].item(), zero.counts[0].item()) == (0, 1)


# Arguments ----------------------------------------------------------------------------------------------------------------

GOOD, LABELS = torch.full((4, 3), 0.25), torch.tensor([0, 1, 1, 2])


def spoiled(value: float) -> torch.Tensor:
    features = GOOD.clone()
    features[2, 1] = value
    return features


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
@pytest.mark.parametrize(
    ("features", "labels", "error", "message"),
    [
        (GOOD, torch.tensor([0, 1, 4, 2]), ValueError, r"labels must lie in \[0, 3\], got values from 0 to 4"),
        (GOOD, torch.tensor([0, -1, 1, 2]), ValueError, r"labels must lie in \[0, 3\], got values from -1 to 2"),
        (GOOD, LABELS.float(), TypeError, r"labels must be an integer torch tensor of shape \(4,\), got a float32 tensor"),
        (GOOD, [0, 1, 1, 2], TypeError, r"labels must be an integer torch tensor of shape \(4,\), got \[0, 1, 1, 2\] \(list\)"),
        (GOOD, LABELS[:3], ValueError, r"labels must have shape \(4,\), one per row of features, got .*shape \(3,\)"),
        (GOOD, LABELS[:, None], ValueError, r"labels must have shape \(4,\), .*got .*shape \(4, 1\)"),
        (GOOD, LABELS.to("meta"), ValueError, "labels must be on cpu, got .*on meta"),
        (GOOD[:, :2], LABELS, ValueError, r"features must have shape \(batch, dim=3\), got a float32 tensor of shape \(4, 2\)"),
        (GOOD[0], LABELS, ValueError, r"features must have shape \(batch, dim=3\), got a float32 tensor of shape \(3,\)"),
        (GOOD[None], LABELS, ValueError, r"features must have shape \(batch, dim=3\), got a float32 tensor of shape \(1, 4, 3\)"),
        (GOOD.long(), LABELS, TypeError, "features must have dtype float32 or float64 .*got a int64 tensor"),
        (GOOD.tolist(), LABELS, TypeError, "features must be a floating-point torch tensor, got .*list"),
        (GOOD.to("meta"), LABELS, ValueError, "features must be on cpu, where the class state is, got .*on meta"),
        (spoiled(math.nan), LABELS, ValueError, "features must be finite, got NaN or infinity"),
        (spoiled(math.inf), LABELS, ValueError, "features must be finite, got NaN or infinity"),
        (spoiled(-math.inf).half(), LABELS, ValueError, "features must be finite, got NaN or infinity"),
        (GOOD.double() * 1e300, LABELS, ValueError, "features must stay finite when they are converted"),
    ],
)
def test_an_error_changes_nothing(features: Any, labels: Any, error: type[Exception], message: str, memory: str) -> None:
    bank = filled(memory=memory)
    before = snapshot(bank)
    with pytest.raises(error, match=message):
        bank.update(features, labels)
    untouched(bank, before)


def test_validate() -> None:
    """False does not look at values; a label that is no class is then torch's to find, before anything changes; True and None look."""
    for validate in (None, True):
        bank = filled(validate=validate)
        with pytest.raises(ValueError, match="features must be finite"):
            bank.update(spoiled(math.nan), LABELS)
    bank = filled(validate=False, memory="two-epochs")
    before = snapshot(bank)
    for label in (4, -1):
        with pytest.raises(IndexError):
            bank.update(GOOD, torch.tensor([0, label, 1, 1]))
    untouched(bank, before)
    bank.update(spoiled(math.nan), LABELS)
    assert bank.sums.isnan().any(1).tolist() == [False, True, False, False]
    unlooked = pg.ClassBank(2, 3, on_resultant_above_one="error", validate=False)
    unlooked.update(LONG, torch.tensor([0]))
    assert unlooked.concentration[0].item() == 1e5


@pytest.mark.parametrize("validate", [None, True, False])
@pytest.mark.parametrize("rule", ["cap", "error", "normalize"])
@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_nothing_is_read_on_a_device_without_values(validate: bool | None, rule: str, memory: str) -> None:
    bank = pg.ClassBank(4, 3, device="meta", validate=validate, on_resultant_above_one=rule, memory=memory, small_samples="unbiased")
    bank.update(GOOD.to("meta"), LABELS.to("meta"))
    if memory == "two-epochs":
        bank.start_epoch()
    assert (bank.concentration.shape, bank.mean_direction.shape, bank.resultant_length.shape) == ((4,), (4, 3), (4,))
    assert bank.concentration.device.type == "meta"
    with pytest.raises(ValueError, match="features must be on meta"):
        bank.update(GOOD, LABELS)


def test_elsewhere_the_device_refuses_longer_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """The asynchronous path, with a CPU that counts as another device."""
    left = []
    monkeypatch.setattr(bank_module, "looks", lambda tensor, validate: False)
    monkeypatch.setattr(bank_module, "assert_later", lambda good, message: left.append(bool(good)))
    bank = pg.ClassBank(2, 3, on_resultant_above_one="error")
    bank.update(LONG / 2, torch.tensor([0]))
    bank.update(LONG, torch.tensor([1]))
    assert left == [True, False]
    bank.validate = False
    bank.update(LONG, torch.tensor([1]))
    assert len(left) == 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_classes": 0}, ValueError, "num_classes must be an integer >= 1, got 0"),
        ({"num_classes": 2.5}, TypeError, "num_classes must be an integer >= 1, got 2.5"),
        ({"dim": 1}, ValueError, "dim must be an integer >= 2, got 1: a direction needs at least two coordinates"),
        ({"concentration": "none"}, ValueError, "concentration must be one of 'closed-form', 'mle', got 'none'"),
        ({"cap": 0.0}, ValueError, "cap must be a positive finite number"),
        (
            {"on_resultant_above_one": "ignore"},
            ValueError,
            "on_resultant_above_one must be one of 'cap', 'error', 'normalize', got 'ignore'",
        ),
        ({"unseen": "zero"}, ValueError, "unseen must be one of 'random', 'uniform', got 'zero'"),
        ({"small_samples": "fix"}, ValueError, "small_samples must be one of 'plain', 'unbiased', got 'fix'"),
        ({"memory": "epoch"}, ValueError, "memory must be one of 'cumulative', 'two-epochs', got 'epoch'"),
        *(({"decay": d}, ValueError, f"decay must be a number between 0 and 1, or None, got {d}") for d in (0.0, 1.0, 1.5, -0.1, math.nan)),
        ({"dtype": torch.float16}, TypeError, "dtype must be torch.float32 or torch.float64, got torch.float16"),
        ({"dtype": torch.int64}, TypeError, "dtype must be torch.float32 or torch.float64, got torch.int64"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.ClassBank(**({"num_classes": 3, "dim": 4} | options))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_of_another_dtype_are_converted(dtype: torch.dtype) -> None:
    bank = pg.ClassBank(4, 3)
    twin = copy.deepcopy(bank)
    features = torch.randn(4, 3).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        bank.update(features, LABELS)
    twin.update(features.float(), LABELS)
    assert torch.equal(bank.sums, twin.sums)
    assert torch.equal(bank.concentration, twin.concentration)


def test_features_are_detached_and_may_be_strided() -> None:
    bank = pg.ClassBank(4, 3)
    twin = copy.deepcopy(bank)
    features, labels = torch.randn(3, 8, requires_grad=True), torch.randint(4, (8, 2))
    bank.update((2 * features).T, labels[:, 1])
    twin.update(2 * features.detach().T.contiguous(), labels[:, 1].contiguous().to(torch.int32))
    assert torch.equal(bank.sums, twin.sums)
    assert not any(tensor.requires_grad for tensor in (bank.sums, bank.concentration, bank.mean_direction, bank.resultant_length))


# What an update touches ---------------------------------------------------------------------------------------------------


class Made(TorchDispatchMode):
    """The tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.tensors += [part for part in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(part, torch.Tensor)]
        return result


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
@pytest.mark.parametrize("options", [{}, {"decay": 0.9}, {"on_resultant_above_one": "error"}, {"on_resultant_above_one": "normalize"}])
def test_an_update_makes_nothing_of_the_size_of_the_bank(memory: str, options: dict[str, Any]) -> None:
    """With 7 samples, 11 classes and dimension 13, a tensor with an 11 in its shape has a row per class: only the buffers have."""
    batch, classes, dim = 7, 11, 13
    bank = pg.ClassBank(classes, dim, memory=memory, **options)
    own = {tensor.data_ptr() for tensor in bank.buffers()}
    features, labels = torch.randn(2, batch, dim) / 10, torch.randint(classes, (batch,))
    bank.update(features[0], labels)
    with Made() as made:
        bank.update(features[0], labels)
        bank.absorb(features, labels)
    assert len(made.tensors) > 20
    for tensor in made.tensors:
        assert not (classes in tensor.shape and tensor.data_ptr() not in own), tensor.shape
        assert not (classes in tensor.shape and batch in tensor.shape), tensor.shape


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_other_rows_keep_their_bits(memory: str) -> None:
    bank = filled(classes=7, dim=3, batch=12, memory=memory, decay=0.7)
    before = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    bank.update(torch.rand(4, 3) / 2, torch.tensor([2, 5, 5, 2]))
    for name, tensor in bank.named_buffers():
        changed = (tensor != before[name]).reshape(7, -1).any(1).tolist()
        if "compensation" not in name:  # which may be zero twice
            assert changed == [False, False, True, False, False, True, False], name
        assert not any(changed[k] for k in (0, 1, 3, 4, 6)), name


def test_what_is_read_is_not_the_state() -> None:
    bank = filled()
    before = snapshot(bank)
    for name in ("concentration", "mean", "mean_direction", "resultant_length"):
        getattr(bank, name).zero_()
    untouched(bank, before)
    derived_from_buffers(bank)


# As a module --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
def test_state_dict(memory: str) -> None:
    bank = filled(memory=memory)
    names = {"sums", "compensation", "counts"}
    assert set(bank.state_dict()) == names | ({"next_" + name for name in names} if memory == "two-epochs" else set())
    assert not list(bank.parameters())
    file = io.BytesIO()
    torch.save(bank.state_dict(), file)
    file.seek(0)
    fresh = pg.ClassBank(4, 3, memory=memory)
    kappa = fresh.concentration
    assert not fresh.load_state_dict(torch.load(file, weights_only=True)).missing_keys
    assert torch.equal(fresh.current().concentration, bank.concentration)  # at once, without a read in between
    assert not torch.equal(fresh.concentration, kappa)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, fresh.get_buffer(name)), name
    features, labels = torch.rand(5, 3), torch.tensor([0, 3, 1, 1, 1])
    for each in (bank, fresh):
        each.update(features, labels)
        derived_from_buffers(each)
    assert torch.equal(bank.sums, fresh.sums)
    assert torch.equal(bank.compensation, fresh.compensation)


def test_a_state_of_another_memory_is_not_loaded() -> None:
    with pytest.raises(RuntimeError, match="next_sums"):
        pg.ClassBank(4, 3).load_state_dict(filled(memory="two-epochs").state_dict())


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_loading_by_assignment(dtype: torch.dtype, device: str) -> None:
    """The saved tensors become the buffers: also in a bank without memory of its own, and with another dtype."""
    bank = filled(dtype=dtype)
    fresh = pg.ClassBank(4, 3, device=device)
    saved = {name: tensor.clone() for name, tensor in bank.state_dict().items()}
    fresh.load_state_dict(saved, assign=True)
    assert fresh.sums.data_ptr() == saved["sums"].data_ptr()
    assert torch.equal(fresh.current().concentration, bank.concentration)
    derived_from_buffers(fresh)
    fresh.update(GOOD, LABELS)
    bank.update(GOOD, LABELS)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, fresh.get_buffer(name)), name


def test_deepcopy() -> None:
    bank = filled(memory="two-epochs", concentration="mle")
    twin = copy.deepcopy(bank)
    bits = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    assert torch.equal(twin.concentration, bank.concentration)
    twin.update(GOOD, LABELS)
    derived_from_buffers(twin)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, bits[name]), name
        assert tensor.data_ptr() != twin.get_buffer(name).data_ptr()


def test_pickle() -> None:
    bank = filled(memory="two-epochs", decay=0.5)
    bank.sums.mul_(0.5)  # noticed by whoever reads next
    twin = pickle.loads(pickle.dumps(bank))
    assert torch.equal(twin.concentration, bank.concentration)
    for each in (bank, twin):
        each.update(GOOD, LABELS)
        derived_from_buffers(each)
    for name, tensor in bank.named_buffers():
        assert torch.equal(tensor, twin.get_buffer(name)), name
    twin.load_state_dict(filled(memory="two-epochs").state_dict())
    derived_from_buffers(twin)


def words(bank: pg.ClassBank, prefix: str = "") -> list[Fraction]:
    high, low = (bank.get_buffer(prefix + name).flatten().tolist() for name in ("sums", "compensation"))
    return [Fraction(h) + Fraction(l) for h, l in zip(high, low, strict=True)]


@pytest.mark.parametrize("prefix", ["", "next_"])
def test_conversions_keep_both_words(prefix: str) -> None:
    """float32 -> float64 -> float32 is exact; and float64 holds the whole sum in its high word, so that what it derives is as good as it can be."""
    bank = filled(memory="two-epochs")
    exact, bits = words(bank, prefix), [bank.get_buffer(prefix + name).clone() for name in ("sums", "compensation")]
    assert bits[1].any()
    bank.double()
    assert bank.sums.dtype == bank.compensation.dtype == bank.concentration.dtype == torch.float64
    assert words(bank, prefix) == exact
    assert bank.get_buffer(prefix + "sums").flatten().tolist() == [float(x) for x in exact]
    derived_from_buffers(bank)
    bank.float()
    assert bank.sums.dtype == bank.compensation.dtype == bank.concentration.dtype == torch.float32
    assert bank.counts.dtype == bank._norms.dtype == bank.next_counts.dtype == torch.float64
    for name, old in zip(("sums", "compensation"), bits, strict=True):
        assert torch.equal(bank.get_buffer(prefix + name), old)
    derived_from_buffers(bank)


def test_float32_keeps_what_two_words_can_of_float64() -> None:
    bank = pg.ClassBank(3, 4, dtype=torch.float64)
    for _ in range(9):
        bank.update(torch.randn(5, 4, dtype=torch.float64), torch.randint(3, (5,)))
    exact = words(bank)
    bank.float()
    # |low| <= u |high|, rounded once more
    assert all(abs(got - want) <= U * U * abs(want) for got, want in zip(words(bank), exact, strict=True))
    assert torch.equal(bank.sums + bank.compensation, bank.sums)
    derived_from_buffers(bank)
    bank.to(dtype=torch.float64).update(GOOD.new_ones(1, 4), torch.tensor([0]))
    derived_from_buffers(bank)


@pytest.mark.parametrize("convert", ["half", "bfloat16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_half_precision_is_refused_silently(convert: str, dtype: torch.dtype) -> None:
    bank = filled(dtype=dtype, memory="two-epochs")
    bits = {name: tensor.clone() for name, tensor in bank.named_buffers()}
    getattr(bank, convert)()
    for name, tensor in bank.named_buffers():
        assert tensor.dtype == bits[name].dtype
        assert torch.equal(tensor, bits[name]), name
    bank.update(GOOD.half(), LABELS)
    derived_from_buffers(bank)


@pytest.mark.parametrize("dtype", DTYPES)
def test_through_the_meta_device(dtype: torch.dtype) -> None:
    bank = filled()
    saved, kappa = copy.deepcopy(bank.state_dict()), bank.concentration
    bank.to(device="meta", dtype=dtype)
    assert {tensor.device.type for tensor in bank.buffers()} == {"meta"}
    assert bank.sums.dtype == dtype
    bank.float().to_empty(device="cpu")
    bank.load_state_dict(saved)
    assert torch.equal(bank.concentration, kappa)
    derived_from_buffers(bank)
    bank.to("meta").to_empty(device="cpu").reset()
    assert not bank.counts.any()
    derived_from_buffers(bank)


@pytest.mark.parametrize("multi_avg_fn", [None, get_ema_multi_avg_fn(0.75)])
def test_averaged_models_average_the_state_and_derive_the_rest(multi_avg_fn: Callable[..., Any] | None) -> None:
    model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "bank": pg.ClassBank(4, 3)})
    averaged = AveragedModel(model, use_buffers=True, multi_avg_fn=multi_avg_fn)
    bank, mean = model["bank"], averaged.module["bank"]
    assert isinstance(mean, pg.ClassBank)
    want: dict[str, torch.Tensor] = {}
    for step in range(3):
        bank.update(torch.rand(6, 3), torch.randint(3, (6,)))
        averaged.update_parameters(model)
        for name, tensor in bank.state_dict().items():
            weight = 1.0 if not step else 0.25 if multi_avg_fn else 1 / (step + 1)
            want[name] = tensor.clone() if not step else want[name] + weight * (tensor - want[name])
            torch.testing.assert_close(mean.get_buffer(name), want[name], rtol=8 * U, atol=8 * U * 20)
        derived_from_buffers(mean)
        derived_from_buffers(bank)
    # a mean of concentrations would be another number
    assert mean.counts[:3].min() > 0
    torch.testing.assert_close(mean.concentration, mean.rule(mean.resultant_length, mean.counts).float(), rtol=4 * U, atol=0)


@pytest.mark.parametrize(
    "edit",
    [
        lambda bank: bank.sums.mul_(0.5),
        lambda bank: bank.sums[1].zero_(),
        lambda bank: bank.counts.add_(3),
        lambda bank: bank._norms.fill_(7),
        lambda bank: bank._concentrations.fill_(7),
        lambda bank: bank._rates.fill_(7),
        lambda bank: bank.sums.detach().copy_(torch.rand(4, 3)),
        lambda bank: setattr(bank, "sums", torch.rand(4, 3)),
        lambda bank: setattr(bank, "counts", torch.ones(4, dtype=torch.float64)),
    ],
)
def test_what_others_write_is_noticed(edit: Callable[[pg.ClassBank], Any]) -> None:
    bank = filled()
    derived_from_buffers(bank)
    edit(bank)
    derived_from_buffers(bank)
    edit(bank)
    bank.update(GOOD[:1], LABELS[:1])  # an update of one class must not pass the others' old values for new
    derived_from_buffers(bank)
    with torch.inference_mode():
        edit(bank)
        derived_from_buffers(bank)


@pytest.mark.parametrize("read", ["concentration", "resultant_length", "mean_direction", "mean", "classes"])
def test_whatever_is_read_first_notices(read: str) -> None:
    """Each of them by itself: none relies on another having been read before."""

    def reading(bank: pg.ClassBank) -> list[torch.Tensor]:
        got = getattr(bank, read)
        return [tensor.clone() for tensor in got()] if read == "classes" else [got]

    bank = filled()
    fresh = pg.ClassBank(4, 3)
    before = reading(bank)
    bank.sums.copy_(torch.rand(4, 3))
    bank.counts.fill_(2)
    fresh.load_state_dict(bank.state_dict())
    for old, new, want in zip(before, reading(bank), reading(fresh), strict=True):
        assert not torch.equal(old, new)
        assert torch.equal(new, want)


def test_exchanged_buffers_are_noticed() -> None:
    """Two banks with equal histories have tensors with equal versions."""
    first, second = filled(), filled()
    first.sums, second.sums = second.sums, first.sums
    derived_from_buffers(first)
    derived_from_buffers(second)


def test_what_is_known_is_not_derived_again() -> None:
    bank = filled()
    bank.concentration  # noqa: B018
    before = snapshot(bank)
    for _ in range(2):
        bank.refresh()
        bank.concentration, bank.resultant_length, bank.mean_direction, bank.classes()
    untouched(bank, before)


def test_inference_mode() -> None:
    """Updating and reading work inside; a bank made inside can be read outside, where torch forbids to write to it."""
    bank = filled()
    twin = copy.deepcopy(bank)
    with torch.inference_mode():
        bank.update(GOOD, LABELS)
        derived_from_buffers(bank)
        made = pg.ClassBank(4, 3)
        made.load_state_dict(twin.state_dict())
        made.update(GOOD, LABELS)
        derived_from_buffers(made)
    twin.update(GOOD, LABELS)
    for each in (bank, made):
        derived_from_buffers(each)
        assert torch.equal(each.sums, twin.sums)
        assert torch.equal(each.concentration, twin.concentration)
    for write in (lambda: made.update(GOOD, LABELS), made.reset):
        with pytest.raises(RuntimeError, match=r"the buffers of this bank are inference tensors, .*use copy.deepcopy\(bank\)"):
            write()
        assert torch.equal(made.sums, twin.sums)
        assert torch.equal(made.counts, twin.counts)
    copied = copy.deepcopy(made)
    copied.update(GOOD, LABELS)
    derived_from_buffers(copied)
    with torch.inference_mode():
        made.update(GOOD, LABELS)
    twin.update(GOOD, LABELS)
    assert torch.equal(made.concentration, twin.concentration)
    assert torch.equal(copied.concentration, twin.concentration)


def test_inference_mode_and_epochs() -> None:
    with torch.inference_mode():
        bank = filled(memory="two-epochs")
    bits = {name: tensor.clone() for name, tensor in bank.state_dict().items()}
    with pytest.raises(RuntimeError, match="the buffers of this bank are inference tensors"):
        bank.start_epoch()
    assert all(torch.equal(tensor, bits[name]) for name, tensor in bank.state_dict().items())


@pytest.mark.parametrize("memory", ["cumulative", "two-epochs"])
@pytest.mark.parametrize("options", [{}, {"on_resultant_above_one": "error", "validate": True, "decay": 0.5}])
def test_one_graph(memory: str, options: dict[str, Any]) -> None:
    """update is traced as a whole, whatever is to be checked; and the next read outside knows that something was written inside."""
    torch._dynamo.reset()
    bank = pg.ClassBank(4, 3, memory=memory, **options)
    twin = copy.deepcopy(bank)
    compiled = torch.compile(bank.update, backend="eager", fullgraph=True)
    for _ in range(3):
        features = torch.rand(4, 3) / 2
        compiled(features, LABELS)
        twin.update(features, LABELS)
        derived_from_buffers(bank)
        for name, tensor in twin.named_buffers():
            assert torch.equal(tensor, bank.get_buffer(name)), name


def test_repr_names_what_is_not_the_default() -> None:
    assert repr(pg.ClassBank(3, 4)) == "ClassBank(3, 4, concentration='closed-form', cap=100000)"
    options = {"on_resultant_above_one": "error", "unseen": "uniform", "decay": 0.5, "memory": "two-epochs", "small_samples": "unbiased"}
    shown = repr(pg.ClassBank(3, 4, concentration="mle", cap=10.0, **options))
    assert "concentration='mle', cap=10" in shown
    assert all(f"{name}={value!r}" in shown for name, value in options.items())
