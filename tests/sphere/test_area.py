"""The surface of the unit sphere, as the entropy of the uniform distribution, against fifty digits."""

from __future__ import annotations

import pytest
import torch

import pairgrad as pg

U = 2.0**-53


def log_area(dim: int) -> float:
    return pg.HypersphericalUniform(dim, dtype=torch.float64).entropy().item()


@pytest.mark.parametrize("dim", [2, 3, 4, 17, 18, 19, 20, 128, 299, 300, 301, 302, 1024, 100_001])
def test_log_area_against_fifty_digits(dim: int) -> None:
    """Up to dimension 300 a power, a product and a quotient have some roundings, and the logarithm one of itself.
    Beyond, two logarithms of the size of the second one are subtracted, each right to a few roundings of itself.
    """
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(50):
        half = mpmath.mpf(dim) / 2
        want = mpmath.log(2 * mpmath.pi**half / mpmath.gamma(half))
        error = float(abs(log_area(dim) - want))
        size = float(mpmath.loggamma(half) + half * mpmath.log(mpmath.pi))
    bound = U * (3 + abs(float(want))) if dim <= 300 else 4 * U * size
    assert error <= bound, (dim, log_area(dim), error / U)
