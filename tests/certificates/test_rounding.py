"""Rounding bounds: never exceeded, not far from what is seen, and right for each operation by itself."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.certificates.rounding import measured_slope_rounding, slope_rounding_bound
from pairgrad.certificates.rounding_arithmetic import FAR, RoundingArithmetic, above
from pairgrad.certificates.rounding_constants import UNIT_ROUNDOFF
from pairgrad.ground.arithmetic import BallArithmetic, TorchArithmetic, homogeneous, homogeneous_difference
from tests.tolerances import ROUNDING_OPERATION_SHARPNESS, ROUNDING_SHARPNESS
from tests.truth import scale

DTYPES = (torch.float64, torch.float32)
DIMS = (2, 3, 5, 17, 64, 512, 4096, 100_000)
TORCH = TorchArithmetic()


def arguments(dim: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """x / max(nu, 1/2) log-uniform in [1e-8, 1e8], three of four in [1e-2, 1e3]; then the ends of the domain and of the clamp in `polar`."""
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [3, 512])
def test_what_was_seen_is_what_an_independent_measurement_sees(dim: int, dtype: torch.dtype) -> None:
    pot = pg.potential(dim)
    seen = measured_slope_rounding(pot, dtype, states=400)
    again = errors_of_slope(dim, arguments(dim, dtype, 400), pot.slope(arguments(dim, dtype, 400))).max()
    assert seen <= slope_rounding_bound(pot, dtype).roundings
    assert 0.5 * again <= seen <= 2 * again


class Contracted:
    """float32 in which each product that goes into a sum is fused into it; float64 stands for the exact product and sum."""

    def __init__(self, value: torch.Tensor, product: torch.Tensor | None = None) -> None:
        self.value, self.product = value, product

    @staticmethod
    def of(other: Any) -> Contracted:
        return other if isinstance(other, Contracted) else Contracted(torch.tensor(other, dtype=torch.float32))

    def __add__(self, other: Any) -> Contracted:
        first, second = (self, Contracted.of(other)) if self.product is not None else (Contracted.of(other), self)
        exact = first.value.double() if first.product is None else first.product
        return Contracted((exact + second.value.double()).float())

    def __neg__(self) -> Contracted:
        return Contracted(-self.value, None if self.product is None else -self.product)

    def __sub__(self, other: Any) -> Contracted:
        return self + -other

    def __rsub__(self, other: Any) -> Contracted:
        return -self + other

    def __mul__(self, other: Any) -> Contracted:
        product = self.value.double() * Contracted.of(other).value.double()
        return Contracted(product.float(), product)

    def __truediv__(self, other: Any) -> Contracted:
        return Contracted(self.value / Contracted.of(other).value)

    def __rtruediv__(self, other: Any) -> Contracted:
        return Contracted(self.value.reciprocal() * other)

    __radd__, __rmul__ = __add__, __mul__


class ContractedArithmetic(TorchArithmetic):
    def polar(self, c: float, x: torch.Tensor) -> Any:
        root = (x.double() * x.double() + torch.tensor(c * c, dtype=torch.float32).double()).float().sqrt()
        return Contracted(torch.maximum(root, x.abs())), Contracted(x / root)


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [17, 512])
def test_no_point_of_the_axis_is_left_out(dim: int, dtype: torch.dtype) -> None:
    """The condition at a point, from the smallest x to infinity, is below the bound for all boxes; still smaller x are refused."""
    bound = slope_rounding_bound(pg.potential(dim), dtype)
    largest = torch.finfo(dtype).max
    points = [2.0**k for k in np.linspace(math.log2(bound.smallest) + 0.01, math.log2(largest) - 0.01, 150)]
    boxes = [*((x, x) for x in [bound.smallest, *points, largest]), (largest, math.inf)]
    formulas = pg.potential(dim).formulas(dtype)
    at = [proven_error(formulas.slope, box, dtype) for box in boxes]
    assert max(at) <= bound.roundings * (1 + 1e-12), boxes[int(np.argmax(at))]  # here the balls have fewer bits
    assert proven_error(formulas.slope, (bound.smallest / 64, bound.smallest), dtype) == math.inf
    assert bound.boxes >= 34
    assert bound.relative == bound.roundings * UNIT_ROUNDOFF[dtype]


def test_boxes_cover_the_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = []

    def recorded(dtype: torch.dtype, box: tuple[float, float], kept: Any) -> RoundingArithmetic:
        boxes.append(box)
        return RoundingArithmetic(dtype, box, kept)

    monkeypatch.setattr("pairgrad.certificates.rounding.RoundingArithmetic", recorded)
    bound = slope_rounding_bound.__wrapped__(pg.potential(64), torch.float64)
    reached = bound.smallest
    for a, b in sorted(boxes):
        assert a <= reached, "a gap"
        reached = max(reached, b)
    assert reached == math.inf


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


THIRD, CENTRE = Fraction(1, 3), Fraction(7, 6)
WAVE = tuple(Fraction((-1) ** i, i * i + 3) for i in range(12))
POSITIVE = tuple(abs(c) for c in WAVE[:6])


def v_times_t(ops: Any, x: Any) -> Any:
    """Both results of `polar`, whose roundings of s are one."""
    s, v = ops.polar(ops.constant(CENTRE), x)
    return v * (ops.constant(CENTRE) / s)


# name: (formula, box). The boxes begin just above a power of two, or of its image, where the floats are sparsest.
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, float]]] = {
    "sum": (lambda ops, x: x + (x + 1) / 4, (0.8, 0.81)),
    "constant that is rounded, in a sum": (lambda ops, x: ops.constant(THIRD) + x, (0.01, 0.0101)),
    "difference with cancellation": (lambda ops, x: x - 7 / 3, (2.6, 2.61)),
    "constant minus number": (lambda ops, x: ops.constant(Fraction(1000, 3)) - x, (3.0, 3.01)),
    "number minus number": (lambda ops, x: x - x * x, (0.3, 0.31)),
    "product": (lambda ops, x: x * x, (1.01, 1.02)),
    "constant that is rounded, in a product": (lambda ops, x: 0.1 * x, (1.3, 1.31)),
    "constant that Python computes first": (lambda ops, x: 2 / ops.constant(THIRD * 7) * x, (1.3, 1.31)),
    "reciprocal": (lambda ops, x: 1 / x, (0.98, 0.99)),
    "constant over number": (lambda ops, x: 5 / x, (0.97, 0.98)),
    "quotient": (lambda ops, x: x / (x + 1), (1.1, 1.11)),
    "negative of a number": (lambda ops, x: -x + 5, (0.9, 0.91)),
    "negative of a product": (lambda ops, x: -(x * x) + 5, (0.9, 0.91)),
    "square root": (lambda ops, x: ops.sqrt(x), (1.02, 1.03)),
    "s where x is small": (lambda ops, x: ops.polar(ops.constant(CENTRE), x)[0], (0.1, 0.11)),
    "s where x is as large as c": (lambda ops, x: ops.polar(ops.constant(CENTRE), x)[0], (1.6, 1.61)),
    "v": (lambda ops, x: ops.polar(ops.constant(CENTRE), x)[1], (0.71, 0.72)),
    "v where it is rounded most and s least": (lambda ops, x: ops.polar(ops.constant(Fraction(107, 64)), x)[1], (0.995, 0.996)),
    "v where x is very small": (lambda ops, x: ops.polar(ops.constant(CENTRE), x)[1], (1e-30, 1e-3)),
    "v and s": (v_times_t, (0.71, 0.72)),
    "polynomial in one chain": (lambda ops, x: ops.polynomial(ops.constants(WAVE[:4]), x), (0.9, 0.91)),
    "polynomial in two chains": (lambda ops, x: ops.polynomial(ops.constants(WAVE), x), (0.9, 0.91)),
    "homogeneous": (lambda ops, x: homogeneous(ops.constants(POSITIVE), x, 1 - x), (0.4, 0.401)),
    "its difference": (lambda ops, x: homogeneous_difference(ops.constants(POSITIVE), x, x, 1 - x), (0.4, 0.401)),
    "operation that is repeated": (lambda ops, x: (x * x) * 0.3 / ((x * x) * 0.7), (1.01, 1.02)),
}
EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "twice": lambda ops, x: 2 * x,
    "half": lambda ops, x: x / 2,
    "zero and one": lambda ops, x: 1 * x + 0 * x + 0.0,
    "minus": lambda ops, x: -x,
    "constant polynomial": lambda ops, x: x * ops.polynomial(ops.constants((Fraction(1, 4),)), x),
}


def proven_error(formula: Callable[[Any, Any], Any], box: tuple[float, float], dtype: torch.dtype = torch.float32) -> float:
    ops = RoundingArithmetic(dtype, box)
    return above((ops.condition(formula(ops, ops.argument)) * ops.log_unit).expm1()) / UNIT_ROUNDOFF[dtype]


def float32_error(formula: Callable[[Any, Any], Any], box: tuple[float, float], count: int = 400_000) -> float:
    x = torch.rand(count) * (box[1] - box[0]) + box[0]
    exact = formula(TORCH, x.double())
    return float(((formula(TORCH, x).double() - exact) / exact).abs().max()) / UNIT_ROUNDOFF[torch.float32]


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str) -> None:
    formula, box = OPERATIONS[name]
    seen, proven = float32_error(formula, box), proven_error(formula, box)
    assert ROUNDING_OPERATION_SHARPNESS * proven <= seen <= proven * (1 + 1e-6), f"{name}: {seen:.3f} u seen, {proven:.3f} u proven"


@pytest.mark.parametrize("name", EXACT)
def test_operation_without_rounding(name: str) -> None:
    assert proven_error(EXACT[name], (0.9, 0.91)) <= 1e-300  # not 0, because bounds are rounded upwards
    assert float32_error(EXACT[name], (0.9, 0.91)) == 0


def test_division_by_a_scalar_leaves_room_for_its_reciprocal() -> None:
    x = torch.rand(400_000) / 100 + 1.03
    errors = (x * torch.tensor(1 / 7) - x.double() / 7).abs() / (x.double() / 7)
    proven = proven_error(lambda ops, x: x / 7, (1.03, 1.04))
    assert max(float(errors.max()) / UNIT_ROUNDOFF[torch.float32], float32_error(lambda ops, x: x / 7, (1.03, 1.04))) <= proven < 3


@pytest.mark.parametrize("part", [0, 1])
def test_clamp_of_polar_is_part_of_the_error(part: int) -> None:
    """With c = 2^52 the clamp at 2^60 shows: beyond, x / s stays below 1 by 2^-17, and s is off where x is not much larger."""
    x = FAR * torch.logspace(-2, 40, 100_000, base=2)
    c = Fraction(2**52)
    exact = TORCH.polar(float(c), x.double())[part]  # in float64 the clamp is elsewhere
    seen = float((TORCH.polar(float(c), x)[part] / exact - 1).abs().max()) / UNIT_ROUNDOFF[torch.float32]
    proven = proven_error(lambda ops, x: ops.polar(ops.constant(c), x)[part], (FAR / 4, FAR * 2.0**40))
    assert 100 < seen <= proven < 3 * seen


@pytest.mark.parametrize("sign", [1, -1])
def test_fused_product_is_counted_for_each_sum(sign: int) -> None:
    """(x^2 + c) / x^2 with a small c: one rounding of x^2 would all but cancel, and leave 2 u; but the fused sum has none of it."""
    c = float(torch.tensor(0.015))

    def formula(_: Any, x: Any) -> Any:
        return (c - x * x if sign < 0 else c + x * x) / (x * x)

    x = torch.rand(400_000) / 100 + 1.01
    exact = formula(None, x.double())
    seen = float((formula(None, Contracted(x)).value / exact - 1).abs().max()) / UNIT_ROUNDOFF[torch.float32]
    assert 2.2 <= seen <= proven_error(formula, (1.01, 1.02)) <= 4.1


def test_a_zero_of_a_polynomial_is_harmless() -> None:
    """x - 1 vanishes in the box and is added to something that does not."""
    formula = lambda ops, x: (x - 1) * (x - 1) * x + 3  # noqa: E731
    assert float32_error(formula, (0.99, 1.01)) <= proven_error(formula, (0.99, 1.01)) < 0.8


def test_a_result_that_may_vanish_has_no_bound() -> None:
    assert proven_error(lambda ops, x: x - 1, (0.5, 1.5)) == math.inf


def test_underflow_is_part_of_the_error() -> None:
    """x^2 is subnormal in float32, so that a machine may make it 0."""
    formula = lambda ops, x: x * x * 1e30 + 1e-6  # noqa: E731
    box = (0.9e-19, 1e-19)
    proven = proven_error(formula, box)
    flushed = 1 - 1e-6 / formula(TORCH, torch.tensor(box[1], dtype=torch.float64))
    assert 1e5 < float(flushed) / UNIT_ROUNDOFF[torch.float32] <= proven < 1e6
    assert float32_error(formula, box) <= proven


def test_the_hypothesis_about_operations_holds_here() -> None:
    """Every float32 in [1, 4): division rounds to nearest, the square root is within one unit in the last place. Other binades are alike."""
    x = (torch.arange(1 << 24, dtype=torch.int32) + 0x3F800000).view(torch.float32)
    assert float(x[0]) == 1
    assert float(x[-1]) < 4
    assert torch.equal(x.reciprocal(), (1 / x.double()).float())
    root = x.sqrt()
    unit = 2.0**-23  # of results in [1, 2)
    assert float((root.double() - x.double().sqrt()).abs().max()) <= unit
    assert torch.equal(0.1 * x, (torch.tensor(0.1).double() * x.double()).float())
    wide = torch.rand(20_000, dtype=torch.float64) * 3 + 1
    assert all(abs(got - math.sqrt(a)) <= 2.0**-52 for a, got in zip(wide.tolist(), wide.sqrt().tolist(), strict=True))


def test_the_assumptions_about_torch_arithmetic_hold() -> None:
    """`polar` does not clamp up to FAR, a scalar over a tensor is its reciprocal times the scalar, and the two branches of a chain agree."""
    for dtype in DTYPES:
        x = torch.tensor([FAR / 2, FAR], dtype=dtype)
        v = TORCH.polar(FAR, x)[1].double()
        torch.testing.assert_close(v, torch.tensor([1 / math.sqrt(5), 1 / math.sqrt(2)], dtype=torch.float64), rtol=1e-6, atol=0)
        x = torch.rand(10_000, dtype=dtype) + 0.5
        assert torch.equal(0.7 / x, x.reciprocal() * 0.7)
        for length in (2, 3, 7, 8, 12):
            coefficients = TORCH.constants(WAVE[:length])
            with torch.no_grad():
                in_place = TORCH.polynomial(coefficients, x)
            with torch.enable_grad():
                assert torch.equal(TORCH.polynomial(coefficients, x), in_place)
