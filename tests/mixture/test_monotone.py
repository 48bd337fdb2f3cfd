"""EM never lowers its objective beyond rounding, because the M-step inverts the derivative of the value in the likelihood; and what breaks that is seen."""

import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.mixture import VMFMixture
from pairgrad.potentials import potential
from tests.mixture.data import mixture

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Concentrations as multiples of the dimension: from hardly separated to nearly points.
SETTINGS = {2: (0.8, 3, 4000), 3: (0.5, 2, 3000), 30: (0.3, 1, 20), 1000: (0.2, 0.5, 5)}


def rows(features, seed, dtype):
    rates = [features * factor for factor in SETTINGS[features]]
    return mixture(features, rates, (60, 50, 40), seed, dtype)[0]


def check(features, seed, dtype, e_step, tied, iterations):
    model = VMFMixture(4, e_step=e_step, tied=tied, tol=0, max_iter=iterations, random_state=seed)
    model.fit(rows(features, seed, dtype))
    assert model.monotone_log_likelihood_, (features, seed, dtype, e_step, tied, np.diff(model.log_likelihoods_).min())
    return model


@pytest.mark.parametrize("tied", [False, True], ids=["free", "tied"])
@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("features", SETTINGS)
def test_the_objective_never_falls(features, dtype, e_step, tied):
    model = check(features, 0, dtype, e_step, tied, 10)
    assert len(model.log_likelihoods_) == model.n_iter_ + 1
    assert model.lower_bound_ == model.log_likelihoods_[-1]
    sizes = model.concentrations_ + np.abs(
        np.log(model.weights_) - potential(features).value(torch.from_numpy(model.concentrations_)).numpy()
    )
    rounding = torch.finfo(dtype).eps * (np.sqrt(features) + 8) * (model.weights_ * (sizes + 1)).sum()  # of two evaluations
    assert e_step == "hard" or abs(model.log_likelihood_ - model.lower_bound_) <= rounding


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True], ids=["free", "tied"])
@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("features", SETTINGS)
def test_the_objective_never_falls_for_many_seeds(features, dtype, e_step, tied):
    for seed in range(1, 13):
        check(features, seed, dtype, e_step, tied, 60)


SLOPE, INVERSE = pg.Potential.slope, pg.Potential.concentration
# A slope for the M-step that is not the derivative of the value in the likelihood, and its inverse.
BROKEN = {
    "closed form": (
        lambda pot, x: (torch.sqrt(pot.dim**2 + 4 * x * x) - pot.dim) / (2 * x),
        lambda pot, r: INVERSE(pot, r, method="closed-form"),
    ),
    "ratio 0.1 % off": (lambda pot, x: SLOPE(pot, x) / (1 - 1e-3), lambda pot, r: INVERSE(pot, r * (1 - 1e-3))),
    "ratio 1e-6 off": (lambda pot, x: SLOPE(pot, x) / (1 - 1e-6), lambda pot, r: INVERSE(pot, r * (1 - 1e-6))),
    "ratio of another dimension": (lambda pot, x: SLOPE(potential(pot.dim + 1), x), lambda pot, r: INVERSE(potential(pot.dim + 1), r)),
}


@pytest.mark.parametrize("rule", BROKEN)
@pytest.mark.parametrize("features", [3, 30])
def test_a_concentration_that_does_not_belong_to_the_value_is_seen(features, rule, monkeypatch):
    X, _, _ = mixture(features, (3 * features, 10 * features), (60, 50), seed=1)
    model = VMFMixture(2, tol=1e-9, random_state=0, warm_start=True).fit(X)
    assert model.monotone_log_likelihood_
    assert model.set_params(max_iter=2, tol=0).fit(X).monotone_log_likelihood_
    slope, inverse = BROKEN[rule]
    monkeypatch.setattr(pg.Potential, "slope", slope)
    monkeypatch.setattr(pg.Potential, "complement", lambda pot, x: 1 - slope(pot, x))
    monkeypatch.setattr(pg.Potential, "concentration", lambda pot, r, *_, **__: inverse(pot, r))
    assert not model.fit(X).monotone_log_likelihood_


def test_the_curve_is_compared_between_recoveries_only():
    """Placing a component anew may lower the likelihood, and does not count."""
    X, _, _ = mixture(4, (50, 60), (60, 60), seed=2)
    model = VMFMixture(3, min_weight=0.2, random_state=0, max_iter=40).fit(X)
    assert model.n_recoveries_ > 0
    assert np.diff(model.log_likelihoods_).min() < -1e-3
    assert model.monotone_log_likelihood_
