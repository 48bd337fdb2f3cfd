"""scikit-learn's own checks, and what it expects beside them."""

import inspect

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

from pairgrad.mixture import VMFMixture
from tests.mixture.data import mixture

# The only exceptions, documented in the class: their data have rows of zeros, which have no direction.
EXPECTED = {
    "check_estimators_dtypes": "casts small numbers to integers, which leaves rows of zeros: they have no direction",
    "check_estimator_sparse_tag": "sets most entries to 0, which leaves rows of zeros: they have no direction",
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([VMFMixture()], expected_failed_checks=lambda estimator: EXPECTED)
def test_checks(estimator, check):
    check(estimator)


def test_exceptions_are_documented():
    text = inspect.getdoc(VMFMixture)
    assert all(name in text for name in EXPECTED)


def test_every_option_is_documented_and_keyword_only():
    parameters = inspect.signature(VMFMixture).parameters
    text = inspect.getdoc(VMFMixture)
    assert all(f"    {name}: " in text for name in parameters)
    assert [name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY] == ["n_components"]


def test_every_attribute_is_documented():
    model = VMFMixture(2, random_state=0).fit(np.eye(3).repeat(4, 0) + 0.1 * np.random.default_rng(0).normal(size=(12, 3)))
    fitted = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
    assert len(fitted) > 10
    assert all(f"    {name}: " in inspect.getdoc(VMFMixture) for name in fitted)


def test_it_is_at_home_in_searches_and_pipelines():
    X, _, _ = mixture(4, (30, 40), (60, 60), seed=3)
    X = np.random.default_rng(0).permutation(X)
    search = GridSearchCV(VMFMixture(random_state=0), {"n_components": [1, 2]}, cv=2).fit(X)
    assert search.best_params_ == {"n_components": 2}
    assert make_pipeline(Normalizer(), VMFMixture(2, random_state=0, normalize=False)).fit_predict(7 * X).shape == (120,)


def test_names_of_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=list("abc"))
    assert VMFMixture(2, random_state=0).fit(frame).feature_names_in_.tolist() == ["a", "b", "c"]
