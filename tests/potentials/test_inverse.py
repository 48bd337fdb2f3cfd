"""concentration: the inverse of the slope."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pairgrad as pg
from tests.tolerances import INVERSE_ROUNDINGS
from tests.truth import scale

DTYPES = (torch.float64, torch.float32)
DIMS = (2, 3, 4, 5, 8, 31, 64, 512, 100_000)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_round_trip(dim: int, dtype: torch.dtype) -> None:
    """To the conditioning of the problem: rounding the length by u moves x by u R / (x R')."""
    pot = pg.potential(dim)
    x = scale(dim) * torch.logspace(-8, 7 if dtype == torch.float64 else 4, 301, dtype=dtype)
    length = pot.slope(x)
    inside = length < 1
    x, length = x[inside], length[inside]
    condition = length / (x * pot.curvature(x))
    error = (pot.concentration(length) - x).abs() / x
    unit = torch.finfo(dtype).eps / 2
    worst = (error / (unit * condition.clamp(min=1))).max().item()
    assert worst <= INVERSE_ROUNDINGS, worst
    if dtype == torch.float64:
        assert error[condition < 100].max() <= 1e-12


@pytest.mark.parametrize("dim", DIMS)
def test_the_concentration_solves_its_equation(dim: int) -> None:
    """slope(concentration(r)) = r to eight roundings of r, and likewise for complements where r is close to 1: no step of Newton's method is missing."""
    pot = pg.potential(dim)
    for dtype in DTYPES:
        eps = torch.finfo(dtype).eps
        length = torch.logspace(-7, -0.001, 400, dtype=dtype)
        assert ((pot.slope(pot.concentration(length)) - length).abs() <= 4 * eps * length).all()
        rest = torch.logspace(-6, -1, 100, dtype=dtype)
        got = pot.complement(pot.concentration(1 - rest, complement=rest))
        assert ((got - rest).abs() <= 4 * eps * rest).all()


@pytest.mark.parametrize("name", ["arfr", "scott", "log-bessel"])
def test_other_realizations_invert_their_own_slope(name: str) -> None:
    pot = pg.potential(64, name)
    x = torch.logspace(-2, 3, 60, dtype=torch.float64)
    torch.testing.assert_close(pot.concentration(pot.slope(x)), x, rtol=1e-8, atol=0)


def test_slopes_that_do_not_increase_are_refused() -> None:
    """Low orders at small nu turn back: there is no inverse to return."""
    for pot in (pg.potential(3, "arfr"), pg.potential(2, order=3)):
        with pytest.raises(ValueError, match="not monotone: use realization='paired'"):
            pot.concentration(torch.tensor([0.3]))
    x = torch.logspace(-1, 2, 30, dtype=torch.float64)
    low_order = pg.potential(4, "arfr")
    torch.testing.assert_close(low_order.concentration(low_order.slope(x)), x, rtol=1e-11, atol=0)


def test_nan_where_looking_is_not_possible() -> None:
    length = torch.tensor([0.5, 1.25])
    for method in ("newton", "closed-form"):
        got = torch.func.vmap(lambda r, m=method: pg.potential(16).concentration(r, method=m))(length)
        assert got.isnan().tolist() == [False, True]


def test_special_lengths() -> None:
    pot = pg.potential(16)
    length = torch.tensor([0.0, 1.0, -1.0, -0.5, torch.nan], dtype=torch.float64)
    got = pot.concentration(length)
    assert got[0] == 0
    assert got[1] == torch.inf
    assert got[2] == -torch.inf
    assert got[3] == -pot.concentration(-length[3:4])[0]
    assert got[4].isnan()


def test_outside_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match=r"resultant_length must lie in \[-1, 1\], got values up to 1\.25 .* normalise the features"):
        pg.potential(16).concentration(torch.tensor([0.3, 1.25]))


def test_realizations_without_an_inverse_say_why() -> None:
    with pytest.raises(ValueError, match="'original' is clipped or not monotone: use realization='paired'"):
        pg.potential(16, "original").concentration(torch.tensor([0.3]))
    with pytest.raises(ValueError, match="method must be one of 'newton', 'closed-form', got 'guess'"):
        pg.potential(16).concentration(torch.tensor([0.3]), method="guess")


@pytest.mark.parametrize("name", ["paired", "original"])
def test_closed_form(name: str) -> None:
    """dim r / (1 - r^2), for any realization: it does not depend on the slope."""
    length = torch.tensor([0.0, 0.25, 0.9], dtype=torch.float64)
    got = pg.potential(128, name).concentration(length, method="closed-form")
    torch.testing.assert_close(got, 128 * length / (1 - length**2))


def test_closed_form_at_its_ends() -> None:
    length = torch.tensor([1.0, -1.0, 0.0, -0.25], dtype=torch.float64)
    got = pg.potential(16).concentration(length, method="closed-form")
    assert got.tolist() == [torch.inf, -torch.inf, 0.0, -16 * 0.25 / (1 - 0.0625)]


@pytest.mark.parametrize("dim", [3, 64])
def test_derivatives_by_the_implicit_function(dim: int) -> None:
    pot = pg.potential(dim)
    length = (0.05 + 0.9 * torch.rand(6, dtype=torch.float64)).requires_grad_()
    assert gradcheck(pot.concentration, length)
    assert gradgradcheck(pot.concentration, length)
    (got,) = torch.autograd.grad(pot.concentration(length).sum(), length)
    torch.testing.assert_close(got * pot.curvature(pot.concentration(length.detach())), torch.ones_like(got))
