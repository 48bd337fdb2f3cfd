"""Precision of balls, and errors against them."""

from __future__ import annotations

import flint
import pytest
import torch

from pairgrad.ground import working_precision
from pairgrad_paper.tables.exact import largest_error, largest_relative_error


def test_the_working_precision_is_set_back() -> None:
    before = flint.ctx.prec
    with working_precision(999):
        assert flint.ctx.prec == 999
    assert flint.ctx.prec == before
    with pytest.raises(ZeroDivisionError), working_precision(999):
        _ = 1 / 0
    assert flint.ctx.prec == before


def test_largest_errors() -> None:
    got, balls = [1.25, 1.0, -3.5], [flint.arb(1), flint.arb(2), flint.arb(-4)]
    assert largest_error(got, balls) == 1
    assert largest_error([flint.arb(g) for g in got], balls) == 1
    assert largest_relative_error(torch.tensor(got), balls) == 0.5
    assert largest_relative_error(torch.tensor([5.0, 2.0, -4.0]), balls) == 4  # relative to the exact, not to what was got


def test_the_subtraction_does_not_round() -> None:
    third = flint.arb(1)
    with working_precision(300):
        third = third / 3
    error = largest_error([1 / 3], [third])
    assert error == pytest.approx(2**-54 / 3, rel=1e-12)  # 1/3 = 0.0101..., cut at 54 places


def test_a_result_that_is_not_a_number_is_not_hidden() -> None:
    balls = [flint.arb(1)] * 3
    got = [1.0, float("nan"), 2.0]
    assert str(largest_error(got, balls)) == "nan"
    assert str(largest_relative_error(torch.tensor(got), balls)) == "nan"
