"""The kernel that scores are made of, `increment_pair`: the increment and its gain slope(b) / b in one pass, with logarithms or with the series of a bounded
step, against ball arithmetic. What users see of it is tested in test_increment.py and in the tests of scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.potentials.kernels import increment_pair, own_gain, own_increment, series_terms
from tests.potentials.increments import exact_increment, shrinkage, states
from tests.tolerances import gain_tolerance, increment_tolerance
from tests.truth import relative_error

DTYPES = (torch.float64, torch.float32)
DIMS = (2, 3, 4, 8, 16, 64, 128, 512, 1024, 4096)
ALL = ("paired", "arfr", "scott", "log-bessel", "consistent", "original", "log-miller")


def check(dim: int, dtype: torch.dtype, a: torch.Tensor, squared: torch.Tensor, terms: tuple[int, int] | None) -> None:
    value, gain = increment_pair(pg.potential(dim), a, squared, terms)
    exact_value, exact_gain = exact_increment(dim, a, squared)
    lost = shrinkage(dim, a, squared)
    for name, got, truth, tolerance in (
        ("value", value, exact_value, increment_tolerance(dtype, dim, lost)),
        ("gain", gain, exact_gain, gain_tolerance(dtype, dim, lost)),
    ):
        errors = relative_error(got, truth)
        worst = int(np.argmax(errors / tolerance))
        assert errors[worst] <= tolerance[worst], (
            f"{name} at dim {dim}, a = {a[worst].item()!r}, squared = {squared[worst].item()!r}: got {got[worst].item()!r}, "
            f"expected {float(truth[worst])!r}, relative error {errors[worst]:.3g} > {tolerance[worst]:.3g}"
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_value_and_gain(dim: int, dtype: torch.dtype) -> None:
    a, squared = states(dim, dtype, 60 if dim == 4096 else 120, seed=0)
    check(dim, dtype, a, squared, None)
    value, _ = increment_pair(pg.potential(dim), a, squared)
    assert torch.equal(pg.potential(dim).increment(a, squared), value)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_value_and_gain_at_many_states(dim: int, dtype: torch.dtype) -> None:
    a, squared = states(dim, dtype, 1000, seed=1)
    check(dim, dtype, a, squared, None)


def within(centre: float, reach: float, dtype: torch.dtype, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """a from 0 to 1e5 and |b - a| <= reach, also equal to it; squared = (b - a) (b + a), which is what a score's geometry computes."""
    rng = np.random.default_rng(seed)
    a = 10 ** rng.uniform(-1, 5, count)
    a[: count // 3] = centre * rng.uniform(0, 2, count // 3)
    a[0] = 0
    step = reach * np.where(rng.random(count) < 0.5, 1 - 1e-6, rng.random(count)) * rng.choice([-1, 1], count)
    step = np.maximum(step, -a)
    low = torch.tensor(a).to(dtype)
    squared = (torch.tensor(step) * (2 * low.double() + torch.tensor(step))).to(dtype)
    keep = (squared != 0) & (squared.double() >= -(low.double() ** 2))
    return low[keep], squared[keep]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("dim", "reach"), [(64, 10.0), (64, 14.0), (128, 10.0), (512, 10.0), (512, 100.0), (1024, 10.0), (1024, 250.0), (4096, 400.0)]
)
def test_series_for_a_bounded_step(dim: int, reach: float, dtype: torch.dtype) -> None:
    """As accurate as with logarithms, up to the reach for which the series was cut."""
    pot = pg.potential(dim)
    terms = series_terms(pot, reach, dtype)
    assert terms is not None
    a, squared = within(dim / 2 - 0.5, reach, dtype, 60, seed=dim)
    check(dim, dtype, a, squared, terms)


def test_the_last_terms_of_the_series_are_needed() -> None:
    """A series half as long is noticed where its argument is largest, at a + b = 2 c."""
    pot, reach = pg.potential(64), 14.0
    # the first term left out, z^(2 n) / (2 n + 1) of a part of the whole, z up to 14 / (4 c) = 0.11
    terms = series_terms(pot, reach, torch.float64)
    assert terms is not None
    a = torch.full((1,), 31.5 - reach / 2, dtype=torch.float64)
    squared = 63.0 * reach * torch.ones_like(a)
    truth, _ = exact_increment(64, a, squared)
    for fewer in ((terms[0] // 2, terms[1]), (terms[0], terms[1] // 2)):
        cut, _ = increment_pair(pot, a, squared, fewer)
        assert relative_error(cut, truth)[0] > increment_tolerance(torch.float64, 64, np.ones(1))[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 3, 8, 64, 512])
def test_at_the_origin(dim: int, dtype: torch.dtype) -> None:
    """b = 0 exactly: the value is -V(a), the gain 1 / dim. A square that rounding makes negative means b = 0 too."""
    pot = pg.potential(dim)
    a = torch.tensor([0.0, 0.25, 4.0, 96.0, 16384.0], dtype=dtype)  # their squares are exact
    value, gain = increment_pair(pot, a, -a * a)
    tolerance = gain_tolerance(dtype, dim, shrinkage(dim, a, -a * a))
    assert np.all(np.abs(gain.double().numpy() * dim - 1) <= tolerance), gain
    truth, _ = exact_increment(dim, a[1:], -(a[1:] ** 2))
    assert value[0] == 0
    assert np.all(relative_error(value[1:], truth) <= increment_tolerance(dtype, dim, shrinkage(dim, a[1:], -(a[1:] ** 2))))
    below, gain_below = increment_pair(pot, a, -a * a * (1 + torch.finfo(dtype).eps))
    torch.testing.assert_close(below, value, rtol=4 * torch.finfo(dtype).eps * dim, atol=0)
    assert bool((gain_below > 0).all())
    assert bool(gain_below.isfinite().all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_every_realization_at_the_origin(name: str, dtype: torch.dtype) -> None:
    """From 0 to 0 there is no increment; to b = 0 it is that of `difference`; and the gain has its limit, 1 / dim up to the error of the realization."""
    pot = pg.potential(64, name)
    a, squared = torch.tensor([0.0, 3.0], dtype=dtype), torch.tensor([0.0, -9.0], dtype=dtype)
    value, gain = increment_pair(pot, a.to(pot.compute_dtype(dtype)), squared.to(pot.compute_dtype(dtype)))
    assert value[0] == 0
    unit = torch.finfo(dtype).eps
    # some subtract values of size nu log nu = 107
    assert value[1].item() == pytest.approx(pot.difference(a, torch.zeros_like(a))[1].item(), rel=8 * unit, abs=4 * unit * 107)
    limit = pot.curvature(torch.zeros(1, dtype=dtype)).item() if name in ("arfr", "scott") else 1 / 64
    assert gain.tolist() == pytest.approx([limit, limit], rel=8 * unit)


@pytest.mark.parametrize("name", ALL)
def test_gain_near_the_origin(name: str) -> None:
    """slope(b) / b down to b = 1e-5, not its limit: at dim 4 they differ by b^2 / 24."""
    pot = pg.potential(4, name)
    b = torch.tensor([1e-5, 1e-3, 0.02], dtype=torch.float64)
    _, gain = increment_pair(pot, torch.zeros_like(b), b * b)
    # log-bessel: logarithms of size log(1 / b) are exponentiated
    torch.testing.assert_close(gain, pot.slope(b) / b, rtol=64 * torch.finfo(torch.float64).eps, atol=0)


@pytest.mark.parametrize("name", ["paired", "original", "log-bessel"])
def test_own_increment_has_the_value_of_increment_and_the_derivative_of_that_value(name: str) -> None:
    pot = pg.potential(128, name)
    a = torch.tensor([0.0, 3.0, 4032.0, 8064.0], dtype=torch.float64, requires_grad=True)
    squared = torch.tensor([0.0, -8.0, 5e4, -3e5], dtype=torch.float64, requires_grad=True)
    own, plain = own_increment(pot, a, squared), pot.increment(a, squared)
    assert torch.equal(own, plain)
    grads = torch.autograd.grad(own.sum(), (a, squared))
    b = torch.sqrt(a * a + squared).detach()
    tolerance = 8 * 2.0**-53 * (1 if name == "paired" else 63**2)  # tangents add nu terms
    assert (grads[1][1:] * 2 * b[1:] - pot.derivative(b)[1:]).abs().max() <= tolerance
    assert grads[1][0].item() == pytest.approx(1 / 256, rel=1e-14)  # half of 1 / (2 nu + 2), the gain at 0
    slope_a = a.detach() / b.where(b > 0, 1.0) * pot.derivative(b) - pot.derivative(a.detach())
    assert (grads[0][1:] - slope_a[1:]).abs().max() <= 2 * tolerance
    # the second derivative, against differences over a hundredth of b^2: they err by the square of that, times a constant below 1
    square = (b[1:] * b[1:]).requires_grad_()
    (second,) = torch.autograd.grad(own_gain(pot, square).sum(), square)
    step = square.detach() / 100
    differences = (own_gain(pot, square + step) - own_gain(pot, square - step)) / (2 * step)
    assert ((second - differences).abs() <= 1e-4 * differences.abs()).all(), (second, differences)
