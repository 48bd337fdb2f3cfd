"""Paths, samples along them, and the directions and cotangents that are drawn."""

from __future__ import annotations

import math

import pytest
import torch

from pairgrad.coherence.path import (
    Geometric,
    Line,
    Path,
    Straight,
    power_of_two_below,
    random_cotangent,
    random_signs,
    scales,
    snapped,
    still,
)
from pairgrad.coherence.subject import Subject
from tests.coherence.functions import sine_with
from tests.coherence.lines import number_line

F64 = torch.float64


def column(*values: float, dtype: torch.dtype = F64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def test_straight_and_still() -> None:
    path = Straight(column(1.0, 2.0, dtype=torch.float32), column(4.0, -8.0))
    assert path.point(0.25).tolist() == [2.0, 0.0]
    assert path.point(0.25).dtype == torch.float32
    assert path.velocity(0.25).tolist() == [4.0, -8.0]
    rest = still(column(3.0, dtype=torch.float32))
    assert rest.point(7.0).tolist() == [3.0]
    assert rest.velocity(7.0).tolist() == [0.0]
    assert rest.velocity(7.0).dtype == F64


def test_geometric_has_the_derivative_of_its_point_for_a_velocity() -> None:
    path = Geometric(column(2.0, -3.0), column(1.0, -0.5))
    assert path.point(2.0).tolist() == pytest.approx([2 * math.exp(2), -3 * math.exp(-1)], rel=1e-15)
    assert path.velocity(2.0).tolist() == pytest.approx([2 * math.exp(2), 1.5 * math.exp(-1)], rel=1e-15)


def test_a_sample_is_the_contraction_with_cotangent_and_velocity() -> None:
    """f = (x y, x^2) along x = 1 + t, y = 2 + 3 t with u = (5, -7): phi = 5 x y - 7 x^2, phi' = 5 (y + 3 x) - 14 x."""
    subject = Subject(lambda x, y: (x * y, x * x), (column(1.0), column(2.0)))
    path = Path((Straight(column(1.0), column(1.0)), Straight(column(2.0), column(3.0))))
    line = Line(subject, path, (column(5.0), column(-7.0)))
    sample = line.at(0.5)
    x, y = 1.5, 3.5
    assert sample.value == 5 * x * y - 7 * x * x
    assert sample.work == 5 * (y + 3 * x) - 14 * x
    assert sample.value_size == pytest.approx(math.hypot(5 * x * y, 7 * x * x), rel=1e-15)
    assert sample.gradient_size == pytest.approx(math.hypot(5 * y - 14 * x, 15 * x), rel=1e-15)
    assert (line.largest, line.steepest) == (sample.value_size, sample.gradient_size)
    line.at(-0.5)
    assert (line.largest, line.steepest) == (sample.value_size, sample.gradient_size)
    assert line.value(0.5) == sample.value
    assert line.value(0.25) == 5 * 1.25 * 2.75 - 7 * 1.25**2
    assert (line.reference, line.panels) == (1.0, 0)


def test_the_coarsest_dtype_of_arguments_and_cotangents_decides() -> None:
    subject = Subject(lambda x: x.double(), column(1.0, dtype=torch.float32))
    line = Line(subject, Path((still(column(1.0, dtype=torch.float32)),)), (column(1.0),))
    assert line.dtype == torch.float32
    assert line.epsilon == 2.0**-23


def test_a_line_knows_the_largest_that_it_has_met() -> None:
    line = number_line(sine_with(lambda x: 3.0).apply)
    assert (line.largest, line.steepest, line.panels) == (0.0, 0.0, 0)
    line.at(0.5)
    line.at(0.25)
    assert line.largest == pytest.approx(math.sin(0.5), rel=1e-14)
    assert line.steepest == pytest.approx(3 * math.cos(0.25), rel=1e-14)


def test_a_sample_is_taken_once() -> None:
    calls = []

    def counted(x):
        calls.append(x.item())
        return x.sin()

    line = number_line(counted)
    calls.clear()
    assert line.at(0.5) is line.at(0.5)
    assert line.value(0.5) == math.sin(0.5)
    assert len(calls) == 1
    line.value(0.25)
    line.value(0.25)
    assert len(calls) == 2


@pytest.mark.parametrize("error", [ValueError, ArithmeticError, IndexError, RuntimeError, AssertionError, ZeroDivisionError])
def test_what_raises_or_is_not_finite_is_outside(error: type[Exception]) -> None:
    def bounded(x):
        if x > 2:
            raise error("too far")
        return x.sqrt()

    line = number_line(bounded)
    assert line.at(3.0) is line.value(3.0) is None
    assert line.at(-1.0) is line.value(-1.0) is None
    assert line.at(1.0) is not None


@pytest.mark.parametrize("there", [lambda x: x[:1].sin(), lambda x: (x.sin(), x.cos()), lambda x: x.sin()[None]])
@pytest.mark.parametrize("differentiable", [True, False])
def test_outputs_of_another_number_or_shape_are_outside(there, differentiable: bool) -> None:
    """Also where they could be multiplied with the cotangent all the same."""
    subject = Subject(lambda x: x.sin() if x.sum() < 3 else there(x if differentiable else x.detach()), column(1.0, 1.0))
    line = Line(subject, Path((Straight(column(1.0, 1.0), column(1.0, 1.0)),)), (column(1.0, 1.0),))
    assert line.at(0.25) is not None
    assert line.value(0.125) == 2 * math.sin(1.125)
    assert line.at(1.0) is line.value(0.75) is None


def test_other_exceptions_pass() -> None:
    def broken(x):
        if x > 2:
            raise KeyError("a mistake")
        return x.sqrt()

    with pytest.raises(KeyError):
        number_line(broken).at(3.0)


def test_a_gradient_that_is_not_finite_is_outside_though_the_value_is_fine() -> None:
    line = number_line(sine_with(lambda x: torch.where(x > 0.5, torch.inf, 1.0)).apply)
    assert line.at(0.75) is None
    assert line.value(0.75) == math.sin(0.75)
    assert line.at(0.25) is not None


def test_a_value_whose_square_overflows_is_a_value() -> None:
    assert number_line(lambda x: 1e200 * x).value(0.5) == 0.5e200


def test_unit_of_a_line_through_the_origin_is_its_place() -> None:
    line = number_line(torch.sin)
    assert (line.unit(-4.0), line.unit(0.0), line.unit(0.5)) == (4.0, 1.0, 0.5)
    other = Line(line.subject, line.path, line.cotangent)
    assert other.unit(-4.0) == 1.0


def test_power_of_two_below() -> None:
    got = power_of_two_below(column(1.0, 1.5, 2.0, 3.99, 0.3, 0.0, 2.0**-1074))
    assert got.tolist() == [1.0, 1.0, 2.0, 2.0, 0.25, 0.0, 2.0**-1074]


def test_scales_are_powers_of_two_of_each_size_or_of_the_root_mean_square() -> None:
    x = column(3.0, -20.0, 0.0)
    rms = math.sqrt(409 / 3)  # 11.7
    assert 8 < rms < 16
    assert scales(x, relative=True).tolist() == [2.0, 16.0, 8.0]
    assert scales(x, relative=False).tolist() == [8.0, 8.0, 8.0]
    assert scales(column(0.0, 0.0), relative=True).tolist() == [1.0, 1.0]
    assert scales(column(0.0, 0.0), relative=False).tolist() == [1.0, 1.0]
    assert scales(column(1e200, 3.0), relative=False).tolist() == [1.0, 1.0]


def test_scales_of_small_numbers_are_small() -> None:
    x = column(0.25, 2.0**-9, 0.0, -0.5)  # root mean square 0.28
    assert scales(x, relative=True).tolist() == [0.25, 2.0**-9, 0.25, 0.5]
    assert scales(x, relative=False).tolist() == [0.25] * 4


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_snapped_numbers_move_exactly(dtype: torch.dtype) -> None:
    """By at most two units in the last place, after which x + t scale is exact for binary fractions t."""
    x = torch.randn(200, dtype=dtype) * 10 ** (4 * torch.rand(200, dtype=dtype) - 2)
    scale = scales(x, relative=False)
    base = snapped(x, scale)
    eps = torch.finfo(dtype).eps
    size = torch.maximum(x.double().abs(), scale)
    assert ((base.double() - x.double()).abs() <= 2 * eps * size).all()
    assert ((base.double() - x.double()).abs().max() > 0).all()
    for t in (1.0, -1.0, 0.5, -0.25, 2.0**-11):
        moved = (base.double() + t * scale).to(dtype)
        assert torch.equal(moved.double(), base.double() + t * scale)
    grid = power_of_two_below(size) * 4 * eps
    assert (base.double() / grid == (base.double() / grid).round()).all()
    assert snapped(torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=F64)).tolist() == [0.0]


def test_random_signs_are_both_and_nothing_else() -> None:
    drawn = random_signs(torch.zeros(200), torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {-1.0, 1.0}
    assert drawn.dtype == F64
    assert abs(drawn.sum()) < 5 * math.sqrt(200)


def test_cotangents_are_eighths_from_a_half_to_three_halves_with_either_sign() -> None:
    (drawn,) = random_cotangent([torch.zeros(400, dtype=torch.bfloat16)], torch.Generator().manual_seed(0))
    assert drawn.dtype == torch.bfloat16
    assert set((drawn.double().abs() * 8).tolist()) == set(map(float, range(4, 13)))
    assert (drawn < 0).any()
    assert (drawn > 0).any()


def test_the_cotangent_of_a_single_number_is_one() -> None:
    generator = torch.Generator().manual_seed(0)
    assert random_cotangent([torch.zeros(1)], generator)[0].tolist() == [1.0]
    assert random_cotangent([torch.zeros(())], generator)[0].item() == 1.0
    assert len(random_cotangent([torch.zeros(1), torch.zeros(1)], generator)) == 2
    two = torch.cat([torch.stack(random_cotangent([torch.zeros(()), torch.zeros(())], generator)) for _ in range(20)])
    assert (two != 1).any()
