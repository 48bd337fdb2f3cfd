"""No certificate of a learning state is ever exceeded, against ball arithmetic, and none is idle."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from benchmarks.learning.certified_states import QUANTITIES, SEARCHED, LearningState, bounds, random_state, searched_state, used

import pairgrad as pg
from tests.tolerances import LEARNING_SHARE, LEARNING_SHARE_OTHERWISE, ROUNDING_SHARE

CASES = [(torch.float64, "arfr"), (torch.float64, "paired"), (torch.float32, "arfr"), (torch.float32, "paired")]


def check(state: LearningState, realization: str) -> dict[str, float]:
    shares = used(state, realization)
    assert all(share <= 1 for share in shares.values()), shares  # a NaN fails too
    return shares


@pytest.mark.parametrize(("dtype", "realization"), CASES)
def test_random_states(dtype, realization):
    largest: defaultdict[str, float] = defaultdict(float)
    for seed in range(18):
        for name, share in check(random_state(seed).to(dtype), realization).items():
            largest[name] = max(largest[name], share)
    if realization == "paired":  # rounding alone
        assert all(largest[name] >= ROUNDING_SHARE for name in QUANTITIES), largest


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("dtype", "realization"), CASES)
def test_two_thousand_random_states(dtype, realization):
    start = 1000 + 500 * CASES.index((dtype, realization))
    for seed in range(start, start + 500):
        check(random_state(seed).to(dtype), realization)


@pytest.mark.parametrize("dim", [8, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("quantity", SEARCHED)
def test_searched_states_come_near_the_certificates_of_arfr(quantity, dim):
    shares = check(searched_state(quantity, dim, torch.float64, "arfr", seed=2, steps=25), "arfr")
    assert shares[quantity] >= LEARNING_SHARE.get(quantity, LEARNING_SHARE_OTHERWISE), shares


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("dim", [8, 31, 64, 128, 512, 2048])
def test_two_hundred_searched_states(dim):
    """For each dimension: 5 quantities, 3 seeds with arfr and 2 with paired in float32, and arfr in float32 and paired in float64 once: 35 states."""
    best: defaultdict[str, float] = defaultdict(float)
    for quantity in SEARCHED:
        for seed in range(3):
            shares = check(searched_state(quantity, dim, torch.float64, "arfr", seed), "arfr")
            for name in QUANTITIES:
                best[name] = max(best[name], shares[name])
        for seed in range(2):
            check(searched_state(quantity, dim, torch.float32, "paired", 10 + seed, steps=30), "paired")
        check(searched_state(quantity, dim, torch.float32, "arfr", 20, steps=30), "arfr")
        check(searched_state(quantity, dim, torch.float64, "paired", 30, steps=30), "paired")
    if dim <= 512:
        assert all(best[name] >= LEARNING_SHARE.get(name, LEARNING_SHARE_OTHERWISE) for name in QUANTITIES), dict(best)


@pytest.mark.parametrize("classes", [200, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("dtype", "realization"), CASES[1:3])
def test_many_classes(dtype, realization, classes):
    generator = torch.Generator().manual_seed(classes)
    rows = torch.randn(classes, 24, generator=generator, dtype=torch.float64)
    kappa = 10 ** (5 * torch.rand(classes, generator=generator, dtype=torch.float64))
    feature = torch.nn.functional.normalize(rows[:1] + 0.5 * torch.randn(1, 24, generator=generator, dtype=torch.float64), dim=1)
    prior = torch.linspace(0, -6.9, classes, dtype=torch.float64)
    state = LearningState((feature, -feature), torch.tensor([0]), (rows, rows), (kappa, kappa), 0.1, prior).to(dtype)
    check(state, realization)


def test_the_exact_realization_is_certified_too():
    for seed in (3, 11):
        state = random_state(seed, most_classes=6, largest_dim=40)
        for dtype in (torch.float64, torch.float32):
            check(state.to(dtype), "reference")


def test_a_certificate_that_is_too_small_is_noticed(monkeypatch):
    """The check itself can fail: half of the ratio bound is not a bound."""
    kind = type(pg.potential(512, "arfr"))
    true = kind.ratio_certificate

    def halved(pot, dtype=torch.float64):
        certificate = true(pot, dtype)
        return replace(certificate, bound=certificate.bound / 2)

    monkeypatch.setattr(kind, "ratio_certificate", halved)
    state = searched_state("score", 512, torch.float64, "arfr", seed=2, steps=10)
    assert used(state, "arfr")["score"] > 1


def test_products_that_cancel():
    """A feature orthogonal to its class through cancellation: the score is small, the rounding of the product is not."""
    generator = torch.Generator().manual_seed(0)
    half = torch.rand(1, 1024, generator=generator, dtype=torch.float64) + 0.5
    rows = torch.nn.functional.normalize(torch.cat([half, half], 1), dim=1)
    feature = torch.nn.functional.normalize(
        torch.cat([half, -half], 1) + 1e-6 * torch.rand(1, 2048, generator=generator, dtype=torch.float64), dim=1
    )
    rows = torch.cat([rows, torch.roll(rows, 7, 1)])
    kappa = torch.tensor([1e5, 1e4], dtype=torch.float64)
    state = LearningState((feature, feature), torch.tensor([0]), (rows, rows), (kappa, kappa), 0.1, torch.zeros(2, dtype=torch.float64))
    for dtype in (torch.float32, torch.float64):
        shares = check(state.to(dtype), "paired")
        assert shares["score"] > 1e-5  # blocked sums are that good


def test_a_state_with_inaccurate_rates_is_charged_for_them():
    """What the scores read is kappa / ||row|| as somebody computed it; the exact score has the quotient itself."""
    true = pg.ClassState(torch.eye(3, 64) * 3, torch.tensor([30.0, 300.0, 3000.0]))

    class Off:
        num_classes, dim = 3, 64

        def classes(self):
            classes = true.classes()
            return classes._replace(rates=classes.rates * (1 + 1e-4))

    features, labels = torch.eye(64)[:3].double(), torch.arange(3)
    certificate = pg.certify(features, labels, Off(), 0.1, realization="paired", geometry_dtype=torch.float32)
    lost = (pg.vmf_scores(features, Off(), 0.1, geometry_dtype=torch.float32).double() - pg.vmf_scores(features, true, 0.1)).abs().amax(1)
    assert (lost > 1e-5).all()
    assert (lost <= certificate.score.total).all()
    assert (certificate.score.total <= 20 * lost).all()


@pytest.mark.parametrize(
    ("seed", "dtype", "realization"),
    [
        (10050, torch.float32, "arfr"),  # logits hundreds apart: exponentials underflow
        (10059, torch.float32, "paired"),
        (10195, torch.float32, "paired"),  # features that cancel their class: the radius is rounding alone
        (10994, torch.float32, "arfr"),
        (870, torch.float64, "arfr"),  # the largest probability rounds to 1
        (1471, torch.float64, "arfr"),
    ],
)
def test_extreme_states_have_finite_bounds(seed, dtype, realization):
    state = random_state(seed).to(dtype)
    for name, bound in bounds(state.certificate(realization)).items():
        assert bound.isfinite().all(), name
    check(state, realization)
