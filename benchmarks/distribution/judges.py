"""What results are worth: errors against ball arithmetic, and standard errors of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.distribution.places import BATCH, ENTROPY, ENTROPY_GRADIENT, FIT, KL, LOG_PROB, LOG_PROB_GRADIENT, SAMPLE, Given, Place
from pairgrad.ground.balls import flint, working_precision
from pairgrad.potentials.reference import Balls

_BITS = 300
_STANDARD_ERRORS = 5.0  # a right sampler is further away once in 1.7 million samples
_FEW = 30  # directions, below which the mean is not judged
_WRONG_FIT = 0.01  # relative error


@dataclass(frozen=True)
class Verdict:
    """`error` in eps, or for samples in standard errors; None where there is no such number. `wrong` results are listed by their `text`."""

    error: float | None
    wrong: bool
    text: str = ""


def judge(place: Place, data: Given, got: Any) -> Verdict | None:
    """What the result of a call is worth; None where it is not a number."""
    judges: dict[str, Callable[[Place, Given, Any], Verdict]] = {
        SAMPLE: _sample,
        LOG_PROB: _log_prob,
        BATCH: _log_prob,
        LOG_PROB_GRADIENT: _log_prob_gradient,
        ENTROPY: _entropy,
        ENTROPY_GRADIENT: _entropy_gradient,
        KL: _divergence,
        FIT: _fit,
    }
    if place.quantity not in judges:
        return None
    parts = [np.asarray(part) for part in (got if isinstance(got, tuple) else (got,))]
    for part in parts:
        if not (finite := np.isfinite(part)).all():
            kind = part[~finite].ravel()[0]
            return Verdict(None, True, f"{kind:g}" if finite.sum() == 0 else f"{kind:g} in {1 - finite.mean():.0%}")
    with working_precision(_BITS):
        return judges[place.quantity](place, data, got)


def _balls(place: Place) -> Balls:
    return Balls(Fraction(place.dim, 2) - 1, 40)


def _first(value: Any) -> Any:
    return flint().arb(float(np.ravel(value)[0]))


def _log_area(dim: int) -> Any:
    half = flint().arb(dim) / 2
    return flint().arb(2).log() + half * flint().arb.pi().log() - half.lgamma()


def _roundings(place: Place, got: Any, wanted: Any, terms: Any) -> Verdict:
    """The error in eps of the sum of the absolute values of the terms of the definition. Wrong is what has lost half of its digits."""
    eps = float(np.finfo(place.dtype).eps)
    error = float(abs(_first(got) - wanted) / terms) / eps
    return Verdict(error, error > eps**-0.5, f"off by {error * eps:.0e}")


def _log_prob(place: Place, data: Given, got: Any) -> Verdict:
    """Of the first direction; the others differ by the product with it."""
    k = _first(data.kappa)
    mu, x = np.atleast_2d(data.mu)[0], np.atleast_2d(data.x)[0]
    cosine = flint().arb(math.fsum(a * b for a, b in zip(mu.tolist(), x.tolist(), strict=True)))
    value, area = _balls(place).difference_ball(flint().arb(0), k), _log_area(place.dim)
    return _roundings(place, got, k * cosine - value - area, k * abs(cosine) + value + abs(area))


def _log_prob_gradient(place: Place, data: Given, got: Any) -> Verdict:
    """Of the gradient in the concentration. That in the vectors depends on how the density is continued off the sphere."""
    cosines = data.x.astype(np.longdouble) @ data.mu.astype(np.longdouble)
    slope = len(cosines) * _balls(place).slope_ball(_first(data.kappa))
    return _roundings(place, got[3], _first(cosines.sum()) - slope, _first(np.abs(cosines).sum()) + slope)


def _entropy(place: Place, data: Given, got: Any) -> Verdict:
    """Of the first distribution."""
    k, balls, area = _first(data.kappa), _balls(place), _log_area(place.dim)
    value, product = balls.difference_ball(flint().arb(0), k), k * balls.slope_ball(k)
    return _roundings(place, got, area + value - product, abs(area) + value + product)


def _entropy_gradient(place: Place, data: Given, got: Any) -> Verdict:
    k = _first(data.kappa)
    wanted = -k * _balls(place).curvature_ball(k)
    return _roundings(place, got[1], wanted, abs(wanted))


def _divergence(place: Place, data: Given, got: Any) -> Verdict:
    balls, k, other = _balls(place), _first(data.kappa), _first(data.other_kappa)
    slope = balls.slope_ball(k)
    square = sum(
        (flint().arb(a) - flint().arb(b)) ** 2
        for a, b in zip(*(np.atleast_2d(v)[0].tolist() for v in (data.mu, data.other_mu)), strict=True)
    )
    wanted = balls.difference_ball(k, other) - slope * (other - k) + other * slope * square / 2
    return _roundings(place, got, wanted, abs(wanted))


def _sample(place: Place, data: Given, got: Any) -> Verdict:
    """How many standard errors the mean cosine is away from the exact one."""
    if len(got) < _FEW:
        return Verdict(None, False)
    k, cosines = _first(data.kappa), got.astype(np.float64) @ data.mu.astype(np.float64)
    deviation = math.sqrt(float(_balls(place).curvature_ball(k)) / len(cosines))
    error = (float(cosines.mean()) - float(_balls(place).slope_ball(k))) / deviation
    return Verdict(abs(error), abs(error) > _STANDARD_ERRORS, f"mean cosine {error:+.1f} standard errors away")


def _fit(place: Place, data: Given, got: Any) -> Verdict:
    """The relative distance to the root of R(kappa) = |S| / n, by Newton's method in ball arithmetic."""
    wide = data.x.astype(np.longdouble)
    mean = (wide / np.sqrt((wide * wide).sum(-1, keepdims=True))).mean(0)
    high = mean.astype(np.float64)  # with what that leaves, each coordinate is the sum of two balls
    arb, parts = flint().arb, zip(high.tolist(), (mean - high).astype(np.float64).tolist(), strict=True)
    square: Any = sum((arb(a) + arb(b)) ** 2 for a, b in parts)
    r, balls = square.sqrt().mid(), _balls(place)
    root = place.dim * r / (1 - r * r)
    for _ in range(30):
        step = (balls.slope_ball(root) - r) / balls.curvature_ball(root)
        root = (root - step).mid()
        if abs(float(step)) < 1e-20 * float(root):
            break
    found, wanted = float(got), float(root)
    error = float(abs(arb(found) / root - 1))
    return Verdict(
        error / float(np.finfo(place.dtype).eps), error > _WRONG_FIT, f"{found:.3g} for {wanted:{'.0f' if wanted >= 100 else '.3g'}}"
    )
