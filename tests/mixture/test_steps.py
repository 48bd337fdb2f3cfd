"""One E-step and one M-step against loops that follow the definitions, and the steps' promises."""

import flint
import numpy as np
import pytest
import torch
from scipy.special import ive, logsumexp

from pairgrad.mixture.em import Maximiser, Parameters, Scores, Statistics, expect
from pairgrad.mixture.rows import DenseRows
from pairgrad.potentials import Potential, potential
from tests.mixture.data import mixture
from tests.truth import exact


def plain_scores(X, weights, directions, rates):
    """log w + kappa mu.x - (log I_nu - nu log kappa - its value at 0), by scipy's scaled Bessel functions, row by row."""
    p = X.shape[1]
    nu = p / 2 - 1
    zero = -nu * np.log(2) - float(flint.arb(nu + 1).lgamma().mid())
    value = np.log(ive(nu, rates)) + rates - nu * np.log(rates) - zero
    return np.array([[np.log(w) + k * (mu @ x) - v for w, k, mu, v in zip(weights, rates, directions, value, strict=True)] for x in X])


@pytest.fixture
def setting():
    X, _, directions = mixture(6, (5, 20, 80), (40, 30, 30), seed=1)
    start = Parameters(*(torch.tensor(a, dtype=torch.float64) for a in ([0.5, 0.2, 0.3], directions, [10.0, 15.0, 60.0])))
    sample_weight = np.random.default_rng(0).integers(0, 4, 100).astype(float)
    return X, start, sample_weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.parametrize("chunk_size", [None, 1, 7])
def test_an_e_step_follows_the_definition(setting, e_step, weighted, chunk_size):
    X, start, sample_weight = setting
    w = sample_weight if weighted else np.ones(100)
    joint = plain_scores(X, *(t.numpy() for t in (start.weights, start.directions, start.rates)))
    density = logsumexp(joint, axis=1)
    shares = np.exp(joint - density[:, None]) if e_step == "soft" else np.eye(3)[joint.argmax(1)]
    gained = density if e_step == "soft" else joint.max(1)
    got = expect(Scores(potential(6), start, DenseRows(torch.from_numpy(X)), chunk_size), torch.from_numpy(w) if weighted else None, e_step)
    assert got.objective == pytest.approx((w * gained).sum() / w.sum(), rel=1e-12)
    np.testing.assert_allclose(got.statistics.weights, (w[:, None] * shares).sum(0), rtol=1e-12)
    np.testing.assert_allclose(got.statistics.sums, (w[:, None] * shares).T @ X, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(got.rows, density, rtol=1e-12)


def test_a_stochastic_e_step_draws_from_the_posterior(setting):
    """4000 copies of a row are distributed by its shares: Pearson's statistic, two degrees of freedom, stays below 18.4 but once in 10,000 times."""
    X, start, _ = setting
    joint = plain_scores(X, *(t.numpy() for t in (start.weights, start.directions, start.rates)))
    shares = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    i = int(shares.max(1).argmin())  # the most doubtful row
    rows = DenseRows(torch.from_numpy(np.repeat(X[i : i + 1], 4000, 0)))
    got = expect(Scores(potential(6), start, rows, 512), None, "stochastic", torch.Generator().manual_seed(0))
    counts = got.statistics.weights.numpy()
    assert counts.sum() == 4000
    assert np.all(counts == counts.round())
    assert ((counts - 4000 * shares[i]) ** 2 / (4000 * shares[i])).sum() < 18.4
    assert got.objective == pytest.approx(logsumexp(joint[i]), rel=1e-12)
    np.testing.assert_allclose(got.statistics.sums, counts[:, None] * X[i], rtol=1e-12, atol=1e-10)


def before(directions, rate):
    k = len(directions)
    return Parameters(torch.full((k,), 1 / k).double(), directions.double(), torch.full((k,), rate).double())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("features", [2, 3, 50, 1000])
def test_the_m_step_solves_its_equation(features, tied):
    """|R(kappa) - r| against balls: 8 roundings of r, as the inverse of the slope is documented, times the condition of the equation itself, 1."""
    X, labels, _ = mixture(features, (0.5 * features, 2 * features, 20 * features), (30, 40, 50), seed=features)
    one_hot = np.eye(3)[labels]
    statistics = Statistics(torch.from_numpy(one_hot.sum(0)), torch.from_numpy(one_hot.T @ X))
    got = Maximiser(potential(features), tied, 1e9)(statistics, before(torch.zeros(3, features), 0.0))
    lengths = np.linalg.norm(one_hot.T @ X, axis=1)
    wanted = np.full(3, lengths.sum() / 120) if tied else lengths / one_hot.sum(0)
    np.testing.assert_allclose(got.weights, one_hot.sum(0) / 120, rtol=1e-15)
    np.testing.assert_allclose(got.directions, one_hot.T @ X / lengths[:, None], rtol=1e-13, atol=1e-15)
    slopes = exact("slope", features, got.rates)
    for slope, r in zip(slopes, wanted, strict=True):
        assert abs(float((slope - flint.arb(r)).mid())) <= 8 * 2.2e-16


@pytest.mark.parametrize("away", [1e-7, 1e-3, 0.3, 10.0])
@pytest.mark.parametrize("features", [2, 3, 50, 1000])
def test_concentrations_do_not_depend_on_those_before(features, away):
    """From near and from far. A step of 1e-6 leaves 1e-12, and the rounding of the length moves a concentration by kappa R' / R roundings of kappa / R'."""
    rates = features * torch.logspace(-3, 3, 13, dtype=torch.float64)
    pot = potential(features)
    resultants = pot.slope(rates)
    got = Maximiser(pot, tied=False, cap=1e30).rates(resultants, rates * (1 + away))
    condition = resultants / (rates * pot.curvature(rates))
    assert bool(((got / rates - 1).abs() <= 2e-12 + 16 * 1.2e-16 * (condition + 1 / resultants)).all()), (got / rates - 1, condition)


@pytest.mark.parametrize("features", [2, 3, 50, 1000])
def test_a_few_steps_are_enough_from_near(features, monkeypatch):
    """From 1e-3 away two evaluations do: the first step leaves 1e-6 or less, the second is smaller than that."""
    pot = potential(features)
    rates = features * torch.logspace(-1, 3, 9, dtype=torch.float64)
    resultants, calls, plain = pot.slope(rates), [], Potential.complement
    monkeypatch.setattr(Potential, "complement", lambda self, x: calls.append(x) or plain(self, x))
    monkeypatch.setattr(Potential, "concentration", lambda self, r: pytest.fail("the whole way"))
    Maximiser(pot, tied=False, cap=1e30).rates(resultants, rates * 1.001)
    assert len(calls) == 2


def test_the_m_step_at_the_edges():
    """Nothing, rows that cancel out, one row, coincident rows whose mean is longer than 1 by rounding."""
    e = torch.eye(3, dtype=torch.float64)
    previous = torch.stack([e[2], e[1], e[0], e[0]])
    statistics = Statistics(torch.tensor([0.0, 2.0, 1.0, 3.0]).double(), torch.stack([0 * e[0], 0 * e[0], e[0], (3 + 1e-15) * e[1]]))
    got = Maximiser(potential(3), tied=False, cap=1e5)(statistics, before(previous, 7.0))
    assert got.rates.tolist() == [0.0, 0.0, 1e5, 1e5]
    assert torch.equal(got.directions, torch.stack([e[2], e[1], e[0], e[1]]))
    np.testing.assert_allclose(got.weights, [0, 2 / 6, 1 / 6, 3 / 6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_shares_are_zero(dtype):
    """Subnormal shares would make the second product many times slower."""
    rows = DenseRows(torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=dtype))
    log_tiny = -np.log(torch.finfo(dtype).tiny)
    rates = torch.tensor([log_tiny / 2 + 1.0, log_tiny / 2 + 1.0], dtype=torch.float64)
    directions = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    got = expect(Scores(potential(2), Parameters(torch.tensor([0.5, 0.5]).double(), directions, rates), rows, None), None)
    masses = got.statistics.weights
    assert masses[1] == 0.0 or masses[1] > torch.finfo(dtype).eps ** 2
    assert masses[0] == 2.0


def test_sums_over_chunks_are_kept_in_float64():
    """A hundred rows of weight 1 beside one of weight 2^25, where float32 would not notice them."""
    rows = DenseRows(torch.tensor([[1.0, 0.0]]).expand(101, 2).contiguous())
    weights = torch.ones(101, dtype=torch.float64)
    weights[0] = 2.0**25
    got = expect(Scores(potential(2), before(torch.eye(1, 2), 2.0), rows, 1), weights)
    assert got.statistics.weights.tolist() == [2.0**25 + 100]
    assert got.statistics.sums.tolist() == [[2.0**25 + 100, 0.0]]
