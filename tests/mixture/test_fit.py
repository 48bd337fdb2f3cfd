"""What a fit finds, and that it does not depend on what it should not depend on."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import pairgrad as pg
from pairgrad.mixture import VMFMixture
from tests.mixture.data import mixture, sparse_csr

PARAMETERS = ("weights_", "mean_directions_", "concentrations_")


def same(one, other, **tolerances):
    for name in PARAMETERS:
        np.testing.assert_allclose(np.asarray(getattr(one, name)), np.asarray(getattr(other, name)), err_msg=name, **tolerances)


@pytest.fixture(scope="module")
def three():
    """Three groups that overlap a little."""
    return mixture(5, (10, 30, 90), (300, 200, 100), seed=5)


@pytest.mark.parametrize("e_step", ["soft", "hard", "stochastic"])
def test_a_generated_mixture_is_recovered(e_step, three):
    """Within five standard errors for soft EM: of a concentration about kappa sqrt(2 / ((p - 1) n)), of a cosine (p - 1) / (2 n kappa R)."""
    X, labels, directions = three
    model = VMFMixture(3, e_step=e_step, random_state=0).fit(X)
    order = (directions @ model.mean_directions_.T).argmax(1)
    rates, counts = np.array([10, 30, 90]), np.array([300, 200, 100])
    assert sorted(order) == [0, 1, 2]
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    slack = 1 if e_step != "hard" else 2  # hard assignments are biased where groups overlap
    assert np.all(np.abs(model.concentrations_[order] / rates - 1) < 5 * slack * np.sqrt(2 / (4 * counts)))
    assert np.all(1 - (directions * model.mean_directions_[order]).sum(1) < 5 * slack * 4 / (2 * counts * rates * 0.8))
    assert np.all(np.abs(model.weights_[order] - counts / 600) < 5 * slack * np.sqrt(0.25 / 600))
    assert model.converged_
    assert model.score(X) == pytest.approx(model.log_likelihood_, rel=1e-12)
    assert np.array_equal(model.labels_, model.predict(X))
    assert np.array_equal(model.labels_, model.predict_proba(X).argmax(1))


def test_stochastic_fits_return_the_best_parameters_visited(three):
    model = VMFMixture(3, e_step="stochastic", random_state=0).fit(three[0])
    assert model.lower_bound_ == max(model.log_likelihoods_)
    assert model.log_likelihood_ == pytest.approx(model.lower_bound_, rel=1e-12)
    assert model.log_likelihoods_[-1] < model.lower_bound_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_stochastic_fits_do_not_forget_the_best_when_components_are_placed_anew():
    """Groups that overlap: draws leave a component too light now and then, in the last iterations too. The best parameters visited are returned; a
    component that is too light counts more than any likelihood."""
    X, _, _ = mixture(3, (2, 4, 6), (50, 40, 30), seed=5)
    for seed in range(1, 6):
        model = VMFMixture(3, e_step="stochastic", min_weight=0.15, random_state=seed).fit(X)
        assert model.n_recoveries_ > 0
        assert model.lower_bound_ == max(model.log_likelihoods_)
        assert model.log_likelihood_ == pytest.approx(model.lower_bound_, rel=1e-12)
    picky = VMFMixture(3, e_step="stochastic", min_weight=0.18, random_state=2).fit(X)
    assert picky.lower_bound_ < max(picky.log_likelihoods_)
    assert picky.weights_.min() >= 0.18


def test_runs_end_where_they_say(three):
    """Every iteration but the last gains more than tol; with stochastic steps, the last ten do not raise the best by more."""
    X = three[0]
    gains = np.diff(VMFMixture(3, random_state=0, tol=1e-5).fit(X).log_likelihoods_)
    assert gains[-1] <= 1e-5 < gains[:-1].min()
    curve = VMFMixture(3, random_state=0, tol=1e-5, e_step="stochastic").fit(X).log_likelihoods_
    best = np.maximum.accumulate(curve)
    raised = np.flatnonzero(np.diff(best) > 1e-5) + 1
    assert len(curve) - 1 - raised[-1] == 10


def test_tied_concentrations_are_one_number(three):
    model = VMFMixture(3, tied=True, random_state=0).fit(three[0])
    assert len(set(model.concentrations_.tolist())) == 1
    assert model.log_likelihood_ < VMFMixture(3, random_state=0).fit(three[0]).log_likelihood_


@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.parametrize("init", ["k-means++", "random", "given"])
def test_weights_count_like_repetitions_whatever_the_order(e_step, init, three):
    X, _, directions = three
    X = X[::4]
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    shuffled = np.random.default_rng(1).permutation(len(X))
    options = {"e_step": e_step, "init": directions if init == "given" else init, "random_state": 3, "tol": 1e-6}
    weighted = VMFMixture(3, **options).fit(X[shuffled], sample_weight=weights[shuffled])
    repeated = VMFMixture(3, **options).fit(np.repeat(X, weights, axis=0))
    same(weighted, repeated, rtol=1e-8, atol=1e-10)
    assert weighted.log_likelihood_ == pytest.approx(repeated.log_likelihood_, rel=1e-10)
    assert weighted.n_iter_ == repeated.n_iter_


@pytest.mark.parametrize("e_step", ["soft", "hard", "stochastic"])
def test_sparse_fits_are_dense_fits(e_step):
    X, _, _ = mixture(8, (20, 40), (80, 60), seed=6)
    X[np.abs(X) < 0.1] = 0
    dense = VMFMixture(2, e_step=e_step, random_state=0, chunk_size=33).fit(X)
    index = scipy.sparse.csr_matrix(X)
    twice = scipy.sparse.csr_matrix((np.repeat(index.data / 2, 2), np.repeat(index.indices, 2), 2 * index.indptr), X.shape)
    tensors = [torch.from_numpy(X).to_sparse(), sparse_csr(torch.from_numpy(X))]
    for other in (index, index.tocsc(), scipy.sparse.csr_array(X), twice, *tensors):
        sparse = VMFMixture(2, e_step=e_step, random_state=0, chunk_size=33).fit(other)
        same(sparse, dense, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.asarray(sparse.score_samples(other)), dense.score_samples(X), rtol=1e-9)
        np.testing.assert_allclose(np.asarray(sparse.predict_proba(other)), dense.predict_proba(X), rtol=1e-7, atol=1e-12)
        assert np.array_equal(np.asarray(sparse.predict(other)), dense.labels_)


def test_sparse_rows_are_never_made_dense(monkeypatch):
    """A hundred thousand features in 40 rows: dense rows in chunks would pass, a dense tensor of the data is caught."""
    X = scipy.sparse.random(40, 100_000, 1e-3, format="csr", random_state=0)
    for name in ("toarray", "todense"):
        monkeypatch.setattr(type(X), name, lambda *a, **k: pytest.fail("made dense"))
    monkeypatch.setattr(torch.Tensor, "to_dense", lambda *a, **k: pytest.fail("made dense"))
    model = VMFMixture(2, random_state=0, tied=True).fit(X)
    assert model.predict(X).shape == (40,)
    assert model.partial_fit(X).score_samples(X).shape == (40,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_what_arrays_give(dtype, three):
    X = torch.from_numpy(three[0]).to(dtype)
    tensors, arrays = VMFMixture(3, random_state=0).fit(X), VMFMixture(3, random_state=0).fit(X.numpy())
    for name in (*PARAMETERS, "labels_"):
        one, other = getattr(tensors, name), getattr(arrays, name)
        assert isinstance(one, torch.Tensor)
        assert isinstance(other, np.ndarray)
        assert one.dtype == (torch.int64 if name == "labels_" else dtype)
        assert np.array_equal(one.numpy(), other)
    for method in ("predict", "predict_proba", "score_samples"):
        assert torch.equal(getattr(tensors, method)(X), torch.from_numpy(getattr(arrays, method)(X.numpy())))
        assert isinstance(getattr(tensors, method)(X.numpy()), np.ndarray)
    assert isinstance(tensors.sample(3)[0], torch.Tensor)


def test_single_precision_is_close_to_double(three):
    X = three[0].astype(np.float32)
    single, double = VMFMixture(3, random_state=0).fit(X), VMFMixture(3, random_state=0).fit(X.astype(np.float64))
    same(single, double, rtol=1e-4, atol=1e-5)
    assert single.weights_.dtype == np.float32
    halves = VMFMixture(3, random_state=0).fit(torch.from_numpy(X).half())
    assert halves.weights_.dtype == torch.float32
    whole = VMFMixture(3, random_state=0).fit((1000 * three[0]).astype(np.int64))
    same(whole, VMFMixture(3, random_state=0).fit((1000 * three[0]).round(0)), rtol=0.1, atol=0.01)
    assert whole.weights_.dtype == np.float64


def test_chunks_change_nothing(three):
    whole = VMFMixture(3, random_state=0, chunk_size=1000).fit(three[0])
    same(VMFMixture(3, random_state=0, chunk_size=17).fit(three[0]), whole, rtol=1e-10, atol=1e-12)


def test_random_state_decides(three):
    X = three[0]
    fits = [VMFMixture(6, random_state=state, max_iter=3, tol=0) for state in (0, 0, np.random.RandomState(0), 1)]
    for model in fits:
        with pytest.warns(ConvergenceWarning):
            model.fit(X)
    assert np.array_equal(fits[0].mean_directions_, fits[1].mean_directions_)
    assert np.array_equal(fits[0].mean_directions_, fits[2].mean_directions_)
    assert not np.allclose(fits[0].mean_directions_, fits[3].mean_directions_)
    draws = [VMFMixture(3, e_step="stochastic", random_state=4).fit(X).log_likelihoods_ for _ in range(2)]
    assert draws[0] == draws[1]


def test_more_starts_find_what_one_misses():
    X, _, _ = mixture(20, (100,) * 5, (20,) * 5, seed=10)
    one = VMFMixture(5, init="random", tied=True, random_state=0).fit(X)
    more = VMFMixture(5, init="random", tied=True, random_state=0, n_init=5).fit(X)
    assert more.lower_bound_ > one.lower_bound_ + 0.5


def test_warm_start_goes_on(three):
    X = three[0]
    straight = VMFMixture(3, random_state=0, max_iter=6, tol=0)
    resumed = VMFMixture(3, random_state=0, max_iter=3, tol=0, warm_start=True)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        straight.fit(X)
    for _ in range(2):
        with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
            resumed.fit(X)
    same(resumed, straight, rtol=1e-10)
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=r"must not change: they are \(3, 5\), and \(4, 5\) are wanted. Use warm_start=False"):
            getattr(resumed.set_params(n_components=4), method)(X)
    resumed.set_params(n_components=3)
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match="X has 4 features, but VMFMixture is expecting 5"):
            getattr(resumed, method)(X[:, :4])
    assert resumed.predict(X).shape == (600,)  # what could not go on is as it was


def test_partial_fit_converges(three):
    """Batches of a generated mixture, until the likelihood is within 0.01 of the fit's."""
    X, _, _ = three
    rng = np.random.default_rng(0)
    model = VMFMixture(3, random_state=0)
    for _ in range(60):
        model.partial_fit(X[rng.choice(len(X), 100)])
    whole = VMFMixture(3, random_state=0).fit(X)
    assert model.n_iter_ == 60
    assert len(model.log_likelihoods_) == 60
    assert model.monotone_log_likelihood_ is None
    assert model.score(X) > whole.score(X) - 0.01
    assert model.weights_.sum() == pytest.approx(1, abs=1e-12)


def test_partial_fit_is_an_average_of_statistics(three):
    """Two steps by hand; repetition is weight; after fit, the fit's statistics come first."""
    X, _, _ = three
    first, second = X[::2], X[1::2]
    weights = np.random.default_rng(0).integers(1, 4, len(second))
    model = VMFMixture(3, random_state=0, learning_decay=0.6, learning_offset=4.0).partial_fit(first)
    resultants = pg.potential(5).slope(torch.from_numpy(model.concentrations_)).numpy()
    old = model.weights_, (model.weights_ * resultants)[:, None] * model.mean_directions_  # what the M-step has made the parameters of
    shares = model.predict_proba(second) * weights[:, None]
    model.partial_fit(second, sample_weight=weights)
    size = 6.0**-0.6
    np.testing.assert_allclose(model.weights_, (1 - size) * old[0] + size * shares.sum(0) / weights.sum(), rtol=1e-10)
    sums = (1 - size) * old[1] + size * (shares.T @ second) / weights.sum()
    np.testing.assert_allclose(model.mean_directions_, sums / np.linalg.norm(sums, axis=1, keepdims=True), rtol=1e-10)
    fitted = VMFMixture(3, random_state=0, tol=1e-10).fit(X)
    again = clone(fitted).fit(X).partial_fit(X)
    same(again, fitted, rtol=1e-4)


def test_every_batch_has_its_own_random_numbers():
    """The same batch again and again, with tiny steps: its sums wander, whether the seed is a number or a state. Nothing is drawn twice."""
    X = mixture(5, (10, 30, 90), (300, 200, 100), seed=4)[0][::3]  # of which 167 rows could be in two groups

    def sums(model):
        resultants = pg.potential(5).slope(torch.from_numpy(model.concentrations_)).numpy()
        return (model.weights_ * resultants)[:, None] * model.mean_directions_

    for state in (0, np.random.RandomState(0)):
        model = VMFMixture(3, e_step="stochastic", random_state=state, learning_offset=1e6).partial_fit(X)
        before, steps = sums(model), []
        for _ in range(4):
            model.partial_fit(X)
            steps.append(sums(model) - before)
            before = sums(model)
        assert not any(np.allclose(steps[0], step, rtol=1e-3, atol=0) for step in steps[1:])
    again = VMFMixture(3, e_step="stochastic", random_state=0, learning_offset=1e6)
    for _ in range(5):
        again.partial_fit(X)
    same(again, model, rtol=0)


def test_empty_components_are_placed_anew(three):
    """Two of three given directions are far from all rows."""
    X, labels, directions = three
    far = -directions.sum(0)
    model = VMFMixture(3, init=np.stack([directions[0], far, far]), e_step="hard", random_state=0).fit(X)
    assert model.n_recoveries_ >= 1
    assert model.weights_.min() > 0.05
    assert adjusted_rand_score(labels, model.labels_) > 0.9


def test_a_run_with_a_component_to_be_placed_has_not_converged():
    """The tolerance alone would end every run after one iteration. Here the first one leaves a component too light: the run places it and continues."""
    X, _, _ = mixture(3, (2, 4, 6), (50, 40, 30), seed=5)
    model = VMFMixture(3, min_weight=0.2, tol=1e9, random_state=6).fit(X)
    assert model.n_recoveries_ > 0
    assert model.n_iter_ > 1
    assert model.converged_
    assert model.weights_.min() >= 0.2


def test_coincident_rows_get_the_largest_concentration():
    e = np.eye(3)
    X = np.repeat(e[:2], 5, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"Components \[0, 1\] have the largest concentration allowed, max_concentration=1000"):
        model = VMFMixture(2, random_state=0, max_concentration=1000).fit(X)
    assert model.concentrations_.tolist() == [1000, 1000]
    assert sorted(model.labels_.tolist()) == [0] * 5 + [1] * 5
    with pytest.warns(ConvergenceWarning, match="largest concentration"):
        single = VMFMixture(1, random_state=0).fit(np.full((7, 3), 1 / 3, dtype=np.float32))
    assert single.concentrations_ == 1e5


def test_what_the_rows_do_not_support_is_said():
    X = np.repeat(np.eye(3)[:2], 5, axis=0)
    with pytest.warns(ConvergenceWarning) as said:
        model = VMFMixture(4, e_step="hard", random_state=0).fit(X)
    assert any("do not support that many" in str(w.message) for w in said)
    assert model.n_recoveries_ == 12
    assert np.isfinite(model.score_samples(X)).all()


def test_the_largest_concentration_grows_with_the_features():
    """In p dimensions a mean resultant length of 0.8 takes a concentration of about 2.2 p: no reason to say that rows coincide."""
    rng = np.random.default_rng(0)
    words = 60_000
    X = scipy.sparse.random(40, words, 1e-4, format="csr", random_state=0, data_rvs=lambda n: rng.uniform(0.0, 0.3, n))
    X = scipy.sparse.csr_matrix(X + scipy.sparse.csr_matrix(np.repeat(np.eye(2, words), 20, axis=0)))
    model = VMFMixture(2, random_state=0).fit(X)  # a warning is an error
    assert model.concentrations_.min() > 1e5
    with pytest.warns(ConvergenceWarning, match="max_concentration=6e\\+06"):
        VMFMixture(1).fit(np.eye(1, words).repeat(3, 0))
    with pytest.warns(ConvergenceWarning, match="max_concentration=100000"):
        VMFMixture(1).fit(np.eye(1, 1000).repeat(3, 0))


@pytest.mark.parametrize("e_step", ["soft", "hard"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_start_that_ends_at_one_row_loses_against_one_that_does_not(e_step):
    """A component on one row has a likelihood as high as the cap makes it: of several starts, one without such a component is returned."""
    generator = torch.Generator().manual_seed(0)
    groups = [
        pg.VonMisesFisher(torch.tensor(mu).double(), torch.tensor(60.0).double()).sample((12,), generator=generator)
        for mu in ([1.0, 0.0, 0.0], [0.8, 0.6, 0.0])
    ]
    X = torch.cat([*groups, torch.tensor([[-0.9, -0.3, 0.3]]).double()]).numpy()
    options = {"init": "random", "e_step": e_step, "max_concentration": 1e4}
    ends = [VMFMixture(2, random_state=seed, **options).fit(X) for seed in range(20)]
    capped = [model for model in ends if model.concentrations_.max() == 1e4]
    assert 0 < len(capped) < 20
    found = VMFMixture(2, random_state=0, n_init=20, **options).fit(X)
    assert found.concentrations_.max() < 1e4
    assert found.lower_bound_ < max(model.lower_bound_ for model in capped)  # which likelihood alone would prefer


def test_an_interrupt_leaves_the_best_so_far(three, monkeypatch):
    """Ctrl-C while the progress of the fourth E-step is printed."""
    lines = []

    def interrupted(line):
        lines.append(line)
        if len(lines) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupted)
    model = VMFMixture(3, random_state=0, tol=0, verbose=2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(three[0])
    assert len(model.log_likelihoods_) == 4
    assert not model.converged_
    assert model.score(three[0]) == pytest.approx(max(model.log_likelihoods_), rel=1e-12)


def test_samples_are_of_the_mixture(three):
    """Counts within five standard deviations, groups in order, mean resultant lengths and a fit that finds the parameters again."""
    model = VMFMixture(3, random_state=0).fit(three[0])
    X, labels = model.sample(6000)
    assert X.shape == (6000, 5)
    assert np.array_equal(labels, np.sort(labels))
    counts = np.bincount(labels, minlength=3)
    assert np.all(np.abs(counts - 6000 * model.weights_) < 5 * np.sqrt(6000 * model.weights_ * (1 - model.weights_)))
    again = VMFMixture(3, init=model.mean_directions_).fit(X)
    np.testing.assert_allclose(again.concentrations_, model.concentrations_, rtol=5 * np.sqrt(2 / (4 * counts.min())))
    assert np.array_equal(model.sample(5)[0], model.sample(5)[0])


def test_pickles_and_clones(three):
    model = VMFMixture(3, random_state=0, init=three[2]).fit(three[0])
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(three[0]), model.predict_proba(three[0]))
    same(again.partial_fit(three[0]), model.partial_fit(three[0]), rtol=0)
    assert clone(model).get_params()["n_components"] == 3


def test_progress(three, capsys):
    VMFMixture(3, random_state=0).fit(three[0])
    assert capsys.readouterr().out == ""
    VMFMixture(3, random_state=0, n_init=2, verbose=1, verbose_interval=3).fit(three[0])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("VMFMixture  run ") and "log-likelihood" in line and line.split("s")[-1] is not None for line in lines)
    assert sum("converged" in line for line in lines) == 2
    assert [int(line.split("iteration")[1].split()[0]) for line in lines if "run 1" in line][:2] == [0, 3]
    VMFMixture(3, random_state=0, verbose=2).fit(three[0])
    model = VMFMixture(3, random_state=0).fit(three[0])
    assert len(capsys.readouterr().out.splitlines()) == model.n_iter_ + 2
    VMFMixture(3, e_step="hard", random_state=0, verbose=True).fit(three[0])
    assert all("  classification log-likelihood " in line for line in capsys.readouterr().out.splitlines())


def test_autocast_changes_nothing(three):
    X = three[0].astype(np.float32)
    plain = VMFMixture(3, random_state=0).fit(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = VMFMixture(3, random_state=0).fit(X)
        assert inside.score(X) == plain.score(X)
    same(inside, plain, rtol=0)
