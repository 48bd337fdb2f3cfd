"""The surface of the unit sphere: what the density of a uniform direction is one over."""

from __future__ import annotations

import math

_LARGEST_GAMMA_DIM = 300  # up to here 2 pi^(p/2) / Gamma(p/2) is a float, right to a few roundings


def log_area(dim: int) -> float:
    r"""\(\log |S^{p-1}| = \log\bigl(2\pi^{p/2} / \Gamma(p/2)\bigr)\) of the unit sphere in `dim` = p dimensions.

    Examples:
        >>> round(math.exp(log_area(2)) / math.pi, 12), round(math.exp(log_area(3)) / math.pi, 12)
        (2.0, 4.0)
    """
    half = dim / 2
    if dim <= _LARGEST_GAMMA_DIM:  # the area is close to 1 around p = 18, where the difference of logarithms would lose a digit
        return math.log(2 * math.pi**half / math.gamma(half))
    return math.log(2) + half * math.log(math.pi) - math.lgamma(half)
