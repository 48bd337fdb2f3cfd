"""How places are searched along a line, step by step: which segments are asked, and what decides. On panels that are made up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairgrad.coherence import state
from pairgrad.coherence.differences import Difference
from pairgrad.coherence.limits import SMALLEST_EFFECT
from pairgrad.coherence.panel import Panel
from pairgrad.coherence.state import Event, Reading
from tests.coherence.readings import panel_of

EPS = 2.0**-52


def line_of(**options: Any) -> Any:
    """What a search needs of a line."""
    known = {"epsilon": EPS, "largest": 1.0, "steepest": 1.0, "reference": 1.0, "dtype": torch.float64, "unit": lambda t: 1.0}
    return SimpleNamespace(**(known | options))


def reading(verdict: str = "coherent", middle: float = 0.0, limit: float = 0.0, panel: Panel | None = None, **options: Any) -> Reading:
    """Whose limit is the one given, if it has a panel."""
    return Reading(middle, panel, Difference(middle, 0.0, limit, 1.0), 0.0, verdict, **options)


class Recorded:
    """A function that keeps what it was asked, without the line."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def __call__(self, line: Any, *given: Any, **options: Any) -> Any:
        self.asked.append(given)
        return self.answer(*given, **options)


def recorded(monkeypatch: pytest.MonkeyPatch, name: str, answer: Callable[..., Any]) -> Recorded:
    made = Recorded(answer)
    monkeypatch.setattr(state, name, made)
    return made


QUIET = panel_of(allowance=1.0)
LOUD = panel_of(allowance=1.0, noise=2.0**-10, gradient_noise=2.0**-20, step=2.0**-12)


def around(place: float, found: Panel = LOUD, *, down_to: float = 0.0) -> Callable[[float, float], Panel]:
    """Panels that are loud if a place is on them, unless they are shorter than they may be."""

    def measured(middle: float, half: float) -> Panel:
        loud = abs(middle - place) <= half and half >= down_to
        return replace(found if loud else QUIET, middle=middle, half=half)

    return measured


# Where the line is not smooth -------------------------------------------------------------------------------------------


def located(
    monkeypatch: pytest.MonkeyPatch,
    found: Panel,
    start: Panel = QUIET,
    *,
    shrink: float = 2.0**-5,
    beside: float = 0.0,
    alone: bool = True,
    **options: Any,
) -> Event | None:
    """What `locate` makes of a panel at the end of its search, from one of length 1 that is `start`."""

    def measured(middle: float, half: float) -> Panel:
        if half == 1:
            return replace(start, middle=middle, half=half)
        return around(0.3, found, down_to=shrink)(middle, half)

    recorded(monkeypatch, "measure", measured)
    monkeypatch.setattr(state, "_beside", lambda line, event, around, noise: beside)
    return state.locate(line_of(**options), 0.0, 1.0, **({} if alone else {"alone": False}))


def test_a_place_is_searched_by_halves_down_to_a_four_millionth(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, "measure", around(0.75 + 0.001, LOUD)).asked
    monkeypatch.setattr(state, "_beside", lambda *given: 0.0)
    event = state.locate(line_of(), 0.75, 0.125)
    assert event is not None
    assert event.width == 0.125 * 2.0**-22
    assert abs(event.at - 0.751) <= event.width
    assert [half for _, half in asked] == [0.125, *(0.125 * 2.0**-k for k in range(1, 23) for _ in range(2))]
    low, high = 0.75 - 0.125, 0.75 + 0.125
    assert asked[1:3] == [(low + 0.0625, 0.0625), (high - 0.0625, 0.0625)]


@pytest.mark.parametrize(("middle", "half", "width"), [(2.0**40, 1.0, 2.0**-9), (-(2.0**40), 1.0, 2.0**-9), (0.25, 2.0**-30, 2.0**-49)])
def test_a_search_ends_at_eight_units_of_the_argument_or_of_one(
    middle: float, half: float, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(monkeypatch, "measure", around(middle))
    monkeypatch.setattr(state, "_beside", lambda *given: 0.0)
    event = state.locate(line_of(), middle, half)
    assert event is not None
    assert event.width == width


def test_a_search_ends_after_as_many_halves_as_it_may_make(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, "measure", around(0.3))
    monkeypatch.setattr(state, "_beside", lambda *given: 0.0)
    event = state.locate(line_of(), 0.0, 1.0, depth=5)
    assert event is not None
    assert event.width == 2.0**-5


def test_the_half_that_is_harder_to_explain_is_searched_by_noise_and_quadrature_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the left noise of 3/8, on the right noise of 1/4 and quadrature of 1/4."""
    left, right = replace(LOUD, noise=0.375), replace(LOUD, noise=0.25, quadrature=0.25)
    monkeypatch.setattr(state, "_beside", lambda *given: 0.0)
    asked = recorded(monkeypatch, "measure", lambda middle, half: replace(left if middle < 0 else right, middle=middle, half=half)).asked
    event = state.locate(line_of(), 0.0, 1.0, depth=4)
    assert event is not None
    assert event.at > 0
    assert all(middle > 0 for middle, _ in asked[3:])


def test_outside_there_is_nothing_to_locate(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, "measure", lambda middle, half: None)
    assert state.locate(line_of(), 0.0, 1.0) is None
    recorded(monkeypatch, "measure", lambda middle, half: LOUD if half == 1 else None)
    assert state.locate(line_of(), 0.0, 1.0) is None


def test_one_half_that_is_outside_leaves_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_beside", lambda *given: 0.0)
    recorded(monkeypatch, "measure", lambda middle, half: around(0.3)(middle, half) if half == 1 or middle > 0 else None)
    event = state.locate(line_of(), 0.0, 1.0)
    assert event is not None
    assert event.at == pytest.approx(0.3, abs=1e-6)


KINK = replace(LOUD, step=0.5)


@pytest.mark.parametrize(("shrink", "kind"), [(2.0**-1, None), (2.0**-2, None), (2.0**-3, "kink"), (2.0**-4, "kink")])
def test_a_place_is_one_if_the_search_gets_to_an_eighth(shrink: float, kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    event = located(monkeypatch, KINK, shrink=shrink)
    assert (None if event is None else (event.kind, event.width, event.size)) == (None if kind is None else (kind, shrink, 0.5))


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({"gradient_noise": 32 * EPS, "noise": 12 * EPS}, True),
        ({"gradient_noise": 32.1 * EPS, "noise": 12 * EPS}, False),
        ({"gradient_noise": 32 * EPS, "noise": 12.1 * EPS}, False),
    ],
)
def test_a_segment_is_smooth_to_16_units_of_the_gradient_and_4_of_the_value(
    change: dict[str, float], ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient has the size 2 here, the value 3."""
    panel = replace(QUIET, gradient_size=2.0, value_size=3.0, **change)
    asked = recorded(monkeypatch, "measure", lambda middle, half: replace(panel, middle=middle, half=half)).asked
    monkeypatch.setattr(state, "_beside", lambda *given: 0.0)
    state.locate(line_of(), 0.0, 1.0, depth=3)
    assert len(asked) == (3 if ends else 7)


LEAP = replace(LOUD, residual=-0.5, value_size=2.0, work=2.0**-10)


@pytest.mark.parametrize(
    ("change", "start", "kind"),
    [
        ({}, {}, "jump"),
        ({"value_size": 0.5 / (64 * EPS)}, {}, "bend"),  # the leap is that of 64 units
        ({"value_size": 0.499 / (64 * EPS)}, {}, "jump"),
        ({}, {"residual": -4.0}, "bend"),  # four times what a part of 1/32 has of 4
        ({}, {"residual": 3.999}, "jump"),
        ({"work": -0.125}, {}, "bend"),  # four times the work
        ({"work": -0.1249}, {}, "jump"),
    ],
)
def test_a_leap_is_above_the_rounding_of_the_value_its_share_of_the_residual_and_the_work(
    change: dict[str, float], start: dict[str, float], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = located(monkeypatch, replace(LEAP, **change), replace(QUIET, step=1.0, **start))
    assert event is not None
    assert (event.kind, event.size) == (kind, 0.5 if kind == "jump" else 2.0**-12)
    assert event.at == pytest.approx(0.3, abs=2.0**-5)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"beside": 0.01}, "jump"),
        ({"beside": 0.0101}, None),
        ({"beside": 0.0101, "alone": False}, "jump"),
        ({"largest": 0.5 / (8 * EPS)}, None),
        ({"largest": 0.499 / (8 * EPS)}, "jump"),
        ({"largest": 0.5 / (8 * EPS), "alone": False}, "jump"),
    ],
)
def test_a_jump_is_above_the_rounding_of_the_line_and_alone_or_need_not_be(
    options: dict[str, Any], kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise beside it of a fiftieth of the leap, and eight units of the largest value."""
    event = located(monkeypatch, LEAP, **options)
    assert (None if event is None else event.kind) == kind


@pytest.mark.parametrize(
    ("change", "start", "options", "kind"),
    [
        ({}, {}, {}, "kink"),
        ({}, {"step": 1.0}, {}, "bend"),  # sixteen times what a part of 1/32 has of 1
        ({}, {"step": 0.999}, {}, "kink"),
        ({"gradient_size": 0.5 / (64 * EPS), "gradient_noise": 2.0**40}, {}, {}, "bend"),
        ({"gradient_size": 0.499 / (64 * EPS), "gradient_noise": 2.0**40}, {}, {}, "kink"),
        ({}, {}, {"steepest": 0.5 / (16 * EPS)}, "bend"),
        ({}, {}, {"steepest": 0.499 / (16 * EPS)}, "kink"),
        ({}, {}, {"beside": 0.05}, "kink"),
        ({}, {}, {"beside": 0.0501}, None),
    ],
)
def test_a_kink_is_above_its_share_of_the_step_and_the_rounding_of_the_gradient_and_alone(
    change: dict[str, float], start: dict[str, float], options: dict[str, Any], kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = located(monkeypatch, replace(KINK, **change), replace(QUIET, **start), **options)
    assert (None if event is None else (event.kind, event.size)) == (None if kind is None else (kind, 0.5))


@pytest.mark.parametrize(("noise", "kind"), [(32.0, None), (32.1, "bend")])
def test_a_bend_is_above_16_units_of_the_gradient(noise: float, kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    event = located(monkeypatch, replace(LOUD, step=0.5, gradient_size=2.0, gradient_noise=noise * EPS), replace(QUIET, step=1.0))
    assert (None if event is None else event.kind) == kind


def test_which_noise_is_asked_for_beside_a_jump_and_beside_a_kink(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    recorded(monkeypatch, "measure", around(0.3, LEAP))
    monkeypatch.setattr(state, "_beside", lambda line, event, around, noise: asked.append((around.half, noise)) or 0.0)
    state.locate(line_of(), 0.0, 1.0)
    recorded(monkeypatch, "measure", around(0.3, KINK))
    state.locate(line_of(), 0.0, 1.0)
    assert asked == [(1.0, "noise"), (1.0, "gradient_noise")]


def test_both_sides_of_a_place_are_asked_from_twice_its_width_on_to_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """From -1 to 0.25 - 0.25, and from 0.25 + 0.25 to 1; or sixteen times the width of the place, where that is more."""
    asked = recorded(monkeypatch, "measure", lambda middle, half: replace(QUIET, noise=0.25 + (middle > 0), gradient_noise=0.5)).asked
    event, segment = replace(QUIET, middle=0.25, half=2.0**-7), replace(QUIET, middle=0.0, half=1.0)
    assert state._beside(line_of(), event, segment, "noise") == 1.25
    left, right = 1.25 - 2.0**-6, 0.75 - 2.0**-6
    assert asked == [(-1 + left / 2, left / 2), (1 - right / 2, right / 2)]
    assert state._beside(line_of(), event, segment, "gradient_noise") == 0.5
    asked.clear()
    wide = replace(event, half=0.125)
    state._beside(line_of(), wide, segment, "noise")
    assert asked == [(0.25 - 0.25 - 1.0, 1.0), (0.25 + 0.25 + 1.0, 1.0)]
    recorded(monkeypatch, "measure", lambda middle, half: None if middle > 0 else replace(QUIET, noise=0.25))
    assert state._beside(line_of(), event, segment, "noise") == 0.25
    recorded(monkeypatch, "measure", lambda middle, half: None)
    assert state._beside(line_of(), event, segment, "noise") == 0


# A defect nearby --------------------------------------------------------------------------------------------------------


def pursued(
    monkeypatch: pytest.MonkeyPatch,
    measured: Callable[[float, float], Panel | None],
    confirmed: Callable[[Panel], Reading | None] = lambda panel: None,
    halves: Sequence[float] = (1.0,),
    middle: float = 0.0,
    **options: Any,
) -> tuple[Reading | None, list[Any], list[Any]]:
    asked = recorded(monkeypatch, "measure", measured).asked
    confirming = recorded(monkeypatch, "_confirmed", lambda panel, longer: confirmed(panel)).asked
    return state.pursue(line_of(), middle, halves, **options), asked, confirming


def test_twelve_halves_are_pursued_for_each_of_two_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked, confirming = pursued(monkeypatch, around(0.3), halves=[1.0, 0.5, 0.25])
    assert found is None
    lengths = [half * 2.0**-k for half in (1.0, 0.5) for k in range(13) for _ in range(1 if k == 0 else 2)]
    assert [half for _, half in asked] == lengths
    assert asked[1:3] == [(-0.5, 0.5), (0.5, 0.5)]
    assert all(abs(middle - 0.3) <= 4 * half for middle, half in asked)
    assert [longer for _, longer in confirming[:2]] == [[1.0, 1.0, 0.5, 0.25]] * 2
    assert [longer for _, longer in confirming[-2:]] == [[0.5, 1.0, 0.5, 0.25]] * 2


def test_what_is_confirmed_ends_the_pursuit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = reading("incoherent")
    found, _, confirming = pursued(monkeypatch, around(0.3), lambda panel: seen if panel.half == 0.125 and panel.noise else None)
    assert found is seen
    assert len(confirming) <= 6


def test_a_length_that_leads_outside_leaves_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked, _ = pursued(monkeypatch, lambda middle, half: around(0.1)(middle, half) if half != 1 else None, halves=[1.0, 0.5])
    assert len(asked) == 1 + 1 + 24
    _, asked, _ = pursued(monkeypatch, lambda middle, half: around(0.1)(middle, half) if half in (1.0, 0.5) else None, halves=[1.0, 0.5])
    assert [half for _, half in asked] == [1.0, 0.5, 0.5, 0.25, 0.25, 0.5, 0.25, 0.25]
    found, asked, _ = pursued(monkeypatch, lambda middle, half: around(0.3)(middle, half) if half == 1 or middle > 0 else None)
    assert found is None
    assert len(asked) == 25


@pytest.mark.parametrize("change", [{"drift": (0.0, 0.0, -0.75)}, {"noise": 0.5, "quadrature": 0.25}])
def test_the_half_with_the_largest_drift_or_least_explained_is_pursued(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(LOUD, noise=0.5, drift=(0.625, 0.0, 0.0))
    wanted = replace(QUIET, **change)
    _, asked, _ = pursued(monkeypatch, lambda middle, half: replace(other if middle < 0 else wanted, middle=middle, half=half), depth=3)
    assert [middle for middle, _ in asked[3:]] == [0.25, 0.75, *[asked[5][0], asked[6][0]]]
    assert all(middle > 0 for middle, _ in asked[5:])


@pytest.mark.parametrize(("middle", "half", "width"), [(2.0**44, 1.0, 2.0**-6), (-(2.0**44), 1.0, 2.0**-6), (0.25, 2.0**-44, 2.0**-50)])
def test_a_pursuit_ends_at_four_units_of_the_argument_or_of_one(
    middle: float, half: float, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, asked, _ = pursued(monkeypatch, around(middle), halves=[half], middle=middle)
    assert min(half for _, half in asked) == width


# Steps of the value -----------------------------------------------------------------------------------------------------

SHORT = panel_of(defect=0.5, half=2.0**-10, work=1.0, residual=-0.5)


@pytest.mark.parametrize(
    ("half", "halves", "longer"),
    [
        (2.0**-10, [0.25, 2.0**-4], [2.0**-8, 2.0**-6, 2.0**-4, 0.25, 0.5, 1.0]),
        (2.0**-4, [0.125, 0.25], [0.25, 0.5, 1.0]),
        (2.0**-40, [1.0], [*(2.0 ** (2 * k - 40) for k in range(1, 16)), 1.0, 2.0, 4.0]),
    ],
)
def test_longer_segments_are_four_times_as_long_each_and_up_to_four_times_the_longest(
    half: float, halves: list[float], longer: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = recorded(monkeypatch, "measure", lambda middle, half: None).asked
    monkeypatch.setattr(state, "_few_values", lambda line, panel: False)
    found = reading("incoherent", 0.75, panel=replace(SHORT, half=half))
    assert state.stepwise(line_of(), found, halves) is None
    assert asked == [(0.75, length) for length in longer]


@pytest.mark.parametrize(
    ("change", "few", "options", "lost"),
    [
        ({}, False, {"largest": 0.5 / (8 * EPS)}, True),
        ({}, False, {"largest": 0.499 / (8 * EPS)}, False),
        ({"residual": 0.5}, False, {"largest": 0.5 / (8 * EPS)}, True),
        ({}, False, {"reference": 1 / EPS}, False),  # it moves, so only values of the line count
        ({}, True, {"reference": 1 / EPS}, True),
        ({}, True, {"largest": 1 / EPS}, True),
        ({"residual": -1.0}, False, {"reference": 1 / EPS}, True),
        ({"residual": -1.0 + 2.0**-9}, False, {"reference": 1 / EPS}, True),  # two roundings of the value
        ({"residual": -1.0 - 2.0**-9}, False, {"reference": 1 / EPS}, True),
        ({"residual": -1.0 + 2.0**-8}, False, {"reference": 1 / EPS}, False),
        ({"defect": 0.1}, False, {"largest": 1 / EPS}, True),
        ({"defect": 0.099}, False, {"largest": 1 / EPS}, False),
        ({"defect": 0.099}, True, {"largest": 1 / EPS}, True),
    ],
)
def test_what_is_missing_is_lost_below_eight_units_of_the_largest_value(
    change: dict[str, float], few: bool, options: dict[str, float], lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a tenth of the gradient is missing or the value takes few values; numbers inside of the callable count where it stands still."""
    recorded(monkeypatch, "measure", lambda middle, half: None)
    monkeypatch.setattr(state, "_few_values", lambda line, panel: few)
    found = state.stepwise(line_of(**options), reading("incoherent", panel=replace(SHORT, rounding=2.0**-10, **change)), [1.0])
    assert (None if found is None else found.verdict) == ("unresolved" if lost else None)


def test_a_segment_that_is_not_taken_at_its_word_leaves_the_longer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half-lengths 1/4, 1/2 and 1: one with a rough gradient, one where no leap is found, one where it is."""
    panels = {0.25: {"gradient_noise": 1.0}, 0.5: {}, 1.0: {}}
    recorded(monkeypatch, "measure", lambda middle, half: panel_of(half=half, noise=0.05, absolute_work=1.0, **panels[half]))
    leap = Event("jump", 0.0, 0.0, 2.0**-5)
    looked = recorded(monkeypatch, "locate", lambda middle, half, alone: leap if half == 1.0 and not alone else None).asked
    long = reading(panel=panel_of(allowance=0.0), middle=0.75)
    read = recorded(monkeypatch, "read", lambda middle, halves: long).asked
    monkeypatch.setattr(state, "_few_values", lambda line, panel: False)
    monkeypatch.setattr(state, "_is_lost", lambda line, size, middle: size == leap.size and middle == 0.75)
    found = state.stepwise(line_of(), reading("incoherent", 0.75, panel=replace(SHORT, half=0.25)), [0.25])
    assert found is not None
    assert (found.verdict, found.event) == ("stepwise", leap)
    assert looked == [(0.75, 0.5), (0.75, 1.0)]
    assert read == [(0.75, [1.0, 4.0])]


def test_values_around_a_place_are_looked_at_before_leaps_are_called_lost() -> None:
    asked = []
    line = line_of(unit=lambda t: 4.0, at=asked.append)
    assert state._is_lost(line, 8 * EPS, 0.5)
    assert asked == [0.5 - 4, 0.5 + 4, 0.5 - 8, 0.5 + 8]
    assert not state._is_lost(line, 8.1 * EPS, 0.5)


# Readings ---------------------------------------------------------------------------------------------------------------

HALVES = [1.0, 0.5, 0.25, 0.125]
SMALLEST = SMALLEST_EFFECT[torch.float64]


@pytest.mark.parametrize(
    ("answers", "used"),
    [
        ([("coherent", 2 * SMALLEST, 0.0)], 2),
        ([("coherent", 2.01 * SMALLEST, 0.0)], 4),
        ([("incoherent", 2.0**-11 * 1e-3, 2.0**-11)], 2),
        ([("incoherent", 2.0**-11 * 1.01e-3, 2.0**-11)], 4),
        ([("unresolved", SMALLEST, 0.0)], 4),
        ([("unresolved", SMALLEST, 0.0), ("coherent", SMALLEST, 0.0)], 3),
    ],
)
def test_lengths_are_added_until_enough_is_seen(answers: list[Any], used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of twice the smallest effect, or a thousandth of the defect. The first answer is that of two lengths; the last is the result."""
    measured = recorded(monkeypatch, "measure", lambda middle, half: panel_of(half=half, noise=0.5, gradient_noise=0.25)).asked
    differences = recorded(monkeypatch, "difference", lambda *given: Difference(0.0, 0.0, 0.0, 1.0)).asked
    remaining = [reading(v, limit=limit, panel=panel_of(defect=size, allowance=0.0)) for v, limit, size in answers]
    asked = recorded(monkeypatch, "_reading", lambda pairs, middle: remaining.pop(0) if len(remaining) > 1 else remaining[0]).asked
    found = state.read(line_of(), 0.75, HALVES)
    assert found is remaining[0]
    assert measured == [(0.75, half) for half in HALVES[:used]]
    assert differences == [(0.75, half, 0.5, 0.25) for half in HALVES[:used]]
    assert {middle for _, middle in asked} == {0.75}
    assert [pair[0].half for pair in asked[-1][0]] == HALVES[:used]


@pytest.mark.parametrize("missing", ["measure", "difference"])
def test_lengths_that_lead_outside_are_passed_over(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, "measure", lambda middle, half: None if missing == "measure" and half == 1 else panel_of(half=half))
    other = Difference(0.0, 0.0, 0.0, 1.0)
    recorded(monkeypatch, "difference", lambda middle, half, *noise: None if missing == "difference" and half == 1 else other)
    asked = recorded(monkeypatch, "_reading", lambda pairs, middle: reading("unresolved")).asked
    state.read(line_of(), 0.0, [1.0, 0.5, 0.25])
    assert [pair[0].half for pair in asked[-1][0]] == [0.5, 0.25]
    recorded(monkeypatch, missing, lambda *given: None)
    found = state.read(line_of(), 0.75, HALVES)
    assert (found.verdict, found.middle, found.panel, found.difference, found.smallest) == ("outside", 0.75, None, None, SMALLEST)


def pair(limit: float, other: float, *, defect: float = 0.0, drift: float = 0.0) -> tuple[Panel, Difference]:
    panel = panel_of(defect=defect, allowance=limit / 2, drift=(drift, 0.0, 0.0))
    return panel, Difference(0.0, defect, other, 1.0)


def test_a_defect_is_looked_for_among_the_three_best_panels_and_differences() -> None:
    """The only pair that agrees is the third panel with the third difference; as fourth ones they are not asked."""
    seeing = pair(0.03, 0.03, defect=0.5, drift=0.25)
    quiet = [pair(0.01, 0.01), pair(0.02, 0.02), pair(0.025, 0.025)]
    found = state._reading(line_of(), [seeing, *quiet[:2]], 0.75)
    assert (found.verdict, found.middle, found.panel, found.difference) == ("incoherent", 0.75, *seeing)
    found = state._reading(line_of(), [seeing, *quiet], 0.75)
    assert (found.verdict, found.middle, found.panel, found.difference) == ("unresolved", 0.75, *quiet[0])
    assert found.smallest == SMALLEST


def test_the_best_of_several_that_see_a_defect_is_taken() -> None:
    pairs = [pair(0.03, 0.01, defect=0.5, drift=0.25), pair(0.01, 0.03, defect=0.5, drift=0.25)]
    found = state._reading(line_of(), pairs, 0.0)
    assert (found.panel, found.difference) == (pairs[1][0], pairs[0][1])


# What stands in the way -------------------------------------------------------------------------------------------------


class Place:
    """What `examine` finds when it asks: by default, a place that is unresolved, with sides that are too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here, self.left, self.right = reading("unresolved", panel=panel_of()), {}, {}
        self.step: Reading | None = None
        self.nearby: Reading | None = None
        self.event: Event | None = None
        self.read = recorded(monkeypatch, "read", self._read)
        self.stepwise = recorded(monkeypatch, "stepwise", lambda found, halves: self.step)
        self.locate = recorded(monkeypatch, "locate", lambda middle, half: self.event)
        self.pursue = recorded(monkeypatch, "pursue", lambda middle, halves: self.nearby)

    def _read(self, middle: float, halves: Sequence[float]) -> Reading:
        if middle == 0.75:
            return self.here
        side = self.left if middle < 0.75 else self.right
        return side.get(2 * halves[0], reading("unresolved", middle, panel=panel_of()))

    def examined(self) -> Reading:
        return state.examine(line_of(), 0.75, HALVES)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


BLURRED = reading("coherent", limit=0.5, panel=panel_of(quadrature=1.0, allowance=1.0))


def test_a_clear_reading_is_the_answer(place: Place) -> None:
    for place.here in (reading("outside"), reading("coherent", panel=panel_of())):
        assert place.examined() is place.here
    assert place.stepwise.asked == place.pursue.asked == []
    assert place.read.asked == [(0.75, HALVES)] * 2


def test_a_defect_at_the_place_is_asked_whether_it_is_a_step(place: Place) -> None:
    place.here = reading("incoherent", panel=panel_of())
    assert place.examined() is place.here
    place.step = reading("stepwise")
    assert place.examined() is place.step
    assert place.stepwise.asked == [(place.here, HALVES)] * 2


@pytest.mark.parametrize("here", [BLURRED, reading("unresolved", panel=panel_of())], ids=["blurred", "unresolved"])
def test_both_sides_are_read_and_then_the_defect_is_pursued(here: Reading, place: Place) -> None:
    place.here = here
    assert place.examined() is here
    sides = [(0.75 + sign * half / 2, [half / 2, half / 8]) for half in HALVES for sign in (-1, 1)]
    assert place.read.asked == [(0.75, HALVES), *sides]
    assert place.pursue.asked == [(0.75, HALVES)]
    place.nearby = reading("incoherent")
    assert place.examined() is place.nearby


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_defect_on_one_side_is_the_answer(side: str, place: Place) -> None:
    found = reading("incoherent", panel=panel_of())
    getattr(place, side)[0.5] = found
    assert place.examined() is found
    assert place.stepwise.asked == [(found, HALVES)]
    place.step = reading("stepwise")
    assert place.examined() is place.step


@pytest.mark.parametrize(
    ("event", "verdict"),
    [
        (Event("jump", 0.75, 0.0, 1.0), "jump"),
        (Event("kink", 0.75, 0.0, 1.0), "kink"),
        (Event("bend", 0.75, 0.0, 1.0), "kink"),
        (None, "kink"),
    ],
)
@pytest.mark.parametrize("better", [0, 1])
def test_what_is_between_two_coherent_sides_is_named(event: Event | None, verdict: str, better: int, place: Place) -> None:
    """And the side with the better limit tells."""
    limits = (0.125, 0.25) if better == 0 else (0.25, 0.125)
    for side, limit, middle in zip((place.left, place.right), limits, (0.5, 1.0), strict=True):
        side[0.5] = reading("coherent", middle, limit=limit, panel=panel_of(allowance=0.0))
    place.event = event
    found = place.examined()
    assert (found.verdict, found.event, found.middle, found.limit) == (verdict, event, (0.5, 1.0)[better], 0.125)
    assert place.locate.asked == [(0.75, 0.5)]


def test_one_coherent_side_is_not_enough(place: Place) -> None:
    for half, side in itertools.product(HALVES, (place.left, place.right)):
        side[half] = reading("coherent", panel=panel_of())
        assert place.examined() is place.here
        side.clear()
    assert place.locate.asked == []


def test_a_confirmed_defect_is_asked_whether_it_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of(defect=0.5, middle=0.75)
    found = reading("incoherent", panel=panel)
    recorded(monkeypatch, "read", lambda middle, halves: found if middle == 0.75 else None)
    steps = [None, reading("stepwise")]
    asked = recorded(monkeypatch, "stepwise", lambda found, longer: steps[len(asked) - 1]).asked
    assert state._confirmed(line_of(), panel, [1.0]) is found
    assert state._confirmed(line_of(), panel, [2.0]) is steps[1]
    assert asked == [(found, [1.0]), (found, [2.0])]
    edge = panel_of(defect=SMALLEST, drift=(1.0, 0.0, 0.0), middle=0.75)
    assert edge.relative == SMALLEST
    steps.append(None)
    assert state._confirmed(line_of(), edge, [1.0]) is found
