"""EM never lowers its objective beyond rounding, because the M-step inverts the derivative of the value in the likelihood; and what breaks that is seen."""

import numpy as np
import pytest
import torch

from pairgrad.mixture import VMFMixture
from pairgrad.mixture.em import Maximiser, Parameters, Scores, expect
from pairgrad.mixture.rows import DenseRows
from pairgrad.potentials import potential
from tests.mixture.data import mixture

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Concentrations as multiples of the dimension: from hardly separated to nearly points.
SETTINGS = {2: (0.8, 3, 4000), 3: (0.5, 2, 3000), 30: (0.3, 1, 20), 1000: (0.2, 0.5, 5)}


def rows(features, seed, dtype):
    rates = [features * factor for factor in SETTINGS[features]]
    return mixture(features, rates, (60, 50, 40), seed, dtype)[0]


def check(features, seed, dtype, e_step, concentration, iterations):
    model = VMFMixture(4, e_step=e_step, concentration=concentration, tol=0, max_iter=iterations, random_state=seed)
    model.fit(rows(features, seed, dtype))
    assert model.monotone_log_likelihood_, (features, seed, dtype, e_step, concentration, np.diff(model.log_likelihoods_).min())
    return model


@pytest.mark.parametrize("concentration", ["free", "tied"])
@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("features", SETTINGS)
def test_the_objective_never_falls(features, dtype, e_step, concentration):
    model = check(features, 0, dtype, e_step, concentration, 10)
    assert len(model.log_likelihoods_) == model.n_iter_ + 1
    assert model.lower_bound_ == model.log_likelihoods_[-1]
    sizes = model.concentrations_ + np.abs(
        np.log(model.weights_) - potential(features).value(torch.from_numpy(model.concentrations_)).numpy()
    )
    rounding = torch.finfo(dtype).eps * (np.sqrt(features) + 8) * (model.weights_ * (sizes + 1)).sum()  # of two evaluations
    assert e_step == "hard" or abs(model.log_likelihood_ - model.lower_bound_) <= rounding


@pytest.mark.slow
@pytest.mark.parametrize("concentration", ["free", "tied"])
@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("features", SETTINGS)
def test_the_objective_never_falls_for_many_seeds(features, dtype, e_step, concentration):
    for seed in range(1, 13):
        check(features, seed, dtype, e_step, concentration, 60)


BROKEN = {
    "closed form": lambda maximiser, r, near: maximiser.potential.concentration(r, method="closed-form"),
    "ratio 0.1 % off": lambda maximiser, r, near: maximiser.potential.concentration(r * (1 - 1e-3)),
    "ratio 1e-6 off": lambda maximiser, r, near: maximiser.potential.concentration(r * (1 - 1e-6)),
    "ratio of another dimension": lambda maximiser, r, near: potential(maximiser.potential.dim + 1).concentration(r),
}


@pytest.mark.parametrize("rule", BROKEN)
@pytest.mark.parametrize("features", [3, 30])
def test_a_concentration_that_does_not_belong_to_the_value_is_seen(features, rule, monkeypatch):
    X, _, _ = mixture(features, (3 * features, 10 * features), (60, 50), seed=1)
    model = VMFMixture(2, tol=1e-9, random_state=0, warm_start=True).fit(X)
    assert model.monotone_log_likelihood_
    assert model.set_params(max_iter=2, tol=0).fit(X).monotone_log_likelihood_
    monkeypatch.setattr(Maximiser, "rates", BROKEN[rule])
    assert not model.fit(X).monotone_log_likelihood_


def test_the_curve_is_compared_between_recoveries_only():
    """Placing a component anew may lower the likelihood, and does not count."""
    X, _, _ = mixture(4, (50, 60), (60, 60), seed=2)
    model = VMFMixture(3, min_weight=0.2, random_state=0, max_iter=40).fit(X)
    assert model.n_recoveries_ > 0
    assert np.diff(model.log_likelihoods_).min() < -1e-3
    assert model.monotone_log_likelihood_


@pytest.mark.parametrize("features", SETTINGS)
def test_the_rounding_allowance_covers_the_error_of_float32(features):
    """The objective in float32 against float64, at the same parameters and rows. The error is a mean over rows, and the allowance that of a row."""
    X = rows(features, 3, torch.float32)
    model = VMFMixture(3, random_state=0).fit(X.astype(np.float64))
    parameters = Parameters(*(torch.from_numpy(a) for a in (model.weights_, model.mean_directions_, model.concentrations_)))
    single = Scores(potential(features), parameters, DenseRows(torch.from_numpy(X)), None)
    double = Scores(potential(features), parameters, DenseRows(torch.from_numpy(X).double()), None)
    error = abs(expect(single, None).objective - expect(double, None).objective)
    assert 0 < error <= single.rounding()
    assert single.rounding() / double.rounding() == pytest.approx(2**29)
