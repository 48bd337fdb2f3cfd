"""Polynomials and divided differences over the rationals, where they are exact, and the operations of the torch arithmetic at their edges."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import mpmath
import pytest
import torch

from pairgrad.ground.arithmetic import (
    BallArithmetic,
    FusedArithmetic,
    MpmathArithmetic,
    TorchArithmetic,
    divided_difference,
    homogeneous,
    homogeneous_difference,
    horner,
)

F = Fraction
COEFFICIENTS = [F(3), F(-1, 2), F(5, 3), F(7), F(-2, 9), F(1, 4), F(11), F(-3, 7), F(2), F(1, 5), F(6), F(4, 3)]
LENGTHS = range(1, len(COEFFICIENTS) + 1)
A, B, Y = F(2, 3), F(-5, 4), F(3, 5)


def value(coefficients: list[Fraction], t: Fraction) -> Fraction:
    return sum((c * t**i for i, c in enumerate(coefficients)), F(0))


def mixed(coefficients: list[Fraction], x: Fraction, y: Fraction) -> Fraction:
    degree = len(coefficients) - 1
    return sum((c * x**j * y ** (degree - j) for j, c in enumerate(coefficients)), F(0))


@pytest.mark.parametrize("length", LENGTHS)
def test_over_the_rationals(length: int) -> None:
    q = COEFFICIENTS[:length]
    assert horner(q, A) == value(q, A)
    assert divided_difference(q, A, B) == (value(q, B) - value(q, A)) / (B - A)
    assert homogeneous(q, A, Y) == mixed(q, A, Y)
    assert homogeneous_difference(q, A, B, Y) == (mixed(q, B, Y) - mixed(q, A, Y)) / (B - A)


@pytest.mark.parametrize("length", LENGTHS)
def test_differences_at_one_point_are_derivatives(length: int) -> None:
    q = COEFFICIENTS[:length]
    slope = [i * c for i, c in enumerate(q)][1:] or [F(0)]
    assert divided_difference(q, A, A) == value(slope, A)
    degree = length - 1
    assert homogeneous_difference(q, A, A, Y) == sum((j * c * A ** (j - 1) * Y ** (degree - j) for j, c in enumerate(q) if j), F(0))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("ops", [TorchArithmetic(), FusedArithmetic()], ids=["torch", "fused"])
@pytest.mark.parametrize("recorded", [True, False])
def test_polynomials_of_tensors(ops: TorchArithmetic, length: int, recorded: bool) -> None:
    """Positive terms: a rounding or two for each operation, relative to the sum. With and without a graph, which another scheme may serve."""
    coefficients = ops.constants([abs(c) for c in COEFFICIENTS[:length]])
    t = torch.tensor([0.0, 0.3, 1.0, 2.5], dtype=torch.float64)
    with torch.set_grad_enabled(recorded):
        got = ops.polynomial(coefficients, t)
    want = [float(value([F(c) for c in coefficients], F(x))) for x in t.tolist()]
    assert got.shape == t.shape
    assert got.tolist() == pytest.approx(want, rel=2 * (length + 1) * 2.0**-53)


def test_scheme_without_a_graph_leaves_its_argument_alone() -> None:
    t = torch.tensor([0.5, 2.0], dtype=torch.float64)
    for length in (3, 12):
        with torch.no_grad():
            TorchArithmetic().polynomial(tuple(map(float, COEFFICIENTS[:length])), t)
    assert t.tolist() == [0.5, 2.0]


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 500), (torch.float32, 60)])
def test_polar_coordinates_from_zero_to_infinity(dtype: torch.dtype, limit: int) -> None:
    """Both sides of the place from where on the constant is lost, and the largest number there is."""
    largest = torch.finfo(dtype).max
    sizes = [0.0, 2.0**-30, 1.0, 3.0, 2.0**30, 2.0 ** (limit - 1), 2.0**limit, 1.5 * 2.0**limit, largest]
    x = torch.tensor([*sizes, *(-s for s in sizes)], dtype=dtype)
    s, v = TorchArithmetic().polar(4.0, x)
    unit = torch.finfo(dtype).eps
    want = [math.hypot(4.0, number) if abs(number) < 1e300 else abs(number) for number in x.tolist()]
    assert s.tolist() == pytest.approx(want, rel=2 * unit)
    assert v.tolist() == pytest.approx([number / size for number, size in zip(x.tolist(), want, strict=True)], rel=2 * unit)
    assert torch.equal(TorchArithmetic().radius(4.0, x), s)
    ends = torch.tensor([torch.inf, -torch.inf], dtype=dtype)
    s, v = TorchArithmetic().polar(4.0, ends)
    assert s.tolist() == [math.inf, math.inf]
    assert v.tolist() == [1.0, -1.0]


def test_at_least_gives_each_a_half_where_they_are_equal() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    got = TorchArithmetic().at_least(x, 2.0)
    assert got.tolist() == [2.0, 2.0, 3.0]
    got.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.5, 1.0]


def test_log1p_over_its_argument() -> None:
    x = torch.tensor([0.0, 1e-300, -1e-9, 0.5, -0.75], dtype=torch.float64)
    want = [1.0, 1.0, 1 + 5e-10, math.log1p(0.5) / 0.5, math.log1p(-0.75) / -0.75]
    assert TorchArithmetic().log1p_over(x).tolist() == pytest.approx(want, rel=4 * 2.0**-53)


def test_other_operations_of_tensors() -> None:
    ops = TorchArithmetic()
    x = torch.tensor([0.0, 0.5, 30.0], dtype=torch.float64)
    i0, i1 = torch.special.i0(x), torch.special.i1(x)
    torch.testing.assert_close(ops.log_i0(x), i0.log(), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(ops.i1_over_i0(x), i1 / i0, rtol=1e-14, atol=0)
    assert ops.log_integer(7) == math.log(7)
    for arithmetic in (ops, FusedArithmetic()):
        with torch.no_grad():
            assert arithmetic.multiply_add(2.0, x, 3.0).tolist() == [3.0, 4.0, 63.0]
            assert arithmetic.multiply_add(x, x, x).tolist() == [0.0, 0.75, 930.0]


def test_log1p_over_its_argument_has_a_finite_gradient_at_zero() -> None:
    x = torch.tensor([0.0, 0.5], dtype=torch.float64, requires_grad=True)
    TorchArithmetic().log1p_over(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([0.0, (0.5 / 1.5 - math.log1p(0.5)) / 0.25], rel=1e-14)


@pytest.mark.parametrize("x", [0.125, 1.0, 40.0])
def test_balls_contain_what_mpmath_computes_and_little_else(x: float) -> None:
    balls, real = BallArithmetic(), MpmathArithmetic()
    with mpmath.workdps(40):
        number = mpmath.mpf(x)
        for name in ("sqrt", "exp", "log", "log1p", "log1p_over", "log_i0", "i1_over_i0"):
            ball = getattr(balls, name)(flint.arb(x))
            assert float(ball) == pytest.approx(float(getattr(real, name)(number)), rel=1e-12), name
            assert float(ball.rad()) <= 1e-13 * max(1.0, float(abs(ball))), name
        for name in ("logaddexp", "maximum", "minimum", "at_least", "radius"):
            ball = getattr(balls, name)(flint.arb(0.75), flint.arb(x))
            assert float(ball) == pytest.approx(float(getattr(real, name)(mpmath.mpf(0.75), number)), rel=1e-14), name
        s, v = balls.polar(flint.arb(0.75), flint.arb(x))
        assert [float(s), float(v)] == pytest.approx([math.hypot(0.75, x), x / math.hypot(0.75, x)], rel=1e-14)
    assert float(balls.log_integer(7)) == pytest.approx(math.log(7), rel=1e-15)


def test_log1p_over_a_ball_around_zero() -> None:
    """Contains the values at its ends, and is as wide as the ball; where that is too wide, nothing is said."""
    over = BallArithmetic().log1p_over
    found = over(flint.arb(0, 0.25))
    assert float(found) == 1
    assert float(found.rad()) == pytest.approx(0.25, rel=1e-6)
    for end in (0.25, -0.25):
        assert abs(math.log1p(end) / end - 1) <= 0.25
    assert not over(flint.arb(0, 0.75)).is_finite()
    beside = over(flint.arb(1, 0.25))
    assert 0.4 < float(beside.lower()) < math.log(2) < float(beside.upper()) < 1.2
