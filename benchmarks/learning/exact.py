"""Scores, their gradients and the loss in ball arithmetic: tensors are taken for the exact numbers they hold, and rounded only when an error is formed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import flint
import torch

from pairgrad.potentials.reference import Balls

Ball = Any
_BITS = 160


@dataclass(frozen=True)
class Exact:
    """q_ij = Phi(r_ij) - Phi(kappa_j), and what its gradient in f_i is made of: gain R(r) / r, direction kappa mu + f / tau."""

    score: list[list[Ball]]
    gain: list[list[Ball]]
    resultant: list[list[list[Ball]]]
    temperature: Ball

    @staticmethod
    def of(features: torch.Tensor, mean_direction: torch.Tensor, concentration: torch.Tensor, temperature: float) -> Exact:
        """mean direction = row / norm, exactly; temperature: the double that is passed."""
        before, flint.ctx.prec = flint.ctx.prec, _BITS
        try:
            return _exact(features, mean_direction, concentration, temperature)
        finally:
            flint.ctx.prec = before

    def gradient(self, i: int, j: int) -> torch.Tensor:
        """dq_ij / df_i in float64, every coordinate right to rounding."""
        factor = self.gain[i][j] / self.temperature
        return torch.tensor([float(factor * coordinate) for coordinate in self.resultant[i][j]], dtype=torch.float64)

    def scores(self) -> torch.Tensor:
        return torch.tensor([[float(q) for q in row] for row in self.score], dtype=torch.float64)

    def loss(self, i: int, label: int, log_prior: list[float]) -> tuple[float, torch.Tensor]:
        """-log p_y of row i, and its gradient in f_i."""
        terms = self.terms(i, label, log_prior)
        return float(terms.loss), torch.tensor([float(x) for x in terms.gradient], dtype=torch.float64)

    def terms(self, i: int, label: int, log_prior: list[float]) -> Terms:
        """Everything the loss of row i consists of, as balls."""
        before, flint.ctx.prec = flint.ctx.prec, _BITS
        try:
            logits = [q + flint.arb(b) for q, b in zip(self.score[i], log_prior, strict=True)]
            odds = [(z - logits[label]).exp() for z in logits]
            others = sum((o for j, o in enumerate(odds) if j != label), start=flint.arb(0))
            weights = [(o / (1 + others)) if j != label else -others / (1 + others) for j, o in enumerate(odds)]
            factors = [w * g / self.temperature for w, g in zip(weights, self.gain[i], strict=True)]
            dim = len(self.resultant[i][0])
            gradient = [sum((f * self.resultant[i][j][d] for j, f in enumerate(factors)), start=flint.arb(0)) for d in range(dim)]
            return Terms(logits, [o / (1 + others) for o in odds], others.log1p(), gradient)
        finally:
            flint.ctx.prec = before


class Terms(NamedTuple):
    """Of one row, as balls."""

    logits: list[Ball]
    probabilities: list[Ball]
    loss: Ball
    gradient: list[Ball]


def _exact(features: torch.Tensor, mean_direction: torch.Tensor, concentration: torch.Tensor, temperature: float) -> Exact:
    dim = features.shape[1]
    balls = Balls(Fraction(dim, 2) - 1, 25)
    tau = flint.arb(temperature)
    scaled = [[flint.arb(x) / tau for x in row] for row in features.tolist()]
    centres = []
    for row, kappa in zip(mean_direction.tolist(), concentration.tolist(), strict=True):
        exact = [flint.arb(x) for x in row]
        norm = sum((x * x for x in exact), start=flint.arb(0)).sqrt()
        centres.append([flint.arb(kappa) * x / norm for x in exact])
    score, gain, resultant = [], [], []
    for row in scaled:
        vectors = [[x + m for x, m in zip(row, centre, strict=True)] for centre in centres]
        # midpoints, off by 1e-45: python-flint takes minutes over the Bessel functions of some balls of that width
        radii = [sum((x * x for x in vector), start=flint.arb(0)).sqrt().mid() for vector in vectors]
        score.append([balls.difference_ball(flint.arb(k), r) for k, r in zip(concentration.tolist(), radii, strict=True)])
        gain.append([balls.slope_ball(r) / r for r in radii])
        resultant.append(vectors)
    return Exact(score, gain, resultant, tau)
