"""Derivatives through torch: backward, double backward, torch.func, and what they must equal."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import pairgrad as pg

COHERENT = ("paired", "arfr", "consistent", "scott", "log-bessel")
ALL = (*COHERENT, "original", "log-miller")
DIMS = (4, 6, 64)


def points(dim: int, count: int = 5, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return ((dim / 2 - 1) * (0.2 + 3 * torch.rand(count, dtype=torch.float64))).to(dtype)


@pytest.mark.parametrize(
    ("name", "dim"),
    [pytest.param(n, d, marks=pytest.mark.slow if n != "paired" and d != 4 else ()) for n in COHERENT for d in DIMS],
)
def test_gradcheck_and_gradgradcheck(name: str, dim: int) -> None:
    pot = pg.potential(dim, name)
    x, y = points(dim).requires_grad_(), points(dim).requires_grad_()
    for function in (pot.value, pot.slope, pot.complement):
        assert gradcheck(function, x, check_forward_ad=True)
        assert gradgradcheck(function, x)
    assert gradcheck(pot.curvature, x)
    for function in (pot.difference, pot.secant):
        assert gradcheck(function, (x, y), check_forward_ad=True)
        assert gradgradcheck(function, (x, y))


@pytest.mark.parametrize("dim", [2, 3, 31])
def test_gradcheck_where_the_recurrences_do_not_reach(dim: int) -> None:
    pot = pg.potential(dim)
    x, y = (0.5 + 4 * torch.rand(5, dtype=torch.float64)).requires_grad_(), (0.5 + 4 * torch.rand(5, dtype=torch.float64)).requires_grad_()
    assert gradcheck(pot.value, x)
    assert gradgradcheck(pot.value, x)
    assert gradcheck(pot.difference, (x, y))
    assert gradgradcheck(pot.secant, (x, y))


def test_gradcheck_at_zero_and_below() -> None:
    pot = pg.potential(8)
    x = torch.tensor([0.0, -1.5, 2.5], dtype=torch.float64, requires_grad=True)
    assert gradcheck(pot.value, x)
    assert gradgradcheck(pot.value, x)
    assert gradcheck(pot.slope, x)


@pytest.mark.parametrize("name", ["original", "log-miller"])
def test_gradcheck_refuses_the_incoherent_ones(name: str) -> None:
    """dim 4: the raw ratio is far from the derivative of the finite value."""
    x = points(4).requires_grad_()
    with pytest.raises(GradcheckError):
        gradcheck(pg.potential(4, name).value, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ALL)
def test_backward_multiplies_by_the_supplied_slope_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    pot = pg.potential(64, name)
    x = (points(64, 50).to(dtype) * 20).requires_grad_()
    plain = x.detach()
    assert torch.equal(torch.autograd.grad(pot.value(x).sum(), x)[0], pot.slope(plain))
    assert torch.equal(torch.autograd.grad(pot.slope(x).sum(), x)[0], pot.curvature(plain))
    other = (plain + 1).requires_grad_()
    low, high = torch.autograd.grad(pot.difference(x, other).sum(), (x, other))
    assert torch.equal(low, -pot.slope(plain))
    assert torch.equal(high, pot.slope(other.detach()))


@pytest.mark.parametrize("name", ALL)
def test_torch_func(name: str) -> None:
    pot = pg.potential(16, name)
    x = points(16)
    slope, curvature = pot.slope(x), pot.curvature(x)
    assert torch.equal(vmap(grad(pot.value))(x), slope)
    torch.testing.assert_close(vmap(grad(grad(pot.value)))(x), curvature)
    value, tangent = jvp(pot.value, (x,), (2 * torch.ones_like(x),))
    assert torch.equal(value, pot.value(x))
    assert torch.equal(tangent, 2 * slope)
    torch.testing.assert_close(hessian(lambda z: pot.value(z).sum())(x), torch.diag(curvature))
    torch.testing.assert_close(jacfwd(pot.value)(x), jacrev(pot.value)(x))
    both = vmap(pot.difference, in_dims=(0, None))(x, x)
    assert torch.equal(both, pot.difference(x[:, None], x[None, :]))
    torch.testing.assert_close(vmap(vmap(grad(pot.secant, argnums=1)))(x[:, None], x[:, None]), curvature[:, None] / 2)


def test_only_the_wanted_gradients_are_computed() -> None:
    """A detached state costs nothing in backward: difference(kappa, r) with kappa fixed."""
    pot = pg.potential(64)
    fixed, moving = points(64), points(64).requires_grad_()
    difference = pot.difference(fixed, moving)
    assert difference.grad_fn is not None
    (gradient,) = torch.autograd.grad(difference.sum(), moving)
    assert torch.equal(gradient, pot.slope(moving.detach()))


def test_second_backward_with_retain_graph() -> None:
    pot = pg.potential(8, "original")
    x = points(8).requires_grad_()
    value = pot.value(x).sum()
    (first,) = torch.autograd.grad(value, x, retain_graph=True)
    (second,) = torch.autograd.grad(value, x)
    assert torch.equal(first, second)


def test_third_order_exists() -> None:
    """The potential is smooth: a Hessian-vector product of a gradient penalty needs the derivative of the curvature."""
    pot = pg.potential(6)
    x = points(6).requires_grad_()
    (slope,) = torch.autograd.grad(pot.value(x).sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(curvature.sum(), x)
    step = 1e-5
    estimate = (pot.curvature(x.detach() + step) - pot.curvature(x.detach() - step)) / (2 * step)
    torch.testing.assert_close(third, estimate, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dim", [4, 64, 4096])
def test_gradient_of_the_secant_is_continuous_across_its_switch(dim: int) -> None:
    """Quotient on one side, quadrature on the other: both against ball arithmetic's (R(b) - S) / (b - a)."""
    pot, truth = pg.potential(dim), pg.potential(dim, "reference")
    a = (dim / 2 - 1) * torch.logspace(-1, 1, 5, dtype=torch.float64)
    radius = torch.sqrt(a * a + (dim / 2 - 0.5) ** 2)
    for step in (1e-9, 1e-3, 0.2499, 0.2501, 3.0):
        b = (a + step * radius).requires_grad_()
        (got,) = torch.autograd.grad(pot.secant(a, b).sum(), b)
        slopes, secants = truth.enclosure("slope", b), truth.enclosure("secant", a, b)
        for i in range(len(a)):
            want = float((slopes[i] - secants[i]) / (b[i].item() - a[i].item()))
            # the quotient subtracts slopes, each right to a few roundings, over a step of radius / 4 or more
            lost = 8 * torch.finfo(torch.float64).eps * float(slopes[i]) / (0.25 * float(radius[i]))
            assert got[i].item() == pytest.approx(want, rel=1e-11, abs=lost), (dim, step, i)
