"""The two fidelity tables against the digits of the paper, typed here a second time, and against mpmath."""

from __future__ import annotations

import mpmath
import pytest

import pairgrad as pg
from pairgrad_paper.tables import Table

from .finite import finite_start
from .made import counted
from .printed import CERTIFICATE, DIFFERENCE_ARFR, DIFFERENCE_CUSF, DIMENSIONS, LOG_MILLER, RATIO_ARFR, RATIO_CUSF


@pytest.fixture(scope="module")
def ratio() -> Table:
    return counted("ratio-fidelity")


@pytest.fixture(scope="module")
def difference() -> Table:
    return counted("difference-fidelity")


def shown(table: Table, key: str) -> list[str]:
    return [f"{number:.2e}" for number in table.numbers(key)]


def test_ratio_has_the_published_digits(ratio: Table) -> None:
    assert ratio.column("dim") == list(DIMENSIONS)
    assert shown(ratio, "arfr_error") == RATIO_ARFR == ratio.column("arfr_published")
    assert shown(ratio, "certificate") == CERTIFICATE == ratio.column("certificate_published")
    assert ratio.column("cusf_published") == RATIO_CUSF
    assert all(check.held for check in ratio.checks)
    assert len(ratio.checks) == 4


def test_ratio_is_below_the_certificate_and_the_proven_bound(ratio: Table) -> None:
    for dim, error, certificate, proven in zip(
        DIMENSIONS, *(ratio.numbers(key) for key in ("arfr_error", "certificate", "proven")), strict=True
    ):
        assert certificate == pytest.approx((dim / 2 - 1) ** -3, rel=1e-15)
        assert proven == pg.potential(dim, "arfr").ratio_bound()
        assert error <= proven <= certificate


def test_paired_is_as_accurate_as_documented(ratio: Table, difference: Table) -> None:
    """1.2e-15 and 4e-7: docs/accuracy.md."""
    assert max(ratio.numbers("paired_float64_relative") + difference.numbers("paired_float64_relative")) <= 1.2e-15
    assert max(ratio.numbers("paired_float32_relative")) <= 4e-7
    assert min(ratio.numbers("paired_float32_relative")) > 1e-9  # it really ran in float32


def test_log_bessel_loses_what_the_comparator_loses(ratio: Table, difference: Table) -> None:
    """Another program of the same kind: within a factor of ten of the published CUSF in every row, and far above rounding."""
    for table in (ratio, difference):
        for ours, printed in zip(table.numbers("log_bessel_error"), table.numbers("cusf_published"), strict=True):
            assert 0.1 < ours / printed < 10


def test_difference_has_the_published_digits(difference: Table) -> None:
    assert shown(difference, "arfr_error") == DIFFERENCE_ARFR == difference.column("arfr_published")
    assert difference.column("log_miller_published") == LOG_MILLER
    assert difference.column("cusf_published") == DIFFERENCE_CUSF
    assert shown(difference, "log_miller_exact_error") == [*LOG_MILLER[:-1], "7.56e-09"]
    assert difference.column("log_miller_same_digits") == [True] * 6 + [False]
    assert [check.held for check in difference.checks] == [True, False]


def test_the_digit_that_differs_is_the_last_unit_of_float64(difference: Table) -> None:
    """A difference of two float64 numbers of one size is a whole multiple of their unit in the last place; so errors of such differences lie whole
    units apart, whatever program made them: the printed one too, as exactly as its three digits say."""
    row = difference.rows[-1]
    exact, ours, unit = (float(str(row[key])) for key in ("log_miller_exact_error", "log_miller_float64_error", "log_miller_unit"))
    assert unit == 2.0**-32  # potentials of 2.0e6
    apart = (ours - float(LOG_MILLER[-1])) / unit
    assert abs(apart - round(apart)) <= 0.005e-9 / unit
    assert abs(exact - ours) <= 2 * unit  # half a unit each for two logarithms of I_0 and two sums
    assert abs(exact - float(LOG_MILLER[-1])) <= 2 * unit
    assert any("Dimension 4096" in note and f"{unit:.3e}" in note for note in difference.notes)
    assert not any("Dimension 2048" in note for note in difference.notes)


def test_float64_runs_print_the_same_elsewhere(difference: Table) -> None:
    assert shown(difference, "log_miller_float64_error")[:-1] == LOG_MILLER[:-1]


def test_exact_finite_difference_against_mpmath(difference: Table) -> None:
    """At x = 1000 nu, where the largest error of dimension 4096 is."""
    with mpmath.mp.workdps(40):
        a, b = mpmath.mpf(2047000), mpmath.mpf(2047001)
        finite = finite_start(2047, 4094, b).value - finite_start(2047, 4094, a).value
        exact = mpmath.log(mpmath.besseli(2047, b) / mpmath.besseli(2047, a)) - 2047 * mpmath.log(b / a)
        error = float(abs(finite - exact))
    assert difference.numbers("log_miller_exact_error")[-1] == pytest.approx(error, rel=1e-12)


def test_the_labels_are_the_papers(ratio: Table, difference: Table) -> None:
    assert "tab:dimension-main" in ratio.label
    assert "tab:endpoint-scaling" in difference.label
