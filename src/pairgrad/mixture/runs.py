"""One run of EM: iterations, convergence, components that are placed anew, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from pairgrad.mixture.em import Expectation, Maximiser, Parameters, Scores, Statistics, expect
from pairgrad.mixture.rows import Rows
from pairgrad.mixture.start import light, reseed
from pairgrad.sphere.area import log_area

RESEEDS_PER_COMPONENT = 3  # on average, per run; then light components are left alone
PATIENCE = 10  # iterations of the stochastic E-step without a better likelihood


@dataclass
class Run:
    """Where a run stands: the parameters it would return now, and what led to them."""

    parameters: Parameters
    statistics: Statistics | None = None  # of the E-step at these parameters
    objective: float = -float("inf")  # at these parameters
    curve: list[float] = field(default_factory=list)
    converged: bool = False
    iterations: int = 0
    reseeded: int = 0
    monotone: bool = True


@dataclass(frozen=True)
class Progress:
    """Lines about the iterations, for those who asked for them."""

    every: int | None
    number: int
    objective: str = "log-likelihood"
    began: float = field(default_factory=time.perf_counter)

    def report(self, iteration: int, objective: float, change: float | None, note: str = "") -> None:
        if self.every is not None and iteration % self.every == 0:
            self._line(iteration, objective, change, note)

    def end(self, run: Run) -> None:
        if self.every is not None:
            note = "converged" if run.converged else "stopped"
            self._line(run.iterations, run.objective, None, note)

    def _line(self, iteration: int, objective: float, change: float | None, note: str) -> None:
        step = "" if change is None else f"  change {change:+.3e}"
        seconds = time.perf_counter() - self.began
        line = f"VMFMixture  run {self.number}  iteration {iteration:4d}  {self.objective} {objective:.8g}{step}  {seconds:.2f} s  {note}"
        print(line.rstrip())


@dataclass(frozen=True)
class Iterations:
    """EM on some rows, until the objective rises by no more than `tol`."""

    maximiser: Maximiser
    rows: Rows
    weights: torch.Tensor | None
    e_step: str
    max_iter: int
    tol: float
    min_weight: float
    chunk_size: int | None

    def scores(self, parameters: Parameters) -> Scores:
        return Scores(self.maximiser.potential, parameters, self.rows, self.chunk_size)

    def expectation(self, scores: Scores, generator: torch.Generator | None) -> Expectation:
        return expect(scores, self.weights, self.e_step, generator)

    def run(self, run: Run, generator: torch.Generator | None, progress: Progress) -> None:
        """Changes `run` as it goes, so that an interrupted run leaves what it had.

        Every E-step measures the parameters that it was given: those of the last M-step, or the start. With the stochastic E-step they are kept only if
        they are better than those kept before: of fewer components that are too light, or as few and a higher objective. Otherwise that goes without
        saying, up to rounding.
        """
        parameters = run.parameters
        best = (-math.inf, -math.inf)
        before: tuple[float, float] | None = None  # the objective before the last M-step and its rounding, where they can be compared
        stale, area = 0, log_area(self.rows.features)
        while True:
            scores = self.scores(parameters)
            expectation, rounding = self.expectation(scores, generator), scores.rounding()
            objective = expectation.objective - area
            run.curve.append(objective)
            change = None if before is None else objective - before[0]
            if before is not None and objective < before[0] - before[1] - rounding:
                run.monotone = False
            worth = (-len(self.too_light(parameters)), objective)
            stale = 0 if worth > (best[0], best[1] + self.tol) else stale + 1
            if self.e_step != "stochastic" or worth > best:
                best = worth
                run.parameters, run.statistics, run.objective = parameters, expectation.statistics, objective
            left = max(RESEEDS_PER_COMPONENT * len(parameters.weights) - run.reseeded, 0)  # attempts to place components anew
            placed = light(expectation.statistics.weights, self.min_weight, self.rows.dtype)[:left]
            still = stale >= PATIENCE if self.e_step == "stochastic" else change is not None and change <= self.tol
            run.converged = still and not placed
            progress.report(run.iterations, objective, change, "placing components anew" if placed else "")
            if run.converged or run.iterations >= self.max_iter:
                return
            statistics = expectation.statistics
            if placed:
                run.reseeded += len(placed)
                statistics = reseed(statistics, placed, scores.densities(), self.rows, self.weights)
            parameters = self.maximiser(statistics, parameters)
            run.iterations += 1
            before = None if placed else (objective, rounding)

    def rank(self, run: Run) -> tuple[int, int, float]:
        """Runs are compared by this: first the fewest components that are too light, then the fewest at the largest concentration, whose likelihood is as
        high as the cap makes it, then the objective.
        """
        return -len(self.too_light(run.parameters)), -len(self.capped(run)), run.objective

    def too_light(self, parameters: Parameters) -> list[int]:
        return light(parameters.weights, self.min_weight, self.rows.dtype)

    def capped(self, run: Run) -> list[int]:
        return (run.parameters.rates >= self.maximiser.cap).nonzero().squeeze(1).tolist()


def complaints(run: Run, iterations: Iterations) -> Iterator[str]:
    """What there is to warn about when a run is over, each with what to do."""
    if not run.converged:
        change = run.curve[-1] - run.curve[-2]
        yield (
            f"EM did not converge within max_iter={iterations.max_iter} iterations: the last one changed the objective by {change:.2g}, and "
            f"tol={iterations.tol:g}. Raise max_iter or tol, or try another init."
        )
    if capped := iterations.capped(run):
        yield (
            f"Components {capped} have the largest concentration allowed, max_concentration={iterations.maximiser.cap:g}: their rows coincide, or nearly. "
            "Use fewer components, a larger min_weight or tied=True, or raise max_concentration if the rows are that concentrated."
        )
    if lost := iterations.too_light(run.parameters):
        yield (
            f"Components {lost} are empty or lighter than min_weight={iterations.min_weight:g}, after {run.reseeded} attempts to place components anew: "
            "the rows do not support that many. Use fewer components, or a smaller min_weight."
        )
