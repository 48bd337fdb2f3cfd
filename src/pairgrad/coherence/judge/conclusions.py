"""What follows from the observations of an audit: findings, what is undecided, and the readings and curves that a report shows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pairgrad.coherence.judge.verdict import Finding
from pairgrad.coherence.measure.explore import Observation, Size, defect_size
from pairgrad.coherence.measure.limits import LADDER, TELLING
from pairgrad.coherence.measure.panel import work_and_energy
from pairgrad.coherence.measure.path import Line
from pairgrad.coherence.measure.scan import Scan
from pairgrad.coherence.measure.state import Event
from pairgrad.coherence.measure.straight import StraightThrough
from pairgrad.coherence.report.report import Curve, StateDefect

TOGETHER = "all inputs of the domain"
CURVES = 6  # that a report holds
_Of = TypeVar("_Of", Observation, StateDefect)


def of_order(observations: Sequence[Observation], order: int) -> list[Observation]:
    """Those of the first or of the second backward."""
    return [observation for observation in observations if observation.order == order]


def defective(observations: Sequence[Observation], order: int) -> list[Observation]:
    """Those of an order that contradict the backward."""
    return [observation for observation in of_order(observations, order) if observation.reading.verdict == "incoherent"]


def by_argument(observations: Sequence[_Of]) -> list[tuple[str, list[_Of]]]:
    """Groups with one argument, in the order in which they were met."""
    groups: dict[str, list[_Of]] = {}
    for observation in observations:
        groups.setdefault(observation.argument, []).append(observation)
    return list(groups.items())


def tells(observation: Observation) -> bool:
    """Whether it says anything, for or against."""
    return observation.reading.verdict not in ("unresolved", "outside")


def best_limits(observations: Sequence[Observation]) -> list[float]:
    """For each argument and state that could tell, what the best line of the first order saw there."""
    best: dict[tuple[str, str], float] = {}
    for observation in filter(tells, of_order(observations, 1)):
        key = observation.state, observation.argument
        best[key] = min(best.get(key, math.inf), observation.reading.limit)
    return list(best.values())


def size_at(worst: Observation, observations: Sequence[Observation]) -> Size:
    """Of the defect at the state of an observation, for its argument, from all lines there; at its own place if that is beside the state."""
    key = worst.state, worst.argument, worst.order, worst.reading.middle
    return defect_size([o for o in observations if (o.state, o.argument, o.order, o.reading.middle) == key])


def defect_finding(argument: str, group: Sequence[Observation], observations: Sequence[Observation], tolerance: float) -> Finding:
    """Of the defective observations `group` of one argument, among all."""
    worst = max(group, key=lambda observation: observation.reading.relative)
    reading = worst.reading
    assert reading.panel is not None
    assert reading.difference is not None
    of = [observation for observation in of_order(observations, 1) if observation.argument == argument]
    size = size_at(worst, observations)
    numbers: dict[str, Any] = {
        "relative": size.relative,
        "error": size.error,
        "by_differences": size.by_differences,
        "lines": len(of),
        "defective_lines": len(group),
        "median_relative": statistics.median(observation.reading.relative for observation in of),
    }
    sizes = [observation.absolute for observation in group if observation.absolute is not None]
    if sizes:
        numbers["absolute"] = math.hypot(*sizes) / math.sqrt(len(sizes)) if worst.absolute is None else worst.absolute
    if reading.panel.gradient_size == 0:
        text = f"the value depends on it, but the supplied gradient is zero ({worst.place})"
        return Finding("no-gradient", "alarm", text, argument, numbers)
    text = (
        f"the supplied gradient is off by {size.relative:.3g} of its size (± {size.error:.1g}; by differences {size.by_differences:.3g}) "
        f"at {worst.place}, and off on {len(group)} of {len(of)} lines"
    )
    return Finding("defect", _severity(size.relative, tolerance), text, argument, numbers)


def second_order_finding(argument: str, group: Sequence[Observation], observations: Sequence[Observation], tolerance: float) -> Finding:
    """Of the defective observations `group` of the second backward, of one argument, among all."""
    worst = max(group, key=lambda observation: observation.reading.relative)
    size = size_at(worst, observations)
    text = f"the first derivative is right, the second is off by {size.relative:.3g} of its size (± {size.error:.1g}) at the inputs"
    numbers = {"relative": size.relative, "error": size.error}
    return Finding("second-order", _severity(size.relative, tolerance), text, argument, numbers)


def _severity(relative: float, tolerance: float) -> str:
    return "alarm" if relative > tolerance else "note"


def event_findings(
    observations: Sequence[Observation], scans: Sequence[tuple[str, Scan, Line]], regions: Mapping[str, Any], value: str
) -> list[Finding]:
    """Jumps and kinks that were met, through states and on scans.

    Args:
        regions: by the name of a scan that went along an argument; a scan without was a sweep of several.
        value: what leaps, in words.
    """
    findings: list[Finding] = []
    for observation in of_order(observations, 1):
        event = observation.reading.event
        if event is None:
            continue
        if observation.reading.verdict in ("stepwise", "unresolved"):
            text = f"{value} moves in steps of about {event.size:.2g}, coarser than its dtype; segments longer than a step are coherent"
            findings.append(Finding("stepwise", "note", text, observation.argument, {"size": event.size}))
        elif event.kind in ("kink", "jump"):
            known = " = " in observation.state  # a place of a scan, not of a line through a state
            findings.append(_event_finding(event, f"at {observation.state}", observation.argument, value, known))
            if observation.argument not in {finding.where for finding in findings if finding.kind == "at-state"}:
                findings += _of_neither_side(observation)
    for name, found, _ in scans:
        for event in found.events:
            if event.kind in ("kink", "jump"):
                place = f"at {event.at:.10g} (± {event.width:.1g})" if name in regions else f"on a sweep, t = {event.at:.4g}"
                findings.append(_event_finding(event, place, name, value, True))
            elif any(region.verdict == "incoherent" for region in found.regions):
                text = f"the supplied gradient changes its form at {event.at:.8g} (± {event.width:.1g})"
                findings.append(Finding("region", "note", text, name, {"at": event.at, "width": event.width}))
    return findings


_BESIDE = 2.0**-10  # of the longest segment: near enough for the gradient of a side, and no longer at the place itself
_APART = 0.05  # of the larger of the three: how far from both sides a gradient is of neither


def _of_neither_side(observation: Observation) -> list[Finding]:
    """A warning where the gradient at the place itself is not between those of its two sides, all along the line: no subgradient of a kink is that."""
    reading, line = observation.reading, observation.line
    if reading.verdict != "kink" or reading.event is None or abs(reading.event.at) > reading.event.width:
        return []
    half = _BESIDE * LADDER[line.dtype][0]
    works = [None if sample is None else sample.work for sample in map(line.at, (-half, 0.0, half))]
    if None in works:
        return []
    left, here, right = (float(work) for work in works if work is not None)
    low, high = min(left, right), max(left, right)
    if low - here <= _APART * max(map(abs, (left, here, right))) >= here - high:
        return []
    text = (
        f"at {observation.place} itself the gradient along this line is {here:.3g}, beside it {left:.3g} and {right:.3g}: that of neither side, "
        "nor between them"
    )
    return [Finding("at-state", "warning", text, observation.argument, {"left": left, "here": here, "right": right})]


def _event_finding(event: Event, place: str, where: str, value: str, known: bool) -> Finding:
    """`value`: what the leap is one of; `known`: whether the place is one of the argument, or of a sweep."""
    numbers = {"size": event.size} | ({"at": event.at, "width": event.width} if known else {})
    if event.kind == "jump":
        return Finding("jump", "warning", f"{value} leaps by {event.size:.3g} {place}", where, numbers)
    return Finding("kink", "note", f"the gradient leaps {place}, the value does not", where, numbers)


def straight_through_finding(found: StraightThrough) -> Finding:
    """Of a value that moves in steps, with a gradient that accounts for many of them together."""
    pairs = ", ".join(f"{residual:.2g} at {length:g}" for length, residual in zip(found.lengths, found.residuals, strict=True))
    text = f"the value leaps, and over long segments the gradient accounts for it: residual {pairs} times the size of the argument"
    return Finding("straight-through", "alarm", text, "", {"lengths": list(found.lengths), "residuals": list(found.residuals)})


def undecided(observations: Sequence[Observation]) -> tuple[bool, list[Finding]]:
    """Whether there is an argument of which nothing is known, and a finding for each of which nothing can be."""
    open_question, findings = not best_limits(observations), []
    for argument, group in by_argument(of_order(observations, 1)):
        if argument in ("all tensors", TOGETHER) or any(tells(observation) for observation in group):
            continue
        if any(o.reading.panel is not None and o.reading.panel.beyond_rounding for o in group):
            text = "the value does not depend on it beyond its rounding: a defect here would not be seen"
            findings.append(Finding("unresolved", "warning", text, argument))
            continue
        open_question = True
        best = min(observation.reading.limit for observation in group)
        text = f"nothing can be said here: a defect would have to be {best:.2g} of the gradient to be seen"
        if best <= TELLING:
            text = "nothing can be said here: what is seen drowns in the noise that the value has along other lines through the state"
        if all(observation.reading.verdict == "outside" for observation in group):
            text = "the value or the gradient is not finite here (NaN or infinity), or the function raises next to it"
        findings.append(Finding("unresolved", "warning", text, argument, {"limit": best}))
    return open_question, findings


def distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Each thing said once."""
    seen: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        seen.setdefault((finding.kind, finding.where, finding.text), finding)
    return list(seen.values())


def state_defect(observation: Observation) -> StateDefect:
    """An observation as a report has it."""
    reading = observation.reading
    return StateDefect(
        state=observation.place,
        argument=observation.argument,
        verdict=reading.verdict,
        relative=reading.relative,
        error=reading.error,
        by_differences=0.0 if reading.difference is None else reading.difference.relative,
        limit=reading.limit,
        absolute=observation.absolute,
        order=observation.order,
        at=reading.middle if " = " in observation.state else None,
    )


def loudest_curves(observations: Sequence[Observation]) -> tuple[Curve, ...]:
    """Work and energy at the place that speaks loudest for each argument."""
    drawn = []
    for _, group in by_argument(of_order(observations, 1)):
        told = [o for o in group if tells(o) and o.reading.panel is not None]
        if told:
            drawn.append(max(told, key=lambda o: (o.reading.verdict == "incoherent", o.reading.relative / max(o.reading.limit, 1e-300))))
    drawn.sort(key=lambda o: (o.reading.verdict != "incoherent", -o.reading.relative))
    return tuple(_curve(observation) for observation in drawn[:CURVES])


def _curve(observation: Observation) -> Curve:
    panel = observation.reading.panel
    assert panel is not None
    t, value, work = work_and_energy(observation.line, panel)
    return Curve(
        state=observation.place,
        argument=observation.argument,
        verdict=observation.reading.verdict,
        t=tuple(t.tolist()),
        value=tuple(value.tolist()),
        work=tuple(work.tolist()),
        allowance=panel.allowance,
    )
