"""`"paired"` is exact to rounding: against ball arithmetic at every dimension and concentration, in float64 and in float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import pairgrad as pg
from tests.tolerances import paired_tolerance
from tests.truth import exact, relative_error, scale

DTYPES = (torch.float64, torch.float32)
ONE_POINT = ("value", "slope", "complement", "curvature")
TWO_POINT = ("difference", "secant")
GRID_DIMS = (2, 3, 4, 5, 7, 8, 9, 13, 16, 21, 28, 29, 30, 31, 33, 64, 129, 512, 4096, 100_000)


def report(quantity: str, dtype: torch.dtype, worst: list[tuple[float, int, float, float]]) -> str:
    rows = "\n".join(
        f"  dim {dim}, x = {x!r}, b = {b!r}: relative error {error:.3g}" for error, dim, x, b in sorted(worst, reverse=True)[:5]
    )
    return f"{quantity} in {dtype} exceeds its documented accuracy:\n{rows}"


def check(quantity: str, dtype: torch.dtype, dim: int, *points: torch.Tensor) -> list[tuple[float, int, float, float]]:
    """The points at which the documented accuracy is exceeded."""
    got = getattr(pg.potential(dim), quantity)(*points)
    errors = relative_error(got, exact(quantity, dim, *points))
    bad = np.flatnonzero(errors > paired_tolerance(quantity, dtype, dim))
    last = points[-1]
    return [(float(errors[i]), dim, float(points[0][i]), float(last[i])) for i in bad]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", GRID_DIMS)
def test_grid(dim: int, dtype: torch.dtype) -> None:
    x = scale(dim) * torch.logspace(-8, 8, 33, dtype=dtype)
    failures = {q: check(q, dtype, dim, x) for q in ONE_POINT}
    for gap in (1e-12, 1e-6, 1e-2, 1.0, 1e2):
        b = x * (1 + gap)
        moved = b != x
        for q in TWO_POINT:
            failures.setdefault(q, []).extend(check(q, dtype, dim, x[moved], b[moved]))
    for quantity, bad in failures.items():
        assert not bad, report(quantity, dtype, bad)


def random_states(count: int, dtype: torch.dtype, seed: int) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """(dim, x, b): half of the dimensions below 64, where the order shift works; x/max(nu, 1/2) in [1e-8, 1e8]; (b - x)/x in [1e-12, 1e2]."""
    rng = np.random.default_rng(seed)
    states = []
    for i in range(count):
        dim = int(rng.integers(2, 64)) if i % 2 else round(math.exp(rng.uniform(math.log(2), math.log(100_000))))
        spread = (-8.0, 8.0) if i % 4 < 2 else (-1.5, 2.5)
        x = torch.tensor([scale(dim) * 10 ** rng.uniform(*spread)], dtype=dtype)
        states.append((dim, x, x * (1 + 10 ** rng.uniform(-12, 2))))
    return states


def check_random(count: int, dtype: torch.dtype, seed: int) -> None:
    failures: dict[str, list[tuple[float, int, float, float]]] = {q: [] for q in ONE_POINT + TWO_POINT}
    for dim, x, b in random_states(count, dtype, seed):
        for q in ONE_POINT:
            failures[q] += check(q, dtype, dim, x)
        if b != x:
            for q in TWO_POINT:
                failures[q] += check(q, dtype, dim, x, b)
    for quantity, bad in failures.items():
        assert not bad, report(quantity, dtype, bad)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random(dtype: torch.dtype) -> None:
    check_random(400, dtype, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", DTYPES)
def test_twenty_thousand_random_states(dtype: torch.dtype) -> None:
    check_random(20_000, dtype, seed=1)


@pytest.mark.parametrize("nu", [0.1, 2.75, 14.3, 100.01])
def test_real_orders(nu: float) -> None:
    """Bessel orders that belong to no dimension."""
    pot = pg.potential(nu=nu)
    assert pot.dim is None
    x = nu * torch.logspace(-6, 6, 25, dtype=torch.float64)
    reference = pg.potential(nu=nu, realization="reference", digits=30)
    for quantity in ("slope", "complement", "curvature"):
        errors = relative_error(getattr(pot, quantity)(x), reference.enclosure(quantity, x))
        assert errors.max() <= paired_tolerance(quantity, torch.float64, 2), (quantity, nu, errors.max())


@pytest.mark.parametrize("dim", [2, 3, 8, 64, 512])
def test_value_plus_offset_is_the_potential(dim: int) -> None:
    pot = pg.potential(dim)
    x = scale(dim) * torch.logspace(-3, 3, 13, dtype=torch.float64)
    balls = pg.potential(dim, "reference").enclosure("value", x)
    for got, ball in zip((pot.value(x) + pot.offset).tolist(), balls, strict=True):
        # two rounded terms of opposite sign: absolute error of a few units of the larger
        assert abs(got - float(ball)) <= 8 * torch.finfo(torch.float64).eps * max(1.0, abs(pot.offset), abs(got - pot.offset))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [3, 30, 512])
def test_symmetry(dim: int, dtype: torch.dtype) -> None:
    pot = pg.potential(dim)
    x = scale(dim) * torch.logspace(-4, 4, 17, dtype=dtype)
    y = 1.7 * x
    assert torch.equal(pot.value(-x), pot.value(x))
    assert torch.equal(pot.slope(-x), -pot.slope(x))
    assert torch.equal(pot.curvature(-x), pot.curvature(x))
    assert torch.equal(pot.difference(-x, y), pot.difference(x, -y))
    assert torch.equal(pot.difference(y, x), -pot.difference(x, y))
    assert torch.equal(pot.secant(y, x), pot.secant(x, y))
    assert torch.equal(pot.secant(-x, -y), -pot.secant(x, y))
    tol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(pot.secant(x, x), pot.slope(x), rtol=tol, atol=0)
    torch.testing.assert_close(pot.complement(-x), 1 + pot.slope(x), rtol=tol, atol=0)
    assert torch.equal(pot.secant(-x, x), torch.zeros_like(x))
