"""One step of EM from known parameters against loops that follow the definitions, through a fit of a single iteration."""

import flint
import numpy as np
import pytest
import torch
from scipy.special import ive, logsumexp

import pairgrad as pg
from tests.mixture.data import known, mixture
from tests.truth import exact, log_area

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
U = 2.0**-53


def plain_scores(X, weights, directions, rates):
    """log w + kappa mu.x - (log I_nu - nu log kappa - its value at 0), by scipy's scaled Bessel functions, row by row."""
    p = X.shape[1]
    nu = p / 2 - 1
    zero = -nu * np.log(2) - float(flint.arb(nu + 1).lgamma().mid())
    value = np.log(ive(nu, rates)) + rates - nu * np.log(rates) - zero
    return np.array([[np.log(w) + k * (mu @ x) - v for w, k, mu, v in zip(weights, rates, directions, value, strict=True)] for x in X])


def step(X, start, sample_weight=None, **options):
    """The model after one E-step and one M-step from the parameters `start`."""
    model = known(*start, warm_start=True, max_iter=1, tol=0.0, random_state=0, **{"max_concentration": 1e9, **options})
    return model.fit(X, sample_weight=sample_weight)


@pytest.fixture
def setting():
    X, _, directions = mixture(6, (5, 20, 80), (40, 30, 30), seed=1)
    sample_weight = np.random.default_rng(0).integers(0, 4, 100).astype(float)
    return X, (np.array([0.5, 0.2, 0.3]), directions, np.array([10.0, 15.0, 60.0])), sample_weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.parametrize("tied", [False, True], ids=["free", "tied"])
@pytest.mark.parametrize("chunk_size", [None, 1, 7])
def test_a_step_follows_the_definition(setting, e_step, weighted, chunk_size, tied):
    """The objective at the start; shares of the rows; shares, directions and mean resultant lengths of the components."""
    X, start, sample_weight = setting
    w = sample_weight if weighted else np.ones(100)
    joint = plain_scores(X, *start)
    density = logsumexp(joint, axis=1)
    shares = np.exp(joint - density[:, None]) if e_step == "soft" else np.eye(3)[joint.argmax(1)]
    gained = density if e_step == "soft" else joint.max(1)
    np.testing.assert_allclose(known(*start).score_samples(X), density - log_area(6), rtol=1e-12)
    got = step(X, start, sample_weight if weighted else None, e_step=e_step, chunk_size=chunk_size, tied=tied)
    assert got.log_likelihoods_[0] == pytest.approx((w * gained).sum() / w.sum() - log_area(6), rel=1e-12)
    masses, sums = (w[:, None] * shares).sum(0), (w[:, None] * shares).T @ X
    lengths = np.linalg.norm(sums, axis=1)
    np.testing.assert_allclose(got.weights_, masses / w.sum(), rtol=1e-12)
    np.testing.assert_allclose(got.mean_directions_, sums / lengths[:, None], rtol=1e-11, atol=1e-12)
    slopes = pg.potential(6).slope(torch.from_numpy(got.concentrations_))
    resultants = lengths / masses if not tied else np.full(3, lengths.sum() / w.sum())
    np.testing.assert_allclose(slopes, resultants, rtol=1e-11)


def test_a_stochastic_step_draws_from_the_posterior(setting):
    """4000 copies of a row are distributed by its shares: Pearson's statistic, two degrees of freedom, stays below 18.4 but once in 10,000 times.
    The step is kept because components at one place have the largest concentration, and a likelihood far above that of the start."""
    X, (weights, directions, _), _ = setting
    start = (weights, directions, np.array([1.0, 3.0, 2.0]))
    joint = plain_scores(X, *start)
    shares = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    i = int(shares.min(1).argmax())  # the most doubtful row
    assert shares[i].min() > 0.05
    got = step(np.repeat(X[i : i + 1], 4000, 0), start, e_step="stochastic", chunk_size=512)
    counts = 4000 * got.weights_
    np.testing.assert_allclose(counts, counts.round(), rtol=1e-12)
    assert counts.sum() == pytest.approx(4000)
    assert ((counts - 4000 * shares[i]) ** 2 / (4000 * shares[i])).sum() < 18.4
    assert got.log_likelihoods_[0] == pytest.approx(logsumexp(joint[i]) - log_area(6), rel=1e-12)
    np.testing.assert_allclose(got.mean_directions_, np.repeat(X[i : i + 1], 3, 0), rtol=1e-12)


@pytest.mark.parametrize("factor", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("features", [2, 3, 50, 1000])
def test_the_m_step_solves_its_equation(features, factor):
    """|R(kappa) - r| against balls: 8 roundings of r, as the inverse of the slope is documented, times the condition of the equation itself, 1."""
    X, _, directions = mixture(features, (factor * features,), (50,), seed=features)
    got = step(X, (np.ones(1), directions, np.zeros(1)))  # no concentration before: the whole way to the next one
    r = np.linalg.norm(X.sum(0)) / 50
    (slope,) = exact("slope", features, torch.from_numpy(got.concentrations_))
    assert abs(float((slope - flint.arb(r)).mid())) <= 8 * 2.2e-16


@pytest.mark.parametrize("away", [1e-7, 1e-3, 0.3, 10.0])
@pytest.mark.parametrize("factor", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("features", [2, 3, 50, 1000])
def test_concentrations_do_not_depend_on_those_before(features, factor, away):
    """From near and from far. A step of 1e-6 leaves 1e-12, and the rounding of the length moves a concentration by kappa R' / R roundings of kappa / R'."""
    X, _, directions = mixture(features, (factor * features,), (40,), seed=features)
    pot, r = pg.potential(features), torch.tensor([np.linalg.norm(X.mean(0))])
    wanted = pot.concentration(r)
    got = torch.from_numpy(step(X, (np.ones(1), directions, (wanted * (1 + away)).numpy())).concentrations_)
    condition = r / (wanted * pot.curvature(wanted))
    # the length itself is right to 64 roundings, of sums over 40 rows and p features in another order
    assert bool(((got / wanted - 1).abs() <= 2e-12 + 64 * U * (condition + 1 / r)).all()), (got / wanted - 1, condition)


def test_rows_that_cancel_out_have_no_concentration():
    e = np.eye(3)
    got = step(np.stack([e[0], -e[0], e[1], -e[1]]), (np.ones(1), e[2:], np.array([7.0])))
    assert got.concentrations_.tolist() == [0.0]
    assert np.array_equal(got.mean_directions_, e[2:])  # as before: no row prefers another


def test_sums_over_chunks_are_kept_in_float64():
    """A hundred rows of weight 1 beside one of weight 2^25, where float32 would not notice them."""
    rows = np.array([[1.0, 0.0]] + [[0.8, 0.6]] * 100, dtype=np.float32)
    weights = np.r_[2.0**25, np.ones(100)]
    got = step(rows, (np.ones(1), np.eye(1, 2), np.array([2.0])), weights, chunk_size=1)
    total = weights @ rows.astype(np.float64)
    rest = 1 - np.linalg.norm(total) / weights.sum()
    truth = pg.potential(2).concentration(torch.tensor([1 - rest]), complement=torch.tensor([rest])).item()
    assert 1e5 < truth < 1e6
    # 1 - r is what is left of 1 after 7e-7: to 1e-9 in float64, and float32 of the result
    assert got.concentrations_[0] == pytest.approx(truth, rel=1e-6)
