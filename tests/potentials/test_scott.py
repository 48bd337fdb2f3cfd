"""`scott`: the averaged bounds [Scott_2021_ICCV] in 50 digits; their order; coherence."""

import mpmath
import pytest
import torch

import pairgrad as pg
from pairgrad.ground import MpmathArithmetic

DIGITS = 50
DIMS = (2, 3, 8, 129, 512, 4096)
RELATIVE_RADII = (1e-8, 1e-3, 0.4, 1.0, 3.0, 50.0, 1e4, 1e8)
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
# slope, curvature, complement and secant are sums of positive terms, each with a dozen roundings at most (radius 3, quotients, mean);
# log1p_over in the secant and the subtraction from 1 add to that where 1 - c / (c + s) is about 1/2.
RELATIVE_UNITS = 32
# the value is a difference of s and a log(a + s), each right to 6 units of itself
VALUE_UNITS = 8


@pytest.fixture(autouse=True)
def _precision():
    with mpmath.workdps(DIGITS):
        yield


def centres(dim):
    a = mpmath.mpf(dim - 1) / 2
    return a, (a, a + 1)


def value(dim, x):
    a, bs = centres(dim)
    return sum(mpmath.hypot(b, x) - a * mpmath.log(a + mpmath.hypot(b, x)) for b in bs) / 2


def slope(dim, x):
    a, bs = centres(dim)
    return sum(x / (a + mpmath.hypot(b, x)) for b in bs) / 2


def points(dim, dtype):
    return (max(dim / 2 - 1, 0.5) * torch.tensor(RELATIVE_RADII, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", [pytest.param(d, id=str(d)) for d in UNIT])
def test_formulas_against_fifty_digits(dim, dtype):
    pot, unit = pg.potential(dim=dim, realization="scott"), UNIT[dtype]
    x = points(dim, dtype)
    for i, xi in enumerate(map(mpmath.mpf, x.tolist())):
        a, bs = centres(dim)
        size = sum(mpmath.hypot(b, xi) + a * abs(mpmath.log(a + mpmath.hypot(b, xi))) for b in bs) / 2
        assert abs(pot.value(x)[i].item() - value(dim, xi)) <= VALUE_UNITS * unit * size, xi
        with mpmath.workdps(2 * DIGITS):
            wanted = {
                "slope": slope(dim, xi),
                "complement": 1 - slope(dim, xi),
                "curvature": mpmath.diff(lambda y: slope(dim, y), xi, relative=True),
            }
        for name, ref in wanted.items():
            got = getattr(pot, name)(x)[i].item()
            assert abs(got - ref) <= RELATIVE_UNITS * unit * abs(ref), (name, xi, got, ref)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("step", [1e-12, 1e-6, 1e-2, 3.0, 100.0])
def test_difference_and_secant_do_not_cancel(dim, step):
    pot = pg.potential(dim=dim, realization="scott")
    a = points(dim, torch.float64)
    b = a * (1 + step)
    with mpmath.workdps(2 * DIGITS):
        for i, (low, high) in enumerate(zip(map(mpmath.mpf, a.tolist()), map(mpmath.mpf, b.tolist()), strict=True)):
            rise = value(dim, high) - value(dim, low)
            got = pot.difference(a, b)[i].item(), pot.difference(b, a)[i].item(), pot.secant(a, b)[i].item()
            for one, ref in zip(got, (rise, -rise, rise / (high - low)), strict=True):
                assert abs(one - ref) <= RELATIVE_UNITS * UNIT[torch.float64] * abs(ref), (low, high, one, ref)


@pytest.mark.parametrize("dim", DIMS)
def test_slope_lies_between_the_amos_bounds_as_the_ratio_does(dim):
    """x / (a + sqrt((a+1)^2 + x^2)) <= R <= x / (a + sqrt(a^2 + x^2)) with a = nu + 1/2, and the mean lies strictly between."""
    pot = pg.potential(dim=dim, realization="scott")
    reference = pg.potential(dim=dim, realization="reference")
    x = points(dim, torch.float64)
    ratios = reference.enclosure("slope", x)
    for xi, ratio in zip(map(mpmath.mpf, x.tolist()), ratios, strict=True):
        a, (upper, lower) = centres(dim)
        low, high = xi / (a + mpmath.hypot(lower, xi)), xi / (a + mpmath.hypot(upper, xi))
        own = pot.formulas().slope(MpmathArithmetic(), xi)
        assert low < own < high
        assert low < mpmath.mpf(ratio.str(40, radius=False)) < high


@pytest.mark.parametrize("dim", DIMS)
def test_coherent_to_fifty_digits(dim):
    """The supplied slope is the derivative of the value, by a difference quotient at 50 digits in the formulas that train."""
    pot = pg.potential(dim=dim, realization="scott")
    ops = MpmathArithmetic()
    for xi in map(mpmath.mpf, points(dim, torch.float64).tolist()):
        wanted = mpmath.diff(lambda y: pot.formulas().value(ops, y), xi, relative=True)
        got = pot.formulas().slope(ops, xi)
        assert abs(got - wanted) <= mpmath.mpf(10) ** -20 * got, (xi, got, wanted)
    assert pot.coherent


def test_error_falls_like_one_over_nu():
    """Eight times the dimension, an eighth of the largest error of the slope."""
    errors = []
    for dim in (64, 512, 4096):
        x = (dim / 2 - 1) * torch.logspace(-2, 2, 60, dtype=torch.float64)
        error = pg.potential(dim=dim, realization="scott").slope(x) - pg.potential(dim=dim, realization="reference", digits=17).slope(x)
        errors.append(error.abs().max().item())
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(8, rel=0.05)


def test_offset_is_the_limit_of_phi_minus_value():
    x = 1e9  # Phi - value tends to the offset like dim^2 / x
    pot = pg.potential(dim=8, realization="scott")
    with mpmath.workdps(DIGITS):
        phi = mpmath.log(mpmath.besseli(3, x)) - 3 * mpmath.log(x)
        assert abs(phi - pot.formulas().value(MpmathArithmetic(), mpmath.mpf(x)) - pot.offset) < 64 / x
