"""The arithmetic that rounding bounds are computed in: right for each operation by itself, and at every point of the axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import slope_rounding_bound
from pairgrad.certificates.rounding import measured_slope_rounding
from pairgrad.certificates.rounding_arithmetic import FAR, RoundingArithmetic, above
from pairgrad.certificates.rounding_constants import UNIT_ROUNDOFF
from pairgrad.ground import TorchArithmetic
from pairgrad.ground.arithmetic import homogeneous, homogeneous_difference
from tests.certificates.contracted import Contracted
from tests.tolerances import ROUNDING_OPERATION_SHARPNESS

DTYPES = (torch.float64, torch.float32)
TORCH = TorchArithmetic()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [3, 512])
def test_what_is_measured_is_below_the_bound(dim: int, dtype: torch.dtype) -> None:
    pot = pg.potential(dim)
    seen = measured_slope_rounding(pot, dtype, states=400)
    assert 1 < seen <= slope_rounding_bound(pot, dtype).roundings


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


# Operations, one by one -----------------------------------------------------------------------------------------------

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
