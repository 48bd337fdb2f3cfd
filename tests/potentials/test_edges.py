"""Zero, subnormal, the largest finite argument, infinity, NaN, empty and odd shapes, half precision, autocast."""

from __future__ import annotations

import math

import pytest
import torch

import pairgrad as pg

SMOOTH = ("paired", "arfr", "scott", "log-bessel")
RECURRENT = ("original", "consistent", "log-miller")
DTYPES = (torch.float64, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [4, 6, 64, 4096])
@pytest.mark.parametrize("name", ["paired", "arfr", "scott"])
def test_limits(name: str, dim: int, dtype: torch.dtype) -> None:
    pot = pg.potential(dim, name)
    info = torch.finfo(dtype)
    inf, largest = torch.tensor([torch.inf, -torch.inf], dtype=dtype), torch.tensor([info.max, -info.max], dtype=dtype)
    assert torch.equal(pot.value(inf), inf.abs())
    assert torch.equal(pot.slope(inf), inf.sign())
    assert torch.equal(pot.curvature(inf), torch.zeros_like(inf))
    assert torch.equal(pot.complement(inf), torch.tensor([0.0, 2.0], dtype=dtype))
    assert torch.equal(pot.value(largest), largest.abs())  # nu log x is far below the rounding of x
    assert torch.equal(pot.slope(largest), inf.sign())
    # 1 - slope -> (nu + 1/2) / x: normal numbers still, for a dimension that is not tiny
    rest = pot.complement(largest[:1]).item()
    assert rest == pytest.approx((dim - 1) / 2 / info.max, rel=8 * info.eps, abs=16 * info.smallest_normal * info.eps)
    one = torch.ones(2, dtype=dtype)
    assert torch.equal(pot.difference(one, inf), inf.abs())
    assert torch.equal(pot.difference(one, largest), largest.abs())
    assert torch.equal(pot.secant(one, inf), inf.sign())
    assert torch.equal(pot.secant(inf, inf), inf.sign())
    assert pot.difference(inf, inf).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 3, 64, 4096])
def test_zero_and_subnormal(dim: int, dtype: torch.dtype) -> None:
    pot = pg.potential(dim)
    zero = torch.zeros(1, dtype=dtype)
    assert pot.value(zero).item() == 0
    assert pot.slope(zero).item() == 0
    assert pot.complement(zero).item() == 1
    assert pot.secant(zero, zero).item() == 0
    assert pot.difference(zero, zero).item() == 0
    assert pot.curvature(zero).item() == pytest.approx(1 / dim, rel=8 * torch.finfo(dtype).eps)
    tiny = torch.finfo(dtype).smallest_normal
    for x in (tiny / 4, tiny, tiny * 1024):
        # slope = x / dim up to x^3. x / s is rounded to the grid of subnormals before it is multiplied by about s / dim <= 7.25
        spacing = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        got = pot.slope(torch.tensor([x], dtype=dtype)).item()
        assert got == pytest.approx(x / dim, rel=8 * torch.finfo(dtype).eps, abs=5 * spacing)


@pytest.mark.parametrize("name", [*SMOOTH, *RECURRENT])
def test_nan_propagates_and_stays_alone(name: str) -> None:
    pot = pg.potential(64, name)
    x = torch.tensor([1.0, torch.nan, 40.0], dtype=torch.float64)
    whole = torch.tensor([1.0, 40.0], dtype=torch.float64)
    for quantity in ("value", "slope", "curvature", "complement"):
        got = getattr(pot, quantity)(x)
        assert got.isnan().tolist() == [False, True, False]
        assert torch.equal(got[[0, 2]], getattr(pot, quantity)(whole))
    for quantity in ("difference", "secant"):
        assert getattr(pot, quantity)(x, x.flip(0)).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(("name", "dim"), [*((name, 64) for name in [*SMOOTH, *RECURRENT]), ("paired", 2), ("paired", 5), ("paired", 17)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_over_the_whole_axis(name: str, dim: int, dtype: torch.dtype) -> None:
    """No intermediate overflow or underflow shows between the smallest and the largest finite argument."""
    pot = pg.potential(dim, name)
    info = torch.finfo(dtype)
    exponents = torch.linspace(math.log2(info.smallest_normal), math.log2(info.max) - 0.01, 301, dtype=torch.float64)
    x = torch.cat([torch.zeros(1, dtype=dtype), torch.exp2(exponents).to(dtype)])
    for quantity in ("value", "slope", "curvature", "complement"):
        got = getattr(pot, quantity)(x)
        assert got.dtype == dtype
        bad = x[~got.isfinite()]
        if name == "consistent" and quantity != "value":
            bad = bad[bad > 1e-18]  # around epsilon the derivatives of nu log(1 + epsilon / x) are of size nu / x^2: they leave float32
        assert not len(bad), (quantity, bad)


@pytest.mark.parametrize("name", [*SMOOTH, *RECURRENT])
def test_shapes(name: str) -> None:
    pot = pg.potential(16, name)
    for shape in ((), (0,), (2, 0, 3), (2, 3, 4)):
        x = torch.rand(shape) + 1
        assert pot.value(x).shape == pot.slope(x).shape == x.shape
        assert pot.pair(x).value.shape == x.shape
    transposed = torch.rand(3, 4).T + 1
    assert torch.equal(pot.value(transposed), pot.value(transposed.contiguous()))
    assert pot.difference(torch.rand(3, 1), torch.rand(4)).shape == (3, 4)
    assert pot.secant(torch.rand(3, 1), torch.rand(4).double()).dtype == torch.float64


@pytest.mark.parametrize("name", [*SMOOTH, *RECURRENT])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    pot = pg.potential(16, name)
    x = (torch.rand(8) * 20).to(dtype)
    assert torch.equal(pot.value(x), pot.value(x.float()).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = pot.value(x)
        assert under.dtype == torch.float32
        assert torch.equal(under, pot.value(x.float()))
        double = pot.value(x.double())
    assert double.dtype == torch.float64
    assert torch.equal(double, pot.value(x.double()))


def test_autocast_changes_nothing_in_float32() -> None:
    pot = pg.potential(6)
    x = (torch.rand(64) * 30).requires_grad_()
    plain = pot.difference(x, x + 1)
    (gradient,) = torch.autograd.grad(plain.sum(), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = pot.difference(x, x + 1)
        (cast_gradient,) = torch.autograd.grad(cast.sum(), x)
    assert torch.equal(plain, cast)
    assert torch.equal(gradient, cast_gradient)


@pytest.mark.parametrize("name", [*SMOOTH, *RECURRENT])
def test_gradients_at_infinity_are_the_limits(name: str) -> None:
    pot = pg.potential(16, name)
    x = torch.tensor([torch.inf, -torch.inf], dtype=torch.float64, requires_grad=True)
    for quantity, want in (("value", [1.0, -1.0]), ("slope", [0.0, 0.0]), ("complement", [0.0, 0.0])):
        (got,) = torch.autograd.grad(getattr(pot, quantity)(x).sum(), x)
        assert got.tolist() == want, quantity
    (got,) = torch.autograd.grad(pot.secant(x, x).sum(), x)
    assert got.abs().max() <= 1e-300  # what curvatures at the largest finite number may leave


@pytest.mark.parametrize("name", [*SMOOTH, *RECURRENT])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pair_is_value_and_slope(name: str, dtype: torch.dtype) -> None:
    """Computed together, with the bits they have alone; and differentiable as they are."""
    pot = pg.potential(12, name)
    x = torch.cat([torch.tensor([0.0, -3.0, torch.inf], dtype=dtype), 40 * torch.rand(20, dtype=dtype)]).requires_grad_()
    pair = pot.pair(x)
    assert torch.equal(pair.value, pot.value(x))
    assert torch.equal(pair.slope, pot.slope(x))
    for part, derivative in ((pair.value, pot.slope(x)), (pair.slope, pot.curvature(x))):
        (got,) = torch.autograd.grad(part.sum(), x, retain_graph=True)
        assert torch.equal(got, derivative)
    both = torch.func.vmap(torch.func.grad(lambda z: sum(pot.pair(z))))(x.detach())
    # the recurrences add in float64 before they round
    torch.testing.assert_close(both, pot.slope(x.detach()) + pot.curvature(x.detach()), rtol=2 * torch.finfo(dtype).eps, atol=0)
    primals, tangents = torch.func.jvp(lambda z: tuple(pot.pair(z)), (x.detach(),), (2 * torch.ones_like(x),))
    assert torch.equal(tangents[0], 2 * pot.slope(x.detach()))
    assert torch.equal(tangents[1], 2 * pot.curvature(x.detach()))
    assert torch.equal(primals[1], pair.slope)


@pytest.mark.parametrize(("left", "right"), [(torch.float32, torch.float64), (torch.float64, torch.float32)], ids=str)
def test_two_dtypes_meet_in_the_wider_one(left: torch.dtype, right: torch.dtype) -> None:
    """Nothing is rounded to the narrow one on the way, whichever comes first."""
    pot = pg.potential(24)
    a, b = torch.tensor([0.1, 3.3], dtype=left), torch.tensor([7.7, 900.9], dtype=right)
    for function in (pot.difference, pot.secant, pot.bregman):
        got = function(a, b)
        assert got.dtype == torch.float64
        assert torch.equal(got, function(a.double(), b.double()))


@pytest.mark.parametrize("name", ["paired", "log-bessel", "original", "log-miller", "reference"])
def test_near_zero_the_slope_is_its_first_term(name: str) -> None:
    """x / dim, also below the least number that logarithms and recurrences are given."""
    pot, x = pg.potential(12, name), torch.tensor([1e-300, 1e-30, 3e-17, -1e-25], dtype=torch.float64)
    for slope in (pot.slope(x), pot.pair(x).slope):
        torch.testing.assert_close(12 * slope, x, rtol=1e-13, atol=0)
