"""The numerical parts with a contract of their own: work and energy on a segment, extrapolated differences, quantiles, and steps that do not round."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from numpy.polynomial import chebyshev

from pairgrad.coherence.measure.differences import difference
from pairgrad.coherence.measure.limits import student_quantile
from pairgrad.coherence.measure.panel import INTEGRATION, NODES, Panel, measure, work_and_energy
from pairgrad.coherence.measure.path import Line, Path
from pairgrad.coherence.subject.curves import Geometric, Straight, scales, snapped
from pairgrad.coherence.subject.subject import Subject
from tests.coherence.functions import sine_with

MIDDLE, HALF, DEFECT = 0.75, 0.125, 1e-3
RISE = math.sin(MIDDLE + HALF) - math.sin(MIDDLE - HALF)


def number_line(fn, dtype=torch.float64, at=1.0):
    """A function of one number along its own axis: t is the argument."""
    subject = Subject(fn, torch.tensor(at, dtype=dtype))
    zero, one = torch.zeros((), dtype=dtype), torch.ones((), dtype=torch.float64)
    return Line(subject, Path((Straight(zero, one),)), (torch.ones((), dtype=dtype),), through_origin=True)


@pytest.fixture
def panel() -> Panel:
    """Of the sine, with a gradient that is too large by a thousandth."""
    return measure(number_line(sine_with(lambda x: 1 + DEFECT).apply), MIDDLE, HALF)


def test_polynomials_are_integrated_exactly_from_the_middle():
    for k in range(17):
        assert np.allclose(INTEGRATION @ NODES**k, NODES ** (k + 1) / (k + 1), rtol=0, atol=1e-14)


def test_work_residual_slope_and_sizes_of_a_segment(panel: Panel) -> None:
    """The cubic that is fitted leaves out a quintic term of 1/120 half^5 of the sine: relative to its slope, 1e-6 at most."""
    gamma = (1 + DEFECT) * np.cos(MIDDLE + HALF * NODES)
    assert panel.work == pytest.approx((1 + DEFECT) * RISE, rel=1e-13)
    assert panel.residual == pytest.approx(-DEFECT * RISE, rel=1e-10)
    assert panel.defect == pytest.approx(DEFECT * math.cos(MIDDLE), rel=1e-5)
    assert panel.slope == pytest.approx(math.cos(MIDDLE), rel=1e-7)
    assert panel.gradient_size == pytest.approx(math.sqrt(np.mean(gamma**2)), rel=1e-13)
    assert panel.value_size == pytest.approx(math.sin(MIDDLE + HALF), rel=1e-13)
    want = chebyshev.chebinterpolate(lambda t: -DEFECT * (np.sin(MIDDLE + HALF * t) - np.sin(MIDDLE)), 12)
    assert panel.drift == pytest.approx(tuple(want[1:4]), rel=1e-3)


def test_work_and_energy_go_from_the_middle_to_every_node(panel: Panel) -> None:
    nodes, value, work = work_and_energy(number_line(sine_with(lambda x: 1 + DEFECT).apply), panel)
    assert nodes == pytest.approx(MIDDLE + HALF * NODES, abs=1e-15)
    assert value == pytest.approx(np.sin(nodes) - math.sin(MIDDLE), abs=1e-14)
    assert work == pytest.approx((1 + DEFECT) * (np.sin(nodes) - math.sin(MIDDLE)), abs=1e-14)


def test_work_of_a_gradient_that_changes_sign() -> None:
    """Between 0 and 3 pi / 4 the sine rises by 1 and falls by 1 - sqrt(1/2). The interpolant of |gamma| rounds its corner off."""
    found = measure(number_line(torch.sin), 3 * math.pi / 8, 3 * math.pi / 8)
    assert found.work == pytest.approx(math.sqrt(0.5), rel=1e-13)
    assert found.absolute_work == pytest.approx(2 - math.sqrt(0.5), rel=0.02)


@pytest.mark.parametrize("size", [1e-2, 1e-6, 1e-10, -1e-10])
def test_panel_and_differences_measure_a_defect_with_its_sign(size):
    line = number_line(sine_with(lambda x: 1 + size).apply)
    panel = measure(line, 0.75, 0.1)
    expected = size * math.cos(0.75)
    assert panel.significant
    assert panel.defect == pytest.approx(expected, abs=panel.allowance / panel.half)
    other = difference(line, 0.75, 0.1, panel.noise, panel.gradient_noise)
    assert other.significant
    assert other.defect == pytest.approx(expected, abs=other.allowance)
    assert panel.allowance / panel.half < 0.01 * abs(expected) or abs(size) == 1e-10


@pytest.mark.parametrize("half", [0.25, 0.01, 1e-4])
@pytest.mark.parametrize(("dtype", "least"), [(torch.float64, 1e-16), (torch.float32, 1e-7)])
def test_a_coherent_segment_is_quiet_and_knows_its_limit(half, dtype, least):
    panel = measure(number_line(torch.sin, dtype), 0.75, half)
    assert not panel.significant
    assert least < panel.limit < 100 * torch.finfo(dtype).eps / half
    assert panel.relative < panel.limit


def test_noise_that_is_put_in_is_the_noise_that_is_measured() -> None:
    """Twenty panels: 260 degrees of freedom, so the rms of the value's noise is known to 4.4 %, and five such errors are 22 %. The noise of the gradient,
    relative to the cosine, has 100: 36 %.
    """
    true = 1e-6 / math.sqrt(2)
    places = [MIDDLE + 0.01 * i for i in range(20)]
    values = [measure(number_line(lambda x: x.sin() + 1e-6 * (1e9 * x).sin().detach()), place, HALF) for place in places]
    assert math.sqrt(np.mean([p.noise**2 for p in values])) == pytest.approx(true, rel=0.22)
    assert max(p.gradient_noise for p in values) < 1e-14
    slopes = [measure(number_line(sine_with(lambda x: 1 + 1e-6 * (1e9 * x).sin()).apply), place, HALF) for place in places]
    assert math.sqrt(np.mean([(p.gradient_noise / math.cos(p.middle)) ** 2 for p in slopes])) == pytest.approx(true, rel=0.36)
    assert not any(p.significant for p in (*values, *slopes))


@pytest.mark.parametrize("place", [0.7, 0.75, 0.61])
def test_a_kink_makes_a_segment_rough_and_is_not_significant(place: float) -> None:
    panel = measure(number_line(lambda x: (x - place).abs()), 0.75, 0.2)
    assert panel.rough
    assert not panel.significant


def test_a_segment_outside_the_domain_is_none():
    assert measure(number_line(torch.log), 0.05, 0.1) is None
    assert difference(number_line(torch.log), -1.0, 0.1, 0.0) is None


@pytest.mark.parametrize("power", range(1, 12))
def test_differences_of_polynomials_are_exact(power: int) -> None:
    """Six central differences, extrapolated, cancel the terms up to the tenth power of the step."""
    found = difference(number_line(lambda x: x**power), 1.0, 0.5, 0.0)
    assert abs(found.defect) <= found.allowance
    assert abs(found.defect) < 1e-12 * power


def test_extrapolation_reaches_rounding_from_a_long_step() -> None:
    found = difference(number_line(torch.exp), 0.0, 1.0, 0.0)
    assert abs(found.defect) <= found.allowance < 1e-12
    steeper = difference(number_line(sine_with(lambda x: 0.5 + 0 * x).apply), 0.75, 0.1, 0.0)
    assert steeper.size == pytest.approx(math.cos(0.75), rel=1e-10)
    assert steeper.defect == pytest.approx(-math.cos(0.75) / 2, rel=1e-10)


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-9])
def test_the_error_of_a_difference_covers_the_noise_of_the_values(noise: float) -> None:
    """Noise of that standard deviation in every value, at forty places: none is off by more than what is allowed, and some by a twentieth of it."""
    share = []
    for k in range(40):
        draws = torch.Generator().manual_seed(k)
        line = number_line(lambda x, draws=draws: x.exp() + noise * torch.randn((), generator=draws, dtype=torch.float64))
        found = difference(line, 0.0, 1.0, noise)
        share.append(abs(found.defect) / found.allowance)
    assert 0.05 < max(share) < 1


def test_differences_give_up_long_steps_that_leave_the_domain():
    found = difference(number_line(torch.log), 0.1, 0.15, 1e-17)
    assert found is not None
    assert not found.significant


@pytest.mark.parametrize("degrees", [1, 2, 13, 40])
@pytest.mark.parametrize("rate", [0.5, 1e-2, 1e-5, 1e-9])
def test_student_quantile_is_the_one_of_scipy(rate, degrees):
    assert student_quantile(rate, degrees) == pytest.approx(scipy.stats.t.isf(rate / 2, degrees), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_snapped_numbers_move_exactly(dtype: torch.dtype) -> None:
    """By at most two units in the last place, after which x + t scale is exact for binary fractions t."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(200, generator=draws, dtype=dtype) * 10 ** (4 * torch.rand(200, generator=draws, dtype=dtype) - 2)
    scale = scales(x, relative=False)
    base = snapped(x, scale)
    size = torch.maximum(x.double().abs(), scale)
    assert ((base.double() - x.double()).abs() <= 2 * torch.finfo(dtype).eps * size).all()
    for t in (1.0, -1.0, 0.5, -0.25, 2.0**-11):
        moved = (base.double() + t * scale).to(dtype)
        assert torch.equal(moved.double(), base.double() + t * scale)


def test_a_geometric_curve_has_the_derivative_of_its_point_for_a_velocity() -> None:
    path = Geometric(torch.tensor([2.0, -3.0], dtype=torch.float64), torch.tensor([1.0, -0.5], dtype=torch.float64))
    assert path.point(2.0).tolist() == pytest.approx([2 * math.exp(2), -3 * math.exp(-1)], rel=1e-15)
    assert path.velocity(2.0).tolist() == pytest.approx([2 * math.exp(2), 1.5 * math.exp(-1)], rel=1e-15)
