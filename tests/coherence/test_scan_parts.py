"""The parts of a scan, each on its own: which events are one, where verdicts change, which regions are joined."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from pairgrad.coherence import scan
from pairgrad.coherence.panel import measure
from pairgrad.coherence.scan import Region
from pairgrad.coherence.state import Event, Reading, read
from tests.coherence.functions import sine_with
from tests.coherence.lines import number_line

TILES = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]


def mean(low: float, high: float) -> float:
    return (low + high) / 2


def event(at: float, width: float = 0.0, kind: str = "kink") -> Event:
    return Event(kind, at, width, 1.0)


def reading(verdict: str, middle: float = 0.0, line=None, half: float = 0.1) -> Reading:
    panel = None if line is None else measure(line, middle, half)
    return Reading(middle, panel, None, 1e-12, verdict)


def test_events_are_one_within_four_times_their_widths() -> None:
    close = [event(1.0, 2.0**-6), event(1.125, 2.0**-6), event(0.5)]
    assert scan._distinct(close) == [close[2], close[0]]
    apart = [event(1.0, 2.0**-6), event(1.126, 2.0**-6)]
    assert scan._distinct(apart) == apart
    assert scan._distinct([]) == []


def test_kinks_and_steps_of_the_value_count_as_coherent() -> None:
    assert [scan._label(reading(v)) for v in ("kink", "stepwise", "coherent", "incoherent", "unresolved", "outside")] == [
        *["coherent"] * 3,
        "incoherent",
        "unresolved",
        "outside",
    ]


def test_suspicion_is_the_largest_drift_over_what_is_allowed() -> None:
    found = reading("coherent", 0.75, number_line(torch.sin))
    assert found.panel is not None
    louder = replace(found, panel=replace(found.panel, drift=(1.0, -3.0, 2.0), allowance=2.0))
    assert scan._suspicion(louder) == 1.5
    assert scan._suspicion(replace(found, panel=replace(found.panel, allowance=0.0))) == 0
    assert scan._suspicion(reading("outside")) == -1


def test_an_end_moves_to_an_event_within_a_quarter_of_its_tile() -> None:
    events = [event(1.74), event(1.2), event(1.3)]
    assert scan._at_event(1.6, events, TILES) == 1.74
    assert scan._at_event(1.45, events, TILES) == 1.3
    assert scan._at_event(1.22, events, TILES) == 1.2
    assert scan._at_event(1.49, [event(1.74)], TILES) == 1.49
    assert scan._at_event(0.0, [event(0.01)], TILES) == 0.0
    assert scan._at_event(3.0, [event(2.99)], TILES) == 3.0


def region(low: float, high: float, verdict: str, size: float = 0.0, limit: float = 0.0) -> Region:
    return Region(low, high, verdict, size, 2 * size, limit)


def test_incoherent_regions_with_a_small_gap_are_joined() -> None:
    parts = [region(0, 1, "incoherent", 0.1, 0.3), region(1, 1.009, "coherent"), region(1.009, 2, "incoherent", 0.05, 0.2)]
    assert scan._joined(parts, 0.01) == [Region(0, 2, "incoherent", 0.05, 0.2, 0.3)]
    assert scan._joined(parts, 0.009 - 1e-9) == parts
    other = [region(0, 1, "coherent"), *parts[1:]]
    assert scan._joined(other, 0.01) == other
    last = [*parts[:2], region(1.009, 2, "unresolved")]
    assert scan._joined(last, 0.01) == last


def half_wrong(start: float, end: float = math.inf, size: float = 1e-3):
    """A sine whose gradient is too large between two places."""
    return number_line(sine_with(lambda x: 1 + size * ((x > start) & (x < end))).apply)


@pytest.mark.parametrize("start", [0.7, 0.8])
def test_a_change_of_verdict_is_found_by_bisection(start: float) -> None:
    """Segments of an eighth of a tile tell one side from the other to their own length."""
    line = half_wrong(start)
    left, right = (0.5, 0.75), (0.75, 1.0)
    before, after = reading("coherent", 0.625), reading("incoherent", 0.875)
    assert scan._boundary(line, left, right, before, after, mean) == pytest.approx(start, abs=0.25 / 8)
    assert scan._boundary(line, left, right, before, replace(after, verdict="unresolved"), mean) == 0.75
    assert scan._boundary(line, left, right, replace(before, verdict="outside"), after, mean) == 0.75


def test_a_change_of_verdict_downwards_is_found_too() -> None:
    line = half_wrong(-1.0, 0.8)
    got = scan._boundary(line, (0.5, 0.75), (0.75, 1.0), reading("incoherent", 0.625), reading("kink", 0.875), mean)
    assert got == pytest.approx(0.8, abs=0.25 / 8)


def test_a_narrow_region_is_cut_out_around_what_was_read_inside_a_tile() -> None:
    line = half_wrong(1.4, 1.5)
    inside = read(line, 1.45, [0.02, 0.01])
    assert inside.verdict == "incoherent"
    home = region(0, 3, "coherent")
    got = scan._with_narrow(line, [home], inside, TILES, mean)
    assert [part.verdict for part in got] == ["coherent", "incoherent", "coherent"]
    assert (got[0].low, got[2].high) == (0, 3)
    assert got[0].high == got[1].low == pytest.approx(1.4, abs=0.02)
    assert got[1].high == got[2].low == pytest.approx(1.5, abs=0.02)
    assert (got[1].smallest, got[1].largest, got[1].limit) == (inside.relative, inside.relative, inside.limit)
    for unchanged in (replace(inside, verdict="coherent"), replace(inside, panel=None), replace(inside, middle=9.0)):
        assert scan._with_narrow(line, [home], unchanged, TILES, mean) == [home]
    known = region(0, 3, "incoherent")
    assert scan._with_narrow(line, [known], inside, TILES, mean) == [known]


@pytest.mark.parametrize("side", [-1, 1])
def test_a_defect_beside_a_kink_is_found_on_either_side(side: int) -> None:
    line = half_wrong(*sorted((1.5, 1.5 + 0.2 * side)))
    found = scan._beside(line, [event(1.5, 1e-6)], TILES)
    assert [r.verdict for r in found] == ["incoherent"]
    assert 0 < side * (found[0].middle - 1.5) < 0.2
    assert scan._beside(line, [event(1.5, 1e-6, "jump")], TILES) == []
    assert scan._beside(line, [event(1.5, 1.0)], TILES) == []
    assert scan._beside(number_line(torch.sin), [event(1.5, 1e-6)], TILES) == []


def test_shorter_distances_are_tried_where_a_longer_one_would_leave_the_interval() -> None:
    found = scan._beside(half_wrong(2.8), [event(2.8, 1e-6)], TILES)
    assert [r.middle for r in found] == [2.8 + 2.0**-4]


def test_nothing_is_read_beyond_the_ends_of_the_interval() -> None:
    line = half_wrong(3.0)
    assert scan._beside(line, [event(2.999, 1e-6)], TILES) == []


def test_regions_are_tiles_of_one_verdict_and_end_where_it_changes() -> None:
    line = half_wrong(1.7)
    readings = [read(line, mean(*tile), [0.5]) for tile in TILES]
    readings[1] = replace(readings[0], middle=1.25)
    verdicts = [r.verdict for r in readings]
    assert verdicts == ["coherent", "coherent", "incoherent"]
    got = scan._regions(line, TILES, readings, [], mean)
    assert got[0].low == 0
    assert [part.verdict for part in got] == ["coherent", "incoherent"]
    assert got[0].high == got[1].low == pytest.approx(1.7, abs=0.13)
    assert got[1].high == 3.0
    assert got[1].smallest == got[1].largest == readings[2].relative
    assert got[0].limit == max(readings[0].limit, readings[1].limit)
    cut = scan._regions(line, TILES, readings, [event(2.5, kind="bend"), event(2.2)], mean)
    assert [(part.verdict, part.high) for part in cut][1:] == [("incoherent", 2.5), ("incoherent", 3.0)]


def test_changes_of_form_are_looked_for_in_tiles_much_rougher_than_a_neighbour() -> None:
    line = number_line(lambda x: x.sin() + 1e-3 * (x - 1.45).clamp_min(0) ** 2)
    readings = [read(line, mean(*tile), [0.5]) for tile in TILES]
    found = scan._changes_of_form(line, TILES, readings)
    assert [e.kind for e in found] == ["bend"]
    assert found[0].at == pytest.approx(1.45, abs=1e-3)
    two = number_line(lambda x: x.sin() + 1e-5 * (x - 1.45).clamp_min(0) ** 2 + 0.1 * (x - 2.6).clamp_min(0) ** 2)
    found = scan._changes_of_form(two, TILES, [read(two, mean(*tile), [0.5]) for tile in TILES])
    assert sorted(e.at for e in found) == pytest.approx([1.45, 2.6], abs=1e-3)
    smooth = number_line(torch.sin)
    assert scan._changes_of_form(smooth, TILES, [read(smooth, mean(*tile), [0.5]) for tile in TILES]) == []
    alone = [(1.0, 2.0)]
    assert scan._changes_of_form(line, alone, [read(line, 1.5, [0.5])]) == []
