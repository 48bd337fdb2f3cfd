"""What follows from observations: from made-up readings, so that every number of a finding is known beforehand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pairgrad.coherence.conclusions import (
    CURVES,
    TOGETHER,
    best_limits,
    by_argument,
    defect_finding,
    defective,
    distinct,
    event_findings,
    loudest_curves,
    of_order,
    second_order_finding,
    size_at,
    state_defect,
    straight_through_finding,
    undecided,
)
from pairgrad.coherence.differences import Difference
from pairgrad.coherence.explore import Observation
from pairgrad.coherence.limits import TELLING
from pairgrad.coherence.panel import measure
from pairgrad.coherence.scan import Region, Scan
from pairgrad.coherence.state import Event, Reading
from pairgrad.coherence.straight import StraightThrough
from pairgrad.coherence.verdict import Finding
from tests.coherence.functions import sine_with
from tests.coherence.lines import number_line
from tests.coherence.readings import panel_of, seen


def test_observations_are_told_by_order_verdict_and_argument() -> None:
    first, wrong, second = seen("coherent"), seen("incoherent", "y"), seen("incoherent", order=2)
    everything = [first, wrong, second]
    assert of_order(everything, 1) == [first, wrong]
    assert defective(everything, 1) == [wrong]
    assert defective(everything, 2) == [second]
    assert by_argument(everything) == [("x", [first, second]), ("y", [wrong])]


def test_best_limits_are_the_smallest_of_those_that_tell_at_each_state() -> None:
    loud, still = panel_of(allowance=2e-3), panel_of(allowance=5e-4)
    observations = [
        seen("coherent", panel=loud),
        seen("incoherent", panel=still),
        seen("unresolved", panel=panel_of(allowance=1e-8)),
        seen("outside", panel=panel_of(allowance=1e-8)),
        seen("coherent", panel=panel_of(allowance=1e-8), order=2),
        seen("coherent", state="another", panel=loud),
    ]
    assert best_limits(observations) == pytest.approx([1e-3, 4e-3], rel=1e-12)


def test_size_is_that_of_all_lines_at_the_same_place() -> None:
    worst = seen("incoherent", panel=panel_of(defect=0.3, slope=1.0), difference=0.3)
    like = seen("incoherent", panel=panel_of(defect=0.4, slope=2.0), difference=0.4)
    others = [
        seen("incoherent", "y", panel=panel_of(defect=5.0), difference=5.0),
        seen("incoherent", state="another", panel=panel_of(defect=5.0), difference=5.0),
        seen("incoherent", panel=panel_of(defect=5.0), difference=5.0, order=2),
        seen("incoherent", panel=panel_of(defect=5.0), difference=5.0, middle=0.25),
    ]
    size = size_at(worst, [worst, *others, like])
    over = math.hypot(1.3, 2.4)
    assert size.relative == pytest.approx(0.5 / over, rel=1e-12)
    assert size.by_differences == pytest.approx(0.5 / over, rel=1e-12)
    assert size.error == pytest.approx(math.hypot(2e-6, 2e-6) / over, rel=1e-12)


def test_a_defect_is_told_at_its_worst_line_with_all_numbers() -> None:
    mild = seen("incoherent", state="state 1", panel=panel_of(defect=0.1), difference=0.1, scale=0.5)
    worst = seen("incoherent", state="state 2", panel=panel_of(defect=0.5), difference=0.25, scale=None)
    coherent = seen("coherent", panel=panel_of(defect=0.2))
    strangers = [seen("incoherent", "y", panel=panel_of(defect=9.0), difference=9.0), seen("coherent", order=2, panel=panel_of(defect=9.0))]
    finding = defect_finding("x", [mild, worst], [mild, worst, coherent, *strangers], tolerance=0.0)
    assert (finding.kind, finding.severity, finding.where) == ("defect", "alarm", "x")
    assert finding.numbers == pytest.approx(
        {
            "relative": 0.5 / 1.5,
            "error": 2e-6 / 1.5,
            "by_differences": 0.25 / 1.5,
            "lines": 3,
            "defective_lines": 2,
            "median_relative": 0.2,
            "absolute": 0.2,  # the worst line has no scale, the mild one 0.1 / 0.5
        },
        rel=1e-12,
    )
    assert finding.text.startswith("the supplied gradient is off by 0.333 of its size (± 1e-06; by differences 0.167) at state 2")
    assert finding.text.endswith("off on 2 of 3 lines")


def test_absolute_size_of_a_defect() -> None:
    """That of the worst line if it has one, else the root mean square of the others, else none."""
    small = [seen("incoherent", panel=panel_of(defect=d), difference=d, scale=0.5) for d in (0.03, 0.04)]
    own = seen("incoherent", state="state 2", panel=panel_of(defect=0.5), difference=0.5, scale=0.25)
    without = seen("incoherent", state="state 2", panel=panel_of(defect=0.5), difference=0.5)
    assert defect_finding("x", [*small, own], [*small, own], 0.0).numbers["absolute"] == pytest.approx(2.0, rel=1e-12)
    found = defect_finding("x", [*small, without], [*small, without], 0.0)
    assert found.numbers["absolute"] == pytest.approx(math.sqrt((0.06**2 + 0.08**2) / 2), rel=1e-12)
    assert "absolute" not in defect_finding("x", [without], [without], 0.0).numbers


def test_a_gradient_of_zero_is_a_missing_one() -> None:
    worst = seen("incoherent", panel=panel_of(defect=-1.0, gradient=0.0), difference=-1.0)
    finding = defect_finding("x", [worst], [worst], tolerance=10.0)
    assert (finding.kind, finding.severity, finding.where) == ("no-gradient", "alarm", "x")
    assert finding.text == "the value depends on it, but the supplied gradient is zero (the inputs)"
    assert finding.numbers["defective_lines"] == 1


@pytest.mark.parametrize(("tolerance", "severity"), [(0.24, "alarm"), (0.25, "note"), (0.26, "note")])
def test_a_defect_up_to_the_tolerance_is_a_note(tolerance: float, severity: str) -> None:
    worst = seen("incoherent", panel=panel_of(defect=0.25, slope=0.75), difference=0.25)
    assert defect_finding("x", [worst], [worst], tolerance).severity == severity
    second = seen("incoherent", panel=panel_of(defect=0.25, slope=0.75), difference=0.25, order=2)
    assert second_order_finding("x", [second], [second], tolerance).severity == severity


def test_second_order_is_told_at_its_worst_line() -> None:
    mild = seen("incoherent", panel=panel_of(defect=0.1), difference=0.1, order=2, middle=0.5)
    worst = seen("incoherent", panel=panel_of(defect=0.25, slope=0.75), difference=0.25, order=2)
    for group in ([mild, worst], [worst, mild]):
        finding = second_order_finding("x", group, [mild, worst], 0.0)
        assert finding.numbers == pytest.approx({"relative": 0.25, "error": 2e-6}, rel=1e-12)
        assert (finding.kind, finding.where) == ("second-order", "x")
        assert finding.text == "the first derivative is right, the second is off by 0.25 of its size (± 2e-06) at the inputs"


# Events -----------------------------------------------------------------------------------------------------------------

KINK, JUMP, BEND = Event("kink", 0.125, 1e-6, 2.0), Event("jump", 0.25, 1e-7, 3.0), Event("bend", 0.5, 1e-8, 4.0)


def events(observations: list[Observation], scans: Any = (), regions: Any = ()) -> list[Finding]:
    return event_findings(observations, scans, dict.fromkeys(regions), "the value")


def test_events_through_states_are_told() -> None:
    found = events(
        [
            seen("coherent"),
            seen("incoherent", event=BEND),
            seen("kink", event=KINK, order=2),
            seen("kink", "a", event=KINK),
            seen("jump", "b", state="b = 0.25", event=JUMP),
            seen("stepwise", "c", event=JUMP),
            seen("unresolved", "d", event=KINK),
        ]
    )
    assert [(f.kind, f.severity, f.where, f.numbers) for f in found] == [
        ("kink", "note", "a", {"size": 2.0}),
        ("jump", "warning", "b", {"size": 3.0, "at": 0.25, "width": 1e-7}),
        ("stepwise", "note", "c", {"size": 3.0}),
        ("stepwise", "note", "d", {"size": 2.0}),
    ]
    assert found[0].text == "the gradient leaps at the inputs, the value does not"
    assert found[1].text == "the value leaps by 3 at b = 0.25"
    assert "steps of about 3," in found[2].text


def test_events_of_scans_are_told_by_their_place() -> None:
    good = Scan((), (Region(0.0, 1.0, "coherent", 0.0, 0.0, 1e-9),), (KINK, JUMP, BEND))
    found = events([], [("x", good, None), ("together", good, None)], regions=["x"])
    assert [f.kind for f in found] == ["kink", "jump"] * 2
    assert [f.text for f in found] == [
        "the gradient leaps at 0.125 (± 1e-06), the value does not",
        "the value leaps by 3 at 0.25 (± 1e-07)",
        "the gradient leaps on a sweep, t = 0.125, the value does not",
        "the value leaps by 3 on a sweep, t = 0.25",
    ]
    assert found[3].numbers == {"size": 3.0, "at": 0.25, "width": 1e-7}
    assert found[3].where == "together"


def test_a_change_of_form_is_told_where_a_region_is_incoherent() -> None:
    bad = Scan((), (Region(0, 0.5, "coherent", 0, 0, 1e-9), Region(0.5, 1, "incoherent", 0.1, 0.1, 1e-9)), (BEND,))
    (found,) = events([], [("x", bad, None)], regions=["x"])
    assert (found.kind, found.severity, found.where, found.numbers) == ("region", "note", "x", {"at": 0.5, "width": 1e-8})


def test_straight_through_tells_every_length() -> None:
    found = straight_through_finding(StraightThrough((1.0, 4.0), (0.5, 0.125), JUMP))
    assert (found.kind, found.severity) == ("straight-through", "alarm")
    assert "residual 0.5 at 1, 0.12 at 4 times" in found.text
    assert found.numbers == {"lengths": [1.0, 4.0], "residuals": [0.5, 0.125]}


# Undecided --------------------------------------------------------------------------------------------------------------


def test_nothing_is_undecided_where_a_line_of_each_argument_tells() -> None:
    told = [seen("coherent", panel=panel_of()), seen("unresolved", panel=panel_of()), seen("incoherent", "y", panel=panel_of())]
    groups = [seen("unresolved", name, panel=panel_of(allowance=1.0)) for name in ("all tensors", TOGETHER)]
    second = seen("unresolved", "z", panel=panel_of(allowance=1.0), order=2)
    assert undecided([*groups, *told, second]) == (False, [])
    assert undecided(groups) == (True, [])


def test_an_argument_of_which_nothing_is_known_is_undecided() -> None:
    good = seen("coherent", panel=panel_of())
    rough = [seen("unresolved", "y", panel=panel_of(allowance=a, noise=1.0)) for a in (0.4, 0.2)]
    is_open, (finding,) = undecided([good, *rough, seen("outside", "y", difference=None)])
    assert is_open
    assert (finding.kind, finding.severity, finding.where) == ("unresolved", "warning", "y")
    assert finding.numbers == pytest.approx({"limit": 0.4}, rel=1e-12)
    assert "have to be 0.4 of the gradient" in finding.text


@pytest.mark.parametrize(("limit", "noisy"), [(TELLING, True), (1.01 * TELLING, False)])
def test_what_drowns_in_the_noise_of_other_lines_is_told_as_that(limit: float, noisy: bool) -> None:
    _, (finding,) = undecided([seen("unresolved", panel=panel_of(allowance=limit / 2, noise=1.0))])
    assert ("drowns in the noise" in finding.text) == noisy


def test_a_state_that_is_not_finite_is_told_as_that() -> None:
    outside = seen("outside", difference=None)
    is_open, (finding,) = undecided([outside, outside])
    assert is_open
    assert "not finite" in finding.text
    _, (mixed,) = undecided([outside, seen("unresolved", panel=panel_of(allowance=0.5, noise=1.0))])
    assert "not finite" not in mixed.text


def test_an_argument_without_influence_beyond_rounding_leaves_no_open_question() -> None:
    still = panel_of(gradient=1e-20, slope=0.0, allowance=1e-12, noise=1e-16)
    assert still.beyond_rounding
    good = seen("coherent", panel=panel_of())
    is_open, findings = undecided([good, seen("outside", "y", difference=None), seen("unresolved", "y", panel=still)])
    assert not is_open
    assert [(f.kind, f.severity, f.where, f.numbers) for f in findings] == [("unresolved", "warning", "y", {})]
    is_open, findings = undecided([good, seen("unresolved", "y", panel=still), seen("outside", "z", difference=None)])
    assert is_open  # the first does not end the search
    assert [f.where for f in findings] == ["y", "z"]


def test_each_thing_is_said_once() -> None:
    one = Finding("kink", "note", "a leap", "x")
    others = [Finding("jump", "note", "a leap", "x"), Finding("kink", "note", "another", "x"), Finding("kink", "note", "a leap", "y")]
    assert distinct([one, *others, Finding("kink", "note", "a leap", "x", {"at": 1.0})]) == [one, *others]


# For the report ---------------------------------------------------------------------------------------------------------


def test_an_observation_as_a_report_has_it() -> None:
    panel = panel_of(defect=0.5, allowance=1e-3)
    found = state_defect(seen("incoherent", state="x = 2", panel=panel, difference=0.25, middle=2.0, scale=0.5, order=2))
    assert (found.state, found.argument, found.verdict, found.order, found.at) == ("x = 2", "x", "incoherent", 2, 2.0)
    assert (found.relative, found.error, found.by_differences, found.limit, found.absolute) == (0.5, 2e-3, 0.25, 2e-3, 1.0)
    beside = state_defect(seen("outside", difference=None, middle=2.0))
    assert (beside.state, beside.at, beside.by_differences, beside.absolute) == ("a place near the inputs", None, 0.0, None)


def curve_of(
    verdict: str, argument: str, size: float, *, allowance: float = 1e-6, state: str = "the inputs", order: int = 1
) -> Observation:
    line = number_line(sine_with(lambda x: 1 + size).apply)
    panel = measure(line, 1.0, 0.25)
    assert panel is not None
    made = panel_of(defect=size, allowance=allowance, middle=1.0)
    return seen(verdict, argument, state, panel=made, difference=size, line=line, order=order)


def test_curves_are_drawn_where_each_argument_speaks_loudest() -> None:
    drawn = loudest_curves(
        [
            curve_of("coherent", "a", 0.3),
            curve_of("coherent", "b", 0.2, allowance=1e-3, state="louder in itself"),
            curve_of("coherent", "b", 0.1, allowance=1e-6, state="louder over its limit"),
            curve_of("coherent", "c", 0.9, state="coherent"),
            curve_of("incoherent", "c", 0.1, state="incoherent"),
            curve_of("incoherent", "d", 0.2),
            curve_of("unresolved", "e", 0.5),
            curve_of("coherent", "f", 0.5, order=2),
            seen("coherent", "g"),
        ]
    )
    assert [(curve.argument, curve.state) for curve in drawn] == [
        ("d", "the inputs"),
        ("c", "incoherent"),
        ("a", "the inputs"),
        ("b", "louder over its limit"),
    ]
    first = drawn[0]
    assert (first.verdict, first.allowance) == ("incoherent", 1e-6)
    assert len(first.t) == len(first.value) == len(first.work)
    assert first.t[0] == pytest.approx(0.5)
    assert first.t[-1] == pytest.approx(1.5)
    rise = math.sin(1.5) - math.sin(1.0)
    assert first.value[-1] - first.value[0] == pytest.approx(math.sin(1.5) - math.sin(0.5), rel=1e-12)
    assert first.work[-1] == pytest.approx(1.2 * rise, rel=1e-12)


def test_a_report_holds_six_curves_at_most() -> None:
    assert len(loudest_curves([curve_of("coherent", f"argument {i}", 0.1) for i in range(CURVES + 2)])) == CURVES == 6


def test_a_limit_of_zero_divides_nothing() -> None:
    """Of a flat value the limit is the smallest effect, which may be zero."""
    line = number_line(sine_with(lambda x: 1.0).apply)
    still = panel_of(gradient=0.0, slope=0.0, allowance=0.0)
    reading = Reading(0.0, still, Difference(0.0, 0.0, 0.0, 1.0), 0.0, "coherent")
    flat = Observation("the inputs", "x", reading, line, None)
    assert len(loudest_curves([flat, flat])) == 1
