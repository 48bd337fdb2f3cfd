"""The constants of the auditor: what is too small to be called a defect, and how rarely a coherent function may be accused.

A test here compares a reading with its own noise, estimated from few numbers, so thresholds are quantiles of Student's t. They are taken at the
false-alarm rate of the whole audit divided by the number of tests it may make (Bonferroni): the rate holds for the audit, however the tests depend on each
other. What is found must also be seen by a second method, and must exceed the smallest effect below, which covers the errors that are not noise: the
approximations inside well-kept special functions differ from the function by some units in the last place, smoothly.
"""

from __future__ import annotations

import math
from functools import cache

import torch

FALSE_ALARM_RATE = 1e-3  # of one audit of a coherent function, under the noise model
CONFIRMATION_RATE = 1e-3  # of the second method, which only looks where the first has found something
TESTS = 2**14  # an audit that makes more of them reports a larger rate

# Relative to the size of the gradient. 2**-40 is 4096 units of rounding in float64: the special functions of torch err by tens of them, and a segment of a
# hundredth of the argument magnifies that by a hundred. In float32 2**-17 is 64 units, the least that segments of ordinary length resolve.
SMALLEST_EFFECT = {torch.float64: 2.0**-40, torch.float32: 2.0**-17, torch.float16: 2.0**-6, torch.bfloat16: 2.0**-4}

# Half-lengths of the segments through a state, as parts of the size of the argument, longest first: long ones average the noise out, short ones see past kinks.
LADDER = {
    torch.float64: (2.0**-2, 2.0**-4, 2.0**-7, 2.0**-11, 2.0**-15),
    torch.float32: (2.0**-1, 2.0**-2, 2.0**-4, 2.0**-7, 2.0**-9, 2.0**-11),
    torch.float16: (1.0, 2.0**-1, 2.0**-2),
    torch.bfloat16: (1.0, 2.0**-1, 2.0**-2),
}

# What a gradient that passes may be off by without being seen, at the worst: above that, the answer is that nothing can be said.
PASSABLE = {torch.float64: 1e-3, torch.float32: 2e-2}

# How far a gradient may go back and forth from neighbour to neighbour, over its size, on account of rounding. What is more is no excuse, and not coherent.
ROUGH = {torch.float64: 1e-6, torch.float32: 1e-2}

TELLING = 0.25  # a state whose limit is above this, relative to the gradient, says nothing


def coarsest(dtypes: list[torch.dtype]) -> torch.dtype:
    """The dtype that decides how much can be seen."""
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


@cache
def student_quantile(rate: float, degrees: int) -> float:
    """The t with P(|T| > t) = rate for Student's t with `degrees` degrees of freedom, by bisection."""
    low, high = 0.0, 2.0
    while _tail(high, degrees) > rate:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, degrees) > rate else (low, middle)
    return high


def _tail(t: float, degrees: int) -> float:
    """P(|T| > t): the regularised incomplete beta function I_y(n/2, 1/2) at y = n / (n + t^2), by its power series in y."""
    n = degrees
    y = n / (n + t * t)
    a = n / 2
    # I_y(a, 1/2) = y^a / B(a, 1/2) sum_k (1/2)_k / (k! (a + k)) y^k
    log_beta = math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)
    term, total, k = 1.0, 0.0, 0
    while k < 100_000:
        add = term / (a + k)
        total += add
        if add < 1e-17 * total:
            break
        term *= (0.5 + k) / (k + 1) * y
        k += 1
    return min(1.0, math.exp(a * math.log(y) - log_beta) * total) if y < 1 else 1.0


def threshold(degrees: int, *, tests: int = TESTS, rate: float = FALSE_ALARM_RATE) -> float:
    """How many standard errors a reading must exceed, for the given rate over all tests."""
    return student_quantile(rate / max(tests, TESTS), degrees)
