"""Rounding bounds of the slope: never exceeded, and not far from what is seen."""

from __future__ import annotations

import math
import sys
from typing import Any

import flint
import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import slope_rounding_bound
from pairgrad.ground import BallArithmetic, TorchArithmetic
from tests.certificates.contracted import Contracted
from tests.tolerances import ROUNDING_SHARPNESS
from tests.truth import scale

FAR = 2.0**60  # where float32 stops squaring x
UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}

DTYPES = (torch.float64, torch.float32)
DIMS = (2, 3, 5, 17, 64, 512, 4096, 100_000)
TORCH = TorchArithmetic()


def arguments(dim: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """x / max(nu, 1/2) log-uniform in [1e-8, 1e8], three of four in [1e-2, 1e3]; then the ends of the domain and what is around FAR."""
    rng = np.random.default_rng(dim)
    exponents = np.concatenate([rng.uniform(-8, 8, count // 4), rng.uniform(-2, 3, count - count // 4)])
    smallest = slope_rounding_bound(pg.potential(dim), dtype).smallest
    ends = torch.tensor([smallest, 2 * smallest, FAR / 2, FAR, 2 * FAR, torch.finfo(dtype).max], dtype=dtype)
    return torch.cat([torch.tensor(scale(dim) * 10**exponents, dtype=dtype), ends])


def errors_of_slope(dim: int, x: torch.Tensor, slope: torch.Tensor) -> np.ndarray:
    """Against the same expansion in real arithmetic, in units of u."""
    formulas = pg.potential(dim).formulas(x.dtype)
    if x.dtype == torch.float32:  # float64 is exact enough, by the bound of the other dtype
        exact = formulas.slope(TORCH, x.double())
        return ((slope.double() - exact) / exact).abs().numpy() / UNIT_ROUNDOFF[x.dtype]
    before, flint.ctx.prec = flint.ctx.prec, 160
    try:
        exact = [formulas.slope(BallArithmetic(), flint.arb(point)) for point in x.tolist()]
        errors = [float(abs(flint.arb(got) / ball - 1)) for got, ball in zip(slope.tolist(), exact, strict=True)]
    finally:
        flint.ctx.prec = before
    return np.array(errors) / UNIT_ROUNDOFF[x.dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [pytest.param(dim, marks=pytest.mark.slow) if dim in (2, 5) else dim for dim in DIMS])
def test_bound_is_sound_and_sharp(dim: int, dtype: torch.dtype) -> None:
    pot = pg.potential(dim)
    bound = slope_rounding_bound(pot, dtype)
    x = arguments(dim, dtype, 500 if dtype == torch.float64 else 200_000)
    errors = errors_of_slope(dim, x, pot.slope(x))
    worst = int(errors.argmax())
    place = f"dim {dim}, {dtype}, x = {float(x[worst])!r}: {errors[worst]:.3f} u seen, {bound.roundings:.3f} u proven"
    assert errors[worst] <= bound.roundings, place
    assert bound.roundings <= ROUNDING_SHARPNESS[dtype] * errors[worst], place


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_documented_bound_of_every_dimension(dtype: torch.dtype) -> None:
    """README.md and docs/certificates.md: 18 u below dim 30, 9.1 u from there on."""
    for dim in (*range(2, 400), 512, 1000, 1024, 4754, 8192, 131072, 10**6, 10**7):
        assert slope_rounding_bound(pg.potential(dim), dtype).roundings <= (18 if dim < 30 else 9.1), dim


class ContractedArithmetic(TorchArithmetic):
    def polar(self, c: float, x: torch.Tensor) -> Any:
        root = (x.double() * x.double() + torch.tensor(c * c, dtype=torch.float32).double()).float().sqrt()
        return Contracted(torch.maximum(root, x.abs())), Contracted(x / root)

    def reciprocal(self, x: Any) -> Any:  # type: ignore[override]
        return 1 / x


@pytest.mark.parametrize("dim", [2, 3, 5, 64])
def test_bound_holds_with_fused_products(dim: int) -> None:
    pot = pg.potential(dim)
    x = arguments(dim, torch.float32, 50_000)
    x = x[(x <= FAR) & (x >= 1e-30)]
    with torch.enable_grad():
        slope = pot.formulas(torch.float32).slope(ContractedArithmetic(), x).value  # type: ignore[attr-defined]
    errors = errors_of_slope(dim, x, slope)
    assert not torch.equal(slope, pot.slope(x))
    assert 1 < errors.max() <= slope_rounding_bound(pot, torch.float32).roundings


def test_slope_at_zero_and_infinity() -> None:
    for dtype in DTYPES:
        slope = pg.potential(30).slope(torch.tensor([0.0, math.inf], dtype=dtype))
        assert slope[0] == 0
        assert abs(float(slope[1]) - 1) <= slope_rounding_bound(pg.potential(30), dtype).relative


def test_constants_that_underflow_are_part_of_the_error() -> None:
    """Order 10 at dim 10^5 has coefficients below the smallest float32."""
    pot = pg.potential(100_000, order=10)
    bound = slope_rounding_bound(pot, torch.float32)
    x = arguments(100_000, torch.float32, 20_000)
    exact = pot.formulas(torch.float32).slope(TORCH, x.double())
    errors = ((pot.slope(x).double() - exact) / exact).abs().max()
    assert errors <= bound.relative < 10 * UNIT_ROUNDOFF[torch.float32]


def test_arfr_has_a_bound_too() -> None:
    pot = pg.potential(64, "arfr")
    x = scale(64) * torch.logspace(-4, 4, 20_000)
    exact = pot.formulas(torch.float32).slope(TORCH, x.double())
    errors = ((pot.slope(x).double() - exact) / exact).abs().max()
    assert errors <= slope_rounding_bound(pot, torch.float32).relative


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match=r"torch\.float32 or torch\.float64"):
        slope_rounding_bound(pg.potential(8), torch.bfloat16)
    with pytest.raises(TypeError, match="expansion"):
        slope_rounding_bound(pg.potential(8, "original"), torch.float64)


def test_without_flint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ImportError, match=r"pairgrad\[reference\]"):
        slope_rounding_bound(pg.potential(77), torch.float64)


def test_precision_of_flint_is_restored() -> None:
    before, flint.ctx.prec = flint.ctx.prec, 91
    try:
        slope_rounding_bound(pg.potential(78), torch.float32)
        assert flint.ctx.prec == 91
    finally:
        flint.ctx.prec = before
