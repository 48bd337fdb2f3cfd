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

import numpy as np
import torch

from pairgrad.ground.devices import widest
from pairgrad.mixture.rows import Rows
from pairgrad.potentials import Potential

E_STEPS = ("soft", "hard", "stochastic")
_LN2 = math.log(2)
_SPREADS = {torch.float32: 100, torch.float64: 900}  # powers of 2 that are normal numbers, and their products with shares and rows
_WARM_STEPS = 3
_HALLEY_ENOUGH, _NEWTON_ENOUGH = 5e-5, 1e-6
_SECOND_DERIVATIVE = 1e6  # concentrations below this have one that is right to a few digits


@dataclass(frozen=True)
class Parameters:
    """Shares, directions and concentrations of the components: float64, on the CPU. And where an M-step has evaluated one minus the slope to find the
    concentrations, which are near: there, and what it is.
    """

    weights: torch.Tensor
    directions: torch.Tensor
    rates: torch.Tensor
    known: tuple[np.ndarray, np.ndarray] | None = None


class Statistics(NamedTuple):
    """What the M-step needs, float64 on the CPU: the weight N (k,) and the weighted sum of rows S (k, p) of every component."""

    weights: torch.Tensor
    sums: torch.Tensor


class Expectation(NamedTuple):
    """An E-step: the objective per unit of weight, and its statistics."""

    objective: float
    statistics: Statistics


class Scores:
    """Joint log-densities log(w_j f_j(x)), without the constant of the sphere and less a `shift`, to the base 2: one product and a bias, in the dtype and place
    of the rows. The base is 2 because `exp2` takes half the time of `exp`. The shift is the highest score that is possible, if all scores are then
    so near to 0 that their powers are normal numbers, and otherwise 0; without it, powers are relative to the highest score of their row.
    """

    def __init__(self, potential: Potential, parameters: Parameters, rows: Rows, chunk_size: int | None) -> None:
        self.rows = rows
        self.parameters = parameters
        weights, rates = parameters.weights.numpy(), parameters.rates.numpy()
        with np.errstate(divide="ignore"):
            self.offsets = np.log(weights) - potential.value(parameters.rates).numpy()
        top = float((rates + self.offsets).max())
        # As a bias is of no more than twice the size that `rounding` supposes, its rounding is within the bound there.
        near = (np.abs(self.offsets - top) <= 2 * (rates + np.abs(self.offsets) + 1)).all()
        self.shifted = bool(near) and top - float((self.offsets - rates).min()) < _SPREADS[rows.dtype] * _LN2
        self.shift = top if self.shifted else 0.0
        self.bias = torch.from_numpy((self.offsets - self.shift) / _LN2).to(rows.dtype).to(rows.device)
        self.directions = ((parameters.rates / _LN2)[:, None] * parameters.directions).to(rows.dtype).to(rows.device)
        self.components = rates.size
        self.chunk_size = chunk_size

    def chunks(self) -> Iterator[tuple[int, int, torch.Tensor]]:
        """(start, stop, scores (components, rows)) per chunk; the memory of the scores is used again for the next."""
        out = None
        for start, stop in self.rows.chunks(self.components, self.chunk_size):
            if out is None or out.shape[1] != stop - start:
                out = torch.empty(self.components, stop - start, dtype=self.rows.dtype, device=self.rows.device)
            yield start, stop, self.rows.products(start, stop, self.directions, self.bias, out)

    def powers(self, joint: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores (components, rows) become powers of 2, in their memory. Returns the log-densities of the rows, less the shift, and the sums of the powers.

        Components come first because reductions and operations with a number per row are then along contiguous memory: with ten components they take a
        tenth of the time.
        """
        if self.shifted:
            whole = joint.exp2_().sum(0)
            return whole.log2().mul_(_LN2), whole
        highest = joint.amax(0)
        whole = joint.sub_(highest).exp2_().sum(0)
        return highest.add_(whole.log2()).mul_(_LN2), whole

    def densities(self) -> torch.Tensor:
        """The log-density of every row, without the constant of the sphere."""
        return torch.cat([self.powers(joint)[0] for _, _, joint in self.chunks()]).add_(self.shift)

    def rounding(self) -> float:
        r"""How far the computed objective per unit of weight may lie from the exact one at these parameters.

        E-step and M-step are maximisations, so errors in shares, sums, directions and concentrations enter squared, and what remains is the evaluation of
        the objective. A score is a product over p features plus a bias \(b_j\). The terms of the product add up to at most \(\kappa_j\) in absolute
        value, so with unit roundoff u its error is about \(\sqrt p\,u\,\kappa_j\) (independent roundings), and the roundings of \(\kappa_j\mu_j\), of the
        bias, of their sum and of the logarithm of the sum over components are a handful more, of \(\kappa_j + |b_j| + 1\). A log-density has the average
        of these errors over its posterior, and the objective the average over rows: that by component weight. In all
        \(u(\sqrt p + 8)\sum_j w_j(\kappa_j + |b_j| + 1)\).
        """
        weights, rates = self.parameters.weights.numpy(), self.parameters.rates.numpy()
        held = weights > 0
        sizes = weights[held] * (rates + np.abs(self.offsets) + 1)[held]
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
    total = torch.zeros((), dtype=sums.dtype, device=rows.device)
    for start, stop, joint in scores.chunks():
        own = None if weights is None else weights[start:stop]
        if e_step == "hard":
            gained = joint.amax(0)
            shares = only_highest(joint, gained)
            gained.mul_(_LN2)
        else:
            gained, whole = scores.powers(joint)
            shares = joint
            if e_step == "stochastic":
                drawn = _drawn(shares, generator)
                shares.zero_().scatter_(0, drawn[None], 1.0)
            else:
                if not scores.shifted:
                    # What is below eps^2 changes no sum, but subnormal numbers make the product below ten times slower.
                    torch.threshold_(shares, torch.finfo(shares.dtype).eps ** 2, 0.0)
                shares.mul_(whole.reciprocal_())
        if own is None:
            total += gained.sum(dtype=sums.dtype)
        else:
            total += torch.dot(own, gained.to(sums.dtype))
            shares.mul_(own.to(shares.dtype))
        masses += shares.sum(1)
        sums += rows.sums(start, stop, shares)
    whole = rows.count if weights is None else float(weights.sum())
    return Expectation(float(total) / whole + scores.shift, Statistics(masses.cpu().double(), sums.cpu().double()))


def only_highest(joint: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """1 where a score is the highest of its row, 0 elsewhere, in the memory of the scores; of equal ones the first gets the row."""
    torch.eq(joint, highest, out=joint)
    return joint if int(joint.sum()) == highest.numel() else joint.mul_(joint.cumsum(0) == 1)


def _drawn(shares: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """A component per row, drawn by its shares (components, rows), up to a factor: (rows,)."""
    edges = shares.cumsum(0)
    end = edges[-1]
    points = torch.rand(end.shape, dtype=end.dtype, device=end.device, generator=generator) * end
    points = torch.minimum(points, torch.nextafter(end, torch.zeros_like(end)))  # a product may round up to the end, where no component is
    return edges.le(points).sum(0)


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
        masses, sums = (part.numpy() for part in statistics)  # arrays: for so few numbers, operations on tensors take three times as long
        lengths = np.sqrt((sums * sums).sum(1))
        known = lengths > 0
        directions = sums / np.where(known, lengths, 1.0)[:, None]
        if not known.all():
            directions[~known] = previous.directions.numpy()[~known]
        if self.tied:
            resultants, near = lengths.sum(keepdims=True) / masses.sum(), previous.rates.numpy()[:1]
        else:
            resultants, near = lengths / np.where(masses > 0, masses, np.inf), previous.rates.numpy()
        rates, known = self.rates(np.minimum(resultants, 1.0), near, previous.known)  # coincident rows exceed 1 by rounding
        rates = np.minimum(rates, self.cap).repeat(masses.size if self.tied else 1)
        return Parameters(torch.from_numpy(masses / masses.sum()), torch.from_numpy(directions), torch.from_numpy(rates), known)

    def rates(
        self, resultants: np.ndarray, near: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None = None
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
        r"""Concentrations whose slopes are the resultant lengths, from those before, and where one minus the slope is now known.

        EM changes concentrations by little, so one or two of Halley's steps from those before do what `Potential.concentration` needs four for. They are
        for \(R/(1-R^2)\), which is almost linear in \(\kappa\), with \(R' = 1 - R^2 - (p-1)R/\kappa\) and the derivative of that: a step of less than
        5e-5 leaves an error of about 1e-12, which the likelihood sees squared. For large \(\kappa\) the second derivative is lost to rounding, and the
        steps are Newton's, of which the last must be less than 1e-6. Where there are no three such steps, or no concentration before, it is the whole way.
        The first step is from where the slope was last evaluated, so that most iterations evaluate it once.
        """
        if ((near > 0) & (resultants > 0) & (resultants < 1)).all():
            with np.errstate(all="ignore"):  # a step that is not a number is not accepted
                found = self._from_near(resultants, near, known)
            if found is not None:
                return found
        return self.potential.concentration(torch.from_numpy(resultants)).numpy(), None

    def _from_near(
        self, resultants: np.ndarray, near: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]] | None:
        target = resultants / ((1 - resultants) * (1 + resultants))
        across = float(2 * self.potential.nu + 1)
        x, rest = near, None
        if known is not None:
            x, rest = known
        for _ in range(_WARM_STEPS):
            if rest is None:
                rest = self.potential.complement(torch.from_numpy(x)).numpy()
            slope, width = 1 - rest, rest * (2 - rest)
            square, ratio = slope * slope, slope / x
            first = width - across * ratio
            second = -2 * slope * first - across * (first - ratio) / x
            newton = (target * width - slope) * width / (first * (1 + square))
            bend = newton * (first * slope * (3 + square) / (width * (1 + square)) + second / (2 * first))
            halley = x < _SECOND_DERIVATIVE
            step = newton / (1 + np.where(halley, np.clip(bend, -0.5, 0.5), 0.0))
            found = np.maximum(x + step, x / 8)
            if (np.abs(step) <= np.where(halley, _HALLEY_ENOUGH, _NEWTON_ENOUGH) * found).all():
                return found, (x, rest)
            x, rest = found, None
        return None
