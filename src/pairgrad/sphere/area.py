"""The surface of the unit sphere: what the density of a uniform direction is one over."""

from __future__ import annotations

import math

_LARGEST_FACTORIAL_DIM = 300  # up to here (p-2)!! is a float
_LOG_PI_ROUNDING = 3.8981718325193755e-17  # log of pi over math.pi


def log_area(dim: int) -> float:
    r"""\(\log |S^{p-1}| = \log\bigl(2\pi^{p/2} / \Gamma(p/2)\bigr)\) of the unit sphere in `dim` = p dimensions.

    As a product it is \((2\pi)^{\lfloor (p-1)/2\rfloor} / (p-2)!!\), times 2 for odd p and \(2\pi\) for even p.

    Examples:
        >>> round(math.exp(log_area(2)) / math.pi, 12), round(math.exp(log_area(3)) / math.pi, 12)
        (2.0, 4.0)
    """
    # the area is close to 1 around p = 18, where a difference of logarithms, or pi rounded p / 2 times, would lose a digit
    if dim <= _LARGEST_FACTORIAL_DIM:
        first = 2.0 if dim % 2 else 2 * math.pi
        area = first * (2 * math.pi) ** ((dim - 1) // 2) / math.prod(range(dim - 2, 0, -2))
        return math.log(area) + dim // 2 * _LOG_PI_ROUNDING
    half = dim / 2
    return math.log(2) + half * math.log(math.pi) - math.lgamma(half)
