r"""The two steps of EM for a mixture of von Mises-Fisher distributions.

With \(\Phi\) the potential (value(0) = 0), component j has log-density \(\kappa_j \mu_j^\top x - \Phi(\kappa_j) - \log|S^{p-1}|\). The E-step needs one
matrix product, of rows with \(\kappa_j\mu_j\), and the M-step another, of shares with rows: \(S_j = \sum_i w_i r_{ij} x_i\), \(N_j = \sum_i w_i r_{ij}\).
Then \(\mu_j = S_j/\lVert S_j\rVert\), and \(\kappa_j\) is where \(\Phi' = \lVert S_j\rVert / N_j\).

The likelihood never falls because \(\Phi'\) in the M-step is the derivative of the \(\Phi\) in the likelihood: the concentration then maximises what the
next E-step measures. A closed form [banerjee2005clustering], or a ratio that is not the derivative of the computed value, maximises something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from pairgrad.ground.devices import widest
from pairgrad.mixture.rows import Rows
from pairgrad.potentials import Potential

E_STEPS = ("soft", "hard", "stochastic")
_WARM_STEPS = 3
_WARM_ENOUGH = 1e-6


@dataclass(frozen=True)
class Parameters:
    """Shares, directions and concentrations of the components: float64, on the CPU."""

    weights: torch.Tensor
    directions: torch.Tensor
    rates: torch.Tensor


class Statistics(NamedTuple):
    """What the M-step needs, float64 on the CPU: the weight N (k,) and the weighted sum of rows S (k, p) of every component."""

    weights: torch.Tensor
    sums: torch.Tensor


class Expectation(NamedTuple):
    """An E-step: the objective per unit of weight, its statistics, and the log-density of every row without the constant of the sphere."""

    objective: float
    statistics: Statistics
    rows: torch.Tensor


class Scores:
    """Joint log-densities log(w_j f_j(x)), without the constant of the sphere, as one product and a bias, in the dtype and place of the rows."""

    def __init__(self, potential: Potential, parameters: Parameters, rows: Rows, chunk_size: int | None) -> None:
        self.rows = rows
        self.parameters = parameters
        self.offsets = parameters.weights.log() - potential.value(parameters.rates)
        self.bias = self.offsets.to(rows.dtype).to(rows.device)
        self.columns = rows.columns(parameters.rates[:, None] * parameters.directions)
        self.components = parameters.rates.numel()
        self.chunk_size = chunk_size

    def chunks(self) -> Iterator[tuple[int, int, torch.Tensor]]:
        """(start, stop, scores (rows, components)) per chunk; the memory of the scores is used again for the next."""
        buffer = None
        for start, stop in self.rows.chunks(self.components, self.chunk_size):
            if buffer is None:
                buffer = torch.empty(stop - start, self.components, dtype=self.rows.dtype, device=self.rows.device)
            yield start, stop, self.rows.products(start, stop, self.columns, self.bias, out=buffer[: stop - start])

    def rounding(self) -> float:
        r"""How far the computed objective per unit of weight may lie from the exact one at these parameters.

        E-step and M-step are maximisations, so errors in shares, sums, directions and concentrations enter squared, and what remains is the evaluation of
        the objective. A score is a product over p features plus a bias \(b_j\). The terms of the product add up to at most \(\kappa_j\) in absolute
        value, so with unit roundoff u its error is about \(\sqrt p\,u\,\kappa_j\) (independent roundings), and the roundings of \(\kappa_j\mu_j\), of the
        bias, of their sum and of the logarithm of the sum over components are a handful more, of \(\kappa_j + |b_j| + 1\). A log-density has the average
        of these errors over its posterior, and the objective the average over rows: that by component weight. In all
        \(u(\sqrt p + 8)\sum_j w_j(\kappa_j + |b_j| + 1)\).
        """
        weights, rates = self.parameters.weights, self.parameters.rates
        sizes = torch.where(weights > 0, weights * (rates + self.offsets.abs() + 1), 0.0)
        return torch.finfo(self.rows.dtype).eps / 2 * (math.sqrt(self.rows.features) + 8) * float(sizes.sum())


def expect(scores: Scores, weights: torch.Tensor | None, e_step: str = "soft", generator: torch.Generator | None = None) -> Expectation:
    """Shares of the rows in the components, summed up.

    `"soft"`: posterior probabilities; the objective is the log-likelihood. `"hard"`: everything to the likeliest component; the objective is the
    classification log-likelihood, of rows and labels together. `"stochastic"`: everything to a component drawn from the posterior; the objective is
    the log-likelihood.
    """
    rows, k = scores.rows, scores.components
    sums = torch.zeros(k, rows.features, dtype=widest(rows.device), device=rows.device)
    masses = torch.zeros(k, dtype=sums.dtype, device=rows.device)
    densities = torch.zeros(rows.count, dtype=rows.dtype, device=rows.device)
    total = torch.zeros((), dtype=sums.dtype, device=rows.device)
    buffer = None
    for start, stop, joint in scores.chunks():
        if buffer is None:
            buffer = torch.empty_like(joint)
        shares = buffer[: stop - start]
        highest, likeliest = joint.max(1) if e_step == "hard" else (joint.amax(1), None)
        torch.softmax(joint, 1, out=shares)
        density = torch.sub(highest, shares.amax(1).log(), out=densities[start:stop])  # the largest share is exp(highest - density)
        gained = density
        if likeliest is not None:
            shares.zero_().scatter_(1, likeliest[:, None], 1.0)
            gained = highest
        elif e_step == "stochastic":
            drawn = _drawn(shares, generator)
            shares.zero_().scatter_(1, drawn, 1.0)
        else:
            # What is below eps^2 changes no sum, but subnormal numbers make the product below ten times slower.
            torch.threshold_(shares, torch.finfo(shares.dtype).eps ** 2, 0.0)
        if weights is None:
            total += gained.sum(dtype=sums.dtype)
        else:
            own = weights[start:stop]
            total += torch.dot(own, gained.to(sums.dtype))
            shares.mul_(own.to(shares.dtype)[:, None])
        masses += shares.sum(0)
        sums += rows.sums(start, stop, shares)
    whole = rows.count if weights is None else float(weights.sum())
    return Expectation(float(total) / whole, Statistics(masses.cpu().double(), sums.cpu().double()), densities)


def _drawn(shares: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """A component per row, drawn by its shares: (rows, 1)."""
    edges = shares.cumsum(1)
    end = edges[:, -1:]
    points = torch.rand(end.shape, dtype=end.dtype, device=end.device, generator=generator) * end
    points = torch.minimum(points, torch.nextafter(end, torch.zeros_like(end)))  # a product may round up to the end, where no component is
    return torch.searchsorted(edges, points, right=True)


@dataclass(frozen=True)
class Maximiser:
    """The M-step.

    Args:
        potential: whose value is in the likelihood and whose slope is inverted here.
        tied: one concentration for all components.
        cap: the largest concentration. The likelihood is concave in a concentration, so the nearest allowed value is the best allowed one.
    """

    potential: Potential
    tied: bool
    cap: float

    def __call__(self, statistics: Statistics, previous: Parameters) -> Parameters:
        """Parameters; a component whose rows cancel out has concentration 0 and keeps its `previous` direction."""
        masses, sums = statistics
        tiny = torch.finfo(torch.float64).tiny
        lengths = torch.linalg.vector_norm(sums, dim=1)
        directions = torch.where(lengths[:, None] > 0, sums / lengths.clamp_min(tiny)[:, None], previous.directions)
        if self.tied:
            resultants = (lengths.sum() / masses.sum()).expand_as(masses).contiguous()
        else:
            resultants = torch.where(masses > 0, lengths / masses.clamp_min(tiny), 0.0)
        rates = self.rates(resultants.clamp(max=1.0), previous.rates)  # coincident rows exceed 1 by rounding
        return Parameters(masses / masses.sum(), directions, rates.clamp(max=self.cap))

    def rates(self, resultants: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        r"""Concentrations whose slopes are the resultant lengths.

        EM changes concentrations by little, so one or two of Newton's steps from those before do what `Potential.concentration` needs four for. They are
        for \(R/(1-R^2)\), which is almost linear in \(\kappa\), with \(R' = 1 - R^2 - (p-1)R/\kappa\): a step of less than 1e-6 leaves an error of about
        1e-12, which the likelihood sees squared. Where there are no three such steps, or no concentration before, it is the whole way.
        """
        if bool(((near > 0) & (resultants > 0) & (resultants < 1)).all()):
            target = resultants / ((1 - resultants) * (1 + resultants))
            x, across = near, float(2 * self.potential.nu + 1)
            for _ in range(_WARM_STEPS):
                rest = self.potential.complement(x)
                slope, width = 1 - rest, rest * (2 - rest)
                step = (target * width - slope) * width / ((width - across / x * slope) * (1 + slope * slope))
                x = torch.maximum(x + step, x / 8)
                if bool((step.abs() <= _WARM_ENOUGH * x).all()):
                    return x
        return self.potential.concentration(resultants)
