"""Parity, single numbers, and the regression that reproduces the published slope."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pairgrad as pg
from pairgrad_paper.tables import Table

from .made import counted
from .printed import DIMENSIONS, RATIO_ARFR


@pytest.fixture(scope="module")
def single() -> Table:
    return counted("constants")


def value(table: Table, quantity: str) -> float:
    (found,) = [row["value"] for row in table.rows if str(row["quantity"]).startswith(quantity)]
    return float(str(found))


def test_parity_has_the_published_digits() -> None:
    table = counted("parity")
    assert table.column("nu") == [63, 64, 255, 256]
    assert table.column("dim") == [128, 130, 512, 514]
    assert [f"{v:.3e}" for v in table.numbers("raw")] == ["1.645e+05", "6.208e-06", "1.020e+04", "9.856e-05"]
    assert table.column("sign") == ["+", "-", "+", "-"]
    assert table.column("phase") == ["linear", "inverse", "linear", "inverse"]
    scaled = ["1.645e-04", "6.208e+03", "1.020e-05", "9.856e+04"]
    assert [f"{v:.3e}" for v in table.numbers("scaled")] == scaled
    assert [f"{v:.3e}" for v in table.numbers("limit")] == scaled
    assert [f"{v:.1e}" for v in table.numbers("relative_error")] == ["1.2e-11", "1.3e-11", "3.2e-09", "3.3e-09"]
    # eqs. miller-odd-asymptotic and miller-even-asymptotic
    assert table.numbers("limit") == pytest.approx([2 / (64 * 190), 64 * 194 / 2, 2 / (256 * 766), 256 * 770 / 2], rel=1e-15)
    assert all(check.held for check in table.checks)
    assert len(table.checks) == 5


def test_single_numbers_have_the_published_digits(single: Table) -> None:
    assert f"{value(single, 'slope of the largest'):.2f}" == "-3.02"
    assert f"{value(single, 'the same against nu'):.2f}" == "-3.00"
    assert f"{value(single, 'two classes: raw ratio at 4032'):.5f}" == "1.08748"
    assert f"{value(single, 'two classes: raw ratio at 8064'):.5f}" == "1.56080"
    assert f"{value(single, 'two classes: F' + chr(39) + ' at 4032'):.6f}" == "0.984317"
    assert f"{value(single, 'two classes: F' + chr(39) + ' at 8064'):.6f}" == "0.992073"
    assert f"{value(single, 'two classes: antisymmetry'):.5e}" == "-1.93915e-03"
    assert f"{value(single, 'captured radii: largest coherence defect'):.2e}" == "2.56e-03"
    assert f"{value(single, 'captured radii: largest |clipped ratio'):.2e}" == "2.55e-03"
    assert f"{value(single, 'clip onset x*, nu = 63'):.1f}" == "2717.9"
    assert f"{value(single, 'clip onset x*, nu = 255'):.1f}" == "34906.3"


def test_what_does_not_agree_is_said(single: Table) -> None:
    missed = [row["quantity"] for row in single.rows if row["value_same_digits"] is False]
    assert missed == ["the same, beside the other table"]
    assert not single.checks[0].held
    assert any("tab:backward-counterfactual" in note for note in single.notes)


def test_captured_range(single: Table) -> None:
    largest, smallest = value(single, "captured radii: largest coherence"), value(single, "captured radii: smallest")
    assert 2.550e-3 < smallest < largest < 2.556e-3
    # the asymptote (nu + 3/2) / x, whose error is of the size of its square times nu
    assert largest == pytest.approx(256.5 / (392.35 * 255), rel=4e-3)


def test_the_published_slope_is_against_the_dimension(single: Table) -> None:
    """The regression on the printed digits alone."""
    dims, errors = np.array(DIMENSIONS, dtype=float), np.log([float(text) for text in RATIO_ARFR])
    by_nu, by_dim = (np.polyfit(np.log(against), errors, 1)[0] for against in (dims / 2 - 1, dims))
    ours = value(single, "the same against nu"), value(single, "slope of the largest")
    assert ours == pytest.approx((by_nu, by_dim), abs=1e-3)  # three digits move a slope by less
    assert f"{by_dim:.2f}" == "-3.02"
    assert f"{by_nu:.2f}" == "-3.00"


@pytest.mark.parametrize(("supplied", "expected"), [("original", -1.93915e-3), ("consistent", 0.0)])
def test_antisymmetry_of_the_differentiated_field(supplied: str, expected: float, single: Table) -> None:
    """Autograd differentiates the field itself: probabilities of the finite value, radial factors of the realization."""
    finite, factors = pg.potential(128, "consistent"), pg.potential(128, supplied)
    kappa = torch.tensor([4032.0, 8064.0], dtype=torch.float64)

    def field(f: torch.Tensor) -> torch.Tensor:
        states = torch.diag(kappa) + f  # kappa_j mu_j + f, one row per class
        radii = states.norm(dim=1)
        probabilities = torch.softmax(finite.value(radii) - finite.value(kappa), dim=0)
        return (probabilities * factors.slope(radii) / radii) @ states

    jacobian = torch.autograd.functional.jacobian(field, torch.zeros(2, dtype=torch.float64))
    assert isinstance(jacobian, torch.Tensor)
    antisymmetry = (jacobian[0, 1] - jacobian[1, 0]).item()
    assert antisymmetry == pytest.approx(expected, rel=3e-6, abs=1e-12)  # six printed digits; rounding of terms of size 1
    if supplied == "original":
        assert antisymmetry == pytest.approx(value(single, "two classes: antisymmetry"), rel=1e-9)
