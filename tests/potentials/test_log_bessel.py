"""`log-bessel`: each logarithm accurate on its own, and what is lost in combining them."""

import itertools
import math

import flint
import pytest
import torch

import pairgrad as pg

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
DTYPES = [pytest.param(d, id=str(d)) for d in UNIT]
DIMS = (2, 3, 8, 65, 512, 4096)
# log I_nu is a sum of three terms, V(x) - V(0) + Phi(0) + nu log x. V is right to about 6 units, log x and the constant to 1, and the
# product and the two sums round once each: 12 units of the largest sum of absolute values cover it with a little room.
SUM_UNITS = 12


@pytest.fixture(autouse=True)
def _precision():
    before = flint.ctx.prec
    flint.ctx.prec = 500
    yield
    flint.ctx.prec = before


def log_bessel(nu, x):
    return x.bessel_i(nu, scaled=True).log() + x


def grid(dim, dtype, low=-4, high=5, count=40):
    return (max(dim / 2 - 1, 0.5) * torch.logspace(low, high, count, dtype=torch.float64)).to(dtype)


def summands(nu, x):
    """|V(x) - V(0)| + |Phi(0)| + |nu log x|."""
    at_zero = -nu * flint.arb.const_log2() - (nu + 1).lgamma()
    rise = log_bessel(nu, x) - nu * x.log() - at_zero
    return float(abs(rise) + abs(at_zero) + abs(nu * x.log()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_the_logarithm_is_accurate_on_its_own(dim, dtype):
    """value(x) = log I_nu(x) - nu log x: the sum, and one product and one difference more, of terms that are among its own."""
    nu, x = flint.arb(dim) / 2 - 1, grid(dim, dtype)
    for xi, got in zip(x.tolist(), pg.potential(dim=dim, realization="log-bessel").value(x).tolist(), strict=True):
        point = flint.arb(xi)
        exact = log_bessel(nu, point) - nu * point.log()
        assert float(abs(exact - got)) <= (SUM_UNITS + 3) * UNIT[dtype] * summands(nu, point), (xi, got, exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_slope_is_the_exponential_of_their_difference(dim, dtype):
    """exp turns the absolute error of the two logarithms into a relative one of the ratio."""
    pot = pg.potential(dim=dim, realization="log-bessel")
    nu = flint.arb(dim) / 2 - 1
    x = grid(dim, dtype, high=2)
    for xi, got in zip(x.tolist(), pot.slope(x).tolist(), strict=True):
        point = flint.arb(xi)
        ratio = float(point.bessel_i(nu + 1, scaled=True) / point.bessel_i(nu, scaled=True))
        tol = math.expm1(SUM_UNITS * UNIT[dtype] * (summands(nu, point) + summands(nu + 1, point)))
        assert abs(got - ratio) <= tol * ratio, (xi, got, ratio, tol)


def test_ratio_error_grows_with_dimension_in_float32():
    """At x = nu the logarithms are of size nu, so the ratio loses a factor of about 8 from one dimension to the next; `paired` does not."""
    worst = []
    for dim in (8, 64, 512, 4096, 32768):
        x = grid(dim, torch.float32, low=-0.5, high=0.5, count=64)
        exact = pg.potential(dim=dim, realization="reference", digits=17).slope(x.double())
        error = {
            name: (pg.potential(dim=dim, realization=name).slope(x).double() / exact - 1).abs().max() for name in ("log-bessel", "paired")
        }
        assert error["paired"] < 8 * UNIT[torch.float32]
        worst.append(error["log-bessel"].item())
    growth = [b / a for a, b in itertools.pairwise(worst)]
    assert all(2 < g < 32 for g in growth), worst  # the factor 8, give or take a factor of 4 for which roundings come together
    assert worst[-1] > 1e-3 > worst[0] * 100


@pytest.mark.parametrize("dtype", DTYPES)
def test_difference_is_a_subtraction_of_values(dtype):
    pot = pg.potential(dim=512, realization="log-bessel")
    a, b = torch.tensor([10.0, 300.0, 1e4], dtype=dtype), torch.tensor([10.001, 301.0, 2e4], dtype=dtype)
    assert torch.equal(pot.difference(a, b), pot.value(b) - pot.value(a))
    assert pot.offset == 0.0


@pytest.mark.parametrize("dim", DIMS)
def test_limits_at_zero(dim):
    """The value is Phi itself, Phi(0) = -nu log 2 - log Gamma(nu + 1); the slope vanishes; x / dim below 2^-60 is lost by design."""
    pot = pg.potential(dim=dim, realization="log-bessel")
    zero = torch.zeros(1, dtype=torch.float64)
    nu = dim / 2 - 1
    at_zero = -nu * math.log(2) - math.lgamma(nu + 1)
    # nu log x with x = 2^-60 is added and subtracted: log x = 41.6
    assert abs(pot.value(zero).item() - at_zero) <= 4 * UNIT[torch.float64] * (abs(at_zero) + 41.6 * nu + 1)
    assert pot.slope(zero).item() == 0
