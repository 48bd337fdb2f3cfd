"""From a resultant length to a concentration: the estimators, and the rules for the lengths they are not made for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from pairgrad.ground.checks import integer_at_least, one_of, real_number
from pairgrad.potentials import Potential, potential

ESTIMATORS = ("closed-form", "mle")
ABOVE_ONE = ("cap", "error", "normalize")
SMALL_SAMPLES = ("plain", "unbiased")


@dataclass(frozen=True)
class ConcentrationRule:
    """kappa as a function of the resultant length R = ||S|| / n and of the count n (eq. released-state).

    Args:
        dim: feature dimension p.
        estimator: `"closed-form"`, p R / (1 - R^2) [banerjee2005clustering]; or `"mle"`, the kappa whose mean resultant length is R.
        cap: the largest concentration. R >= 1, which no mean of distinct unit vectors has, gets the cap.
        small_samples: `"plain"` takes R as it is; `"unbiased"` takes the root of (n R^2 - 1) / (n - 1), whose expectation is the squared
            length of the true mean (lem. finite-state, for unit features), and 0 for a single sample, which says nothing about spread.
    """

    dim: int
    estimator: str = "closed-form"
    cap: float = 1e5
    small_samples: str = "plain"
    _potential: Potential = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        one_of("estimator", self.estimator, ESTIMATORS)
        one_of("small_samples", self.small_samples, SMALL_SAMPLES)
        object.__setattr__(self, "_potential", potential(self.dim))  # made at once: a compiled region cannot
        expected = "a positive finite number, the largest concentration, at most 1e18"  # whose square is a number in float32 too
        object.__setattr__(self, "cap", real_number("cap", self.cap, expected, lambda cap: 0 < cap <= 1e18, kind=ValueError))

    def __call__(self, length: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Concentrations of float64 resultant lengths and counts; a class without samples keeps the length of its initial direction."""
        if self.small_samples == "unbiased":
            squared = ((counts * length * length - 1) / (counts - 1)).clamp_min(0)  # where it is no number, 0 is taken
            length = torch.where(counts > 0, torch.where(counts > 1, squared.sqrt(), 0.0), length)
        inside = length.clamp(max=1.0)
        if self.estimator == "closed-form":
            rate = self.dim * inside / ((1 - inside) * (1 + inside))  # infinite at 1
        else:
            rate = self._potential.concentration(inside)
        return rate.clamp(max=self.cap)


def expected_squared_resultant(count: int, mean_length: float, covariance_trace: float | None = None) -> float:
    r"""\(\mathbb E R_n^2 = \lVert m\rVert^2 + \operatorname{tr}\Sigma / n\) of n independent features (eq. resultant-expectation).

    The mean of eq. resultant-second-order: each feature with itself gives the part that falls like 1 / n.

    Why small classes look concentrated: one unit feature has R = 1 whatever it was drawn from, which the closed form turns into an infinite
    concentration, and the bank into its cap. From the expected value to the concentration of the mean it takes about n = 1 / ||m||^2 samples.

    Args:
        count: n >= 1.
        mean_length: ||m||, the length of the mean of the distribution.
        covariance_trace: tr Sigma; None for unit features, where it is 1 - ||m||^2.

    Examples:
        >>> expected_squared_resultant(1, 0.2)
        1.0
        >>> round(expected_squared_resultant(25, 0.2), 4)
        0.0784
    """
    count = integer_at_least("count", count, 1)
    expected = ">= 0 and finite, at most 1e150"  # whose square is a number
    mean_length = real_number("mean_length", mean_length, expected, lambda length: 0 <= length <= 1e150)
    if covariance_trace is None:
        if mean_length > 1:
            raise ValueError(f"mean_length of unit features must be <= 1, got {mean_length!r}: give covariance_trace for other features")
        covariance_trace = 1 - mean_length**2
    else:
        covariance_trace = real_number("covariance_trace", covariance_trace, ">= 0 and finite", lambda trace: 0 <= trace < math.inf)
    return mean_length**2 + covariance_trace / count
