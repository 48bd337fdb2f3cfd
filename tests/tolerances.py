"""Tolerances of the tests of `"paired"`: (quantity, dtype) -> bound on the relative error, with where each number comes from.

The bounds are the accuracy the library documents (docs/accuracy.md). Per operation the unit roundoff is u = 1.1e-16 (float64) and 6.0e-8 (float32).
slope and complement take about ten dependent roundings, value and the increments a few more and a subtraction of terms in the ratio 2 : 1 at
small x (1 - nu / (2 nu + 1)), so errors of 3 to 7 u are typical maxima; 1.2e-15 is 10.8 u. In float32 below dimension 8 the recurrence adds up to
seven steps: 7e-7 is 11.7 u, elsewhere 4e-7 is 6.7 u. The curvature at small nu is what is left of terms (nu + m + 1/2) and m at large x: its bound
leaves room for that ratio (29 at nu = 0) times twenty roundings.
"""

from __future__ import annotations

import numpy as np
import torch


def paired_tolerance(quantity: str, dtype: torch.dtype, dim: int) -> float:
    """Largest relative error allowed against ball arithmetic."""
    if dtype == torch.float64:
        return 5e-13 if quantity == "curvature" else 1.2e-15
    if quantity == "curvature":
        return 5e-5
    return 7e-7 if dim < 8 else 4e-7


# Near the ends of the range results and intermediate quotients are rounded to the grid of subnormal numbers, and what follows multiplies that by up to
# (nu + m + 1/2) / (2 nu + 2), 7.25 at dim 2: this many units of the smallest subnormal number come on top of the relative errors.
SUBNORMAL_UNITS = 8

# Documented, relative, in eps. Two points by a little more than a factor of 2 apart and far above nu have the worst Bregman divergence: about
# (nu + 1/2) / 5, from deficits of up to 40 (nu + 1/2); of 50,000 such states the worst has 300.
# For deficit and Legendre transform, of 80,000 states each, the worst have 8.3 and 13; from dim 4 on the deficit is as good as the value.
DEFICIT_ROUNDINGS_BELOW_DIM_4 = 12
LEGENDRE_ROUNDINGS = 20
BREGMAN_ROUNDINGS = 512

# concentration(slope(x)) = x is as well conditioned as R / (x R'): the rounding of the length alone moves x by that factor times u.
# 8 u allows for the rounding of the slope that was inverted (at most 5 u) and of the last Newton step.
INVERSE_ROUNDINGS = 8

# At 50 digits a formula of some hundred operations loses two or three of them; the order shift a few more.
COHERENCE_AT_50_DIGITS = 1e-44

# Planned truncation, relative to R, in roundings u of the dtype: the planner allows u / 4 for the slope before the shift, relative to g_0; relative
# to R, and with the terms after the first two, half as much again; a shift adds the derivative of the error, by up to k / c with k about 22 and c about
# 14. Single plans reach 1.04 (float64) and 1.20 (float32), the bound over all orders at once 1.29 and 1.42.
PLANNED_TRUNCATION_ROUNDINGS = 1.5

# A proven rounding bound adds up worst cases. Of 500 states in float64 and 200,000 in float32, the worst has 3 to 8 roundings u; the proofs give 9 u
# without order shift and up to 18 u with it, so the quotient is at most 4 and 2.6. Below 8, a unit that is eight times too small is noticed.
ROUNDING_SHARPNESS = {torch.float64: 5.0, torch.float32: 3.0}

# Single operations reach their bound up to the sampling, chains of some ten roundings half of it; a square root has 3/4 of the unit it is given.
ROUNDING_OPERATION_SHARPNESS = 0.4


# Two points, b^2 = a^2 + squared: s_b^2 = s_a^2 + squared carries the rounding of s_a^2, whose size relative to s_b^2 is the shrinkage s_a^2 / s_b^2 where
# that exceeds 1; no evaluation without extra digits avoids it, since a itself is known to a rounding only. The gain H / s_b has all of that error. The
# increment has the root of it: D = squared / (s_a + s_b) depends on s_b by s_b / (s_a + s_b) <= s_b / s_a. Beyond that, the accuracy of `difference`
# and `slope`.


def increment_tolerance(dtype: torch.dtype, dim: int, shrinkage: np.ndarray) -> np.ndarray:
    return paired_tolerance("difference", dtype, dim) * np.sqrt(shrinkage)


def gain_tolerance(dtype: torch.dtype, dim: int, shrinkage: np.ndarray) -> np.ndarray:
    return paired_tolerance("slope", dtype, dim) * shrinkage


# Scores. q is a difference of potentials whose derivative in r^2 is half the gain, and kappa gain <= 1: an error e of mu . f moves q by at most e / tau.
# A product over up to 1024 coordinates in the dtype, accumulated in blocks, has errors up to 11 roundings of ||f|| (seen on 200,000 products of nearly
# parallel vectors), the two factors of it and ||f||^2 / tau^2 three more, the increment about two where q is large: 16 roundings u of ||f|| / tau.
# For vectors that are not nearly parallel, the documented 5e-6 in float32 at ||f|| = 1, tau = 0.1, half of that.
SCORE_ROUNDINGS = 16
SCORE_FLOAT32 = 5e-6
# The gradient of a score is gain times kappa mu + f / tau, over tau: the accuracy of the gain, 4e-7, and of four more roundings, in norm: 1e-6.
SCORE_GRADIENT_FLOAT32 = 1e-6
# The gradient of a loss weighs these by probabilities, whose relative error is that of exp(z_j - z_k): up to twice that of a score, 1e-5; and once
# more for the normaliser. In norm, relative to the gradient, where the labelled class and the others do not pull in the same direction.
LOSS_GRADIENT_FLOAT32 = 2e-5

# Update fields. The field and the fused loss add the same terms in another order. In float64 the gradients differ by the probabilities, whose relative
# error is the absolute one of the scores: of differences of two finite potentials up to 1.2e4, each rounded to u = 1.1e-16 of itself, 2.7e-12. In
# float32 they are as far apart as the documented accuracy of the gradient of a loss.
FIELD_ROUTES = {torch.float64: 3e-12, torch.float32: LOSS_GRADIENT_FLOAT32}
# The Jacobian by differentiation and from the two mean vectors: dim sums of some ten terms of size |J|, with four roundings per product; 64 u of |J|
# leaves a factor of four. The probabilities in both are the same bits, so that their error does not enter.
FIELD_JACOBIAN_ROUNDINGS = 64

# Running error analysis, as shares of the bound that random states reach. One operation: sums, products and passed-on errors come within a few percent;
# a logarithm is given four roundings and has about one. A kernel adds up some thirty worst cases: seen 0.20 to 0.41 over 400 states, in both dtypes.
RUNNING_OPERATION_SHARE = 0.2
RUNNING_KERNEL_SHARE = 0.15

# Learning certificates of "arfr" up to dim 512 in float64, where truncation dominates: the share of the bound that a search reaches must be at least this,
# so that a bound is at most 20 times, and that of the score with the sharp constant at most twice, the largest error found. Seen: 0.5 (dim 8) to 0.99.
LEARNING_SHARE = {"score": 1 / 2}
LEARNING_SHARE_OTHERWISE = 1 / 20
# The rounding terms hold for every order of summation, n u for n terms, where blocked sums have about sqrt(n) u: 18 random states of
# "paired" reach 0.0095 (the gradient of a group of one) to 0.4 (a margin).
ROUNDING_SHARE = 1 / 200
