r"""What rounding can do to the scores, losses and feature gradients of a learning state, sample by sample.

The squared radii come from a matrix product, whose error is bounded by \(\gamma_n = n u / (1 - n u)\) times the product of absolute values
[higham2002accuracy, Section 3.1], whatever the order of its sums. From there on the kernel's own lines run in `RunningArithmetic`. What follows, a
sum of exponentials, a logarithm and a product with the class rows, is bounded by hand, for every way in which `losses.fused` may cut the classes into
tiles and choose its reference logit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch

from pairgrad.certificates.running import FUNCTION, Running, RunningArithmetic
from pairgrad.losses.fused.plan import MARGIN, SMALLEST_TILE
from pairgrad.losses.options import Options
from pairgrad.losses.scores import plain_scores
from pairgrad.potentials import Potential, kernels, potential
from pairgrad.potentials.expansion import Expansion
from pairgrad.sphere.state import Classes

_TILE_ELEMENTS = 2**17
_KEPT_ELEMENTS = 2**22  # up to here the first pass over the classes is kept for the second
_DOUBLE = 2.0**-53


class Rows(NamedTuple):
    """Found for every sample, (B,) in float64."""

    path: torch.Tensor  # max_j |r_j - kappa_j|, at most
    score: torch.Tensor  # error of any score
    logit: torch.Tensor  # of any score plus log prior
    label: torch.Tensor  # of the label's
    loss: torch.Tensor  # itself
    doubt: torch.Tensor  # 1 - p_y
    rest: torch.Tensor  # 1 - the largest probability, at most
    evaluation: torch.Tensor  # error of the loss, from its logits as computed
    gradient: torch.Tensor  # error of the gradient, from probabilities and gains as they are
    gradient_size: torch.Tensor  # sum of the lengths of what is added up to the gradient
    prediction: torch.Tensor  # the class with the largest logit, as computed
    margin: torch.Tensor  # its distance to the next, as computed


class _Tile(NamedTuple):
    first: int
    score: Running
    logit: torch.Tensor  # -inf where the class cannot occur
    logit_error: torch.Tensor
    gain: torch.Tensor
    gain_error: torch.Tensor
    rate_error: torch.Tensor  # relative
    concentration: torch.Tensor
    path: torch.Tensor


@dataclass(frozen=True)
class StateRounding:
    """A batch against a fixed class state, everything in the working dtype and taken for exact; radii by eq. stable-delta.

    Args:
        options: how the scores are computed.
        features: (B, p).
        classes: (K, p), with the rates as the scores read them.
        log_prior: (K,) or None.
        prior_error: (K,), what was lost when the prior was converted to the working dtype.
        largest_gain: a bound of slope(x) / x over all x >= 0.
    """

    options: Options
    features: torch.Tensor
    labels: torch.Tensor
    classes: Classes
    log_prior: torch.Tensor | None
    prior_error: torch.Tensor | None
    largest_gain: float

    @property
    def pot(self) -> Potential:
        """The realization."""
        return self.options.potential

    @property
    def temperature(self) -> float:
        """tau."""
        return float(self.options.temperature)

    @property
    def ops(self) -> RunningArithmetic:
        """The arithmetic of the geometry, the sums and the exponentials."""
        return RunningArithmetic(self.features.dtype, self.features.device)

    def rows(self) -> Rows:
        tiles: Iterable[_Tile] = self  # computed anew each time they are gone through
        if self.features.shape[0] * len(self.classes.rates) <= _KEPT_ELEMENTS:
            tiles = list(tiles)
        return self._second(tiles, self._first(tiles))

    def __iter__(self) -> Iterator[_Tile]:
        num_classes = len(self.classes.rates)
        width = max(1, _TILE_ELEMENTS // max(len(self.features), 1))
        for first in range(0, num_classes, width):
            yield self._tile(first, min(first + width, num_classes))

    def _tile(self, first: int, last: int) -> _Tile:
        classes = self.classes.tile(first, last)
        squared, rate_error = self._squared(classes)
        score, gain = self._increment(classes.concentration, squared)
        kappa = classes.concentration.double()
        radius = (kappa * kappa + squared.middle - 2 * squared.error).clamp_min(0).sqrt()  # at most
        path = squared.size / (radius + kappa)
        path = torch.minimum(torch.nan_to_num(path, nan=0.0, posinf=torch.inf), self.reach[:, None])
        logit, error = score.middle, score.error
        if self.log_prior is not None:
            bias = self.log_prior[first:last]
            possible = torch.isfinite(bias)
            added = self.ops.number(torch.where(possible, bias, 0.0))
            if self.prior_error is not None:
                added = Running(added.middle, torch.where(possible, self.prior_error[first:last], 0.0), self.ops)
            total = score + added
            logit, error = torch.where(possible, total.middle, -torch.inf), torch.where(possible, total.error, 0.0)
        return _Tile(first, score, logit, error, gain.middle, gain.error, rate_error, kappa, path)

    @property
    def reach(self) -> torch.Tensor:
        """||f|| / tau, (B,)."""
        return torch.linalg.vector_norm(self.features.double(), dim=1) / self.temperature * (1 + 1e-12)

    def _squared(self, classes: Classes) -> tuple[Running, torch.Tensor]:
        """r^2 - kappa^2 (eq. stable-delta), and how far the rates are from kappa over the norm of the row."""
        ops, dim = self.ops, self.features.shape[1]
        features, rows, kappa = self.features.double(), classes.rows.double(), classes.concentration.double()
        norms = torch.linalg.vector_norm(rows, dim=1)
        directed = (norms > 0) & (kappa > 0)
        exact = torch.where(directed, kappa / torch.where(directed, norms, 1.0), 0.0)
        rate_error = torch.where(
            directed, (classes.rates.double() / torch.where(directed, exact, 1.0) - 1).abs() + (dim + 8) * _DOUBLE, 0.0
        )
        # squares of rows of this length leave the range: their norms may be anything
        extreme = (rows != 0).any(1) & (kappa > 0) & ~((norms > 1e-140) & (norms < 1e140))
        rate_error = torch.where(extreme, torch.inf, rate_error)
        factor = 2 * exact / self.temperature
        own = (features * features).sum(1, keepdim=True) / self.temperature**2
        sums = gamma(ops.unit, dim + 6)
        error = (features.abs() @ rows.abs().T) * (factor * (sums + rate_error)) + own * sums
        return Running((features @ rows.T) * factor + own, error, ops).plus(1), rate_error

    def _increment(self, concentration: torch.Tensor, squared: Running) -> tuple[Running, Running]:
        """Score and gain; the errors cover the logarithms that `vmf_scores` takes and the series that the fused losses take in their place."""
        dtype = self.pot.compute_dtype(self.features.dtype)
        ops: Any = RunningArithmetic(dtype, self.features.device)
        formulas = self.pot.formulas(dtype)
        a, squared = ops.number(concentration), Running(squared.middle, squared.error, ops)
        if not isinstance(formulas, Expansion):
            return self._exact_increment(ops, a, squared)
        score, gain = formulas.increment(ops, a, squared)
        given = ops.number(squared.middle)
        own = formulas.increment(ops, a, given)[0].error
        reach = float(self.reach.max())
        terms = kernels.series_terms(self.pot, reach, dtype)
        if terms is not None:
            series, other = formulas.increment(ops, a, squared, terms)
            # what the series leave out is below a quarter of a rounding of each (`Expansion.series_terms`), against s_b - s_a
            cut = ops.unit * squared.size / torch.hypot(a.middle, a.middle.new_tensor(float(formulas.centre)))
            score = Running(score.middle, torch.maximum(score.error, series.error + cut), ops)
            gain = Running(gain.middle, torch.maximum(gain.error, other.error), ops)
            own = torch.maximum(own, formulas.increment(ops, a, given, terms)[0].error + cut)
        # d score / d squared = gain / 2, so an error of the argument does this much; the last factor is for the roundings at the argument as computed
        gain = Running(gain.middle, gain.error.clamp_max(self.largest_gain), ops)
        by_slope = own + gain.size.clamp_max(self.largest_gain) / 2 * squared.error * (1 + 2.0**-8)
        return Running(score.middle, torch.minimum(score.error, by_slope), ops), gain

    def _exact_increment(self, ops: RunningArithmetic, a: Running, squared: Running) -> tuple[Running, Running]:
        """Of a realization that rounds the exact functions of the radius it is given: |dPhi/db| <= 1 and |d log(R / b) / d log b| <= 2."""
        b = ops.sqrt(ops.at_least(a * a + squared, 0.0))
        exact, double = potential(nu=self.pot.nu).formulas(torch.float64), RunningArithmetic(torch.float64, ops.device)
        assert isinstance(exact, Expansion)
        score, gain = exact.increment(cast("Any", double), a, squared)
        score = Running(score.middle, score.error + b.error, ops).plus(2)
        return score, Running(gain.middle, gain.error + gain.size * 2 * b.relative(), ops).plus(3)

    def _first(self, tiles: Iterable[_Tile]) -> dict[str, torch.Tensor]:
        """Maxima over all classes, and the label's own terms."""
        batch = len(self.features)
        found = {name: torch.zeros(batch, dtype=torch.float64, device=self.features.device) for name in ("path", "score", "error")}
        found["largest"] = torch.full_like(found["path"], -torch.inf)
        label = {name: torch.zeros_like(found["path"]) for name in ("logit", "error", "gain", "gain_error", "rate_error", "concentration")}
        best = torch.full((batch, 2), -torch.inf, dtype=self.features.dtype, device=self.features.device)
        prediction = torch.zeros_like(self.labels)
        for tile in tiles:
            last = tile.first + tile.logit.shape[1]
            found["path"] = torch.maximum(found["path"], tile.path.amax(1))
            found["score"] = torch.maximum(found["score"], tile.score.error.amax(1))
            found["error"] = torch.maximum(found["error"], tile.logit_error.amax(1))
            found["largest"] = torch.maximum(found["largest"], tile.logit.amax(1))
            here = (self.labels >= tile.first) & (self.labels < last)
            place = torch.where(here, self.labels - tile.first, 0)
            parts = (tile.logit, tile.logit_error, tile.gain, tile.gain_error, tile.rate_error, tile.concentration)
            for name, part in zip(label, parts, strict=True):
                at_label = part.expand(tile.logit.shape).gather(1, place[:, None])[:, 0]
                label[name] = torch.where(here, at_label, label[name])
            computed = plain_scores(self.features, self.classes.tile(tile.first, last), self.options, self.features.dtype)
            if self.log_prior is not None:
                computed = computed + self.log_prior[tile.first : last]
            highest = computed.argmax(1)
            prediction = torch.where(computed.amax(1) > best[:, 0], highest + tile.first, prediction)
            best = torch.cat([best, computed], 1).topk(2, 1).values
        margin = best[:, 0].double() - best[:, 1].double()
        return {**found, **{f"label_{name}": value for name, value in label.items()}, "prediction": prediction, "margin": margin}

    def _second(self, tiles: Iterable[_Tile], found: dict[str, torch.Tensor]) -> Rows:
        """Sums over all classes, weighted with the probabilities. The label is left out and put in by hand, as in `losses.fused`."""
        unit = self.ops.unit
        batch, num_classes = len(self.features), len(self.classes.rates)
        additions = gamma(unit, num_classes + 8 * math.ceil(num_classes / SMALLEST_TILE) + 8)
        reach, logit = self.reach, found["label_logit"]
        room = 2 * found["error"]  # between a logit here and the same logit as computed
        largest_bias = spread = 0.0
        if self.log_prior is not None:
            finite = self.log_prior[torch.isfinite(self.log_prior)].double()
            largest_bias, spread = float(finite.max()), float(finite.max() - finite.min())
        margin = MARGIN[self.features.dtype]
        # the reference logit of a fixed `top`, where the plan has one; bank losses know lengths to 0.1 %
        highest = reach + (largest_bias - margin)
        fixed = (highest > logit - room) & (2 * float(reach.max()) + spread <= 2.02 * margin)
        away = torch.maximum(found["largest"] - logit, torch.where(fixed, (highest - logit).abs(), 0.0)) + room

        zeros = torch.zeros(batch, dtype=torch.float64, device=self.features.device)
        others, distances, moved, weighted = zeros, zeros, zeros, zeros
        for tile in tiles:
            own = self.labels[:, None] == torch.arange(tile.first, tile.first + tile.logit.shape[1], device=self.labels.device)
            weight = torch.where(own, 0.0, torch.exp(tile.logit - found["largest"][:, None]))
            distance = torch.maximum((tile.logit - logit[:, None]).abs(), found["largest"][:, None] - tile.logit)
            distance = torch.maximum(distance, torch.where(fixed[:, None], (tile.logit - highest[:, None]).abs(), 0.0)) + room[:, None]
            distance = torch.where(weight > 0, distance, 0.0)
            parts = weight * (tile.concentration + reach[:, None])
            length = parts * tile.gain
            others, distances = others + weight.sum(1), distances + (weight * distance).sum(1)
            moved = moved + length.sum(1)
            error = length * (unit * distance + tile.rate_error) + parts * tile.gain_error
            weighted = weighted + torch.where(parts > 0, error, 0.0).sum(1)

        own = torch.exp(logit - found["largest"])
        total = others + own
        alone = others == 0
        doubt = others / total
        odds = torch.log(torch.where(alone, 1.0, others)) - (logit - found["largest"])
        loss = torch.where(alone, 0.0, torch.logaddexp(torch.zeros_like(odds), odds))
        of_sum = unit * distances / torch.where(alone, 1.0, others) + additions + (FUNCTION + 2) * unit
        of_odds = of_sum + (FUNCTION + 2) * unit * (odds.abs() + away)
        slack = torch.exp((of_odds + 2 * room).clamp_max(600.0))
        evaluation = torch.where(alone, 0.0, (doubt * slack).clamp_max(1.0) * of_odds + (2 * FUNCTION + 2) * unit * loss)

        share = unit * distances / total + additions + (FUNCTION + 6) * unit
        parts = doubt * (found["label_concentration"] + reach) / self.temperature
        at_label = parts * found["label_gain"]
        pushed = moved / total / self.temperature
        gradient = (weighted / total / self.temperature + pushed * (additions + share + (FUNCTION + 8) * unit)) * slack
        of_label = of_odds + found["label_rate_error"] + (2 * FUNCTION + 8) * unit
        size = (pushed + at_label) * slack
        label_error = torch.where(parts > 0, (at_label * of_label + parts * found["label_gain_error"]) * slack, 0.0)
        gradient = gradient + label_error + 8 * unit * size
        # Weights, their products with gains and rates, and the terms of the last product may be flushed to zero, each losing less than `tiny`. Where the
        # reference logit is above all logits, everything is divided by a small total in the end.
        raised = torch.exp(torch.where(fixed, highest - found["largest"], 0.0).clamp(0.0, 600.0))
        lost = num_classes * self.ops.tiny * raised
        norms = torch.linalg.vector_norm(self.classes.rows.double(), dim=1)
        terms = float(self.classes.concentration.double().max() + norms.max()) + self.features.shape[1] ** 0.5
        lost_terms = lost * (1 + terms + 2 * reach) / self.temperature
        return Rows(
            found["path"],
            found["score"],
            found["error"],
            found["label_error"],
            loss,
            doubt,
            torch.where(logit == found["largest"], doubt, (total - 1) / total + num_classes * 2 * _DOUBLE),
            evaluation + lost,
            gradient + lost_terms,
            size,
            found["prediction"],
            found["margin"],
        )


def gamma(unit: float, roundings: int) -> float:
    """n u / (1 - n u): relative to the sum of absolute values, the error of a sum of n + 1 numbers or of an inner product of n pairs, in any order."""
    spent = roundings * unit
    return spent / (1 - spent) if spent < 1 else math.inf
