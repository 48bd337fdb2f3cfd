"""What is refused, and in which words; rows at the ends of the number range."""

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from pairgrad.mixture import VMFMixture
from tests.mixture.data import sparse_csr

ROWS = np.random.default_rng(0).normal(size=(20, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components must be an integer >= 1, got 0"),
        ({"e_step": "medium"}, "e_step must be one of 'soft', 'hard', 'stochastic', got 'medium'"),
        ({"init": "spread"}, "init must be one of 'k-means\\+\\+', 'random', got 'spread'"),
        ({"init": None}, "init must be one of .* or an array \\(n_components, n_features\\) of directions, got None"),
        ({"init": np.ones((3, 4))}, "init must have shape \\(n_components, n_features\\) = \\(2, 4\\).*got shape \\(3, 4\\)"),
        ({"init": np.zeros((2, 4))}, "init must have finite rows of positive length, got row 0 without a direction"),
        ({"init": np.array([[1.0, 0, 0, 0], [0, np.inf, 0, 0]])}, "init must have finite rows of positive length, got row 1 without"),
        ({"init": [[1.0, 2], [3]]}, "init must be one of .* or an array .* got .*list"),
        ({"init": scipy.sparse.csr_matrix(np.eye(2, 4))}, "init must be a dense array of real numbers, got csr_matrix of dtype float64"),
        ({"init": 1j * np.eye(2, 4)}, "init must be a dense array of real numbers, got ndarray of dtype complex128"),
        ({"init": torch.ones(2, 4, device="meta")}, "init must be a dense array of real numbers, got a float32 tensor .* on meta"),
        ({"n_init": 0}, "n_init must be an integer >= 1, got 0"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1, got 0"),
        ({"chunk_size": 0}, "chunk_size must be an integer >= 1, got 0"),
        ({"verbose": -1}, "verbose must be an integer >= 0, got -1"),
        ({"verbose_interval": 0}, "verbose_interval must be an integer >= 1"),
        ({"tol": -1.0}, "tol must be a number in \\[0, inf\\].*got -1.0 \\(float\\)"),
        ({"min_weight": 0.5}, "min_weight must be a number in \\[0, 0.5\\), a share of the weight below 1 / n_components, got 0.5"),
        ({"max_concentration": 0}, "max_concentration must be a number in \\(0, 1e\\+30\\].*got 0"),
        ({"max_concentration": np.inf}, "max_concentration must be a number in \\(0, 1e\\+30\\].*got inf"),
        ({"learning_decay": 0.5}, "learning_decay must be a number in \\(0.5, 1\\]"),
        ({"learning_offset": -1}, "learning_offset must be a number in \\[0, inf\\)"),
        ({"random_state": "seed"}, "cannot be used to seed"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options(options, message):
    with pytest.raises(ValueError, match=message):
        VMFMixture(**{"n_components": 2, **options}).fit(ROWS)


@pytest.mark.parametrize("value", [2.0, True, "2"])
def test_options_of_the_wrong_type(value):
    with pytest.raises(TypeError, match="n_components must be an integer >= 1, got"):
        VMFMixture(value).fit(ROWS)


def test_tied_is_a_flag():
    with pytest.raises(TypeError, match="tied must be True or False, got 'tied'"):
        VMFMixture(2, tied="tied").fit(ROWS)


def zero_row():
    rows = ROWS.copy()
    rows[7] = 0
    return rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (zero_row(), "row 7 of X is zero and has no direction: leave out such rows"),
        (torch.from_numpy(zero_row()), "row 7 of X is zero"),
        (scipy.sparse.csr_matrix(zero_row()), "row 7 of the sparse matrix X is zero"),
        (np.where(ROWS > 2, np.nan, ROWS), "contains NaN"),
        (torch.from_numpy(np.where(ROWS > 2, np.inf, ROWS)), "contains NaN or infinity, got a float64 tensor of shape \\(20, 4\\)"),
        (torch.from_numpy(np.where(ROWS > 2, np.nan, ROWS)), "contains NaN or infinity"),
        (ROWS[:, :1], "1 feature\\(s\\)"),
        (torch.from_numpy(ROWS[:, :1]), "1 feature\\(s\\)"),
        (ROWS[:1], "n_components=2 needs at least as many rows of positive weight, got n_samples = 1"),
        (torch.from_numpy(ROWS[:0]), "0 sample\\(s\\)"),
        (torch.from_numpy(ROWS[0]), "X must have shape \\(n_samples, n_features\\)"),
        (torch.complex(torch.ones(3, 3), torch.ones(3, 3)), "Complex data not supported"),
        (torch.ones(4).to_sparse(), "X must have shape \\(n_samples, n_features\\)"),
        (torch.ones(4, 4).to_sparse(1), "X must be strided or sparse .* got torch.sparse_coo with 1 sparse dimension"),
        (torch.ones(4, 4, device="meta"), "X must hold numbers, got a float32 tensor of shape \\(4, 4\\) on meta"),
    ],
)
def test_rows(rows, message):
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(VMFMixture(2), method)(rows)


def test_rows_of_another_length():
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    VMFMixture(2, normalize=False, random_state=0).fit(unit)
    VMFMixture(2, normalize=False, random_state=0).fit(unit.astype(np.float32))
    unit[11] *= 1.0001
    for rows, name in ((unit, "X"), (scipy.sparse.csr_matrix(unit), "the sparse matrix X")):
        with pytest.raises(
            ValueError, match=f"with normalize=False every row of {name} must have length 1 up to 1e-05, got length 1.0001 in row 11"
        ):
            VMFMixture(2, normalize=False).fit(rows)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(20), "sample_weight must be finite and >= 0, got values from -1 to -1"),
        (np.zeros(20), "sample_weight must have a positive sum, got only zeros"),
        (np.ones(19), "sample_weight.shape == \\(19,\\), expected \\(20,\\)"),
        (torch.ones(19), "sample_weight must have shape \\(20,\\), one per row of X, got a float32 tensor of shape \\(19,\\)"),
        (np.eye(20)[0], "n_components=2 needs at least as many rows of positive weight, got n_samples = 1"),
        (np.where(np.arange(20) == 3, np.nan, 1), "NaN"),
        (torch.full((20,), torch.nan), "finite"),
        (2.0, "sample_weight must have shape \\(20,\\), one per row of X, got 2.0"),
        (torch.ones(20, dtype=torch.complex64), "sample_weight must hold real numbers, got a complex64 tensor"),
        (torch.ones(20, device="meta"), "sample_weight must hold real numbers, got a float32 tensor of shape .* on meta"),
    ],
)
def test_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        VMFMixture(2).fit(ROWS, sample_weight=weights)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [5e-324, 1e-50, 1e50, 1.7e308])
def test_weights_count_relative_to_each_other(scale, dtype):
    """Neither their sums nor their products with single-precision shares overflow or vanish."""
    X = ROWS.astype(dtype)
    plain = VMFMixture(2, random_state=0).fit(X)
    scaled = VMFMixture(2, random_state=0).fit(X, sample_weight=np.full(20, scale))
    np.testing.assert_allclose(scaled.concentrations_, plain.concentrations_, rtol=1e-6)
    assert scaled.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-6)
    assert scaled.score(X, sample_weight=np.full(20, scale)) == pytest.approx(plain.score(X), rel=1e-6)


def test_what_comes_too_early_or_does_not_fit():
    for early in (lambda model: model.sample(3), lambda model: model.aic(ROWS), lambda model: model.bic(ROWS)):
        with pytest.raises(NotFittedError):
            early(VMFMixture(2))
    model = VMFMixture(2, random_state=0).fit(ROWS)
    for rows in (torch.ones(3, 5), np.ones((3, 5))):
        with pytest.raises(ValueError, match="X has 5 features, but VMFMixture is expecting 4 features"):
            model.predict(rows)
    with pytest.raises(ValueError, match="n_samples must be an integer >= 1, got 0"):
        model.sample(0)


def placed(rows, sparse):
    """Where each row is on the sphere: the mean direction of a mixture of one component, fitted to that row alone."""
    directions = []
    for row in rows:
        with pytest.warns(ConvergenceWarning, match="largest concentration"):
            directions.append(VMFMixture(1).fit(scipy.sparse.csr_matrix(row[None]) if sparse else row[None]).mean_directions_[0])
    return np.stack(directions)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("dtype", "scales"), [(np.float64, (1e-300, 1e-160, 1.0, 1e160, 1e300)), (np.float32, (1e-38, 1e-20, 1.0, 1e20, 1e37))]
)
def test_rows_are_put_on_the_sphere_without_overflow(dtype, scales, sparse):
    """Normalised rows do not depend on their scale, as far as the scaled rows have digits: to 4 roundings."""
    unit = (ROWS[:5] / np.linalg.norm(ROWS[:5], axis=1, keepdims=True)).astype(np.float64)
    rows = (unit * np.array(scales)[:, None]).astype(dtype)
    np.testing.assert_allclose(placed(rows, sparse), unit, atol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_whose_length_is_no_number_have_a_direction(dtype, sparse):
    """The largest numbers there are, four in a row: the length overflows, the direction does not."""
    most = np.finfo(dtype).max
    rows = np.array([[most, most, -most, most], [most, most, 0, 0], [1, 0, 0, 0]], dtype=dtype)
    expected = [[0.5, 0.5, -0.5, 0.5], [0.5**0.5, 0.5**0.5, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_allclose(placed(rows, sparse), expected, atol=4 * np.finfo(dtype).eps)


def test_unit_rows_are_taken_as_they_are():
    """Nothing is written to, and read-only memory will do."""
    unit = (ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)).astype(np.float32)
    unit.flags.writeable = False
    assert VMFMixture(2, random_state=0).fit(unit).weights_.dtype == np.float32
    before = ROWS.copy()
    VMFMixture(2, random_state=0).fit(ROWS[::-1])
    assert np.array_equal(ROWS, before)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_given_directions_have_any_length(scale):
    plain, scaled = (VMFMixture(2, init=factor * np.eye(2, 4), tol=0.1).fit(ROWS) for factor in (1.0, scale))
    np.testing.assert_allclose(scaled.mean_directions_, plain.mean_directions_, rtol=1e-12)


def test_half_precision_is_computed_in_single():
    halves = torch.from_numpy(ROWS).half()
    for rows in (halves.numpy(), halves, sparse_csr(halves)):
        assert np.asarray(VMFMixture(2, random_state=0).fit(rows).weights_).dtype == np.float32


def test_tensors_that_require_gradients():
    rows = torch.from_numpy(ROWS).requires_grad_()
    assert not VMFMixture(2, random_state=0).fit(rows).mean_directions_.requires_grad
