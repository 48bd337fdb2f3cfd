"""Log-densities and posteriors against ball arithmetic, and that densities are densities."""

import flint
import numpy as np
import pytest
import torch

from tests.mixture.data import known
from tests.truth import exact

DIMENSIONS = (2, 3, 10, 384, 1000)


@pytest.fixture(autouse=True)
def _sixty_digits():
    """Balls of 200 bits."""
    with flint.ctx.workprec(200):
        yield


def unit(array):
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def rounding(model, dtype):
    """The documented error of a mean log-density, with the largest component in place of the mean: one row may lie anywhere."""
    value = exact("value", model.n_features_in_, torch.tensor(model.concentrations_))
    sizes = [k + abs(np.log(w) - float(v.mid())) + 1 for k, w, v in zip(model.concentrations_, model.weights_, value, strict=True)]
    return np.finfo(dtype).eps / 2 * (np.sqrt(model.n_features_in_) + 8) * max(sizes)


def exact_joint(model, rows):
    """log(w_j f_j(x)) as balls, (rows, components), for the parameters and the rows as they are, divided by their exact lengths."""
    arb, p = flint.arb, model.n_features_in_
    log_area = arb(2).log() + arb(p) / 2 * arb.pi().log() - (arb(p) / 2).lgamma()
    value = exact("value", p, torch.tensor(np.asarray(model.concentrations_, dtype=np.float64)))
    table = []
    for row in rows:
        length = sum((arb(float(x)) ** 2 for x in row), arb(0)).sqrt()
        cosines = [
            sum((arb(float(a)) * arb(float(b)) for a, b in zip(row, mu, strict=True)), arb(0)) / length for mu in model.mean_directions_
        ]
        parameters = zip(model.weights_, model.concentrations_, cosines, value, strict=True)
        table.append([arb(float(w)).log() + arb(float(k)) * c - v - log_area for w, k, c, v in parameters])
    return table


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rates", [(0.0, 1e-3, 3.0, 700.0, 2e4), (0.0, 1e-3, 3.0, 10.0, 25.0)], ids=["any", "moderate"])
@pytest.mark.parametrize("features", DIMENSIONS)
def test_log_densities_and_posteriors_are_right_to_rounding(features, rates, dtype):
    rng = np.random.default_rng(features)
    rates = np.array(rates)
    directions = unit(rng.normal(size=(5, features)))
    model = known(np.array([0.1, 0.2, 0.3, 0.25, 0.15]), directions, rates)
    rows = np.concatenate(
        [directions[3:], unit(directions[2:4] + 0.02 * rng.normal(size=(2, features))), rng.normal(size=(1, features))]
    ).astype(dtype)
    tolerance = rounding(model, dtype)
    got, shares = model.score_samples(rows), model.predict_proba(rows)
    assert got.dtype == shares.dtype == dtype
    for i, joint in enumerate(exact_joint(model, rows)):
        total = sum((j.exp() for j in joint), flint.arb(0)).log()
        error = abs(float((flint.arb(float(got[i])) - total).mid()))
        allowed = tolerance + np.finfo(dtype).eps * abs(float(total.mid()))
        assert error <= allowed, (features, i, got[i], total, error, allowed)
        truth = np.array([float((j - total).exp().mid()) for j in joint])
        assert np.abs(shares[i] - truth).max() <= 2 * tolerance + np.finfo(dtype).eps, (features, i, shares[i], truth)


def test_a_density_on_the_circle_adds_up_to_one():
    """The trapezoidal rule is exact to rounding for periodic analytic functions with less than n harmonics; exp(300 cos) has about 150."""
    angles = 2 * np.pi * np.arange(2000) / 2000
    rows = np.stack([np.cos(angles), np.sin(angles)], 1)
    model = known(np.array([0.3, 0.7]), unit(np.array([[1.0, 0.2], [-0.3, 1.0]])), np.array([0.7, 300.0]))
    assert np.exp(model.score_samples(rows)).sum() * 2 * np.pi / 2000 == pytest.approx(1, abs=1e-12)


def test_a_density_on_the_sphere_adds_up_to_one():
    """Gauss-Legendre in the height, the trapezoidal rule around."""
    heights, gauss = np.polynomial.legendre.leggauss(200)
    angles = 2 * np.pi * np.arange(200) / 200
    radius = np.sqrt(1 - heights**2)
    rows = np.stack(
        [np.outer(radius, np.cos(angles)), np.outer(radius, np.sin(angles)), np.broadcast_to(heights[:, None], (200, 200))], -1
    ).reshape(-1, 3)
    model = known(np.array([0.4, 0.6]), unit(np.array([[1.0, 0.2, 0.5], [-0.3, 1.0, -2.0]])), np.array([2.0, 40.0]))
    weights = np.repeat(gauss, 200) * 2 * np.pi / 200
    assert weights @ np.exp(model.score_samples(rows)) == pytest.approx(1, abs=1e-12)


def test_score_and_criteria_are_those_of_the_densities():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4))
    directions = unit(rng.normal(size=(3, 4)))
    for tied, free in ((False, 3 * 3 + 3 + 2), (True, 3 * 3 + 1 + 2)):
        model = known(np.array([0.2, 0.3, 0.5]), directions, np.array([4.0, 4.0, 4.0]), tied=tied)
        densities = model.score_samples(rows)
        weights = rng.uniform(size=50)
        assert model.score(rows) == pytest.approx(densities.mean(), rel=1e-13)
        assert model.score(rows, sample_weight=weights) == pytest.approx(np.average(densities, weights=weights), rel=1e-13)
        assert model.aic(rows) == pytest.approx(2 * free - 2 * densities.sum(), rel=1e-13)
        assert model.bic(rows) == pytest.approx(free * np.log(50) - 2 * densities.sum(), rel=1e-13)
        assert model.set_params(n_components=7).bic(rows) == model.set_params(n_components=3).bic(rows)  # of the fit, not of the next one


def test_the_reference_is_independent_of_the_library():
    """The balls above against the closed form in three dimensions: kappa / (4 pi sinh kappa) exp(kappa cos)."""
    model = known(np.array([1.0]), np.array([[0.0, 0.0, 1.0]]), np.array([2.5]))
    truth = np.log(2.5 / (4 * np.pi * np.sinh(2.5))) + 2.5 * 0.6
    assert float(exact_joint(model, np.array([[0.8, 0.0, 0.6]]))[0][0].mid()) == pytest.approx(truth, rel=1e-14)


@pytest.mark.parametrize("rate", [20.0, 40.0, 200.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_memberships_are_not_lost(dtype, rate):
    """Two opposite components of one concentration: at the first one the log-odds are 2 kappa."""
    directions = np.array([[1.0, 0.0], [-1.0, 0.0]])
    shares = known([0.5, 0.5], directions, [rate, rate]).predict_proba(directions.astype(dtype))
    wanted = np.exp(-2 * rate).astype(dtype)
    assert shares[0, 0] == shares[1, 1] == 1
    np.testing.assert_allclose(shares[[0, 1], [1, 0]], wanted, rtol=8 * rate * np.finfo(dtype).eps)
