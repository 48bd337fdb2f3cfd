"""What a certificate says of itself."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import pytest

from pairgrad.ground import Certificate


def printed(bound: float | Fraction) -> str:
    return str(Certificate("error", bound, "", "", "proven")).removeprefix("error <= ").removesuffix(" (proven)")


@pytest.mark.parametrize(
    ("bound", "text"), [(1.23401e-9, "1.235e-09"), (0.375, "0.375"), (0.0, "0"), (2.0, "2"), (99991.0, "1e+05"), (math.inf, "inf")]
)
def test_a_bound_is_printed_rounded_up(bound: float, text: str) -> None:
    assert printed(bound) == text
    assert float(text) >= bound


def test_an_exact_bound_is_not_rounded_where_its_digits_suffice() -> None:
    assert printed(Fraction(2511, 100_000)) == "0.02511"  # the float next to it is larger
    assert printed(Fraction(1, 3)) == "0.3334"
    assert printed(Fraction(25_110_000_001, 10**12)) == "0.02512"


def test_sentences() -> None:
    known = Certificate("error", 1.00001e-3, "nu >= 1", "thm:a2", "proven")
    assert str(known) == "error <= 0.001001 (proven; nu >= 1; thm:a2)"
    assert str(Certificate("error", None, "", "", "none", "nothing is known")) == "error: no bound. nothing is known"


def test_a_bound_and_its_status_belong_together() -> None:
    with pytest.raises(ValueError, match="exactly if its status is not 'none', got bound=None and status='proven'"):
        Certificate("error", None, "", "", "proven", "why")
    with pytest.raises(ValueError, match=r"got bound=1\.0 and status='none'"):
        Certificate("error", 1.0, "", "", "none", "why")
    with pytest.raises(ValueError, match="needs a reason"):
        Certificate("error", None, "", "", "none")


def test_it_cannot_be_changed() -> None:
    certificate = Certificate("error", 1.0, "", "", "proven")
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.bound = 0.5  # pyright: ignore[reportAttributeAccessIssue]
