"""The constants of the auditor follow from the rate of false alarms that they promise."""

import pytest
import scipy.stats
import torch

from pairgrad.coherence.limits import FALSE_ALARM_RATE, LADDER, SMALLEST_EFFECT, TESTS, coarsest, student_quantile, threshold


@pytest.mark.parametrize("degrees", [1, 2, 5, 13, 40])
@pytest.mark.parametrize("rate", [0.5, 1e-2, 1e-5, 1e-9])
def test_student_quantile_is_the_one_of_scipy(rate, degrees):
    assert student_quantile(rate, degrees) == pytest.approx(scipy.stats.t.isf(rate / 2, degrees), rel=1e-10)


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
