"""Work and energy on a segment, beside differences of the value."""

import math

import numpy as np
import pytest
import torch

from pairgrad.coherence.differences import difference
from pairgrad.coherence.panel import INTEGRATION, NODES, measure
from tests.coherence.functions import sine_with
from tests.coherence.lines import number_line


def test_integration_matrix_integrates_polynomials_from_the_middle():
    for k in range(15):
        assert np.allclose(INTEGRATION @ NODES**k, NODES ** (k + 1) / (k + 1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("half", [0.25, 0.01, 1e-4])
@pytest.mark.parametrize(("dtype", "least"), [(torch.float64, 1e-16), (torch.float32, 1e-7)])
def test_coherent_panel_is_quiet_and_knows_its_limit(half, dtype, least):
    panel = measure(number_line(torch.sin, dtype), 0.75, half)
    assert not panel.significant
    assert least < panel.limit < 100 * torch.finfo(dtype).eps / half
    assert abs(panel.defect) / panel.size < panel.limit


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


def test_limit_is_the_size_from_which_a_defect_is_seen():
    quiet = measure(number_line(torch.sin), 0.75, 0.1)
    seen = [
        measure(number_line(sine_with(lambda x, s=s: 1 + s).apply), 0.75, 0.1).significant for s in (0.05 * quiet.limit, 4 * quiet.limit)
    ]
    assert seen == [False, True]


def test_defect_that_varies_over_the_panel_is_found_by_its_higher_coefficients():
    line = number_line(sine_with(lambda x: 1 + 1e-6 * torch.sign(x - 0.75) * (x - 0.75).abs() * 40).apply)
    panel = measure(line, 0.75, 0.1)
    assert abs(panel.drift[0]) < 0.1 * abs(panel.drift[1])
    assert panel.significant


def test_noise_is_that_of_the_value():
    def rounded(x):
        return x.sin().float().double()

    panel = measure(number_line(rounded), 0.75, 0.1)
    assert 2**-27 < panel.noise < 2**-23
    assert not panel.significant


def test_kink_makes_a_panel_rough_not_significant():
    panel = measure(number_line(lambda x: (x - 0.7).abs()), 0.75, 0.2)
    assert panel.rough
    assert not panel.significant


def test_panel_outside_the_domain_is_none():
    assert measure(number_line(torch.log), 0.05, 0.1) is None
    assert difference(number_line(torch.log), -1.0, 0.1, 0.0) is None


def test_differences_give_up_long_steps_that_leave_the_domain():
    found = difference(number_line(torch.log), 0.1, 0.15, 1e-17)
    assert found is not None
    assert not found.significant


def test_flat_panel_says_nothing_is_wrong():
    panel = measure(number_line(torch.round), 0.2, 0.1)
    assert panel.flat
    assert not panel.significant


def test_values_next_to_overflow_make_a_panel_that_says_nothing():
    panel = measure(number_line(lambda x: 1e200 * x.sin()), 0.75, 0.1)
    assert panel.noise == math.inf
    assert not panel.significant
