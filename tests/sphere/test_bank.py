"""The class bank against the public estimator in rational arithmetic: updates, memory, unseen classes, the edges of the resultant."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from tests.sphere.banks import (
    DTYPES,
    INITIAL,
    LONG,
    QUOTIENT,
    PublicEstimator,
    U,
    derived_from_buffers,
    dyadic,
    filled,
    snapshot,
    untouched,
)


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
    """Absorbing V views is V updates, with the states in between; with decay 1/2 all of it is still exact."""
    bank = pg.ClassBank(5, 3, memory=memory, decay=decay)
    twin = copy.deepcopy(bank)
    old, factor = PublicEstimator(bank), Fraction(decay or 1)
    new = PublicEstimator(bank, "next_") if memory == "two-epochs" else None
    for _ in range(4):
        views, labels = dyadic(3, 6, 3), torch.tensor([0, 3, 0, 1, 3, 0])
        with bank.updating() as state:
            touched = state.absorb(views, labels)
        seen = touched.of_samples()
        for v, view in enumerate(views):
            twin.update(view, labels)
            old.update(view, labels, factor)
            if new is not None:
                new.update(view, labels, factor)
            assert torch.equal(seen.rows[v], twin.sums[labels])
            assert torch.equal(seen.rates[v], twin.classes().rates[labels])
            assert torch.equal(seen.concentration[v], twin.concentration[labels])
        old.agrees_with(bank)
        if new is not None:
            new.agrees_with(bank, "next_")
        for name, tensor in bank.named_buffers():
            assert torch.equal(tensor, twin.get_buffer(name)), name
        assert seen.concentration.dtype == bank.sums.dtype
        assert (seen.rows.shape, seen.rates.shape) == ((3, 6, 3), (3, 6))


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
    bank = pg.ClassBank(2, 3, estimator=estimator, small_samples=small_samples)
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
    bank = pg.ClassBank(3, 4, estimator=estimator)
    bank.update(torch.eye(4)[[2, 1, 1]], torch.tensor([0, 1, 1]))
    assert bank.resultant_length[:2].tolist() == [1, 1]
    assert bank.concentration[:2].tolist() == [1e5, 1e5]
    small = pg.ClassBank(3, 4, estimator=estimator, cap=50.0)
    small.update(torch.eye(4)[:1], torch.tensor([0]))
    assert small.concentration[0].item() == 50


def test_a_single_feature_says_nothing_when_unbiased() -> None:
    bank = pg.ClassBank(3, 4, small_samples="unbiased")
    bank.update(torch.eye(4)[[2, 0, 1, 0]], torch.tensor([0, 1, 1, 1]))
    squared = (3 * 5 / 9 - 1) / 2  # R^2 = (2^2 + 1^2) / 3^2
    want = [0, 4 * math.sqrt(squared) / (1 - squared), 4 * 0.9 / 0.19]
    assert bank.concentration.tolist() == pytest.approx(want, rel=INITIAL * U)


def test_maximum_likelihood_inverts_the_slope() -> None:
    plain = filled(estimator="mle")
    inverse = pg.potential(3).concentration(plain.resultant_length)
    torch.testing.assert_close(plain.concentration, inverse.float(), rtol=0, atol=0)


def test_longer_features_are_capped() -> None:
    bank = pg.ClassBank(2, 3)
    bank.update(torch.full((2, 3), 2.0), torch.tensor([0, 0]))
    assert bank.concentration[0].item() == 1e5
    assert bank.resultant_length[0].item() == pytest.approx(math.sqrt(12), rel=1e-15)
    assert bank.mean[0].tolist() == [2, 2, 2]


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
    with pytest.raises(ValueError, match=r"class 1 would get the resultant length 1\.5"), bank.updating() as state:
        state.absorb(views, torch.tensor([1]))
    with pytest.raises(ValueError, match=r"class 1 would get the resultant length 1\.125"), bank.updating() as state:
        state.absorb(torch.stack([LONG / 2, LONG]), torch.tensor([1]))
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
