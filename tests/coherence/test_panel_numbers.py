"""Every number of a panel and of a difference against its definition, worked out another way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from pairgrad.coherence.differences import Difference, difference
from pairgrad.coherence.limits import CONFIRMATION_RATE, student_quantile, threshold
from pairgrad.coherence.panel import INTEGRATION, INTERVALS, NODES, Panel, measure, noise_allowance, work_and_energy
from tests.coherence.functions import sine_with
from tests.coherence.lines import number_line

EPS = torch.finfo(torch.float64).eps
MIDDLE, HALF = 0.75, 0.125
LOW, HIGH = MIDDLE - HALF, MIDDLE + HALF
RISE = math.sin(HIGH) - math.sin(LOW)
DEFECT = 1e-3


@pytest.fixture
def panel() -> Panel:
    """Of the sine, with a gradient that is too large by a thousandth."""
    return measure(number_line(sine_with(lambda x: 1 + DEFECT).apply), MIDDLE, HALF)


def test_nodes_are_the_chebyshev_points_in_order() -> None:
    assert INTERVALS == 16
    assert pytest.approx(chebyshev.chebpts2(17), abs=1e-15) == NODES
    assert NODES[8] == 0


def test_work_and_residual(panel: Panel) -> None:
    assert panel.work == pytest.approx((1 + DEFECT) * RISE, rel=1e-13)
    assert panel.absolute_work == pytest.approx(panel.work, rel=1e-13)
    assert panel.residual == pytest.approx(-DEFECT * RISE, rel=1e-10)


def test_work_and_energy_go_from_the_middle_to_every_node(panel: Panel) -> None:
    nodes, value, work = work_and_energy(number_line(sine_with(lambda x: 1 + DEFECT).apply), panel)
    assert nodes == pytest.approx(MIDDLE + HALF * NODES, abs=1e-15)
    assert nodes[0] < nodes[-1]
    assert value == pytest.approx(np.sin(nodes) - math.sin(MIDDLE), abs=1e-14)
    assert work == pytest.approx((1 + DEFECT) * (np.sin(nodes) - math.sin(MIDDLE)), abs=1e-14)


def test_work_of_a_gradient_that_changes_sign() -> None:
    """Between 0 and 3 pi / 4 the sine rises by 1 and falls by 1 - sqrt(1/2). The interpolant of |gamma| rounds its corner off."""
    found = measure(number_line(torch.sin), 3 * math.pi / 8, 3 * math.pi / 8)
    assert found.work == pytest.approx(math.sqrt(0.5), rel=1e-13)
    assert found.absolute_work == pytest.approx(2 - math.sqrt(0.5), rel=0.02)


def test_defect_slope_and_drift(panel: Panel) -> None:
    """The cubic leaves out a quintic term of 1/120 half^5 of the sine: relative to its slope, 1e-6 at most."""
    assert panel.defect == pytest.approx(DEFECT * math.cos(MIDDLE), rel=1e-5)
    assert panel.slope == pytest.approx(math.cos(MIDDLE), rel=1e-7)
    want = chebyshev.chebinterpolate(lambda t: -DEFECT * (np.sin(MIDDLE + HALF * t) - np.sin(MIDDLE)), 12)
    assert panel.drift == pytest.approx(tuple(want[1:4]), rel=1e-3)


def test_sizes(panel: Panel) -> None:
    gamma = (1 + DEFECT) * np.cos(MIDDLE + HALF * NODES)
    assert panel.gradient_size == pytest.approx(math.sqrt(np.mean(gamma**2)), rel=1e-13)
    assert panel.value_size == pytest.approx(math.sin(HIGH), rel=1e-13)
    assert panel.rounding == EPS * panel.value_size
    assert panel.step == pytest.approx(np.abs(np.diff(gamma)).max(), rel=1e-12, abs=0)
    assert (panel.middle, panel.half) == (MIDDLE, HALF)
    assert panel.size == max(panel.gradient_size, panel.slope)
    assert replace(panel, slope=-9.0).size == 9


def test_allowance_is_the_sum_of_noise_quadrature_and_rounding() -> None:
    """Two units of the value and, for each half, four of the work may pass for a drift. The gradient is right here, so that rounding is most of it."""
    panel = measure(number_line(torch.sin), MIDDLE, HALF)
    rounding = EPS * (2 * panel.value_size + 4 * panel.half * panel.gradient_size)
    assert panel.allowance == pytest.approx(noise_allowance(panel.noise) + panel.quadrature + rounding, rel=1e-12, abs=0)
    assert rounding > panel.allowance / 4


def test_noise_of_the_value_goes_into_the_coefficients_of_the_fit_by_least_squares() -> None:
    """Standard errors of a cubic fitted to 17 points with noise of size one: the inverse of the normal equations. 13 degrees of freedom are left."""
    basis = chebyshev.chebvander(NODES, 3)
    errors = np.sqrt(np.diag(np.linalg.inv(basis.T @ basis)))
    assert noise_allowance(2.0) == pytest.approx(2 * threshold(13) * errors[1:].max(), rel=1e-10)


def test_noise_of_the_gradient_goes_into_the_coefficients_of_its_integral(panel: Panel) -> None:
    basis = chebyshev.chebvander(NODES, 3)
    moved = np.linalg.solve(basis.T @ basis, basis.T @ INTEGRATION)  # column j: what noise of size one at node j does to the fit
    spread = np.sqrt((moved**2).sum(1))[1:].max()
    assert panel.quadrature == pytest.approx(threshold(13) * spread * panel.half * panel.gradient_noise, rel=1e-10, abs=0)


def noisy(size: float):
    """A value with noise of standard deviation size / sqrt(2), far below the scale of the nodes and nothing to the gradient."""
    return lambda x: x.sin() + size * (1e9 * x).sin().detach()


def test_noise_that_is_put_in_is_the_noise_that_is_measured() -> None:
    """Twenty panels: 260 degrees of freedom, so the rms is known to 4.4 %, and five such errors are 22 %. The ruggedness has 100: 36 %."""
    panels = [measure(number_line(noisy(1e-6)), MIDDLE + 0.01 * i, HALF) for i in range(20)]
    true = 1e-6 / math.sqrt(2)
    assert math.sqrt(np.mean([p.noise**2 for p in panels])) == pytest.approx(true, rel=0.22)
    assert math.sqrt(np.mean([p.ruggedness**2 for p in panels])) == pytest.approx(true, rel=0.36)
    assert not any(p.significant for p in panels)
    assert max(p.gradient_noise for p in panels) < 1e-14


def test_noise_of_the_gradient_that_is_put_in_is_measured() -> None:
    """As above, in the gradient: relative to the cosine, which is 0.55 to 0.75 here."""
    panels = [measure(number_line(sine_with(lambda x: 1 + 1e-6 * (1e9 * x).sin()).apply), MIDDLE + 0.01 * i, HALF) for i in range(20)]
    scaled = [p.gradient_noise / math.cos(p.middle) for p in panels]
    assert math.sqrt(np.mean(np.square(scaled))) == pytest.approx(1e-6 / math.sqrt(2), rel=0.36)
    assert not any(p.significant for p in panels)


def test_noise_is_told_by_the_last_five_chebyshev_coefficients() -> None:
    """Of 1 / (1 + 25 x^2), whose coefficients fall slowly. Noise of size one at the nodes gives coefficients of size sqrt(2 / 16)."""
    found = measure(number_line(lambda x: 1 / (1 + 25 * x * x)), 0.25, 1.0)
    x = 0.25 + NODES
    value = 1 / (1 + 25 * x**2)
    for got, numbers in ((found.ruggedness, value), (found.gradient_noise, -50 * x * value**2)):
        coefficients = np.linalg.solve(chebyshev.chebvander(NODES, 16), numbers)
        assert got == pytest.approx(math.sqrt(8 * np.mean(coefficients[12:] ** 2)), rel=1e-9)


def test_what_a_panel_concludes(panel: Panel) -> None:
    quiet = replace(
        panel, drift=(3.0, -4.0, 1.0), allowance=4.0, quadrature=2.0, noise=1.0, gradient_size=5.0, slope=0.0, defect=-2.5, half=0.5
    )
    assert not quiet.significant
    assert replace(quiet, allowance=3.99).significant
    assert quiet.relative == 0.5
    assert quiet.limit == 4 / 0.5 / 5
    assert quiet.unexplained == 3
    assert not quiet.rough
    assert replace(quiet, quadrature=2.01).rough
    silent = replace(quiet, gradient_size=0.0)
    assert (silent.relative, silent.limit, silent.flat) == (0, math.inf, False)
    still = replace(silent, noise=0.0, drift=(0.0, 0.0, 0.0))
    assert still.flat
    assert still.limit == 0
    assert not replace(still, slope=1e-300).flat
    assert not replace(still, noise=1e-300).flat
    assert not replace(still, drift=(0.0, 0.0, 1e-300)).flat


def test_a_value_within_its_noise_is_beyond_rounding(panel: Panel) -> None:
    """Noise of at most 1024 units in the last place, nothing significant, and a gradient that asks for no more than the allowance."""
    hidden = replace(
        panel, drift=(0.0, 0.0, 1.0), allowance=2.0, quadrature=1.0, noise=1024.0, rounding=1.0, gradient_size=4.0, slope=0.0, half=0.5
    )
    assert hidden.beyond_rounding
    assert not replace(hidden, noise=1025.0).beyond_rounding
    assert not replace(hidden, drift=(0.0, 0.0, 3.0)).beyond_rounding
    assert not replace(hidden, gradient_size=4.01).beyond_rounding
    assert not replace(hidden, quadrature=1.01).beyond_rounding


# Differences ------------------------------------------------------------------------------------------------------------

QUANTILE = student_quantile(CONFIRMATION_RATE, 13)
# The first extrapolated entry is 4/3 of the difference over half the step less 1/3 of the other: of noise of size one in each value it has
# sqrt((1/9 + 64/9) / 2) / step.
FIRST_ENTRY = math.sqrt(65 / 18)


def test_what_a_difference_concludes() -> None:
    found = Difference(0.0, -3.0, 3.0, 6.0)
    assert not found.significant
    assert replace(found, allowance=2.99).significant
    assert (found.limit, found.relative) == (0.5, 0.5)
    nothing = replace(found, size=0.0)
    assert (nothing.limit, nothing.relative) == (math.inf, 0)
    small = replace(found, size=0.5)
    assert (small.limit, small.relative) == (6, 6)


def test_noise_goes_into_a_difference_by_its_weights() -> None:
    found = difference(number_line(torch.sin), MIDDLE, HALF, 1.0)
    assert found.allowance == pytest.approx(QUANTILE * FIRST_ENTRY / HALF, rel=1e-3)
    other = difference(number_line(torch.sin), MIDDLE, HALF, 1.0, 5.0)
    assert other.allowance - found.allowance == pytest.approx(5 * QUANTILE, rel=1e-9)


def test_the_least_noise_is_the_rounding_of_the_value() -> None:
    """Of x itself, differences over powers of two are exact: what is left is 0.3 units of noise and two of the gradient."""
    found = difference(number_line(lambda x: 1 * x), MIDDLE, HALF, 0.0)
    assert found.defect == 0
    assert found.size == 1
    assert found.allowance == pytest.approx(EPS * (0.3 * MIDDLE * QUANTILE * FIRST_ENTRY / HALF + 2), rel=1e-9, abs=0)


def test_steps_are_halved_five_times() -> None:
    asked = []
    line = number_line(lambda x: asked.append(x.item()) or x.sin())
    asked.clear()
    difference(line, MIDDLE, HALF, 0.0)
    assert sorted(asked) == sorted([MIDDLE, *(MIDDLE + sign * HALF * 2.0**-k for k in range(6) for sign in (-1, 1))])


def extrapolated(values: list[float], steps: list[float]) -> tuple[float, float]:
    """The polynomial in the square of the step through central differences, at step 0, by Lagrange's formula; and the rms effect of noise of size one."""
    total, square = 0.0, 0.0
    for i, h in enumerate(steps):
        weight = math.prod(g * g / (g * g - h * h) for j, g in enumerate(steps) if j != i)
        total += weight * values[i]
        square += (weight / h) ** 2 / 2
    return total, math.sqrt(square)


@pytest.mark.parametrize("noise", [1e-3, 1e-5, 1e-7, 1e-9])
def test_the_entry_with_the_smallest_error_is_taken(noise: float) -> None:
    """Of exp around 0, over steps from 1 down. The error of an entry: the farther of the two that it came from, and the noise of the values by its weights."""
    found = difference(number_line(torch.exp), 0.0, 1.0, noise)
    steps = [2.0**-i for i in range(6)]
    values = [math.sinh(h) / h for h in steps]
    candidates = []
    for last in range(6):
        for first in range(last):
            entry, spread = extrapolated(values[first : last + 1], steps[first : last + 1])
            parents = [extrapolated(values[i:j], steps[i:j])[0] for i, j in ((first, last), (first + 1, last + 1))]
            error = max(abs(entry - parent) for parent in parents) + QUANTILE * noise * spread + 2 * EPS
            candidates.append((error, entry, last - first))
    error, entry, depth = min(candidates)
    assert found.allowance == pytest.approx(error, rel=1e-6, abs=0)
    assert found.defect == pytest.approx(1 - entry, rel=1e-6, abs=1e-14)
    assert depth >= 2


def test_extrapolation_reaches_rounding_from_a_long_step() -> None:
    found = difference(number_line(torch.exp), 0.0, 1.0, 0.0)
    assert abs(found.defect) < 1e-13
    assert abs(found.defect) <= found.allowance < 1e-12
    assert found.size == pytest.approx(1, rel=1e-12)
    steeper = difference(number_line(sine_with(lambda x: 0.5 + 0 * x).apply), 0.75, 0.1, 0.0)
    assert steeper.size == pytest.approx(math.cos(0.75), rel=1e-10)
    assert steeper.defect == pytest.approx(-math.cos(0.75) / 2, rel=1e-10)
