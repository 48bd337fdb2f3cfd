"""Concentrations from resultant lengths, and the finite-sample law of the resultant (lem. finite-state)."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from pairgrad.sphere import expected_squared_resultant

U = 2.0**-53
ROUNDINGS = 8 * U  # p R / (1 - R^2) and mean^2 + trace / n are fewer than eight operations, without cancellation away from R = 1

# Monte Carlo: a mean of N independent replicates is normal to good approximation. Five standard errors: a false alarm with probability 6e-7,
# and the seeds are fixed.
SIGMAS = 5


MANY = 1024.0  # samples, a power of two: sums of that many are exact


def concentrations(length: torch.Tensor, counts: torch.Tensor | float = MANY, dim: int = 6, **options) -> torch.Tensor:
    """What a bank in float64 says of classes with these resultant lengths and counts; a class without samples has its length from its direction."""
    counts = torch.as_tensor(counts, dtype=torch.float64).expand_as(length)
    bank = pg.ClassBank(len(length), dim, dtype=torch.float64, **options)
    sums = torch.zeros(len(length), dim, dtype=torch.float64)
    sums[:, 0] = length * torch.where(counts > 0, counts, 1.0)
    bank.load_state_dict({"sums": sums, "compensation": torch.zeros_like(sums), "counts": counts.clone()})
    return bank.concentration


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("dim", [2, 3, 128, 1024])
def test_closed_form(dim: int) -> None:
    length = column(1e-12, 1e-3, 0.25, 0.5, 0.9)
    got = concentrations(length, dim=dim)
    for r, kappa in zip(length.tolist(), got.tolist(), strict=True):
        want = dim * Fraction(r) / (1 - Fraction(r) ** 2)
        assert kappa == pytest.approx(float(want), rel=ROUNDINGS), r


@pytest.mark.parametrize("dim", [2, 3, 128])
def test_mle_is_the_inverse_of_the_slope(dim: int) -> None:
    length = column(1e-3, 0.1, 0.5, 0.9, 0.99)
    got = concentrations(length, dim=dim, estimator="mle")
    assert torch.equal(got, pg.potential(dim).concentration(length))
    # slope and its inverse have some ten roundings each, and |d log slope / d log kappa| <= 1
    torch.testing.assert_close(pg.potential(dim).slope(got), length, rtol=32 * U, atol=0)
    assert (got != concentrations(length, dim=dim)).all()


@pytest.mark.parametrize("estimator", ["closed-form", "mle"])
def test_the_cap(estimator: str) -> None:
    length = column(1.0, 1 + 2**-40, 1.5, 1e30, 1e100, 1 - 2**-50)
    for cap in (1e5, 7.0, 3):
        got = concentrations(length, estimator=estimator, cap=cap)
        assert got.tolist() == [cap] * 6
    near = column(0.5)
    assert concentrations(near, estimator=estimator, cap=1e5).item() < 10
    assert concentrations(near, estimator=estimator, cap=1.0).item() == 1
    just_below = 1 - 3 / (2 * 10**5)  # p R / (1 - R^2) there is 2e5 for p = 6; the cap decides
    assert concentrations(column(just_below), 8.0).item() == 1e5


@pytest.mark.parametrize("estimator", ["closed-form", "mle"])
@pytest.mark.parametrize("small_samples", ["plain", "unbiased"])
def test_no_resultant_means_concentration_zero(estimator: str, small_samples: str) -> None:
    got = concentrations(column(0, 0, 0), column(0, 1, 50), estimator=estimator, small_samples=small_samples)
    assert got.tolist() == [0, 0, 0]


def test_unbiased_removes_what_the_sample_itself_contributes() -> None:
    """The root of (n R^2 - 1) / (n - 1); nothing where that is negative or n <= 1; a class without samples keeps its length."""
    # a bank that forgets has counts between whole numbers: 1.5 after two samples with the factor 1/2
    length, counts = column(0.6, 0.9, 0.3, 1.0, 1.0, 0.9, 0.7, 1.7, 0.95, 1.0), column(5, 2, 5, 1, 4, 0, 0.5, 1, 1.5, 1.5)
    got = concentrations(length, counts, 8, small_samples="unbiased")
    kappa = []
    for r, n in zip(length.tolist(), counts.tolist(), strict=True):
        squared = Fraction(r) ** 2 if n == 0 else (Fraction(n) * Fraction(r) ** 2 - 1) / (Fraction(n) - 1) if n > 1 else Fraction(0)
        kappa.append(1e5 if squared >= 1 else 8 * math.sqrt(max(squared, 0)) / float(1 - max(squared, 0)))
    # n R^2 - 1 cancels: 0.8 of 1.8 is left in the first, 0.62 of 1.62 in the second, 0.35 of 1.35 in the last but one
    assert got.tolist() == pytest.approx(kappa, rel=4 * ROUNDINGS)
    assert [x == 0 for x in got.tolist()] == [False, False, True, True, False, False, True, True, False, False]
    assert got[4] == 1e5


def test_unbiased_is_unbiased_and_plain_is_not() -> None:
    """Unit features e_0 with probability 3/4, else one of +-e_1, +-e_2: the mean is 3/4 e_0. Eight of them, 40000 times."""
    n, replicates, dim, share = 8, 40_000, 3, 0.75
    faces = torch.cat([torch.eye(3), -torch.eye(3)[1:]]).double()
    drawn = torch.multinomial(column(share, *[(1 - share) / 4] * 4), n * replicates, replacement=True)
    length = faces[drawn].reshape(replicates, n, dim).mean(1).norm(dim=1)
    counts = torch.full_like(length, n)

    def squared_lengths(small_samples: str) -> torch.Tensor:
        kappa = concentrations(length, counts, dim, small_samples=small_samples, cap=1e12)
        # R from kappa = p R / (1 - R^2)
        return torch.where(kappa > 0, (torch.sqrt(dim**2 + 4 * kappa**2) - dim) / (2 * kappa), 0.0) ** 2

    plain, unbiased = squared_lengths("plain"), squared_lengths("unbiased")
    clipped = ((1 - n * length**2) / (n - 1)).clamp_min(0).mean()  # what taking 0 for negative estimates adds to their mean
    error = SIGMAS * unbiased.std() / math.sqrt(replicates)
    assert clipped < error / 10
    assert abs(unbiased.mean() - clipped - share**2) <= error
    assert abs(plain.mean() - expected_squared_resultant(n, share)) <= SIGMAS * plain.std() / math.sqrt(replicates)
    assert plain.mean() - share**2 > 5 * error


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"estimator": "median"}, ValueError, "estimator must be one of 'closed-form', 'mle', got 'median'"),
        ({"small_samples": "no"}, ValueError, "small_samples must be one of 'plain', 'unbiased', got 'no'"),
        *(
            ({"cap": cap}, ValueError, "cap must be a positive finite number")
            for cap in (0, -1.0, 1.1e18, math.inf, math.nan, True, "1e5", None)
        ),
    ],
)
def test_wrong_options(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pg.ClassBank(3, 6, **options)


def test_the_largest_cap_is_one_whose_square_is_a_number() -> None:
    assert concentrations(column(1.0), 2.0, cap=1e18).item() == 1e18


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("lengths", [(1, 1, 1, 1), (1, 3, 2, Fraction(1, 2))])
def test_expectation_by_enumeration(count: int, lengths: tuple) -> None:
    """All words of n letters out of e_1, -e_1, e_2, -e_2, of some length and probability each."""
    letters = [(s * a, s * b) for s, (a, b) in zip(lengths, [(1, 0), (-1, 0), (0, 1), (0, -1)], strict=True)]
    chances = [Fraction(1, 2), Fraction(1, 8), Fraction(1, 4), Fraction(1, 8)]
    mean = [sum(q * z[i] for q, z in zip(chances, letters, strict=True)) for i in (0, 1)]
    trace = sum(q * (z[0] ** 2 + z[1] ** 2) for q, z in zip(chances, letters, strict=True)) - mean[0] ** 2 - mean[1] ** 2
    expected = Fraction(0)
    for word in itertools.product(range(4), repeat=count):
        total = [sum(letters[k][i] for k in word) for i in (0, 1)]
        expected += math.prod(chances[k] for k in word) * Fraction(total[0] ** 2 + total[1] ** 2, count**2)
    length = math.hypot(*mean)
    assert expected_squared_resultant(count, length, float(trace)) == pytest.approx(float(expected), rel=ROUNDINGS)
    if set(lengths) == {1}:
        assert expected_squared_resultant(count, length) == pytest.approx(float(expected), rel=ROUNDINGS)
        assert expected == Fraction(1, count) + (1 - Fraction(1, count)) * (mean[0] ** 2 + mean[1] ** 2)


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_expectation_by_simulation(count: int) -> None:
    """Normal vectors with mean (1, 2, 0) and covariance diag(1, 4, 9), not of unit length."""
    replicates = 20_000
    draws = torch.randn(replicates, count, 3, dtype=torch.float64) * column(1, 2, 3) + column(1, 2, 0)
    squared = draws.mean(1).square().sum(1)
    want = expected_squared_resultant(count, math.sqrt(5), 14.0)
    assert abs(squared.mean().item() - want) <= SIGMAS * squared.std().item() / math.sqrt(replicates), (squared.mean(), want)


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_second_order_identity(count: int) -> None:
    """R_n^2 = sum ||z_a||^2 / n^2 + sum over a != b of z_a.z_b / n^2, for what the bank holds; eq. resultant-second-order."""
    features = torch.randint(-64, 65, (count, 5)).float() / 32
    bank = pg.ClassBank(2, 5)
    bank.update(features, torch.ones(count, dtype=torch.int64))
    z = [[Fraction(x) for x in row] for row in features.tolist()]
    inner = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in z] for a in z]
    own = sum(inner[a][a] for a in range(count))
    cross = sum(inner[a][b] for a, b in itertools.permutations(range(count), 2))
    # the sum is exact; the norm adds five squares and takes a root
    assert bank.resultant_length[1].item() ** 2 == pytest.approx(float((own + cross) / count**2), rel=2 * ROUNDINGS)


def test_features_without_spread_have_the_length_of_their_mean() -> None:
    assert expected_squared_resultant(3, 1.5, 0.0) == 2.25
    assert expected_squared_resultant(3, 0.0, 0.0) == 0
    assert expected_squared_resultant(3, 1e150, 0.0) == 1e150**2  # the longest whose square is surely a number


def test_one_unit_sample_says_nothing() -> None:
    assert [expected_squared_resultant(1, m) for m in (0.0, 0.5, 1.0)] == [1, 1, 1]
    assert expected_squared_resultant(10**9, 0.0) == 1e-9


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 0.5), ValueError, "count must be an integer >= 1, got 0"),
        ((2.5, 0.5), TypeError, "count must be an integer >= 1, got 2.5"),
        ((2, -0.5), ValueError, "mean_length must be >= 0 and finite, at most 1e150, got -0.5"),
        ((2, math.nan), ValueError, "mean_length must be >= 0 and finite, at most 1e150, got nan"),
        ((2, 1.1e150, 0.0), ValueError, "mean_length must be >= 0 and finite, at most 1e150, got 1.1e\\+150"),
        ((2, 1.5), ValueError, "mean_length of unit features must be <= 1, got 1.5: give covariance_trace"),
        ((2, 1.5, -1.0), ValueError, "covariance_trace must be >= 0 and finite, got -1.0"),
        ((2, 1.5, math.nan), ValueError, "covariance_trace must be >= 0 and finite, got nan"),
        ((2, 1.5, math.inf), ValueError, "covariance_trace must be >= 0 and finite, got inf"),
    ],
)
def test_wrong_arguments_of_the_expectation(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        expected_squared_resultant(*arguments)
