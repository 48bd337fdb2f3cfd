"""The defect by the recurrence of the errors, against a plain subtraction in mpmath at as many digits as that takes."""

from __future__ import annotations

import mpmath
import pytest
import torch

import pairgrad as pg
from pairgrad_paper.tables.defect import clip_onset, finite_start_defect

from .finite import finite_start, relative_defect


@pytest.mark.parametrize(
    ("nu", "start", "x", "digits"),
    [
        (63, 126, 63 * 0.25, 400),  # far below rounding
        (63, 126, 63 * 8.0, 60),
        (63, 126, 63 * 64.0, 60),  # clipped
        (63, 189, 63 * 512.0, 60),  # even start - nu: the ratio dies out
        (63, 504, 63 * 1024.0, 60),
        (64, 128, 64 * 30.0, 60),
        (64, 256, 1.0, 1000),
        (255, 510, 255 * 392.73, 60),
        (1, 2, 0.1, 60),
        (1, 2, 1e6, 60),
        (2, 3, 5.0, 60),
    ],
)
def test_relative_defect(nu: int, start: int, x: float, digits: int) -> None:
    defect = finite_start_defect(nu, start, x)
    wanted = relative_defect(nu, start, x, digits)
    assert wanted > 30 - digits  # the subtraction left thirty digits
    assert defect.log10_relative == pytest.approx(float(wanted), abs=1e-13 * max(1, abs(float(wanted))))
    with mpmath.mp.workdps(digits):
        finite = finite_start(nu, start, mpmath.mpf(x))
        supplied_minus_derivative = float(min(finite.raw_ratio, 1) - finite.derivative)  # 0 below the range of a float
        derivative, raw = float(finite.derivative), float(finite.raw_ratio)
    assert float(defect.supplied_minus_derivative) == pytest.approx(supplied_minus_derivative, rel=1e-14)
    assert float(defect.derivative) == pytest.approx(derivative, rel=1e-14)
    assert float(defect.raw_ratio) == pytest.approx(raw, rel=1e-14)


def test_a_defect_below_the_range_of_floats_keeps_its_logarithm() -> None:
    defect = finite_start_defect(511, 8 * 511, 511 * 0.25)
    assert defect.absolute == 0
    assert -11000 < defect.log10_relative < -10000
    assert defect.log10_absolute < defect.log10_relative  # the derivative is below 1


def test_clip_onset_is_where_the_realization_begins_to_clip() -> None:
    for nu in (63, 255):
        raw = pg.potential(2 * nu + 2, "original", clip=False)
        at = clip_onset(nu)
        below, above = raw.slope(torch.tensor([at * (1 - 1e-9), at * (1 + 1e-9)], dtype=torch.float64)).tolist()
        assert below < 1 < above
