"""What follows from the observations of an audit: findings, what is undecided, and the readings and curves that a report shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.measure.explore import ACROSS, Observation
from pairgrad.coherence.measure.gradient import Measured
from pairgrad.coherence.measure.limits import LADDER, TELLING
from pairgrad.coherence.measure.path import Line
from pairgrad.coherence.measure.scan import Scan
from pairgrad.coherence.measure.state import Event
from pairgrad.coherence.measure.straight import StraightThrough

TOGETHER = "all inputs of the domain"


def of_order(observations: Sequence[Observation], order: int) -> list[Observation]:
    """Those of the first or of the second backward."""
    return [observation for observation in observations if observation.order == order]


def defective(observations: Sequence[Observation], order: int) -> list[Observation]:
    """Those of an order that contradict the backward."""
    return [observation for observation in of_order(observations, order) if observation.reading.verdict == "incoherent"]


def by_argument(observations: Sequence[Observation]) -> list[tuple[str, list[Observation]]]:
    """Groups with one argument, in the order in which they were met."""
    groups: dict[str, list[Observation]] = {}
    for observation in observations:
        groups.setdefault(observation.argument, []).append(observation)
    return list(groups.items())


def tells(observation: Observation) -> bool:
    """Whether it says anything, for or against."""
    return observation.reading.verdict not in ("unresolved", "outside", "flat")


def best_limits(observations: Sequence[Observation]) -> dict[tuple[str, str], float]:
    """For each state and argument where anything was resolved, the limit along the best direction of first order.

    Along a line a jagged gradient averages out; a single element is not known better than it agrees with its neighbours.
    """
    best: dict[tuple[str, str], float] = {}
    for observation in filter(tells, of_order(observations, 1)):
        key = observation.state, observation.argument
        best[key] = min(best.get(key, math.inf), max(observation.reading.limit, 2 * observation.line.roughness))
    return best


def line_size(worst: Observation, observations: Sequence[Observation]) -> tuple[float, float]:
    """The defect along the lines through the place of an observation, over the derivative along them, and what that may be off by.

    Along one line a defect may add up, along another nearly vanish: the error is as large as the lines differ, and as the defect itself where one line has
    to speak for many coordinates.
    """
    key = worst.state, worst.argument, worst.order, worst.reading.middle
    seen = [
        o.reading for o in observations if (o.state, o.argument, o.order, o.reading.middle) == key and o.reading.verdict == "incoherent"
    ]
    along = [(abs(reading.defect), max(abs(reading.true), reading.size / _CANCELS)) for reading in seen]
    relative = math.hypot(*(defect for defect, _ in along)) / math.hypot(*(true for _, true in along))
    spread = max(abs(defect / true - relative) for defect, true in along)
    if len(seen) == 1 and worst.scale is None:
        spread = relative
    return relative, max(spread, *(reading.error * reading.size / true for reading, (_, true) in zip(seen, along, strict=True)))


_CANCELS = 64.0  # a derivative along a line counts as no smaller than the gradient over this, where it happens to cancel


def defect_finding(
    argument: str, group: Sequence[Observation], observations: Sequence[Observation], tolerance: float, measured: Measured | None
) -> Finding:
    """Of the defective observations `group` of one argument, among all; `measured`: its gradient at the worst place, if that is known."""
    worst = worst_of(group)
    of = [observation for observation in of_order(observations, 1) if observation.argument == argument]
    relative, error = line_size(worst, observations)
    numbers: dict[str, Any] = {"lines": len(of), "defective_lines": len(group)}
    sizes = [observation.absolute for observation in group if observation.absolute is not None]
    if sizes:
        numbers["absolute"] = math.hypot(*sizes) / math.sqrt(len(sizes)) if worst.absolute is None else worst.absolute
    along = f", off along {len(group)} of {len(of)} directions looked at" if len(group) < len(of) else ""
    if measured is None or not measured.certain:
        text = f"the supplied gradient is off by {relative:.3g} of the true one (± {error:.1g}) at {worst.place}{along}"
    else:
        relative, error = measured.relative, measured.error
        numbers |= {"factor": measured.factor, "supplied": measured.supplied, "true": measured.true, "index": list(measured.index)}
        size = f"off by {relative:.3g} of the true one (± {error:.1g})" if math.isfinite(relative) else "not zero, where the true one is"
        text = f"the supplied gradient is {size} at {worst.place}{along}"
    numbers |= {"relative": relative, "error": error}
    if worst.reading.panel is not None and worst.reading.panel.gradient_size == 0:
        text = f"the value depends on it, but the supplied gradient is zero ({worst.place})"
        return Finding("no-gradient", "alarm", text, argument, numbers)
    return Finding("defect", _severity(relative, tolerance), text, argument, numbers)


def worst_of(group: Sequence[Observation]) -> Observation:
    """The one that is off most, at the inputs if any is: the input itself decides."""
    at_inputs = [o for o in group if o.state == "the inputs" and o.reading.middle == 0]
    return max(at_inputs or group, key=lambda observation: observation.reading.relative)


def second_order_finding(argument: str, group: Sequence[Observation], observations: Sequence[Observation], tolerance: float) -> Finding:
    """Of the defective observations `group` of the second backward, of one argument, among all."""
    relative, error = line_size(worst_of(group), observations)
    text = f"the gradient is right, but the second derivative is off by {relative:.3g} of its size (± {error:.1g}) at the inputs"
    return Finding("second-order", _severity(relative, tolerance), text, argument, {"relative": relative, "error": error})


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
        if argument in ("all tensors", ACROSS, TOGETHER) or any(tells(observation) for observation in group):
            continue
        if all(observation.reading.verdict == "flat" for observation in group):
            findings.append(
                Finding(
                    "unresolved", "warning", "neither the value nor the gradient depends on it here: a defect would not be seen", argument
                )
            )
            continue
        if any(o.reading.panel is not None and o.reading.panel.beyond_rounding for o in group):
            text = "the value does not depend on it beyond its rounding: a defect here would not be seen"
            findings.append(Finding("unresolved", "warning", text, argument))
            continue
        open_question = True
        best = min(observation.reading.limit for observation in group)
        text = f"nothing can be said here: a defect would have to be {best:.2g} of the gradient to be seen"
        if best <= TELLING:
            text = "nothing can be said here: what is seen is below the noise of the value along other directions"
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
