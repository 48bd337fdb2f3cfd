"""What is concluded from a panel and a difference: every rule at its edge."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from pairgrad.coherence import state
from pairgrad.coherence.differences import Difference
from pairgrad.coherence.limits import SMALLEST_EFFECT, TELLING
from pairgrad.coherence.panel import Panel
from pairgrad.coherence.state import Event, Reading, agree
from tests.coherence.functions import sine_with
from tests.coherence.lines import number_line

# A gradient of size 1, a defect of 1/2, allowances that leave it significant by both methods.
PANEL = Panel(
    middle=0.0,
    half=0.5,
    drift=(0.25, 0.0, 0.0),
    noise=0.0,
    gradient_noise=0.0,
    quadrature=0.0,
    allowance=0.125,
    defect=0.5,
    gradient_size=1.0,
    value_size=1.0,
    work=1.0,
    absolute_work=1.0,
    residual=0.0,
    slope=0.5,
    step=0.0,
    ruggedness=0.0,
    rounding=2.0**-52,
)
OTHER = Difference(middle=0.0, defect=0.5, allowance=0.125, size=1.0)
SMALLEST = 2.0**-10


def reading(panel: Panel | None = PANEL, other: Difference | None = OTHER, smallest: float = SMALLEST) -> Reading:
    return Reading(0.0, panel, other, smallest, "coherent")


def test_methods_agree_if_both_see_a_defect_and_the_same_one() -> None:
    assert agree(PANEL, OTHER)
    assert not agree(replace(PANEL, drift=(0.125, 0.0, 0.0)), OTHER)
    assert not agree(PANEL, replace(OTHER, allowance=0.5))


@pytest.mark.parametrize(("one", "two"), [(0.5, 1.0), (-0.5, -1.0), (1.0, 0.5)])
def test_agreement_leaves_room_for_both_errors_and_a_quarter_of_the_defect(one: float, two: float) -> None:
    """Apart by 1/2: the panel's allowance per unit of the parameter, that of the difference, and a quarter of the larger defect."""
    room = 0.5 - 0.25 * max(abs(one), abs(two))
    panel, other = replace(PANEL, defect=one, allowance=room / 4, drift=(9.0,)), replace(OTHER, defect=two, allowance=room / 2 - 2.0**-40)
    assert not agree(panel, other)
    assert agree(panel, replace(other, allowance=room / 2))


def test_a_defect_is_seen_from_the_smallest_effect_on() -> None:
    """By the smaller of the two, relative to the gradient: 1/2 and 1/4 here."""
    smaller = replace(OTHER, size=2.0)
    assert state._sees(PANEL, smaller, 0.25)
    assert not state._sees(PANEL, smaller, 0.2501)
    assert not state._sees(PANEL, replace(smaller, allowance=0.5), 0.0)


def test_numbers_of_a_reading() -> None:
    found = reading()
    assert (found.relative, found.defect, found.error) == (0.5, 0.5, 0.25)
    assert found.limit == 0.25
    assert reading(other=replace(OTHER, allowance=0.375)).limit == 0.375
    assert reading(smallest=0.75).limit == 0.75
    nothing = reading(panel=None)
    assert (nothing.relative, nothing.defect, nothing.error, nothing.limit) == (0, 0, math.inf, math.inf)
    assert reading(other=None).limit == math.inf


def test_where_nothing_moves_the_limit_is_the_smallest_effect() -> None:
    flat = replace(PANEL, drift=(0.0, 0.0, 0.0), gradient_size=0.0, slope=0.0)
    assert reading(flat, replace(OTHER, size=0.0)).limit == SMALLEST


def test_a_reading_tells_something_up_to_a_quarter_of_the_gradient() -> None:
    assert TELLING == 0.25
    assert reading().telling
    assert not reading(other=replace(OTHER, allowance=0.2501)).telling


def test_a_reading_is_blurred_by_a_rough_panel_with_a_limit_far_above_the_smallest_effect() -> None:
    rough = replace(PANEL, quadrature=0.1)
    assert reading(rough, smallest=0.25 / 1001).blurred
    assert not reading(rough, smallest=0.25 / 1000).blurred
    assert not reading(PANEL, smallest=0.25 / 1001).blurred
    assert not reading(None).blurred


# Several lengths --------------------------------------------------------------------------------------------------------

LINE = number_line(torch.sin)
HARMLESS = replace(PANEL, drift=(0.0, 0.0, 0.0), defect=0.0), replace(OTHER, defect=0.0)


def test_the_best_limits_are_kept_if_nothing_is_seen() -> None:
    sharp = replace(HARMLESS[0], allowance=2.0**-6), replace(HARMLESS[1], allowance=2.0**-3)
    blunt = replace(HARMLESS[0], allowance=2.0**-4), replace(HARMLESS[1], allowance=2.0**-5)
    found = state._reading(LINE, [sharp, blunt], 0.0)
    assert (found.verdict, found.panel, found.difference) == ("coherent", sharp[0], blunt[1])
    assert found.smallest == SMALLEST_EFFECT[torch.float64]


def test_a_defect_is_looked_for_at_the_three_best_scales_of_each_method() -> None:
    def pair(panel_allowance: float, other_allowance: float, *, panel_sees: bool, other_sees: bool) -> tuple[Panel, Difference]:
        panel = replace(PANEL if panel_sees else HARMLESS[0], allowance=panel_allowance)
        return panel, replace(OTHER if other_sees else HARMLESS[1], allowance=other_allowance)

    third = [
        pair(0.01, 0.01, panel_sees=False, other_sees=False),
        pair(0.02, 0.02, panel_sees=False, other_sees=False),
        pair(0.03, 0.03, panel_sees=True, other_sees=True),
    ]
    found = state._reading(LINE, third, 0.0)
    assert (found.verdict, found.panel, found.difference) == ("incoherent", third[2][0], third[2][1])
    fourth = [pair(0.005, 0.005, panel_sees=False, other_sees=False), *third]
    assert state._reading(LINE, fourth, 0.0).verdict == "unresolved"


def test_what_one_method_alone_sees_leaves_the_place_unresolved() -> None:
    assert state._reading(LINE, [(PANEL, HARMLESS[1])], 0.0).verdict == "unresolved"
    assert state._reading(LINE, [(HARMLESS[0], OTHER)], 0.0).verdict == "coherent"
    below = replace(PANEL, drift=(2.0**-42, 0.0, 0.0), allowance=2.0**-43, defect=2.0**-41)
    assert below.significant
    assert state._reading(LINE, [(below, HARMLESS[1])], 0.0).verdict == "coherent"
    for bent in ((0.0, 0.25, 0.0), (0.0, 0.0, -0.25)):  # nothing in the middle, and a defect that grows with the distance from it
        assert state._reading(LINE, [(replace(PANEL, drift=bent, defect=0.0), HARMLESS[1])], 0.0).verdict == "unresolved"
    blunt = replace(HARMLESS[1], allowance=0.5)
    assert state._reading(LINE, [(HARMLESS[0], blunt)], 0.0).verdict == "unresolved"


# Steps of the value -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("levels", "few"), [(2, True), (3, True), (4, False)])
def test_three_values_are_few(levels: int, few: bool) -> None:
    line = number_line(lambda x: (x * levels).floor() + 0 * x)
    assert state._few_values(line, replace(PANEL, middle=0.5, half=0.499)) is few


def test_leaps_are_wide_from_a_64th_of_what_the_gradient_makes_of_the_argument() -> None:
    panel = replace(PANEL, middle=4.0, gradient_size=2.0)
    edge = 2.0**-6 * 2 * 4
    assert not state._is_wide(LINE, Event("jump", 4.0, 0.1, edge), panel)
    assert state._is_wide(LINE, Event("jump", 4.0, 0.1, 1.001 * edge), panel)
    assert not state._is_wide(LINE, Event("jump", 4.0, 0.1, 1.0), replace(panel, gradient_size=0.0))


def test_leaps_are_lost_below_eight_units_of_the_largest_value_within_twice_the_argument() -> None:
    """x^2 around 4 is 144 at 12, which is looked at; the reference of the line is 1."""
    eps = torch.finfo(torch.float64).eps
    assert state._is_lost(number_line(torch.square), 8 * eps * 144, 4.0)
    assert not state._is_lost(number_line(torch.square), 8.01 * eps * 144, 4.0)
    assert state._is_lost(number_line(lambda x: 0 * x), 8 * eps, 4.0)
    assert not state._is_lost(number_line(lambda x: 0 * x), 8.01 * eps, 4.0)


SHORT = Reading(0.0, replace(PANEL, residual=-0.125, work=0.5), OTHER, SMALLEST, "incoherent")
LONG = replace(PANEL, defect=0.0, noise=0.01)  # between 0.05 of the residual and 0.1 of the work
LEAP = Event("jump", 0.0, 0.0, 0.05 * 0.125)


@pytest.mark.parametrize(
    ("long", "leap", "verdict"),
    [
        (LONG, LEAP, "stepwise"),
        (replace(LONG, gradient_noise=0.05), LEAP, "stepwise"),
        (replace(LONG, gradient_noise=0.051), LEAP, None),
        (replace(LONG, defect=0.25), LEAP, "stepwise"),
        (replace(LONG, defect=-0.251), LEAP, None),
        (replace(LONG, noise=0.05 * 0.125), LEAP, None),
        (replace(LONG, noise=0.1), LEAP, None),
        (LONG, replace(LEAP, size=0.006), None),
        (LONG, replace(LEAP, kind="kink"), None),
        (LONG, None, None),
        (LONG, replace(LEAP, size=2.0**-6), "stepwise"),
        (LONG, replace(LEAP, size=2.0**-6 + 1e-9), None),
        (None, LEAP, None),
    ],
)
def test_a_longer_segment_is_taken_at_its_word(
    long: Panel | None, leap: Event | None, verdict: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its gradient is smooth, the defect does not persist, its noise is that of the steps, and these are leaps that are not wide."""
    monkeypatch.setattr(state, "_few_values", lambda line, panel: False)
    monkeypatch.setattr(state, "measure", lambda line, middle, half: long)
    monkeypatch.setattr(state, "locate", lambda line, middle, half, alone: leap)
    monkeypatch.setattr(state, "read", lambda line, middle, halves: reading(*HARMLESS))
    found = state.stepwise(number_line(torch.sin), SHORT, [1.0, 0.5])
    assert (None if found is None else found.verdict) == verdict


def test_longer_segments_that_tell_nothing_leave_the_place_unresolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_few_values", lambda line, panel: False)
    monkeypatch.setattr(state, "measure", lambda line, middle, half: LONG)
    monkeypatch.setattr(state, "locate", lambda line, middle, half, alone: LEAP)
    for blunt in (reading(HARMLESS[0], replace(HARMLESS[1], allowance=0.251)), reading(replace(PANEL, defect=0.251)), reading(None)):
        monkeypatch.setattr(state, "read", lambda line, middle, halves, blunt=blunt: blunt)
        assert state.stepwise(number_line(torch.sin), SHORT, [1.0]).verdict == "unresolved"


def test_a_panel_is_confirmed_on_five_lengths_if_it_is_significant_and_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def record(line, middle, halves):
        asked.append(halves)
        return reading()

    monkeypatch.setattr(state, "read", record)
    assert state._confirmed(LINE, replace(PANEL, drift=(0.0, 0.0, 0.0)), []) is None
    assert state._confirmed(LINE, replace(PANEL, defect=2.0**-41), []) is None
    assert asked == []
    assert state._confirmed(LINE, PANEL, []) is None
    assert asked == [[0.5, 0.25, 0.125, 0.0625, 0.03125]]


def test_two_lengths_are_enough_where_both_methods_see_enough() -> None:
    for fn in (torch.sin, sine_with(lambda x: 1.01).apply):
        line = number_line(fn)
        state.read(line, 0.75, [2.0**-4, 2.0**-5, 2.0**-6, 2.0**-7])
        assert line.panels == 2


@pytest.mark.parametrize("size", [0.125, 4.0])
def test_the_quarter_is_one_of_the_larger_defect(size: float) -> None:
    """Apart by a quarter of it and an eighth: what the other method allows, or just not."""
    panel = replace(PANEL, defect=0.625 * size, allowance=0.0, drift=(9.0,))
    other = replace(OTHER, defect=size, allowance=0.125 * size)
    assert agree(panel, other)
    assert not agree(panel, replace(other, allowance=0.1249 * size))


def test_a_panel_that_sees_just_the_smallest_effect_leaves_the_place_unresolved() -> None:
    just = replace(PANEL, defect=2.0**-40)
    assert just.relative == SMALLEST_EFFECT[torch.float64]
    assert state._reading(LINE, [(just, HARMLESS[1])], 0.0).verdict == "unresolved"


def test_a_longer_segment_tells_up_to_a_quarter_of_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_few_values", lambda line, panel: False)
    monkeypatch.setattr(state, "measure", lambda line, middle, half: LONG)
    monkeypatch.setattr(state, "locate", lambda line, middle, half, alone: LEAP)
    edge = reading(replace(PANEL, defect=0.25), replace(OTHER, allowance=0.25))
    assert edge.relative == edge.limit == TELLING
    monkeypatch.setattr(state, "read", lambda line, middle, halves: edge)
    found = state.stepwise(number_line(torch.sin), SHORT, [1.0])
    assert found is not None
    assert found.verdict == "stepwise"


@pytest.mark.parametrize("fourth", ["panel", "difference"])
def test_a_fourth_panel_or_difference_is_not_asked(fourth: str) -> None:
    """Though it agrees with the best of the other method."""
    panels = [replace(HARMLESS[0], allowance=k * 2.0**-20) for k in (1, 2, 3)]
    others = [replace(HARMLESS[1], allowance=k * 2.0**-20) for k in (1, 2, 3)]
    seeing = replace(PANEL, allowance=(4 if fourth == "panel" else 0) * 2.0**-20)
    agreeing = replace(OTHER, allowance=(4 if fourth == "difference" else 0) * 2.0**-20)
    pairs = list(zip([*panels, seeing], [*others, agreeing], strict=True))
    assert state._reading(LINE, pairs, 0.0).verdict == "unresolved"
    assert state._reading(LINE, pairs[1:], 0.0).verdict == "incoherent"


def test_a_value_stands_still_within_two_units_of_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then numbers inside of the callable count, which are 2^52 here."""
    monkeypatch.setattr(state, "_few_values", lambda line, panel: False)
    monkeypatch.setattr(state, "measure", lambda line, middle, half: None)
    line = number_line(torch.sin)
    line.reference = 2.0**52
    for units, verdict in ((2.0, "unresolved"), (2.5, None)):
        short = replace(PANEL, work=1.0, residual=-1.0 + units * 2.0**-20, rounding=2.0**-20)
        found = state.stepwise(line, replace(SHORT, panel=short), [1.0])
        assert (None if found is None else found.verdict) == verdict


@pytest.mark.parametrize("search", ["pursue", "locate"])
def test_searches_end_at_the_rounding_of_the_argument_whatever_the_length(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At four units of it, and at eight: 2^-6 and 2^-9 here. A segment of 1.1 of that is halved once more."""
    halves = []

    def measured(line, middle, half):
        halves.append(half)
        return replace(PANEL, middle=middle, half=half, noise=1.0, gradient_noise=1.0)

    monkeypatch.setattr(state, "measure", measured)
    monkeypatch.setattr(state, "_confirmed", lambda line, panel, longer: None)
    if search == "pursue":
        state.pursue(LINE, 2.0**44, [1.1])
    else:
        state.locate(LINE, 2.0**40, 1.1)
    assert min(halves) == pytest.approx(1.1 * 2.0 ** (-7 if search == "pursue" else -10), rel=0.3)  # ends of segments are rounded


def test_longer_segments_are_those_that_are_shorter_than_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(state, "_few_values", lambda line, panel: False)
    monkeypatch.setattr(state, "measure", lambda line, middle, half: asked.append(half))
    assert state.stepwise(LINE, replace(SHORT, panel=replace(PANEL, half=2.0**-10, residual=1.0)), [0.5]) is None
    assert asked == [2.0**-8, 2.0**-6, 2.0**-4, 2.0**-2, 0.5, 1.0, 2.0]
