"""One state along one line: what both methods say there, and what the segments around it do to kinks, jumps and steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pairgrad.coherence.measure.differences import Difference, difference
from pairgrad.coherence.measure.limits import ROUGH, SMALLEST_EFFECT, TELLING
from pairgrad.coherence.measure.panel import Panel, measure, work_and_energy
from pairgrad.coherence.measure.path import Line, guarded
from pairgrad.coherence.measure.slope import Probe, Slope, moves_in_steps, slope_at
from pairgrad.ground.checks import HALF_DTYPES

_LOST = 8.0  # units in the last place of the largest value on a line below which steps of the value are its rounding
_JAGGED = 8.0  # what a gradient may be off by, over how far it goes back and forth from neighbour to neighbour
_BLUR = 1e3
_WIDE = 2.0**-6  # of the size of an argument: steps this wide are meant; bfloat16 has steps of 2**-8
STEPS_LIKE = 0.1  # of the gradient: between its steps, a value lacks most of what the gradient asks for


@dataclass(frozen=True)
class Event:
    """Something at one place of a line that is not smooth.

    kind: "jump" (the value leaps), "kink" (the gradient leaps, the value does not) or "bend" (only the slope of the gradient leaps).
    """

    kind: str
    at: float
    width: float
    size: float  # of the leap: of the value for a jump, of the derivative along the line for a kink


@dataclass(frozen=True, eq=False)
class Reading:
    """What is known at one place of a line.

    Attributes:
        middle: the place.
        panel, difference: the two methods, each at the scale where it sees best.
        verdict: "coherent", "incoherent", "kink", "jump", "stepwise", "flat", "unresolved" or "outside".
        event: what was met near the place, if it was looked for.
        slope: what short differences say at the state itself; None at other places.
        decided: whether the slope at the state decided, whatever the segments say.
    """

    middle: float
    panel: Panel | None
    difference: Difference | None
    smallest: float
    verdict: str
    event: Event | None = None
    slope: Slope | None = None
    decided: bool = False

    @property
    def _method(self) -> Panel | Slope | None:
        return self.slope if self.decided else self.panel

    @property
    def relative(self) -> float:
        """Size of the defect over that of the gradient, by the segment, or at the state if that decided."""
        return 0.0 if self._method is None else self._method.relative

    @property
    def defect(self) -> float:
        return 0.0 if self._method is None else self._method.defect

    @property
    def true(self) -> float:
        """The derivative of the value along the line."""
        return 0.0 if self._method is None else self._method.true

    @property
    def size(self) -> float:
        """Of the gradient along the line."""
        return 0.0 if self._method is None else self._method.scale

    @property
    def error(self) -> float:
        """What the defect may be off by, over the size of the gradient."""
        return math.inf if self._method is None else self._method.limit

    @property
    def limit(self) -> float:
        """The smallest relative defect that both methods would have seen."""
        if self.panel is None or self.difference is None:
            return math.inf
        if self.panel.flat:  # the derivative of a constant is zero, as supplied
            return self.smallest
        return max(self.panel.limit, self.difference.limit, self.smallest)

    @property
    def blurred(self) -> bool:
        """Whether a leap of the gradient nearby, not noise, keeps the limit far above the smallest effect."""
        return self.panel is not None and self.panel.rough and self.limit > _BLUR * self.smallest

    @property
    def telling(self) -> bool:
        return self.limit <= TELLING

    @property
    def settled(self) -> bool:
        """Whether another segment could add nothing: the smallest effect was reached, or a defect is far above its noise."""
        if self.verdict == "incoherent":
            return self.limit <= 1e-3 * self.relative
        return self.verdict == "coherent" and self.limit <= 2 * self.smallest


def agree(panel: Panel, other: Difference) -> bool:
    """Whether both methods see a defect, and the same one."""
    if not (panel.significant and other.significant):
        return False
    apart = abs(panel.defect - other.defect)
    return apart <= panel.allowance / panel.half + other.allowance + 0.25 * max(abs(panel.defect), abs(other.defect))


def _sees(panel: Panel, other: Difference, smallest: float) -> bool:
    return agree(panel, other) and min(panel.relative, other.relative) >= smallest


def combined(line: Line, pairs: Sequence[tuple[Panel, Difference]], middle: float) -> Reading:
    """Both methods at their best scales, if they see a defect; else the best limits."""
    smallest = SMALLEST_EFFECT[line.dtype]
    panels = sorted((p for p, _ in pairs), key=lambda p: p.limit)
    others = sorted((d for _, d in pairs), key=lambda d: d.limit)
    for panel in panels[:3]:
        for other in others[:3]:
            if _sees(panel, other, smallest):
                return Reading(middle, panel, other, smallest, "incoherent")
    best = Reading(middle, panels[0], others[0], smallest, "coherent")
    if all(panel.flat for panel in panels):
        return replace(best, verdict="flat")
    suspicious = any(p.significant and max(map(abs, p.drift)) >= smallest * p.half * p.size for p in panels)
    if suspicious or not best.telling:
        return replace(best, verdict="unresolved")
    return best


def read(line: Line, middle: float, halves: Sequence[float]) -> Reading:
    """The reading at one place from segments of several lengths around it, without looking further.

    Two lengths that see nothing down to the smallest effect, or something far above their noise, are enough: what a shorter segment could add, the differences
    at the place have seen.
    """
    pairs: list[tuple[Panel, Difference]] = []
    for half in halves:
        pairs += both_methods(line, middle, half)
        if len(pairs) >= 2:
            found = combined(line, pairs, middle)
            if found.settled:
                return found
    return combined(line, pairs, middle) if pairs else Reading(middle, None, None, SMALLEST_EFFECT[line.dtype], "outside")


def both_methods(line: Line, middle: float, half: float) -> list[tuple[Panel, Difference]]:
    """What both methods say on one segment; empty outside the domain."""
    panel = measure(line, middle, half)
    other = None if panel is None else difference(line, middle, half, panel.noise, panel.gradient_noise)
    return [] if panel is None or other is None else [(panel, other)]


def examine(line: Line, halves: Sequence[float]) -> Reading:
    """The reading at the state of a line. The slope at the state decides: what segments around it see cannot clear it."""
    found = replace(_examine(line, 0.0, halves), slope=None)
    if line.exact is None or line.dtype in HALF_DTYPES:
        return found
    if found.verdict == "incoherent" and found.relative <= _JAGGED * line.roughness <= _JAGGED * ROUGH[line.dtype]:
        found = replace(found, verdict="unresolved")
    probe = guarded(line.subject, lambda: Probe(line.subject, line.exact, line.cotangent, line.epsilon, inside=line.inside))  # pyright: ignore[reportArgumentType]
    slope = slope_at(probe, line.dtype) if probe is not None and probe.finite else None
    if slope is not None and line.roughness <= ROUGH[line.dtype]:
        slope = replace(slope, error=slope.error + _JAGGED * line.roughness * slope.size)
    found = replace(found, slope=slope)
    if probe is None or slope is None or not slope.significant or slope.relative < SMALLEST_EFFECT[line.dtype]:
        return found
    if found.verdict == "incoherent" and found.middle == 0 and abs(found.defect - slope.defect) <= 0.25 * abs(slope.defect):
        return found  # the segment sees the same, and sees it better
    if slope.kink:
        return found
    beside = _gradient_noise_beside(line)
    if beside <= ROUGH[line.dtype] * slope.size and abs(slope.defect) <= slope.error + _JAGGED * beside:
        return found
    largest = max(line.largest, line.reference) if probe.stands_still else line.largest
    if abs(slope.defect) * max(halves) <= _LOST * line.epsilon * largest:
        return replace(found, verdict="unresolved") if found.verdict == "coherent" else found
    if found.verdict == "stepwise":
        return found
    if found.verdict in ("coherent", "kink", "unresolved"):
        size = moves_in_steps(probe, slope)
        if size is not None and size <= _WIDE * slope.size:
            verdict = "stepwise" if found.verdict == "coherent" else "unresolved"
            return replace(found, verdict=verdict, event=Event("steps", 0.0, slope.shortest, size))
    return replace(found, middle=0.0, verdict="incoherent", decided=True)


_BESIDE = 2.0**-7  # of the size of the argument: near the state, without it


def _gradient_noise_beside(line: Line) -> float:
    """The noise of the supplied gradient on the quieter side of the state: rounding that is coarser than the distance of neighbours shows only there."""
    sides = [measure(line, sign * 0.625 * _BESIDE, 0.375 * _BESIDE) for sign in (-1, 1)]
    return min((side.gradient_noise for side in sides if side is not None), default=0.0)


def _examine(line: Line, middle: float, halves: Sequence[float]) -> Reading:
    """The reading at one place from segments, with what stands in the way explained: kinks, jumps, a value that moves in steps, a defect nearby."""
    found = read(line, middle, halves)
    if found.verdict in ("outside", "flat") or (found.verdict == "coherent" and not found.blurred):
        return found
    if found.verdict == "incoherent":
        return stepwise(line, found, halves) or found
    for half in halves:
        left, right = (read(line, middle + sign * half / 2, [half / 2, half / 8]) for sign in (-1, 1))
        for side in (left, right):
            if side.verdict == "incoherent":
                return stepwise(line, side, halves) or side
        if all(side.verdict in ("coherent", "flat") for side in (left, right)):
            event = locate(line, middle, half)
            kind = event.kind if event is not None and event.kind in ("kink", "jump") else "kink"
            telling = [side for side in (left, right) if side.verdict == "coherent"] or [left]
            return replace(min(telling, key=lambda side: side.limit), verdict=kind, event=event)
    return pursue(line, middle, halves) or found


def stepwise(line: Line, found: Reading, halves: Sequence[float]) -> Reading | None:
    """The reading of a longer segment if the value moves in steps that only it averages out: rounding inside the callable, coarser than its dtype.

    Taken at its word is a longer segment on which the gradient is smooth and the defect does not persist, where the value has noise of the size of what the
    short segment lacks, and that noise is made of leaps, not wider than those of a half-precision number. Where most of what the gradient asks for is missing,
    and all of it is below the rounding of larger values on the line, nothing can be said: the tail of 1 + erf(x) is lost like that.
    """
    assert found.panel is not None
    short = found.panel
    few = _few_values(line, short)
    if short.relative >= STEPS_LIKE or few:
        stands_still = few or abs(short.work + short.residual) <= 2 * short.rounding
        scale = max(line.largest, line.reference) if stands_still else line.largest
        if abs(short.residual) <= _LOST * line.epsilon * scale:
            return replace(found, verdict="unresolved")
    longest = max(halves)
    growing = [short.half * 4.0**k for k in range(1, 16) if short.half * 4.0**k < longest]
    for half in (*growing, longest, 2 * longest, 4 * longest):
        panel = measure(line, found.middle, half)
        if panel is None or panel.gradient_noise > 0.1 * abs(short.defect) or abs(panel.defect) > 0.5 * abs(short.defect):
            continue
        if 0.05 * abs(short.residual) < panel.noise < 0.1 * panel.absolute_work:
            event = locate(line, found.middle, panel.half, alone=False)
            if event is None or event.kind != "jump" or event.size < 0.05 * abs(short.residual):
                continue
            if not _several(line, short, event.size):
                return None
            if _is_wide(line, event, panel) and not _is_lost(line, event.size, found.middle):
                return None
            long = read(line, found.middle, [half, 4 * half])
            if long.panel is None or long.limit > TELLING or long.relative > TELLING:
                return replace(long, verdict="unresolved", event=event)
            return replace(long, verdict="stepwise", event=event)
    return None


def _several(line: Line, panel: Panel, leap: float) -> bool:
    """Whether there are several leaps of about this size around a segment: a single one is a jump, and excuses nothing."""
    probe = guarded(line.subject, lambda: Probe(line.subject, line.path, line.cotangent, line.epsilon, panel.middle))
    if probe is None or not probe.finite:
        return False
    size = moves_in_steps(probe, Slope(panel.defect, 0.0, probe.work, probe.size, panel.half / 64))
    return size is not None and leap / 8 <= size <= 8 * leap


def _few_values(line: Line, panel: Panel) -> bool:
    """Whether the value takes three values at most along a segment, as one that is lost to rounding does: 0 and a unit in the last place of what is inside."""
    return len({float(value) for value in work_and_energy(line, panel)[1]}) <= 3


def _is_wide(line: Line, event: Event, panel: Panel) -> bool:
    """Whether the argument has to move by a good part of its size from one leap of the value to the next, as with a quantiser."""
    return panel.gradient_size > 0 and event.size > _WIDE * panel.gradient_size * line.unit(panel.middle)


def _is_lost(line: Line, size: float, middle: float) -> bool:
    """Whether leaps of this size are the rounding of larger values, as far from the place as the argument is large."""
    unit = line.unit(middle)
    for t in (middle - unit, middle + unit, middle - 2 * unit, middle + 2 * unit):
        line.at(t)
    return size <= _LOST * line.epsilon * max(line.largest, line.reference)


def _confirmed(line: Line, panel: Panel, longer: Sequence[float]) -> Reading | None:
    """The reading at the middle of a panel if both methods see a defect there, also on shorter segments."""
    if not panel.significant or panel.relative < SMALLEST_EFFECT[line.dtype]:
        return None
    found = read(line, panel.middle, [panel.half * 2.0**-k for k in range(5)])
    return (stepwise(line, found, longer) or found) if found.verdict == "incoherent" else None


def pursue(line: Line, middle: float, halves: Sequence[float], depth: int = 12) -> Reading | None:
    """Halves the segment that is hardest to explain until a defect is seen by both methods, or a jump is all that is left; None if neither."""
    for half in halves[:2]:
        panel = measure(line, middle, half)
        if panel is None:
            continue
        low, high = middle - half, middle + half
        for _ in range(depth):
            width = (high - low) / 4
            children = [measure(line, low + width, width), measure(line, high - width, width)]
            known = [child for child in children if child is not None]
            if not known:
                break
            for child in known:
                seen = _confirmed(line, child, [half, *halves])
                if seen is not None:
                    return seen
            child = max(known, key=lambda p: max(max(map(abs, p.drift)), p.unexplained))
            low, high = child.middle - child.half, child.middle + child.half
            if width <= 4 * line.epsilon * max(1.0, abs(middle)):
                break
    return None


def locate(line: Line, middle: float, half: float, depth: int = 24, *, alone: bool = True) -> Event | None:
    """Where on a segment the line is not smooth, by halving towards what smooth curves do not explain, and of which kind it is.

    A jump is reported if the value is quiet on both sides of it, unless it need not be `alone`: the steps of a coarsely rounded value have neighbours.
    """
    start = measure(line, middle, half)
    if start is None:
        return None
    low, high = middle - half, middle + half
    child = start
    for _ in range(depth):
        width = (high - low) / 4
        children = [p for p in (measure(line, low + width, width), measure(line, high - width, width)) if p is not None]
        if not children:
            return None
        best = max(children, key=lambda p: p.unexplained)
        smooth = best.gradient_noise <= 16 * line.epsilon * best.gradient_size
        if smooth and best.noise <= 4 * line.epsilon * best.value_size:
            break  # as smooth as rounding allows
        child = best
        low, high = child.middle - child.half, child.middle + child.half
        if width <= 2.0**-22 * half or width <= 8 * line.epsilon * max(1.0, abs(middle)):
            break
    shrink = child.half / half
    if shrink > 2.0**-3:
        return None
    at, width = child.middle, child.half
    leap = abs(child.residual)
    if leap > 64 * line.epsilon * child.value_size and leap > 4 * shrink * abs(start.residual) and leap > 4 * abs(child.work):
        single = leap > _LOST * line.epsilon * line.largest and _beside(line, child, start, "noise") <= 0.02 * leap
        return Event("jump", at, width, leap) if single or not alone else None
    if child.step > 16 * shrink * start.step and child.step > line.epsilon * max(64 * child.gradient_size, 16 * line.steepest):
        return Event("kink", at, width, child.step) if _beside(line, child, start, "gradient_noise") <= 0.1 * child.step else None
    return Event("bend", at, width, child.step) if child.gradient_noise > 16 * line.epsilon * child.gradient_size else None


def _beside(line: Line, event: Panel, around: Panel, noise: str) -> float:
    """The larger noise of the value, or of the gradient, on the two sides of a place."""
    found = 0.0
    for sign, end in ((-1, around.middle - around.half), (1, around.middle + around.half)):
        near = event.middle + sign * 2 * event.half
        width = max(abs(end - near) / 2, 8 * event.half)
        beside = measure(line, near + sign * width, width)
        if beside is not None:
            found = max(found, getattr(beside, noise))
    return found
