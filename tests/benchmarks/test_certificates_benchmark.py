"""The page on how sharp the learning certificates are: what it prints, and that it fails when a certificate does."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from benchmarks.learning import certificates
from benchmarks.learning.certified_states import QUANTITIES


def shares(value: float) -> certificates.Shares:
    return {**dict.fromkeys(QUANTITIES, value), "unbounded": 0.0}


@pytest.mark.parametrize(("largest", "code"), [(0.5, 0), (1.5, 1), (math.nan, 1)])
def test_exit_code_says_whether_a_certificate_was_exceeded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], largest: float, code: int
) -> None:
    monkeypatch.setattr(certificates, "random_shares", lambda count: ({case: shares(0.25) for case in certificates.CASES}, 3))
    monkeypatch.setattr(certificates, "searched_shares", lambda dims, seeds: {case: {8: shares(largest)} for case in certificates.CASES})
    path = tmp_path / "page.md"
    assert certificates.main(["--output", str(path), "--dims", "8"]) == code
    page = path.read_text()
    assert page.count("| arfr, float64 |") == 2
    assert "which float32 knows nothing): 3." in page
    assert "## 35 searched states" in page
    assert ("yes" if code == 0 else "NO") in capsys.readouterr().out.splitlines()[-1]


def test_a_share_that_is_no_number_is_not_forgotten() -> None:
    for order in ((0.1, math.nan, 0.9), (math.nan, 0.1, 0.9)):
        assert math.isnan(certificates.largest([shares(value) for value in order])["score"])
    assert certificates.largest([shares(0.1), shares(0.9), shares(0.3)])["score"] == 0.9


def test_random_states_are_dealt_to_all_cases() -> None:
    found, unbounded = certificates.random_shares(4)
    assert set(found) == set(certificates.CASES)
    assert unbounded == 0
    assert all(0 < found[case]["score"] <= 1 for case in found)
