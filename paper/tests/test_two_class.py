"""The two-class construction: predicted, differentiated and consistent antisymmetry, against mpmath and the printed digits."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from pairgrad_paper.tables import Table

from .finite import finite_start
from .made import counted

UNIT = 2.0**-53


@pytest.fixture(scope="module")
def ratios() -> Table:
    return counted("two-class")


@pytest.fixture(scope="module")
def strengths() -> Table:
    return counted("mismatch-strength")


def at_ratio(table: Table, ratio: float) -> dict[str, float]:
    (row,) = [row for row in table.rows if row["ratio"] == ratio]
    return {key: float(str(cell)) for key, cell in row.items() if cell is not None}


def test_the_states(ratios: Table) -> None:
    values = ratios.numbers("ratio")
    assert len(values) == 29
    assert 1.0 in values
    assert 2.0 in values
    steps = [b / a for a, b in itertools.pairwise(values)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-14)  # evenly spaced in the logarithm
    assert ratios.numbers("concentration") == [4032 * ratio for ratio in values]


def test_printed_digits(ratios: Table) -> None:
    one, two = at_ratio(ratios, 1.0), at_ratio(ratios, 2.0)
    assert [f"{row['raw_ratio']:.5f}" for row in (one, two)] == ["1.08748", "1.56080"]
    assert [f"{row['derivative']:.6f}" for row in (one, two)] == ["0.984317", "0.992073"]
    assert {f"{two[key]:.5e}" for key in ("predicted", "differentiated", "exact")} == {"-1.93915e-03"}
    assert len(ratios.checks) == 12
    assert all(check.held for check in ratios.checks)


def test_every_prediction_against_mpmath(ratios: Table) -> None:
    """(F'(k1) g(k2) - g(k1) F'(k2)) / 4 from the literal recurrence at 40 digits."""
    with mpmath.workdps(40):
        first = finite_start(63, 126, mpmath.mpf(4032))
        for row in ratios.rows:
            second = finite_start(63, 126, mpmath.mpf(float(str(row["concentration"]))))
            wanted = (first.derivative * min(second.raw_ratio, 1) - min(first.raw_ratio, 1) * second.derivative) / 4
            for key in ("predicted", "differentiated", "exact"):
                error = abs(float(str(row[key])) - wanted)
                assert error <= (1e-9 * abs(wanted) if row["ratio"] != 1 else 16 * UNIT), (row["ratio"], key, row[key], wanted)


def test_the_consistent_field_is_symmetric_and_the_loss_is_log_two(ratios: Table) -> None:
    """Products of two score gradients, below 1/4 each with its probability, of some 16 roundings."""
    assert max(abs(value) for value in ratios.numbers("consistent")) <= 4 * UNIT
    assert all(abs(value - math.log(2)) <= 2 * UNIT for value in ratios.numbers("loss"))


def test_the_sign_is_that_of_the_derivatives_where_both_are_clipped(ratios: Table) -> None:
    for row in ratios.rows:
        ratio, predicted = float(str(row["ratio"])), float(str(row["predicted"]))
        if ratio > 0.7:
            assert math.copysign(1, predicted) == math.copysign(1, 1 - ratio) or ratio == 1


def test_strengths(strengths: Table) -> None:
    lambdas = strengths.numbers("strength")
    assert len(lambdas) == 9
    assert {0.0, 1.0} <= set(lambdas)
    gap, antisymmetry = (strengths.numbers(key) for key in ("gap", "antisymmetry"))
    with mpmath.workdps(40):
        classes = [finite_start(63, 126, mpmath.mpf(kappa)) for kappa in (4032, 8064)]
        d1, d2 = (1 - each.derivative for each in classes)  # both are clipped
        full_gap = mpmath.sqrt(d1**2 + d2**2) / 2
        full_antisymmetry = (classes[0].derivative - classes[1].derivative) / 4
        for value, g, a in zip(lambdas, gap, antisymmetry, strict=True):
            assert abs(g - value * full_gap) <= 8 * UNIT
            assert abs(a - value * full_antisymmetry) <= 8 * UNIT
    assert len(strengths.checks) == 3
    assert all(check.held for check in strengths.checks)
    assert all(abs(value - math.log(2)) <= 2 * UNIT for value in strengths.numbers("loss"))
