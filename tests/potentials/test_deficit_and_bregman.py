"""deficit, x - value(x), and bregman, the height of the potential over its tangent: accuracy, derivatives, limits, and every realization."""

from __future__ import annotations

import math

import flint
import numpy as np
import pytest
import torch
from torch.autograd import grad

import pairgrad as pg
from tests.tolerances import paired_tolerance
from tests.truth import exact_at, order, relative_error, scale, working_precision

DTYPES = (torch.float64, torch.float32)
DIMS = (2, 3, 4, 5, 8, 16, 29, 30, 64, 512, 100_000)
GAPS = (-1.0, -0.9, -0.3, -0.05, -1e-4, 1e-7, 1e-3, 0.2, 0.3, 1.0, 30.0, 1e5)
# Where points are far apart, differences of numbers that are right to 5.4 eps at most (tolerances.py), two of them with a product: 16 eps of their sum.
FAR_ROUNDINGS = 16
BITS = 400


def ball(quantity: str, dim: int, *points: flint.arb) -> flint.arb:
    return exact_at(quantity, order(dim), *points, digits=60)


def numbers(x: torch.Tensor) -> list[flint.arb]:
    return [flint.arb(v) for v in x.double().tolist()]


def true_deficit(dim: int, x: torch.Tensor) -> np.ndarray:
    with working_precision(BITS):
        return np.array([v - ball("difference", dim, flint.arb(0), v) for v in numbers(x)], dtype=object)


def points(dim: int, dtype: torch.dtype, count: int = 33) -> torch.Tensor:
    return scale(dim) * torch.logspace(-8, 8, count, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_deficit_is_right_relative_to_itself(dim: int, dtype: torch.dtype) -> None:
    x = points(dim, dtype).requires_grad_()
    got = pg.potential(dim).deficit(x)
    errors = relative_error(got, true_deficit(dim, x.detach()))
    # as the value, of which it is the counterpart
    assert errors.max() <= paired_tolerance("value", dtype, dim), (dim, x[int(errors.argmax())].item(), errors.max())
    (first,) = grad(got.sum(), x, create_graph=True)
    assert torch.equal(first, pg.potential(dim).complement(x))
    (second,) = grad(first.sum(), x)
    assert torch.equal(second, -pg.potential(dim).curvature(x.detach()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 3, 5, 16, 30, 64, 512, 4096])
def test_bregman(dim: int, dtype: torch.dtype) -> None:
    """Close points: relative to itself, as the curvature. Others: relative to the terms of value(b) - value(a) - slope(a) (b - a), and to those of
    complement(a) (b - a) - deficit(b) + deficit(a), whichever are smaller."""
    pot, eps = pg.potential(dim), torch.finfo(dtype).eps
    a = points(dim, dtype, 9).repeat_interleave(len(GAPS))
    b = (a * (1 + torch.tensor(GAPS, dtype=dtype).repeat(9))).clamp_min(0)
    x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
    got = pot.bregman(x, y)
    by_a, by_b = grad(got.sum(), (x, y))
    near = ((b - a).abs() <= torch.hypot(torch.tensor(dim / 2 - 0.5, dtype=dtype), torch.minimum(a, b)) / 4).tolist()
    curvature = paired_tolerance("curvature", dtype, dim)
    close, far = paired_tolerance("curvature", dtype, dim) + FAR_ROUNDINGS * eps, FAR_ROUNDINGS * eps
    with working_precision(BITS):
        for i, (p, q) in enumerate(zip(numbers(a), numbers(b), strict=True)):
            zero = flint.arb(0)
            va, vb = (ball("difference", dim, zero, v) for v in (p, q))
            slope, other = ball("slope", dim, p), ball("slope", dim, q)
            step, rest, curved = q - p, ball("complement", dim, p), ball("curvature", dim, p)
            wanted = ball("difference", dim, p, q) - slope * step
            terms = min(float(va + vb + slope * abs(step)), float((p - va) + (q - vb) + rest * abs(step)))
            error = abs(float(flint.arb(got[i].item()) - wanted))
            assert error <= (close * abs(float(wanted)) if near[i] else far * terms), (
                dim,
                float(p),
                float(q),
                got[i].item(),
                float(wanted),
            )
            error = abs(float(flint.arb(by_a[i].item()) + step * curved))
            assert error <= (curvature + 2 * eps) * abs(float(step * curved)), (dim, float(p), float(q))
            rise = min(float(slope + other), float(rest + 1 - other))
            assert abs(float(flint.arb(by_b[i].item()) - (other - slope))) <= 2 * far * rise, (dim, float(p), float(q))


def test_bregman_is_no_less_than_nothing() -> None:
    g = torch.Generator().manual_seed(0)
    for dim in (2, 3, 64, 4096):
        a, b = (scale(dim) * 10 ** (torch.rand(4000, generator=g) * 16 - 8) for _ in range(2))
        got = pg.potential(dim).bregman(a, b)
        assert bool((got >= 0).all())
        assert torch.equal(pg.potential(dim).bregman(a, a), torch.zeros_like(a))
        # three points on a line: D(a, c) = D(a, b) + D(b, c) + (slope(b) - slope(a)) (c - b)
    a, b, c = (torch.tensor([v], dtype=torch.float64) for v in (1.0, 2.5, 7.0))
    pot = pg.potential(6)
    whole = pot.bregman(a, b) + pot.bregman(b, c) + (pot.slope(b) - pot.slope(a)) * (c - b)
    torch.testing.assert_close(pot.bregman(a, c), whole, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dim", [2, 8, 512])
def test_neighbours_of_the_branches_agree(dim: int) -> None:
    """Just inside and just outside the distance up to which bregman integrates, the two ways of computing it have to meet."""
    pot = pg.potential(dim)
    a = scale(dim) * torch.logspace(-2, 2, 9, dtype=torch.float64)
    step = torch.hypot(torch.tensor(dim / 2 - 0.5, dtype=torch.float64), a) / 4
    inside, outside = (pot.bregman(a, a + step * (1 + s)) for s in (-1e-9, 1e-9))
    change = pot.slope(a + step) - pot.slope(a)
    # 16 eps of the terms of either side, at most 60 times the result here
    torch.testing.assert_close(outside - inside, 2e-9 * step * change, rtol=1e-3, atol=1e-12 * float(outside.max()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_limits(dtype: torch.dtype) -> None:
    inf, nan, largest = math.inf, math.nan, torch.finfo(dtype).max
    for dim in (2, 3, 8, 64, 512):
        pot = pg.potential(dim)
        x = torch.tensor([0.0, inf, -inf, nan, largest, 1e-30], dtype=dtype)
        got = pot.deficit(x)
        assert got[0] == 0
        assert got[1] == inf
        assert got[2] == -inf
        assert got[3].isnan()
        assert 0 < got[4] < 1e3 * dim  # grows with the logarithm
        assert got[5] == x[5]
        negative = torch.tensor([0.1, 3.0, 1e4], dtype=dtype)
        torch.testing.assert_close(pot.deficit(-negative), -negative - pot.value(negative), rtol=8 * torch.finfo(dtype).eps, atol=0)
        a, b = torch.tensor([[1.0, inf], [nan, 1.0], [1.0, nan], [0.0, 0.0], [0.0, largest], [largest, 0.0]], dtype=dtype).unbind(-1)
        got = pot.bregman(a, b)
        assert got[0] == inf
        assert bool(got[1:3].isnan().all())
        assert got[3] == 0
        assert bool(got[4:].isfinite().all())
        assert got[4] >= largest / 2


@pytest.mark.parametrize("dim", [3, 64])
def test_legendre_subtracts_the_smaller_numbers(dim: int) -> None:
    """x slope - value to 16 roundings of the parts: of slope and value while the slope is small, of complement and deficit beyond."""
    x = points(dim, torch.float64)
    with working_precision(BITS):
        parts = [(v * ball("slope", dim, v), ball("difference", dim, flint.arb(0), v)) for v in numbers(x)]
        want = torch.tensor([float(p - q) for p, q in parts], dtype=torch.float64)
        plain = torch.tensor([float(p) + float(q) for p, q in parts], dtype=torch.float64)
    pot = pg.potential(dim)
    beyond = pot.deficit(x) + x * pot.complement(x)
    got = pot.legendre(x)
    assert ((got - want).abs() <= FAR_ROUNDINGS * torch.finfo(x.dtype).eps * torch.where(pot.slope(x) < 0.5, plain, beyond)).all()
    assert torch.equal(pot.legendre(-x), got)
    leaf = x.clone().requires_grad_()
    assert torch.equal(grad(pot.legendre(leaf).sum(), leaf)[0], x * pot.curvature(x))


def test_bregman_from_infinity() -> None:
    inf = torch.tensor(math.inf, dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    pot = pg.potential(8)
    assert pot.bregman(inf, inf) == 0
    assert pot.bregman(inf, one) == math.inf
    assert pot.bregman(one, inf) == math.inf


@pytest.mark.parametrize("name", ["paired", "scott", "original"])
def test_an_increment_down_to_zero_may_round_below_it(name: str) -> None:
    a = torch.tensor([1.0, 3.0], dtype=torch.float64)
    pot = pg.potential(8, realization=name)
    down = pot.increment(a, -(a * a) * (1 + 4 * torch.finfo(a.dtype).eps))
    torch.testing.assert_close(down, pot.value(torch.zeros_like(a)) - pot.value(a), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dim", [8, 64])
@pytest.mark.parametrize("name", ["paired", "arfr", "scott", "log-bessel", "consistent", "original", "log-miller", "reference"])
def test_every_realization_has_a_deficit_of_its_own_value(name: str, dim: int) -> None:
    """Within 64 roundings of the two numbers whose difference it is."""
    pot = pg.potential(dim, name)
    x = torch.tensor([0.3, 2.0, 9.0, 40.0, 300.0], dtype=torch.float64).requires_grad_()
    got, value = pot.deficit(x), pot.value(x).detach()
    allowed = 64 * torch.finfo(torch.float64).eps * (x.detach() + value.abs())
    assert bool(((got.detach() - (x.detach() - value)).abs() <= allowed).all())
    if name != "reference":
        (slope,) = grad(got.sum(), x)
        assert torch.equal(slope, pot.complement(x.detach()))
    a, b = x.detach(), torch.tensor([0.31, 5.0, 8.0, 1.0, 0.0], dtype=torch.float64)
    if pot.coherent:
        plain = pot.value(b) - pot.value(a) - pot.slope(a) * (b - a)
        # the recurrences and log-bessel have slopes as good as differences of logarithms: 1e-9 of the terms, otherwise rounding
        loose = 1e-9 if name in ("consistent", "log-bessel") else 64 * torch.finfo(torch.float64).eps
        size = pot.value(b).abs() + pot.value(a).abs() + pot.slope(a) * (b - a).abs()
        assert bool(((pot.bregman(a, b) - plain).abs() <= loose * size).all()), (pot.bregman(a, b), plain)


@pytest.mark.parametrize("name", ["original", "log-miller"])
def test_bregman_of_what_is_not_coherent_is_its_definition(name: str) -> None:
    """The slope that is supplied, and the value that is reported: nothing that holds for a derivative is made use of."""
    pot = pg.potential(4, name)
    a, b = torch.tensor([0.5, 3.0, 20.0], dtype=torch.float64), torch.tensor([0.7, 1.0, 45.0], dtype=torch.float64)
    assert torch.equal(pot.bregman(a, b), pot.difference(a, b) - pot.slope(a) * (b - a))


def test_compiled_and_mapped() -> None:
    pot = pg.potential(64)
    a, b = torch.tensor([0.5, 3.0, 700.0]), torch.tensor([0.6, 90.0, 20.0])
    both = torch.compile(lambda x, y: (pot.deficit(x), pot.bregman(x, y)), fullgraph=True, backend="eager")
    for got, wanted in zip(both(a, b), (pot.deficit(a), pot.bregman(a, b)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=4 * torch.finfo(torch.float32).eps, atol=0)
    assert torch.equal(torch.func.vmap(pot.deficit)(a), pot.deficit(a))
    assert torch.equal(torch.func.vmap(pot.bregman)(a, b), pot.bregman(a, b))
    (by_a, by_b) = torch.func.vmap(torch.func.grad(pot.bregman, argnums=(0, 1)))(a, b)
    torch.testing.assert_close(by_a, (a - b) * pot.curvature(a))
    torch.testing.assert_close(by_b, pot.slope(b) - pot.slope(a), rtol=1e-4, atol=0)
    _, tangent = torch.func.jvp(pot.deficit, (a,), (torch.ones_like(a),))
    assert torch.equal(tangent, pot.complement(a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_concentration_from_the_complement(dtype: torch.dtype) -> None:
    """Where 1 - r is known, the concentration is found to its digits, also where r itself rounds to 1."""
    for dim in (2, 3, 16, 512):
        pot, x = pg.potential(dim), points(dim, dtype)[12:]
        r, rest = pot.slope(x), pot.complement(x)
        got = pot.concentration(r.clamp(max=1.0), complement=rest)
        # relative conditions of x as a function of 1 - r, and of r: at least 1; eight roundings, as for r alone
        condition = torch.minimum(rest / (x * pot.curvature(x)), r / (x * pot.curvature(x))).clamp_min(1)
        error = (got - x).abs() / x / condition
        assert error.max() <= 8 * torch.finfo(dtype).eps, (dim, error.max().item() / torch.finfo(dtype).eps, x[error.argmax()].item())
    r = torch.tensor([0.9], dtype=dtype, requires_grad=True)
    (slope,) = grad(pg.potential(5).concentration(r, complement=1 - r.detach()).sum(), r)
    torch.testing.assert_close(slope, 1 / pg.potential(5).curvature(pg.potential(5).concentration(r.detach())))
    with pytest.raises(ValueError, match="complement is read by method='newton' only"):
        pg.potential(5).concentration(r, "closed-form", complement=1 - r)


def test_the_rule_of_close_points_has_points_enough() -> None:
    """Twice as many points change nothing beyond the tolerance of the curvature, over the whole length on which points count as close."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for dim in (2, 3, 8, 512):
        pot = pg.potential(dim)
        a = scale(dim) * torch.logspace(-3, 3, 25, dtype=torch.float64)
        step = torch.hypot(torch.tensor(dim / 2 - 0.5, dtype=torch.float64), a)
        for sign in (0.99, -0.5):
            b = (a + sign * step).clamp_min(0)
            got = pot.bregman(a, b)
            places = zip((1 + nodes) / 2, weights / 2, strict=True)
            better = (b - a) ** 2 * sum(w * (1 - n) * pot.curvature(a + n * (b - a)) for n, w in places)
            near = (b - a).abs() <= torch.hypot(torch.tensor(dim / 2 - 0.5, dtype=torch.float64), torch.minimum(a, b))
            torch.testing.assert_close(got[near], better[near], rtol=paired_tolerance("curvature", torch.float64, dim), atol=0)
            assert int(near.sum()) >= 5
