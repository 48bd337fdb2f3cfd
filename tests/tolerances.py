"""Tolerances of the tests of `"paired"`: (quantity, dtype) -> bound on the relative error, with where each number comes from.

The bounds are the accuracy the library documents (docs/accuracy.md). Per operation the unit roundoff is u = 1.1e-16 (float64) and 6.0e-8 (float32).
slope and complement take about ten dependent roundings, value and the increments a few more and a subtraction of terms in the ratio 2 : 1 at
small x (1 - nu / (2 nu + 1)), so errors of 3 to 7 u are typical maxima; 1.2e-15 is 10.8 u. In float32 below dimension 8 the recurrence adds up to
seven steps: 7e-7 is 11.7 u, elsewhere 4e-7 is 6.7 u. The curvature at small nu is what is left of terms (nu + m + 1/2) and m at large x: its bound
leaves room for that ratio (29 at nu = 0) times twenty roundings.
"""

from __future__ import annotations

import torch


def paired_tolerance(quantity: str, dtype: torch.dtype, dim: int) -> float:
    """Largest relative error allowed against ball arithmetic."""
    if dtype == torch.float64:
        return 5e-13 if quantity == "curvature" else 1.2e-15
    if quantity == "curvature":
        return 5e-5
    return 7e-7 if dim < 8 else 4e-7


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
