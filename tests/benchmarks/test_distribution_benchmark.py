"""The comparison with scipy and TFP: its judges notice wrong results, its tables show them, and slow rows are listed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.distribution import report
from benchmarks.distribution.contestants import CHEAPER, NONE, PAIRGRAD, POWER, SCIPY, TFP, calls, imported, numbers
from benchmarks.distribution.judges import Verdict, judge
from benchmarks.distribution.places import (
    BATCH,
    CONSTRUCTION,
    ENTROPY,
    ENTROPY_GRADIENT,
    FIT,
    KL,
    LOG_PROB,
    LOG_PROB_GRADIENT,
    QUANTITIES,
    SAMPLE,
    Place,
    given,
    places,
)
from benchmarks.distribution.rows import QUICK, Cell, Effort, Row, measure, record, rows_of
from benchmarks.distribution.run import main
from benchmarks.timing import Measurement, Samples, interleaved

ONCE = Effort(1, 0.0, 0.0, True)


@pytest.mark.parametrize("place", [place for place in places(QUANTITIES, (3, 512)) if place.count * place.dim < 10**6], ids=str)
def test_every_row_has_a_call_whose_result_is_right(place: Place) -> None:
    data = given(place)
    found = calls(place, data)
    call = found[PAIRGRAD]
    assert not isinstance(call, str)
    verdict = judge(place, data, numbers(call()))
    if place.quantity == CONSTRUCTION:
        assert verdict is None
    else:
        assert verdict is not None
        assert not verdict.wrong, verdict
    assert set(found) - {PAIRGRAD, SCIPY, TFP} == ({POWER} if place.quantity in (SAMPLE, LOG_PROB) else set())
    if imported("tensorflow_probability") is None and place.quantity not in (KL, FIT):
        assert found[TFP] == "not installed"


def test_who_has_what() -> None:
    def missing(quantity: str, name: str) -> bool:
        place = next(places((quantity,), (2,)))
        return calls(place, given(place)).get(name) == NONE

    assert [quantity for quantity in QUANTITIES if missing(quantity, SCIPY)] == [LOG_PROB_GRADIENT, ENTROPY_GRADIENT, KL]
    assert [quantity for quantity in QUANTITIES if missing(quantity, TFP)] == [KL, FIT]
    place = next(places((SAMPLE,), (2,)))
    assert set(CHEAPER) <= set(calls(place, given(place)))


def _wrong(place: Place, change: Any) -> Verdict:
    data = given(place)
    call = calls(place, data)[PAIRGRAD]
    assert not isinstance(call, str)
    verdict = judge(place, data, change(numbers(call())))
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("quantity", [LOG_PROB, ENTROPY, KL, BATCH, FIT])
def test_judges_notice_a_wrong_number(quantity: str, dtype: str) -> None:
    place = next(place for place in places((quantity,), (16,)) if place.dtype == dtype)
    assert not _wrong(place, lambda got: got).wrong
    assert _wrong(place, lambda got: got * 1.02).wrong
    assert _wrong(place, lambda got: got * math.nan) == Verdict(None, True, "nan")


def test_judges_notice_a_wrong_gradient() -> None:
    for quantity in (LOG_PROB_GRADIENT, ENTROPY_GRADIENT):
        place = next(places((quantity,), (16,)))
        assert not _wrong(place, lambda got: got).wrong
        assert _wrong(place, lambda got: (*got[:-1], got[-1] * 1.001)).wrong
        assert _wrong(place, lambda got: (*got[:-1], got[-1] * math.inf)).wrong


def test_judges_notice_a_wrong_sample() -> None:
    place = Place(SAMPLE, "float64", 16, 100, False)
    assert not _wrong(place, lambda got: got).wrong
    assert _wrong(place, lambda got: -got).wrong
    assert _wrong(place, lambda got: np.where(np.arange(100)[:, None] < 25, np.inf, got)).text == "inf in 25%"
    assert _wrong(Place(FIT, "float64", 16, 100, True), lambda got: 1e-8).text.startswith("1e-08 for ")


def test_a_measurement_is_the_mean_of_calls_in_a_row() -> None:
    made: list[int] = []
    samples = {"a": Samples()}
    interleaved({"a": Measurement(lambda: made.append(1), repeats=3, warmups=1, number=4)}, samples)
    assert (len(made), len(samples["a"].seconds)) == (1 + 3 * 4, 3)


def test_short_calls_are_repeated_and_long_ones_are_not_repeated_often() -> None:
    row = measure(Place(FIT, "float64", 3, 100, True), Effort(5, 0.01, 1e9, False))
    assert len(row.cells[PAIRGRAD].samples.seconds) == 5
    assert row.cells[SCIPY].samples.seconds
    assert row.cells[TFP].note == NONE
    assert len(measure(Place(FIT, "float64", 3, 100, True), Effort(50, 0.001, 0.0, False)).cells[PAIRGRAD].samples.seconds) == 3
    slow = measure(Place(SAMPLE, "float64", 4096, 1, False), ONCE)
    assert slow.cells[SCIPY].note == "20 s and more"


def _row(quantity: str, dim: int, scipy: Cell, tfp: Cell, count: int = 100, fresh: bool = False, **other: Cell) -> Row:
    own = Cell(Samples([0.001, 0.002, 0.003]), Verdict(1.0, False))
    return Row(Place(quantity, "float64", dim, count, fresh), {PAIRGRAD: own, SCIPY: scipy, TFP: tfp, **other})


def _timed(seconds: float, verdict: Verdict | None = None) -> Cell:
    return Cell(Samples([seconds]), verdict)


ROWS = [
    _row(SAMPLE, 3, _timed(0.004), Cell(note="not installed"), power_spherical=_timed(0.0009)),
    _row(LOG_PROB, 3, _timed(0.0016), _timed(0.002, Verdict(2.5, False))),
    _row(LOG_PROB, 512, _timed(0.0002, Verdict(None, True, "inf")), _timed(0.2, Verdict(0.5, False))),
    _row(FIT, 3, _timed(0.0004, Verdict(None, True, "1e-08 for 1.5")), Cell(note=NONE), fresh=True),
]


def test_ratios() -> None:
    assert [report.ratio(row, SCIPY) for row in ROWS] == ["2.00", "**0.80**", "**0.10**†", "**0.20**†"]
    assert [report.ratio(row, TFP) for row in ROWS] == ["not installed", "1.00", "100", NONE]
    assert report.ratio(ROWS[0], POWER, report.CHEAPER_BAR) == "**0.45**"


def test_summary_counts_rows_by_their_ratio() -> None:
    lines = report.summary(ROWS).splitlines()
    assert "| the fastest of scipy and TFP | 4 | 1 | 1 | 2 |" in lines
    assert "| the fastest whose result is right | 3 | 2 | 1 | 0 |" in lines
    assert "| scipy | 4 | 1 | 1 | 2 |" in lines
    assert "| TFP | 2 | 2 | 0 | 0 |" in lines
    assert "| power_spherical | 1 | 0 | 1 |" in lines


def test_rows_below_the_bar_are_listed_the_slowest_first() -> None:
    assert report.behind(ROWS).splitlines()[2:] == [
        "| log_prob, float64, p = 512, n = 100 | scipy | 2,000 | 200 | 0.10† |",
        "| fit, float64, p = 3, n = 100 | scipy | 2,000 | 400 | 0.20† |",
        "| sample, float64, p = 3, n = 100 | power_spherical | 2,000 | 900 | 0.45 |",
    ]
    assert report.behind(ROWS[1:2]) == "There are none."


def test_wrong_results_and_errors_are_listed() -> None:
    assert report.wrong(ROWS).splitlines()[2:] == [
        "| scipy | fit | float64 | 1e-08 for 1.5 (p = 3) |",
        "| scipy | log_prob | float64 | inf (p = 512) |",
    ]
    assert "| log_prob | float64 | 1.0 eps | **1 of 1 wrong** | 2.5 eps |" in report.accuracy(ROWS).splitlines()


def test_a_row_is_the_same_from_its_record() -> None:
    row = measure(Place(LOG_PROB, "float32", 3, 1, True), QUICK)
    assert rows_of(json.loads(json.dumps(record(ROWS)))) == ROWS
    kept = rows_of(record([row]))  # of times a record has four digits, and a line three
    assert report.line(rows_of(record(kept))[0]) == report.line(kept[0])


def test_the_command_writes_a_page_and_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    where = ["--output", str(tmp_path / "page.md"), "--record", str(tmp_path / "record.json")]
    assert main(["--quick", "--only", FIT, "--dims", "3", "16", *where]) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| dtype | p | κ | n = 100: µs | scipy | n = 10,000: µs | scipy |" in text
    assert "| float32 | 16 | 8 |" in text
    assert "`make bench-distributions ARGS=--quick (a part of it)`" in text
    (tmp_path / "page.md").unlink()
    assert main(["--render", *where]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
