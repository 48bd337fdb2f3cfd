"""What a scan asks and what it makes of the answers, rule by rule: on readings that are made up. With functions: test_scan.py, test_scan_parts.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pairgrad.coherence import scan
from pairgrad.coherence.differences import Difference
from pairgrad.coherence.path import Line
from pairgrad.coherence.scan import Region
from pairgrad.coherence.state import Event, Reading
from tests.coherence.readings import panel_of

LINE = cast(Line, SimpleNamespace(epsilon=2.0**-52))


def mean(low: float, high: float) -> float:
    return (low + high) / 2


def reading(verdict: str = "coherent", middle: float = 0.0, *, limit: float = 0.0, relative: float = 0.0, **options: Any) -> Reading:
    """With the limit and the relative defect given."""
    panel = panel_of(defect=relative, allowance=0.0, middle=middle, **options)
    return Reading(middle, panel, Difference(middle, 0.0, limit, 1.0), 0.0, verdict)


def event(at: float, width: float = 0.0, kind: str = "kink") -> Event:
    return Event(kind, at, width, 1.0)


def recorded(monkeypatch: pytest.MonkeyPatch, name: str, answer: Callable[..., Any]) -> list[Any]:
    """Replaces a function of the module; the list fills with what it is asked, without the line."""
    asked: list[Any] = []

    def function(line: Any, *given: Any) -> Any:
        asked.append(given)
        return answer(*given)

    monkeypatch.setattr(scan, name, function)
    return asked


# The whole --------------------------------------------------------------------------------------------------------------


class Interval:
    """Tiles of length 1 from 0 on, with readings that are given; nothing else is found unless a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tiles: int = 12) -> None:
        self.readings = [reading(middle=i + 0.5, limit=2.0**-20) for i in range(tiles)]
        self.finer: dict[int, Reading] = {}
        self.steps: list[Reading | None] = []
        self.nearby: dict[int, Reading] = {}
        self.events: dict[int, Event] = {}
        self.read = recorded(monkeypatch, "read", self._read)
        self.stepwise = recorded(monkeypatch, "stepwise", lambda found, halves: self.steps.pop(0) if self.steps else None)
        self.pursue = recorded(monkeypatch, "pursue", lambda middle, halves: self.nearby.get(int(middle)))
        self.locate = recorded(monkeypatch, "locate", lambda middle, half: self.events.get(int(middle)))
        self.forms: list[Event] = []
        self.beside: list[Reading] = []
        self.changes = recorded(monkeypatch, "_changes_of_form", lambda tiles, readings: self.forms)
        self.sides = recorded(monkeypatch, "_beside", lambda events, tiles: self.beside)
        self.regions = recorded(monkeypatch, "_regions", lambda tiles, readings, events, between: ["regions"])
        self.narrow = recorded(monkeypatch, "_with_narrow", lambda regions, inside, tiles, between: [*regions, inside.middle])
        self.gaps: list[float] = []
        monkeypatch.setattr(scan, "_joined", lambda regions, gap: self.gaps.append(gap) or regions)

    def _read(self, middle: float, halves: Sequence[float]) -> Reading:
        if len(halves) == 1:
            return self.readings[int(middle)]
        return self.finer.get(int(middle), reading("unresolved", middle))

    def scanned(self, edges: Sequence[float] | None = None) -> scan.Scan:
        return scan.scan(LINE, list(range(len(self.readings) + 1)) if edges is None else edges, mean)


@pytest.fixture
def interval(monkeypatch: pytest.MonkeyPatch) -> Interval:
    return Interval(monkeypatch)


def test_every_tile_is_read_over_its_whole_length(interval: Interval) -> None:
    found = interval.scanned()
    assert interval.read == [(i + 0.5, [0.5]) for i in range(12)]
    assert found.readings == tuple(interval.readings)
    assert (found.regions, found.events) == (("regions",), ())
    tiles = [(float(i), i + 1.0) for i in range(12)]
    assert interval.changes == [(tiles, interval.readings)]
    assert interval.regions == [(tiles, interval.readings, [], mean)]
    assert interval.gaps == [0.01]
    assert interval.stepwise == interval.pursue == interval.locate == []


def test_regions_are_joined_over_a_hundredth_of_the_shortest_tile(interval: Interval) -> None:
    interval.scanned([0, 1, 2, 2.5, 4])
    assert interval.gaps == [0.005]


def test_a_tile_that_lacks_a_tenth_of_the_gradient_is_asked_whether_it_is_a_step(interval: Interval) -> None:
    interval.readings[3] = reading("incoherent", relative=0.1)
    interval.readings[5] = reading("incoherent", relative=0.5)
    interval.readings[7] = reading("incoherent", relative=0.0999)
    interval.readings[9] = reading("kink", relative=0.5)
    interval.steps = [None, reading("stepwise", 5.5)]
    given = list(interval.readings)
    found = interval.scanned()
    assert interval.stepwise == [(given[3], [0.5]), (given[5], [0.5])]
    assert [r.verdict for r in found.readings[3:10:2]] == ["incoherent", "stepwise", "incoherent", "kink"]


def test_tiles_are_looked_into_that_are_unresolved_or_a_hundred_times_blunter_than_usual(interval: Interval) -> None:
    interval.readings[2] = reading("unresolved", limit=2.0**-20)
    interval.readings[4] = reading("coherent", limit=100 * 2.0**-20)
    interval.readings[6] = reading("coherent", limit=101 * 2.0**-20)
    interval.readings[8] = reading("incoherent", limit=1.0)
    interval.readings[10] = Reading(10.5, None, None, 0.0, "outside")
    interval.scanned()
    assert sorted(middle for middle, _ in interval.pursue) == [2.5, 6.5]
    assert {tuple(halves) for _, halves in interval.pursue} == {(0.5,)}
    assert sorted(interval.locate) == [(2.5, 0.5), (6.5, 0.5)]
    assert sorted(interval.read[12:]) == [(2.5, [0.125, 0.03125, 0.0078125]), (6.5, [0.125, 0.03125, 0.0078125])]


def test_without_any_panel_nothing_is_usual(interval: Interval) -> None:
    interval.readings = [Reading(i + 0.5, None, None, 0.0, "coherent") for i in range(3)]
    interval.scanned()
    assert interval.pursue == []


def test_the_eight_most_suspicious_tiles_are_looked_into_first_to_last(interval: Interval) -> None:
    """By their drift over what is allowed."""
    drifts = [3, 1, 4, 12, 5, 9, 2, 6, 8, 7, 11, 10]
    interval.readings = [
        Reading(i + 0.5, panel_of(drift=(float(d), 0.0, 0.0), allowance=2.0), None, 0.0, "unresolved") for i, d in enumerate(drifts)
    ]
    interval.scanned()
    assert [drifts[int(middle)] for middle, _ in interval.pursue] == [12, 11, 10, 9, 8, 7, 6, 5]


@pytest.mark.parametrize("verdict", ["coherent", "incoherent", "kink", "unresolved", "outside"])
def test_a_finer_reading_takes_the_place_of_a_doubtful_one_if_it_tells(verdict: str, interval: Interval) -> None:
    interval.readings[2] = reading("unresolved", 2.5)
    interval.finer[2] = reading(verdict, 2.5)
    kept = interval.readings[2] if verdict in ("unresolved", "outside") else interval.finer[2]
    assert interval.scanned().readings[2] is kept
    assert interval.stepwise == ([(interval.finer[2], [0.5])] if verdict == "incoherent" else [])


def test_a_finer_reading_may_be_a_step(interval: Interval) -> None:
    interval.readings[2] = reading("unresolved", 2.5)
    interval.finer[2] = reading("incoherent", 2.5)
    step = reading("stepwise", 2.5)
    interval.steps = [step]
    assert interval.scanned().readings[2] is step


def test_what_is_found_inside_tiles_and_between_them_is_told(interval: Interval) -> None:
    for i in (2, 6):
        interval.readings[i] = reading("unresolved", i + 0.5)
    interval.nearby = {6: reading("incoherent", 6.25)}
    interval.events = {2: event(2.25)}
    interval.forms = [event(9.5), event(1.5)]
    interval.beside = [reading("incoherent", 9.25)]
    found = interval.scanned()
    assert [r.middle for r in found.readings[12:]] == [6.25, 9.25]
    assert [e.at for e in found.events] == [1.5, 2.25, 9.5]
    assert [e.at for e in interval.sides[0][0]] == [1.5, 2.25, 9.5]
    assert [inside.middle for _, inside, _, _ in interval.narrow] == [6.25, 9.25]
    assert found.regions == ("regions", 6.25, 9.25)


# Beside events ----------------------------------------------------------------------------------------------------------

TILES = [(0.0, 4.0), (4.0, 8.0), (8.0, 12.0)]


def test_five_distances_on_either_side_of_an_event_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading())
    assert scan._beside(LINE, [event(6.0)], TILES) == []
    distances = [2.0, 1.0, 0.5, 0.25, 0.125]
    assert [middle for middle, _ in asked] == [6 + sign * distance for sign in (-1, 1) for distance in distances]
    for (_, halves), distance in zip(asked, distances * 2, strict=True):
        assert halves == pytest.approx([0.9 * distance * 2.0**-k for k in range(5)], rel=1e-15)


@pytest.mark.parametrize(("width", "count"), [(2.0**-5, 4), (0.9 * 2.0**-5, 5), (0.125, 2), (0.5, 0)])
def test_distances_are_more_than_four_times_the_width_of_the_event(width: float, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading())
    scan._beside(LINE, [event(6.0, width)], TILES)
    assert len(asked) == 2 * count


@pytest.mark.parametrize(("at", "left", "right"), [(1.9 * 0.5, 3, 5), (1.9 * 0.5 - 1e-9, 2, 5), (12 - 1.9 * 0.5, 5, 3), (12 - 0.94, 5, 2)])
def test_segments_end_within_the_interval(at: float, left: int, right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They reach 1.9 times as far as their middles, from 2 down to 1/8."""
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading())
    scan._beside(LINE, [event(at)], TILES)
    assert [sum(middle < at for middle, _ in asked), sum(middle > at for middle, _ in asked)] == [left, right]


def test_the_width_beside_an_event_on_a_border_is_that_of_the_wider_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading())
    scan._beside(LINE, [event(4.0)], [(0.0, 4.0), (4.0, 12.0)])
    assert max(middle for middle, _ in asked) == 8.0
    asked.clear()
    scan._beside(LINE, [event(8.0)], [(0.0, 8.0), (8.0, 12.0)])
    assert min(middle for middle, _ in asked) == 4.0


def test_the_first_defect_on_a_side_is_kept_and_the_other_side_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading("incoherent" if abs(middle - 6) < 1 else "coherent", middle))
    steps = [None, reading("stepwise", 6.75)]
    stepping = recorded(monkeypatch, "stepwise", lambda found, halves: steps.pop(0))
    found = scan._beside(LINE, [event(2.0, kind="jump"), event(6.0)], TILES)
    assert [(r.verdict, r.middle) for r in found] == [("incoherent", 5.5), ("stepwise", 6.75)]
    assert [middle for middle, _ in asked] == [4.0, 5.0, 5.5, 8.0, 7.0, 6.5]
    assert [halves for _, halves in stepping] == [[4.0], [4.0]]


# Changes of form --------------------------------------------------------------------------------------------------------


def rough(*noises: float | None) -> list[Reading]:
    """Readings of tiles whose gradients have this noise over their size, which is 4; without a panel where that is None."""
    made = [reading(gradient=4.0, slope=0.0, gradient_noise=0.0 if noise is None else 4 * noise) for noise in noises]
    return [replace(r, panel=None) if noise is None else r for r, noise in zip(made, noises, strict=True)]


def changes(readings: list[Reading], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    tiles = [(4.0 * i, 4.0 * i + 4.0) for i in range(len(readings))]
    asked = recorded(monkeypatch, "locate", lambda middle, half: event(middle) if middle != 10.0 else None)
    found = scan._changes_of_form(LINE, tiles, readings)
    assert all(half == 2.0 for _, half in asked)
    assert [e.at for e in found] == [middle for middle, _ in asked if middle != 10.0]
    return [middle for middle, _ in asked]


@pytest.mark.parametrize(
    ("noises", "places"),
    [
        ((0.01, 1.0, 0.5), []),
        ((0.01, 1.01, 0.5), [6.0]),  # a hundred times the smoother neighbour
        ((0.5, 1.01, 0.01), [6.0]),
        ((1.01, 0.01), [2.0]),
        ((0.01, 1.01), [6.0]),
        ((0.0, 400 * 2.0**-52, 0.0), []),  # a hundred times four units
        ((0.0, 401 * 2.0**-52, 0.0), [6.0]),
        ((None, 1.0, None), []),
        ((None, 1.0, 0.001), [6.0]),
        ((1.0, None, 1.0), []),
        ((1.0,), []),
        ((1.0, 0.5, 0.0), [6.0]),  # the first has a rough neighbour only
        ((0.0, 0.5, 1.0), [6.0]),
        ((0.0, 0.3, 0.0, 0.5), [14.0, 6.0]),
    ],
)
def test_tiles_a_hundred_times_rougher_than_a_neighbour_are_looked_into(
    noises: tuple[float | None, ...], places: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changes(rough(*noises), monkeypatch) == places


def test_the_four_roughest_are_located_and_none_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes(rough(0.0, 0.3, 0.0, 0.5, 0.0, 0.4, 0.0, 0.2, 0.0, 0.6, 0.0), monkeypatch) == [38.0, 14.0, 22.0, 6.0]
    assert changes(rough(0.0, 0.3, 0.1, 0.0), monkeypatch) == [6.0, 10.0]
    still = [replace(r, panel=panel_of(gradient=0.0, slope=0.0, gradient_noise=1.0)) for r in rough(0.0, 0.0)]
    assert changes([still[0], *rough(0.0)], monkeypatch) == []


# Regions ----------------------------------------------------------------------------------------------------------------


def regions(monkeypatch: pytest.MonkeyPatch, readings: list[Reading], *events: Event) -> list[Region]:
    """The border between two verdicts is at a quarter of the tile on the right."""
    monkeypatch.setattr(scan, "_boundary", lambda line, left, right, before, after, between: between(left[1], between(*right)))
    return scan._regions(LINE, TILES[: len(readings)], readings, events, mean)


def test_a_region_tells_the_smallest_and_the_largest_defect_and_the_worst_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        reading("incoherent", 2.0, relative=0.25, limit=0.125),
        reading("incoherent", 6.0, relative=0.5, limit=0.0625),
        reading("coherent", 10.0, relative=0.125, limit=0.5),
    ]
    assert regions(monkeypatch, found) == [
        Region(0.0, 9.0, "incoherent", 0.25, 0.5, 0.125),
        Region(9.0, 12.0, "coherent", 0.125, 0.125, 0.5),
    ]
    assert regions(monkeypatch, found[::-1])[0] == Region(0.0, 5.0, "coherent", 0.125, 0.125, 0.5)


def test_verdicts_that_count_as_coherent_are_one_region(monkeypatch: pytest.MonkeyPatch) -> None:
    found = regions(monkeypatch, [reading("kink"), reading("coherent"), reading("stepwise")])
    assert [(r.low, r.high, r.verdict) for r in found] == [(0.0, 12.0, "coherent")]


def test_a_border_moves_to_an_event_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = regions(monkeypatch, [reading(), reading("incoherent", 6.0)], event(5.5), event(4.25))
    assert [(r.low, r.high) for r in found] == [(0.0, 5.5), (5.5, 8.0)]


def test_a_bend_cuts_an_incoherent_region_and_each_part_has_its_own_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [reading("incoherent", middle, relative=size, limit=size) for middle, size in ((2.0, 0.125), (6.0, 0.25), (10.0, 0.5))]
    assert regions(monkeypatch, found, event(7.0, kind="bend"), event(1.0), event(12.0, kind="bend"), event(0.0, kind="bend")) == [
        Region(0.0, 7.0, "incoherent", 0.125, 0.25, 0.25),
        Region(7.0, 12.0, "incoherent", 0.5, 0.5, 0.5),
    ]
    assert regions(monkeypatch, found, event(6.0, kind="bend")) == [
        Region(0.0, 6.0, "incoherent", 0.125, 0.25, 0.25),
        Region(6.0, 12.0, "incoherent", 0.25, 0.5, 0.5),
    ]
    assert regions(monkeypatch, found[:1], event(1.0, kind="bend"), event(1.5, kind="bend"))[1] == Region(
        1.0, 1.5, "incoherent", 0.125, 0.125, 0.125
    )
    smooth = [replace(r, verdict="coherent") for r in found]
    assert [(r.low, r.high) for r in regions(monkeypatch, smooth, event(7.0, kind="bend"))] == [(0.0, 12.0)]


def test_an_end_moves_by_less_than_a_quarter_of_its_tile() -> None:
    tiles = [(0.0, 1.0), (1.0, 5.0)]
    assert scan._at_event(2.0, [event(3.0)], tiles) == 2.0
    assert scan._at_event(2.0, [event(2.999)], tiles) == 2.999
    assert scan._at_event(1.0, [event(1.249)], tiles) == 1.249  # on a border, the tile before it counts
    assert scan._at_event(1.0, [event(1.251)], tiles) == 1.0
    assert scan._at_event(0.0, [event(0.001)], tiles) == 0.0
    assert scan._at_event(5.0, [event(4.999)], tiles) == 5.0


# Ends by bisection ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [3.0, 5.0])
@pytest.mark.parametrize(("before", "after"), [("coherent", "incoherent"), ("incoherent", "kink")])
def test_a_border_is_found_by_eight_bisections_between_the_middles(
    place: float, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tiles of lengths 4 and 2, with segments of an eighth and a thirty-second of the shorter."""
    wanted = {"kink": "coherent"}.get(after, after)
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading(before if middle <= place else wanted))
    found = scan._boundary(LINE, (0.0, 4.0), (4.0, 6.0), reading(before, 2.0), reading(after, 5.0), mean)
    low, high, middles = 2.0, 5.0, []
    for _ in range(8):
        middles.append((low + high) / 2)
        low, high = (middles[-1], high) if middles[-1] <= place else (low, middles[-1])
    assert asked == [(middle, [0.25, 0.0625]) for middle in middles]
    assert found == (low + high) / 2
    asked.clear()
    scan._boundary(LINE, (0.0, 2.0), (2.0, 6.0), reading(before, 1.0), reading(after, 4.0), mean)
    assert {tuple(halves) for _, halves in asked} == {(0.25, 0.0625)}


def test_a_border_stays_where_a_reading_is_no_clear_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([reading("incoherent"), reading("unresolved"), reading("incoherent")])
    asked = recorded(monkeypatch, "read", lambda middle, halves: next(answers))
    assert scan._boundary(LINE, (0.0, 4.0), (4.0, 8.0), reading("coherent", 2.0), reading("incoherent", 6.0), mean) == 3.0
    assert len(asked) == 2


HOME = Region(0.0, 12.0, "coherent", 0.0, 0.0, 0.5)


def narrow(monkeypatch: pytest.MonkeyPatch, low: float, high: float, found: Reading) -> tuple[list[Region], list[Any]]:
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading("incoherent" if low < middle < high else "coherent"))
    return scan._with_narrow(LINE, [HOME], found, TILES, mean), asked


def test_the_ends_of_a_narrow_region_are_found_by_twelve_bisections_within_its_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = reading("incoherent", 6.25, relative=0.25, limit=0.125)
    got, asked = narrow(monkeypatch, 5.0, 7.0, replace(inside, panel=replace(cast(Any, inside.panel), half=0.5)))
    expected, ends = [], []
    for outer, end in ((4.0, 5.0), (8.0, 7.0)):
        within, beyond = 6.25, outer
        for _ in range(12):
            middle = (within + beyond) / 2
            half = min(0.5, abs(middle - 6.25), abs(middle - outer)) / 2
            expected.append((middle, [half, half / 2]))
            if abs(middle - 6.25) < abs(end - 6.25):
                within = middle
            else:
                beyond = middle
        ends.append((within + beyond) / 2)
    assert asked == expected
    assert got == [
        Region(0.0, ends[0], "coherent", 0.0, 0.0, 0.5),
        Region(*ends, "incoherent", 0.25, 0.25, 0.125),
        replace(HOME, low=ends[1]),
    ]
    assert ends == pytest.approx([5.0, 7.0], abs=0.001)


def test_a_narrow_region_takes_the_place_of_its_home_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = reading("incoherent", 6.25, relative=0.25)
    recorded(monkeypatch, "read", lambda middle, halves: reading("incoherent"))
    parts = [replace(HOME, high=4.0, verdict="unresolved"), replace(HOME, low=4.0, high=8.0), replace(HOME, low=8.0, verdict="unresolved")]
    got = scan._with_narrow(LINE, parts, inside, TILES, mean)
    assert [part.verdict for part in got] == ["unresolved", "coherent", "incoherent", "coherent", "unresolved"]
    assert (got[0], got[-1]) == (parts[0], parts[2])
    got = scan._with_narrow(LINE, [replace(HOME, low=6.0)], reading("incoherent", 6.0), [(6.0, 8.0)], mean)
    assert [(part.verdict, part.low) for part in got[:1]] == [("incoherent", 6.0)]


def test_regions_are_joined_below_the_gap_and_behind_two_of_them() -> None:
    wrong = Region(0.0, 1.0, "incoherent", 0.25, 0.5, 0.125)
    between, after = Region(1.0, 1.5, "coherent", 0.0, 0.0, 0.0), Region(1.5, 3.0, "incoherent", 0.125, 0.375, 0.25)
    assert scan._joined([wrong, between, after], 0.51) == [Region(0.0, 3.0, "incoherent", 0.125, 0.5, 0.25)]
    assert scan._joined([wrong, between, after], 0.5) == [wrong, between, after]
    assert scan._joined([between, wrong, after], 9.0) == [between, wrong, after]
    chain = [wrong, between, after, Region(3.0, 3.25, "unresolved", 0.0, 0.0, 0.0), Region(3.25, 4.0, "incoherent", 1.0, 1.0, 1.0)]
    assert scan._joined(chain, 0.51) == [Region(0.0, 4.0, "incoherent", 0.125, 1.0, 1.0)]
    assert scan._joined([wrong, after], 9.0) == [wrong, after]


def test_events_are_one_only_within_four_times_both_widths() -> None:
    first, second = event(1.0, 0.125), event(2.0, 0.125)
    assert scan._distinct([second, first]) == [first]
    assert scan._distinct([first, replace(second, at=2.001)]) == [first, replace(second, at=2.001)]
    assert scan._distinct([event(-2.0, 0.125), event(-1.0, 0.125), event(-0.999, 0.125)]) == [event(-2.0, 0.125), event(-0.999, 0.125)]


def test_suspicion_without_a_panel_is_least() -> None:
    quiet = Reading(0.0, panel_of(allowance=0.0), None, 0.0, "coherent")
    assert scan._suspicion(quiet) == 0
    assert scan._suspicion(replace(quiet, panel=None)) == -1
    assert scan._suspicion(replace(quiet, panel=panel_of(drift=(0.25, -0.5, 0.0), allowance=0.25))) == 2


def test_segments_of_a_bisection_end_within_the_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = reading("incoherent", 6.25, half=0.5)
    _, asked = narrow(monkeypatch, 4.01, 7.99, inside)
    assert all(halves[0] == min(0.5, abs(middle - 6.25), middle - 4, 8 - middle) / 2 for middle, halves in asked)
    assert any(halves[0] == (middle - 4) / 2 for middle, halves in asked)
    assert any(halves[0] == (8 - middle) / 2 for middle, halves in asked)


def test_segments_at_a_border_are_an_eighth_of_the_shorter_tile_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading())
    for left, right in (((4.0, 5.0), (5.0, 9.0)), ((4.0, 8.0), (8.0, 9.0))):
        scan._boundary(LINE, left, right, reading("coherent", mean(*left)), reading("incoherent", mean(*right)), mean)
    assert {tuple(halves) for _, halves in asked} == {(0.125, 0.03125)}


@pytest.mark.parametrize("home", [HOME, replace(HOME, high=8.0)])
def test_a_reading_on_a_border_belongs_to_the_tile_before_it(home: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment of length zero is read."""
    asked = recorded(monkeypatch, "read", lambda middle, halves: reading("incoherent"))
    got = scan._with_narrow(LINE, [home], reading("incoherent", 8.0), TILES, mean)
    (wrong,) = [part for part in got if part.verdict == "incoherent"]
    assert (wrong.low, wrong.high) == (pytest.approx(4.0, abs=0.01), 8.0)
    assert all(halves[0] > 0 for _, halves in asked)


def test_regions_behind_others_are_joined_likewise() -> None:
    parts = [
        Region(-1.0, 0.0, "unresolved", 0.0, 0.0, 0.0),
        Region(0.0, 1.0, "incoherent", 0.25, 0.5, 0.125),
        Region(1.0, 1.5, "coherent", 0.0, 0.0, 0.0),
        Region(1.5, 3.0, "incoherent", 0.125, 0.375, 0.25),
    ]
    assert scan._joined(parts, 0.51) == [parts[0], Region(0.0, 3.0, "incoherent", 0.125, 0.5, 0.25)]
    assert scan._joined(parts, 0.49) == parts


def test_a_border_is_looked_for_between_the_last_tile_of_one_verdict_and_the_first_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a region without a bend tells of all its tiles, wherever the border is found."""
    tiles = [*TILES, (12.0, 16.0)]
    found = [reading(middle=2.0), reading(middle=6.0), *(reading("incoherent", m, relative=r) for m, r in ((10.0, 0.25), (14.0, 0.5)))]
    asked = recorded(monkeypatch, "_boundary", lambda *given: 11.0)
    got = scan._regions(LINE, tiles, found, [], mean)
    assert asked == [(tiles[1], tiles[2], found[1], found[2], mean)]
    assert got[1] == Region(11.0, 16.0, "incoherent", 0.25, 0.5, 0.0)
