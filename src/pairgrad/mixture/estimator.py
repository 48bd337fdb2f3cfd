"""`VMFMixture`: the estimator, its parameters and what scikit-learn expects of it."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from pairgrad.ground.checks import integer_at_least
from pairgrad.ground.devices import HOST, widest
from pairgrad.mixture.em import Maximiser, Parameters, Scores, Statistics
from pairgrad.mixture.inputs import Kind, directions, read, read_weights
from pairgrad.mixture.options import check_parameters
from pairgrad.mixture.rows import Rows
from pairgrad.mixture.runs import Iterations, Progress, Run, complaints
from pairgrad.mixture.start import light, nearest, reseed, seeds
from pairgrad.potentials import Potential, potential
from pairgrad.sphere.area import log_area


class VMFMixture(ClusterMixin, DensityMixin, BaseEstimator):
    r"""A mixture of von Mises-Fisher distributions, fitted by EM: model-based clustering of directions.

    The density of a unit vector x in p dimensions, with respect to the surface of the sphere, is

    \[ \sum_j w_j \exp\bigl(\kappa_j \mu_j^\top x - \Phi(\kappa_j)\bigr) \big/ |S^{p-1}| \]

    with \(\Phi\) the vMF potential, \(\Phi(0) = 0\). The M-step solves \(\Phi'(\kappa_j) = \lVert S_j\rVert/N_j\) exactly, with the slope that belongs to the
    value in the likelihood; therefore EM cannot lower the likelihood, and `monotone_log_likelihood_` says that it did not.

    `X` may be a numpy array or a data frame, a scipy sparse matrix, or a torch tensor on any device, strided or sparse; sparse data are never made dense.
    Computations are in float32 or float64, as `X` is (half precision in float32, integers in float64), and sums over rows are kept in float64. Results and
    fitted arrays are of the kind of `X`: numpy in, numpy out; tensors in, tensors on that device out. In float32 a log-density is right to about
    \(10^{-7}\kappa\): use float64 where concentrations exceed \(10^4\).

    Args:
        n_components: k >= 1.
        e_step: `"soft"`, posterior probabilities; `"hard"`, the likeliest component takes all (classification EM, which maximises the classification
            likelihood); `"stochastic"`, a component drawn from the posterior takes all (stochastic EM, which wanders; the best parameters visited
            are returned: of those with the fewest components too light, the likeliest).
        tied: one concentration for all components; otherwise one for each.
        init: `"k-means++"`, seeds far apart on the sphere; `"random"`, random rows; or an array (n_components, n_features) of directions. Rows are given to
            the nearest seed, and EM starts from the weights and directions of these groups with one concentration for all, so that a group of one
            row is not mistaken for a perfectly concentrated component. The draws depend on the weighted set of rows, not on their order.
        n_init: starts; the fit with the highest objective is kept, among those with the fewest components too light or at `max_concentration`. 1 for given
            directions and when a warm start resumes.
        max_iter: M-steps at most, per start.
        tol: a run has converged when an iteration raises the objective, per unit of weight, by no more than this. With the stochastic E-step: when the
            best value has not risen by more than this for 10 iterations.
        min_weight: a component with a smaller share of the weight is placed anew, as an empty one always is: at the rows that are explained worst, with an
            equal share and the mean resultant length of all components. At most 3 n_components times per run.
        max_concentration: the largest concentration, which keeps the likelihood bounded: a component of coincident rows gets it. None is 1e5, as in
            [`ClassBank`][pairgrad.ClassBank], or 100 n_features where that is more: there, the mean resultant length is 0.995.
        normalize: scale rows to length 1. Otherwise rows whose length is not 1 up to 1e-5 are an error.
        warm_start: start `fit` from the present parameters, if there are any.
        learning_decay: of `partial_fit`, in (0.5, 1].
        learning_offset: of `partial_fit`, >= 0: step t has size (t + learning_offset)^-learning_decay.
        chunk_size: rows per chunk; None takes as many as keep a chunk in a cache.
        random_state: None, an integer or a `numpy.random.RandomState`.
        verbose: 0 is silent; 1 prints a line about the objective every `verbose_interval` iterations; 2 about every iteration.
        verbose_interval: iterations between lines.

    Attributes:
        weights_: (n_components,), shares, adding up to 1.
        mean_directions_: (n_components, n_features), unit rows.
        concentrations_: (n_components,), equal if tied.
        labels_: (n_samples,), the likeliest component of each row in `fit`, or of the last batch of `partial_fit`.
        log_likelihood_: the mean log-density of the rows, weighted by `sample_weight`: what `score` gives.
        lower_bound_: the objective of the E-step at the parameters returned: `log_likelihood_`, or the mean classification log-likelihood if hard. After
            `partial_fit`, that of the last batch before its step.
        log_likelihoods_: the objective at the start and after every iteration, of the run that was kept; for `partial_fit`, of every batch before its step.
        monotone_log_likelihood_: whether no iteration of that run lowered its objective by more than rounding, iterations that placed components anew
            left out. Rounding is \(u(\sqrt p + 8)\sum_j w_j(\kappa_j + |\log w_j - \Phi(\kappa_j)| + 1)\), with u the unit roundoff of the dtype, once before
            and once after the iteration: the error of evaluating the objective. Errors in the steps themselves enter squared. The stochastic E-step does
            not promise it, and after `partial_fit` it is None.
        converged_: whether that run converged.
        n_iter_: its M-steps; for `partial_fit`, steps so far.
        n_recoveries_: components that it placed anew.
        n_features_in_: p.
        feature_names_in_: names of the features, if `X` had any.

    `fit` that is interrupted from the keyboard leaves the fit of the best run so far and passes the interrupt on. Of the checks of
    scikit-learn's `check_estimator`, those fail that fit rows of zeros, which have no direction: `check_estimators_dtypes` and `check_estimator_sparse_tag`.

    Examples:
        >>> import numpy as np
        >>> from pairgrad.mixture import VMFMixture
        >>> rng = np.random.default_rng(0)
        >>> X = np.concatenate([rng.normal([3, 0, 0], 1, (50, 3)), rng.normal([0, 3, 0], 1, (50, 3))])
        >>> mixture = VMFMixture(n_components=2, random_state=0).fit(X)
        >>> mixture.weights_.round(1), mixture.monotone_log_likelihood_
        (array([0.5, 0.5]), True)
    """

    n_features_in_: int

    def __init__(
        self,
        n_components: int = 8,
        *,
        e_step: str = "soft",
        tied: bool = False,
        init: Any = "k-means++",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-4,
        min_weight: float = 0.0,
        max_concentration: float | None = None,
        normalize: bool = True,
        warm_start: bool = False,
        learning_decay: float = 0.7,
        learning_offset: float = 10.0,
        chunk_size: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        verbose_interval: int = 10,
    ) -> None:
        self.n_components = n_components
        self.e_step = e_step
        self.tied = tied
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.min_weight = min_weight
        self.max_concentration = max_concentration
        self.normalize = normalize
        self.warm_start = warm_start
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.chunk_size = chunk_size
        self.random_state = random_state
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Estimate the parameters.

        Args:
            X: (n_samples, n_features), at least `n_components` rows.
            y: ignored.
            sample_weight: (n_samples,), >= 0: a row of weight 2 counts like two rows.
        """
        check_parameters(self)
        resume = bool(self.warm_start) and hasattr(self, "weights_")
        rows, kind = read(self, X, reset=not resume, normalize=self.normalize)
        weights = read_weights(sample_weight, rows)
        self._enough(rows, weights)
        random = self._random = check_random_state(self.random_state)
        iterations = self._iterations(rows, weights)
        best: Run | None = None
        run: Run | None = None
        try:
            for number in range(self.n_init if isinstance(self.init, str) and not resume else 1):
                start = self._parameters(to_go_on=True) if resume else self._start(rows, weights, random)
                run = Run(start)
                every = None if not self.verbose else 1 if self.verbose > 1 else self.verbose_interval
                progress = Progress(every, number + 1, "classification log-likelihood" if self.e_step == "hard" else "log-likelihood")
                iterations.run(run, self._generator(rows, random), progress)
                progress.end(run)
                best = run if best is None else max(best, run, key=iterations.rank)
        except KeyboardInterrupt:
            candidates = [r for r in (best, run) if r is not None and r.statistics is not None]
            if candidates:
                self._keep(max(candidates, key=iterations.rank), rows, weights, kind)
            raise
        assert best is not None
        self._keep(best, rows, weights, kind)
        for complaint in complaints(best, iterations):
            warnings.warn(complaint, ConvergenceWarning, stacklevel=2)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit and return `labels_`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        r"""One step of stepwise EM with a batch of rows (Cappé and Moulines, 2009).

        The statistics per unit of weight, s, become \((1-\eta_t)s + \eta_t \hat s\) with those of the batch, \(\hat s\), and
        \(\eta_t\) = (t + learning_offset)^-learning_decay for the t-th step; then the M-step is made. Every call is one step, whatever the size of its
        batch. The first call takes its start and its statistics from its batch, which needs at least `n_components` rows; after `fit`, the
        statistics of the fit are the first ones. Components that have become too light are placed anew, at rows of the batch.

        Args:
            X: (n_samples, n_features).
            y: ignored.
            sample_weight: (n_samples,), >= 0.
        """
        check_parameters(self)
        first = not hasattr(self, "_statistics")
        rows, kind = read(self, X, reset=first, normalize=self.normalize)
        weights = read_weights(sample_weight, rows)
        if first:  # every further batch goes on with the random numbers
            self._enough(rows, weights)
            self._random = check_random_state(self.random_state)
        random = self._random
        start = self._start(rows, weights, random) if first else self._parameters(to_go_on=True)
        iterations = self._iterations(rows, weights)
        scores = iterations.scores(start)
        expectation = iterations.expectation(scores, self._generator(rows, random))
        batch = _per_unit(expectation.statistics)
        steps = 1 if first else self._steps + 1
        if first:
            statistics = batch
        else:
            size = (steps + self.learning_offset) ** -self.learning_decay
            old = Statistics(*(torch.from_numpy(part) for part in self._statistics))
            statistics = Statistics(*(torch.lerp(a, b, size) for a, b in zip(old, batch, strict=True)))
        which = light(statistics.weights, self.min_weight, rows.dtype)
        if which:
            statistics = reseed(statistics, which, scores.densities(), rows, weights)
        run = Run(iterations.maximiser(statistics, start), statistics, iterations=steps, reseeded=len(which))
        run.objective = expectation.objective - log_area(rows.features)
        run.curve = [*(self.log_likelihoods_ if not first and self._steps else []), run.objective]
        self._keep(run, rows, weights, kind, steps)
        return self

    def _start(self, rows: Rows, weights: torch.Tensor | None, random: np.random.RandomState) -> Parameters:
        if isinstance(self.init, str):
            chosen = rows.take(seeds(rows, weights, self.n_components, self.init, random)).cpu().double()
        else:
            chosen = directions("init", self.init, (self.n_components, rows.features))
        groups = nearest(rows, weights, chosen)
        nothing = torch.zeros(self.n_components, dtype=torch.float64)
        started = Maximiser(self._potential(), tied=True, cap=self._cap())(groups, Parameters(nothing, chosen, nothing))
        floor = 1 / (2 * self.n_components)  # a seed that nobody is nearest to is not given up before EM has seen it
        shares = started.weights.clamp_min(floor * float(started.weights.max()))
        return Parameters(shares / shares.sum(), started.directions, started.rates)

    def _iterations(self, rows: Rows, weights: torch.Tensor | None) -> Iterations:
        maximiser = Maximiser(self._potential(), bool(self.tied), self._cap())
        return Iterations(maximiser, rows, weights, self.e_step, self.max_iter, float(self.tol), float(self.min_weight), self.chunk_size)

    def _generator(self, rows: Rows, random: np.random.RandomState) -> torch.Generator | None:
        if self.e_step != "stochastic":
            return None
        return torch.Generator(rows.device).manual_seed(int(random.randint(2**31 - 1)))

    def _keep(self, run: Run, rows: Rows, weights: torch.Tensor | None, kind: Kind, steps: int = 0) -> None:
        """Fitted attributes of a run, or of so many steps of `partial_fit`."""
        self._steps = steps
        self.weights_ = kind.give(run.parameters.weights)
        self.mean_directions_ = kind.give(run.parameters.directions)
        self.concentrations_ = kind.give(run.parameters.rates)
        assert run.statistics is not None
        self._statistics = tuple(part.numpy() for part in _per_unit(run.statistics))
        labels, densities = self._labels_and_densities(rows)
        self.labels_ = kind.give(labels)
        self.log_likelihood_ = _mean(densities, weights) - log_area(rows.features)
        self.lower_bound_ = run.objective
        self.log_likelihoods_ = list(run.curve)
        self.monotone_log_likelihood_ = run.monotone if not steps else None
        self.converged_ = run.converged
        self.n_iter_ = run.iterations
        self.n_recoveries_ = run.reseeded

    def predict(self, X: Any) -> Any:
        """The likeliest component of every row, (n_samples,)."""
        rows, kind = self._read(X)
        return kind.give(self._labels_and_densities(rows)[0])

    def predict_proba(self, X: Any) -> Any:
        """The posterior probability of every component for every row, (n_samples, n_components)."""
        rows, kind = self._read(X)
        shares = []
        scores = self._scores(rows)
        for _, _, joint in scores.chunks():
            _, whole = scores.powers(joint)
            shares.append((joint / whole).t())
        return kind.give(torch.cat(shares))

    def score_samples(self, X: Any) -> Any:
        """The log-density of every row with respect to the surface of the sphere, (n_samples,)."""
        rows, kind = self._read(X)
        return kind.give(self._labels_and_densities(rows)[1] - log_area(rows.features))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The mean log-density of the rows, weighted by `sample_weight`."""
        rows, _ = self._read(X)
        weights = read_weights(sample_weight, rows)
        return _mean(self._labels_and_densities(rows)[1], weights) - log_area(rows.features)

    def aic(self, X: Any) -> float:
        """Akaike's information criterion of `X`: the lower the better."""
        return -2 * self._total(X)[0] + 2 * self._n_parameters()

    def bic(self, X: Any) -> float:
        """The Bayesian information criterion of `X`: the lower the better."""
        total, count = self._total(X)
        return self._n_parameters() * math.log(count) - 2 * total

    def sample(self, n_samples: int = 1) -> tuple[Any, Any]:
        """Draw rows from the mixture: (X, y), with the component of every row; ordered by component."""
        check_is_fitted(self)
        n_samples = integer_at_least("n_samples", n_samples, 1, most=2**31)
        from pairgrad.distributions import VonMisesFisher

        parameters = self._parameters()
        random = check_random_state(self.random_state)
        counts = random.multinomial(n_samples, (parameters.weights / parameters.weights.sum()).numpy())
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        drawn = [
            VonMisesFisher(mu, kappa).sample((int(count),), generator=generator)
            for mu, kappa, count in zip(parameters.directions, parameters.rates, counts, strict=True)
            if count
        ]
        labels = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
        kind = self._kind()
        return kind.give(torch.cat(drawn)), kind.give(labels)

    def _labels_and_densities(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """The likeliest component of every row, and its log-density without the constant of the sphere."""
        labels = torch.zeros(rows.count, dtype=torch.int64, device=rows.device)
        densities = torch.zeros(rows.count, dtype=rows.dtype, device=rows.device)
        scores = self._scores(rows)
        for start, stop, joint in scores.chunks():
            labels[start:stop] = joint.max(0).indices  # argmax takes ten times as long
            densities[start:stop] = scores.powers(joint)[0]
        return labels, densities.add_(scores.shift)

    def _total(self, X: Any) -> tuple[float, int]:
        rows, _ = self._read(X)
        return (_mean(self._labels_and_densities(rows)[1], None) - log_area(rows.features)) * rows.count, rows.count

    def _n_parameters(self) -> int:
        """Free parameters: directions, concentrations, weights."""
        k = len(self.weights_)
        return k * (self.n_features_in_ - 1) + (1 if self.tied else k) + k - 1

    def _read(self, X: Any) -> tuple[Rows, Kind]:
        check_is_fitted(self)
        return read(self, X, reset=False, normalize=self.normalize)

    def _scores(self, rows: Rows) -> Scores:
        return Scores(self._potential(), self._parameters(), rows, self.chunk_size)

    def _cap(self) -> float:
        return float(self.max_concentration) if self.max_concentration is not None else max(1e5, 100.0 * self.n_features_in_)

    def _potential(self) -> Potential:
        return potential(dim=self.n_features_in_)

    def _parameters(self, *, to_go_on: bool = False) -> Parameters:
        """The fitted attributes as they are now, whoever set them; an error if a fit cannot go on from them."""
        weights, means, rates = (_to_float64(part) for part in (self.weights_, self.mean_directions_, self.concentrations_))
        if to_go_on and means.shape != (self.n_components, self.n_features_in_):
            raise ValueError(
                "warm_start and partial_fit go on from the present parameters, whose n_components and n_features must not change: they are "
                f"{tuple(means.shape)}, and {(self.n_components, self.n_features_in_)} are wanted. Use warm_start=False, or a new estimator."
            )
        return Parameters(weights, means, rates)

    def _kind(self) -> Kind:
        """Of the fitted attributes."""
        means = self.mean_directions_
        if isinstance(means, torch.Tensor):
            return Kind(True, means.dtype, means.device)
        return Kind(False, torch.from_numpy(means).dtype, HOST)

    def _enough(self, rows: Rows, weights: torch.Tensor | None) -> None:
        positive = rows.count if weights is None else int((weights > 0).sum())
        if positive < self.n_components:
            raise ValueError(
                f"n_components={self.n_components} needs at least as many rows of positive weight, got n_samples = {positive}: "
                "use fewer components or more rows"
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _per_unit(statistics: Statistics) -> Statistics:
    whole = statistics.weights.sum()
    return Statistics(statistics.weights / whole, statistics.sums / whole)


def _mean(densities: torch.Tensor, weights: torch.Tensor | None) -> float:
    densities = densities.to(widest(densities.device))
    return float(densities.mean() if weights is None else torch.dot(weights, densities) / weights.sum())


def _to_float64(part: Any) -> torch.Tensor:
    return part.detach().cpu().double() if isinstance(part, torch.Tensor) else torch.from_numpy(np.asarray(part, dtype=np.float64))
