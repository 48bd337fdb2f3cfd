"""The constants of the auditor follow from the rate of false alarms that they promise."""

import math

import pytest
import scipy.stats
import torch

from pairgrad.coherence.limits import (
    CONFIRMATION_RATE,
    FALSE_ALARM_RATE,
    LADDER,
    SMALLEST_EFFECT,
    TESTS,
    _tail,
    coarsest,
    student_quantile,
    threshold,
)


@pytest.mark.parametrize("degrees", [1, 2, 5, 13, 40])
@pytest.mark.parametrize("rate", [0.5, 1e-2, 1e-5, 1e-9])
def test_student_quantile_is_the_one_of_scipy(rate, degrees):
    assert student_quantile(rate, degrees) == pytest.approx(scipy.stats.t.isf(rate / 2, degrees), rel=1e-10)


def test_a_quantile_next_to_zero_is_positive():
    """Of the Cauchy distribution, whose quantiles are tangents."""
    assert student_quantile(0.9, 1) == pytest.approx(math.tan(0.05 * math.pi), rel=1e-10)


def test_everything_is_beyond_zero():
    assert [_tail(0.0, degrees) for degrees in (1, 2, 13)] == [1.0] * 3


def test_threshold_shares_the_rate_between_all_tests():
    assert threshold(13) == student_quantile(FALSE_ALARM_RATE / TESTS, 13)
    assert threshold(13, tests=10 * TESTS) > threshold(13)
    assert threshold(13, tests=1) == threshold(13)


def test_coarsest_dtype_decides():
    assert coarsest([torch.float64, torch.bfloat16, torch.float32]) == torch.bfloat16
    assert coarsest([torch.float64, torch.float32]) == torch.float32


def test_tables_cover_the_same_dtypes_and_ladders_go_down():
    assert set(LADDER) == set(SMALLEST_EFFECT)
    for halves in LADDER.values():
        assert list(halves) == sorted(halves, reverse=True)


def test_segments_are_powers_of_two_of_the_argument_and_no_longer_than_it():
    """A step that is no power of two would round the argument that it is added to."""
    for halves in LADDER.values():
        assert all(math.frexp(half)[0] == 0.5 for half in halves)
        assert halves[0] <= 1
        assert len(set(halves)) == len(halves)


def test_smallest_effects_are_many_units_of_rounding_and_a_small_part_of_the_gradient():
    units = {dtype: effect / torch.finfo(dtype).eps for dtype, effect in SMALLEST_EFFECT.items()}
    assert units == {torch.float64: 4096, torch.float32: 64, torch.float16: 16, torch.bfloat16: 8}


def test_rates_are_a_thousandth_and_a_larger_number_of_tests_shares_them():
    assert FALSE_ALARM_RATE == CONFIRMATION_RATE == 1e-3
    assert threshold(13, tests=10 * TESTS) == student_quantile(1e-4 / TESTS, 13)
    assert threshold(13) == pytest.approx(scipy.stats.t.isf(0.5e-3 / 16384, 13), rel=1e-10)
    assert threshold(13, rate=0.5) == student_quantile(0.5 / TESTS, 13)
