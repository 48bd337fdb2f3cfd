"""The parts of the expansion that a result to rounding does not show: lengths of series, limits of ranges, what cannot overflow or underflow."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

import pairgrad as pg
from pairgrad.potentials.expansion import Expansion

MIDPOINT_OF_8 = Fraction(7, 2)  # nu = 3, dim 8


@pytest.mark.parametrize("rounding", [2.0**-53, 2.0**-24])
@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.01, 0.1, 0.2, 0.25])
def test_series_have_the_fewest_terms_whose_first_omitted_one_is_below_a_quarter_of_rounding(share: float, rounding: float) -> None:
    """`share` is the larger argument of artanh, reach over twice the centre; the other is half of it. Term n of artanh(z) / z is z^(2 n) / (2 n + 1)."""
    terms = Expansion(Fraction(3), 2).series_terms(share * 2 * float(MIDPOINT_OF_8), rounding)
    assert terms is not None
    for argument, count in zip((share / 2, share), terms, strict=True):
        sizes = [argument ** (2 * n) / (2 * n + 1) for n in range(count + 1)]
        assert sizes[count] <= rounding / 4
        assert count == 1 or sizes[count - 1] > rounding / 4


def test_logarithms_are_taken_where_a_series_would_be_longer() -> None:
    expansion = Expansion(Fraction(3), 2)
    edge = 0.25 * 2 * float(MIDPOINT_OF_8)
    assert expansion.series_terms(edge, 2.0**-53) is not None
    assert expansion.series_terms(edge * (1 + 2.0**-50), 2.0**-53) is None
    assert Expansion(Fraction(3), 2, shift=1).series_terms(1e-3, 2.0**-53) is None


@pytest.mark.parametrize("dim", [2, 5, 64])
def test_increments_that_underflow_are_zero(dim: int) -> None:
    """The value is x^2 / (2 dim) near 0: nothing is left of it below 1e-162, but it must not become NaN, upwards or downwards."""
    pot = pg.potential(dim)
    a, b = torch.tensor([1e-200, 1e-201, -1e-201]).double(), torch.tensor([1e-201, 1e-200, 1e-200]).double()
    assert pot.difference(a, b).tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(pot.secant(a, b), (a + b) / (2 * dim), rtol=1e-14, atol=0)
