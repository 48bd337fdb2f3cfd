"""What fits of a mixture cost, beside scikit-learn's and beside the matrix products in them: `python -m benchmarks.mixture [--quick] [--write]`.

Fits: `VMFMixture`, `KMeans(algorithm="lloyd")` and `GaussianMixture(covariance_type="spherical")` start from the same rows, make the same number of iterations
where they do not end by themselves, and take turns in one process. Times are CPU seconds of the process on one thread, medians. The time per iteration is the
difference between a fit of many iterations and a fit of one: reading, checking and labelling are in the time per fit.

Products: an iteration beside X C' (rows with directions) and R' X (shares with rows), each as one call on all rows.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.timing import Call, Measurement, Samples, interleaved
from pairgrad.mixture import VMFMixture
from pairgrad.mixture.em import E_STEPS, Maximiser, Parameters
from pairgrad.mixture.rows import DenseRows
from pairgrad.mixture.runs import Iterations
from pairgrad.potentials import potential

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mixture-benchmarks.md"
PRODUCTS_GOAL, GOAL = 1.6, 1.5
BASES = ("two products", "in chunks")
K_MEANS, SOFT, HARD, GAUSSIAN = "KMeans", "VMFMixture, soft", "VMFMixture, hard", "GaussianMixture"
CONTESTANTS = (K_MEANS, SOFT, HARD, GAUSSIAN)
DTYPES = ("float32", "float64")
DENSE = tuple((n, p, k) for n in (1000, 100_000) for p in (16, 64, 256) for k in (10, 50))
SPARSE = ((10_000, 10_000, 20), (100_000, 10_000, 20))
OWN_STARTS = ((1000, 64, 10), (100_000, 64, 10))  # sizes at which fits are also timed with the start that each makes by default
ENTRIES = 100  # per sparse row
NO_SPARSE = "does not take sparse input"

Fit = Callable[[int], Any]  # from the largest number of iterations to the fitted estimator


@dataclass
class Cell:
    """CPU seconds of one contestant, or why there are none."""

    iteration: Samples = field(default_factory=Samples)
    fit: Samples = field(default_factory=Samples)
    note: str = ""


@dataclass
class Row:
    """A comparison: `start` is "given", or "own" for the start that each contestant makes by default."""

    sizes: tuple[int, int, int]
    dtype: str
    start: str
    iterations: int
    cells: dict[str, Cell]

    def ratio(self, name: str) -> float:
        """Time per iteration over that of k-means."""
        return self.cells[name].iteration.median / self.cells[K_MEANS].iteration.median


def dense(count: int, features: int, components: int, dtype: str) -> np.ndarray:
    """Unit rows around random directions, with cosines of about 2 / sqrt(p): hard enough for many iterations in all dimensions."""
    random = np.random.default_rng(0)
    means = random.normal(size=(components, features))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    rows = means[random.integers(components, size=count)] + 0.5 * random.normal(size=(count, features))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)


def sparse(count: int, features: int, components: int, dtype: str) -> scipy.sparse.csr_matrix:
    """Like TF-IDF: unit rows of about 100 words, half of them drawn from all texts' frequencies, half from those of a topic, weighted by rarity."""
    random = np.random.default_rng(0)
    zipf = 1 / np.arange(1, features + 1)
    topics = [np.cumsum(zipf + zipf[random.permutation(features)]) for _ in range(components)]
    drawn = int(1.5 * ENTRIES)  # of which some are equal
    words = [
        np.unique(np.searchsorted(topics[topic], random.random(drawn) * topics[topic][-1], side="right"))
        for topic in random.integers(components, size=count)
    ]
    places = np.concatenate(words).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in words])]).astype(np.int32)
    rarity = 1 + np.log(count / np.maximum(np.bincount(places, minlength=features), 1))
    rows = scipy.sparse.csr_matrix((rarity[places], places, starts), shape=(count, features))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(1)))
    return scipy.sparse.csr_matrix(rows.multiply(1 / lengths), dtype=dtype)


def fits(X: Any, components: int, start: str) -> dict[str, Fit | str]:
    """Per contestant a fit, or the reason why there is none."""
    chosen: Any = X[np.random.default_rng(1).choice(X.shape[0], components, replace=False)]
    chosen = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
    given = start == "given"

    init: Any = chosen if given else "k-means++"
    once: Any = 1  # scikit-learn's stubs want a string

    def k_means(most: int) -> Any:
        return KMeans(components, init=init, n_init=once, max_iter=most, tol=0, random_state=0).fit(X)

    def vmf(e_step: str) -> Fit:
        return lambda most: VMFMixture(components, e_step=e_step, init=init, max_iter=most, tol=0, random_state=0).fit(X)

    def gaussian(most: int) -> Any:
        begin: dict[str, Any] = {}
        if given:
            variance = 2 * float((1 - (X[:1000] @ chosen.T).max(1)).mean()) / X.shape[1]
            begin = {
                "means_init": chosen,
                "weights_init": np.full(components, 1 / components, X.dtype),
                "precisions_init": np.full(components, 1 / variance, X.dtype),
            }
        return GaussianMixture(components, covariance_type="spherical", max_iter=most, tol=0, random_state=0, **begin).fit(X)

    return {K_MEANS: k_means, SOFT: vmf("soft"), HARD: vmf("hard"), GAUSSIAN: NO_SPARSE if scipy.sparse.issparse(X) else gaussian}


def compare(X: Any, components: int, start: str, iterations: int, repeats: int) -> Row:
    """All contestants in turn; fewer `iterations` where k-means ends before."""
    found = fits(X, components, start)
    cells = {name: Cell(note=fit if isinstance(fit, str) else "") for name, fit in found.items()}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        k_means = found[K_MEANS]
        assert not isinstance(k_means, str)
        own = k_means(iterations).n_iter_
        iterations = iterations if own == iterations else max(own - 1, 2)  # its last iteration ends without its last E-step
        for turn in range(repeats + 1):
            for name, fit in found.items():
                if isinstance(fit, str):
                    continue
                seconds, made = {}, {}
                for most in (
                    (1, iterations) if turn % 2 else (iterations, 1)
                ):  # so that neither always finds the memory that the other has left
                    began = time.process_time()
                    made[most] = fit(most).n_iter_
                    seconds[most] = time.process_time() - began
                if turn:  # the first is to warm up
                    cells[name].fit.seconds.append(seconds[iterations])
                    if made[iterations] > 1:
                        cells[name].iteration.seconds.append((seconds[iterations] - seconds[1]) / (made[iterations] - 1))
    return Row((X.shape[0], X.shape[1], components), str(X.dtype), start, iterations, cells)


def rows(*, quick: bool, repeats: int) -> list[Row]:
    found = []
    for make, places in ((dense, DENSE[:2] if quick else DENSE), (sparse, ((500, 1000, 5),) if quick else SPARSE)):
        for sizes in places:
            for dtype in DTYPES:
                X, small = make(*sizes, dtype), sizes[0] <= 1000
                for start in ("given", "own") if sizes in (*OWN_STARTS, *SPARSE) else ("given",):
                    found.append(compare(X, sizes[2], start, 20 if small else 8, (4 if small else 1) * repeats))
                    print(comparison([found[-1]]).splitlines()[-1], flush=True)
    return found


def _seconds(samples: Samples) -> str:
    return f"{1000 * samples.median:.3g} ms"


def comparison(found: list[Row]) -> str:
    """The table per iteration."""
    lines = [f"| n | p | k | dtype | {' | '.join(CONTESTANTS)} |", "|" + "---|" * (4 + len(CONTESTANTS))]
    for row in found:
        cells = []
        for name in CONTESTANTS:
            cell = row.cells[name]
            text = cell.note or "ended after one"
            if cell.iteration.seconds:
                text = _seconds(cell.iteration)
                if name != K_MEANS:
                    ratio = row.ratio(name)
                    text += f", **{ratio:.2f}**" if name == SOFT and ratio > GOAL else f", {ratio:.2f}"
            cells.append(text)
        lines.append(f"| {' | '.join(f'{size:,}' for size in row.sizes)} | {row.dtype} | {' | '.join(cells)} |")
    return "\n".join(lines)


def whole_fits(found: list[Row]) -> str:
    """The table per fit."""
    lines = [f"| n | p | k | dtype | start | iterations | {' | '.join(CONTESTANTS)} |", "|" + "---|" * (6 + len(CONTESTANTS))]
    for row in found:
        base = row.cells[K_MEANS].fit.median
        cells = [
            row.cells[name].note or f"{_seconds(row.cells[name].fit)}, {row.cells[name].fit.median / base:.2f}" for name in CONTESTANTS
        ]
        sizes = " | ".join(f"{size:,}" for size in row.sizes)
        lines.append(f"| {sizes} | {row.dtype} | {row.start} | {row.iterations} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(found: list[Row]) -> str:
    """How many rows reach the goal, and where the worst is."""
    ratios = {(*row.sizes, row.dtype): row.ratio(SOFT) for row in found}
    reached = sum(ratio <= GOAL for ratio in ratios.values())
    (n, p, k, dtype), worst = max(ratios.items(), key=lambda item: item[1])
    return (
        f"The soft E-step takes at most {GOAL:g} times the time of k-means in {reached} of {len(ratios)} rows; the others are in bold. "
        f"The largest ratio is {worst:.1f}, at n = {n:,}, p = {p}, k = {k}, {dtype}."
    )


def iteration(rows: DenseRows, start: Parameters, e_step: str) -> Call:
    """A call that makes one EM iteration from the same parameters each time."""
    maximiser = Maximiser(potential(dim=rows.features), tied=False, cap=1e5)
    steps = Iterations(maximiser, rows, None, e_step, max_iter=1, tol=0.0, min_weight=0.0, chunk_size=None)
    generator = torch.Generator().manual_seed(0)

    def call() -> None:
        scores = steps.scores(start)
        expectation = steps.expectation(scores, generator)
        scores.rounding()
        maximiser(expectation.statistics, start)

    return call


def products(values: torch.Tensor, directions: torch.Tensor, *, whole: bool) -> Call:
    """A call that makes the two products: of the whole matrix, or of the chunks that an iteration takes, with nothing between them."""
    rows, directions = DenseRows(values), directions.to(values.dtype)
    size = rows.count if whole else rows.chunk_rows(len(directions), None)

    def call() -> None:
        for start in range(0, rows.count, size):
            stop = min(start + size, rows.count)
            rows.sums(start, stop, rows.products(start, stop, directions))

    return call


def measure_products(count: int, features: int, components: int, dtype: str, repeats: int) -> dict[str, Samples]:
    values = torch.from_numpy(dense(count, features, components, dtype))
    means = values[:components].double()
    weights, rates = torch.full((components,), 1 / components).double(), torch.full((components,), float(features)).double()
    calls = {name: products(values, means, whole=name == BASES[0]) for name in BASES}
    calls |= {e_step: iteration(DenseRows(values), Parameters(weights, means, rates), e_step) for e_step in E_STEPS}
    samples = {name: Samples() for name in calls}
    with threadpool_limits(1):
        interleaved({name: Measurement(call, repeats, 2) for name, call in calls.items()}, samples)
    return samples


def beside_products(count: int, features: int, components: int, repeats: int) -> str:
    lines = [f"| dtype | {' | '.join((*BASES, *E_STEPS))} |", "|---|---|---|---|---|---|"]
    for dtype in DTYPES:
        samples = measure_products(count, features, components, dtype, repeats)
        base = samples[BASES[0]].median
        cells = [f"{1000 * samples[name].median:.0f} ms, **{samples[name].median / base:.2f}**" for name in (*BASES, *E_STEPS)]
        lines.append(f"| {dtype} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(arguments: argparse.Namespace) -> str:
    found = rows(quick=arguments.quick, repeats=arguments.repeats)
    given = [row for row in found if row.start == "given"]
    n, p, k = (1000, 16, 5) if arguments.quick else (100_000, 384, 100)
    versions = f"torch {torch.__version__.split('+')[0]}, scikit-learn {sklearn.__version__}, {platform.machine()}"
    return f"""# What a fit of a mixture costs

[`VMFMixture`][pairgrad.VMFMixture] beside scikit-learn's `KMeans(algorithm="lloyd")` and `GaussianMixture(covariance_type="spherical")`, on one thread
({versions}). All start from the same rows and take turns; times are CPU time, medians of at least {arguments.repeats}.

## Per iteration

In milliseconds, with the ratio to k-means. An iteration of k-means is one matrix product and a sum over the rows; a soft iteration of a mixture is two
products, an exponential for every row and component, and the solution for the concentrations.

{comparison(given)}

{verdict(given)} With 1,000 rows the time is that of small operations: k-means is one compiled loop, and a mixture evaluates the potential and
solves for k concentrations in every iteration. With 100,000 rows it is that of the products and exponentials, of which k-means has one and none.

## Per fit

The same fits as a whole, with reading, checking and labels, `n_init=1` and `tol=0`; with the ratio to k-means. "given": the same start for all; "own": each
makes its start as it does by default. A hard mixture may end earlier.

{whole_fits(found)}

## Beside the products

One iteration on n = {n:,} rows in p = {p} dimensions with k = {k} components, beside the two matrix products in it: of all rows at once, and
in the chunks that an iteration takes. In bold, the ratio to the two products, whose goal is at most {PRODUCTS_GOAL}.

{beside_products(n, p, k, arguments.repeats)}

Rows are taken in chunks that stay in a cache: the second product finds its rows there, and everything between the products stays there.
Written by `python -m benchmarks.mixture --write`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="a few small sizes")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = page(arguments)
    print(text)
    if arguments.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
