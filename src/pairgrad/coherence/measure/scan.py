"""A whole interval, tile by tile: where a callable is coherent, where not, and where that changes."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pairgrad.coherence.measure.path import Line
from pairgrad.coherence.measure.state import STEPS_LIKE, Event, Reading, locate, pursue, read, stepwise

EXAMINED = 8  # tiles that are looked into where segments alone do not tell
LOCATED = 4  # places that are located


@dataclass(frozen=True)
class Region:
    """A part of the interval with one verdict."""

    low: float
    high: float
    verdict: str
    smallest: float  # relative defect, over the region
    largest: float
    limit: float  # the largest over the region


@dataclass(frozen=True, eq=False)
class Scan:
    """What was read along an interval: tiles, the regions they join to, and the events between."""

    readings: tuple[Reading, ...]  # one for each tile, and those found inside tiles
    regions: tuple[Region, ...]
    events: tuple[Event, ...]


def scan(line: Line, edges: Sequence[float], between: Callable[[float, float], float]) -> Scan:
    """Reads every tile, looks into those that do not explain themselves, locates changes of verdict and of form, and joins tiles to regions."""
    tiles = list(itertools.pairwise(edges))
    readings = [read(line, (low + high) / 2, [(high - low) / 2]) for low, high in tiles]
    for i, reading in enumerate(readings):
        if reading.verdict == "incoherent" and reading.relative >= STEPS_LIKE:
            low, high = tiles[i]
            readings[i] = stepwise(line, reading, [(high - low) / 2]) or reading
    usual = statistics.median([reading.limit for reading in readings if reading.panel is not None] or [math.inf])
    inside: list[Reading] = []
    events: list[Event] = []
    doubtful = [
        i
        for i, reading in enumerate(readings)
        if reading.verdict == "unresolved" or (reading.verdict == "coherent" and reading.limit > 100 * usual)
    ]
    for i in sorted(doubtful, key=lambda i: -_suspicion(readings[i]))[:EXAMINED]:
        low, high = tiles[i]
        middle, half = (low + high) / 2, (high - low) / 2
        nearby = pursue(line, middle, [half])
        if nearby is not None:
            inside.append(nearby)
        event = locate(line, middle, half)
        if event is not None:
            events.append(event)
        finer = read(line, middle, [half / 4, half / 16, half / 64])
        if finer.verdict == "incoherent":
            finer = stepwise(line, finer, [half]) or finer
        if finer.verdict not in ("unresolved", "outside"):
            readings[i] = finer
    events += _changes_of_form(line, tiles, readings)
    events = _distinct(events)
    inside += _beside(line, events, tiles)
    regions = _regions(line, tiles, readings, events, between)
    for reading in inside:
        regions = _with_narrow(line, regions, reading, tiles, between)
    regions = _joined(regions, 1e-2 * min(high - low for low, high in tiles))
    return Scan((*readings, *inside), tuple(regions), tuple(sorted(events, key=lambda event: event.at)))


def _beside(line: Line, events: Sequence[Event], tiles: Sequence[tuple[float, float]]) -> list[Reading]:
    """Defects next to places where the supplied gradient leaps or bends: a narrow region shows by its ends first. None outside of the interval."""
    found = []
    for event in events:
        if event.kind == "jump":
            continue
        width = max((high - low for low, high in tiles if low <= event.at <= high), default=0.0)
        for sign in (-1, 1):
            for k in range(1, 6):
                distance = width * 2.0**-k
                if distance <= 4 * event.width:
                    break
                if not tiles[0][0] <= event.at + 1.9 * sign * distance <= tiles[-1][1]:
                    continue
                reading = read(line, event.at + sign * distance, [0.9 * distance * 2.0**-k for k in range(5)])
                if reading.verdict == "incoherent":
                    found.append(stepwise(line, reading, [width]) or reading)
                    break
    return found


def _distinct(events: Sequence[Event]) -> list[Event]:
    """One event for each place."""
    kept: list[Event] = []
    for event in sorted(events, key=lambda event: event.at):
        if not kept or abs(event.at - kept[-1].at) > 4 * (event.width + kept[-1].width):
            kept.append(event)
    return kept


def _suspicion(reading: Reading) -> float:
    if reading.panel is None:
        return -1.0
    panel = reading.panel
    return max(map(abs, panel.drift)) / panel.allowance if panel.allowance > 0 else 0.0


def _changes_of_form(line: Line, tiles: Sequence[tuple[float, float]], readings: Sequence[Reading]) -> list[Event]:
    """Places where the supplied gradient ceases to be smooth, found by tiles that are much rougher than a neighbour."""
    rough = [
        reading.panel.gradient_noise / reading.panel.size if reading.panel is not None and reading.panel.size else 0.0
        for reading in readings
    ]
    wanted = []
    for i, reading in enumerate(readings):
        neighbours = [rough[j] for j in (i - 1, i + 1) if 0 <= j < len(readings) and readings[j].panel is not None]
        if reading.panel is not None and neighbours and rough[i] > 100 * max(min(neighbours), 4 * line.epsilon):
            wanted.append(i)
    events = []
    for i in sorted(wanted, key=lambda i: -rough[i])[:LOCATED]:
        low, high = tiles[i]
        event = locate(line, (low + high) / 2, (high - low) / 2)
        if event is not None:
            events.append(event)
    return events


def _regions(
    line: Line,
    tiles: Sequence[tuple[float, float]],
    readings: Sequence[Reading],
    events: Sequence[Event],
    between: Callable[[float, float], float],
) -> list[Region]:
    """Neighbouring tiles with one verdict joined; the ends between two verdicts found by bisection."""
    groups: list[list[int]] = []
    for i in range(len(tiles)):
        if groups and _label(readings[i]) == _label(readings[groups[-1][-1]]):
            groups[-1].append(i)
        else:
            groups.append([i])
    ends = [tiles[0][0]]
    for before, after in itertools.pairwise(groups):
        ends.append(_boundary(line, tiles[before[-1]], tiles[after[0]], readings[before[-1]], readings[after[0]], between))
    ends.append(tiles[-1][1])
    ends = [_at_event(end, events, tiles) for end in ends]
    regions = []
    for k, group in enumerate(groups):
        of = [readings[i] for i in group]
        sizes = [reading.relative for reading in of]
        limit = max(reading.limit for reading in of)
        cuts = [ends[k], *sorted(event.at for event in events if event.kind == "bend" and ends[k] < event.at < ends[k + 1]), ends[k + 1]]
        if _label(of[0]) != "incoherent" or len(cuts) == 2:
            regions.append(Region(ends[k], ends[k + 1], _label(of[0]), min(sizes), max(sizes), limit))
            continue
        for low, high in itertools.pairwise(cuts):
            part = [reading for reading in of if low <= reading.middle <= high] or of
            sizes = [reading.relative for reading in part]
            regions.append(Region(low, high, "incoherent", min(sizes), max(sizes), max(reading.limit for reading in part)))
    return regions


def _at_event(end: float, events: Sequence[Event], tiles: Sequence[tuple[float, float]]) -> float:
    """The place of an event that is closer to an end found by bisection than bisection with segments can tell."""
    if end in (tiles[0][0], tiles[-1][1]):
        return end
    width = next((high - low for low, high in tiles if low <= end <= high), 0.0)
    near = [event.at for event in events if abs(event.at - end) < width / 4]
    return min(near, key=lambda at: abs(at - end)) if near else end


def _with_narrow(
    line: Line, regions: list[Region], inside: Reading, tiles: Sequence[tuple[float, float]], between: Callable[[float, float], float]
) -> list[Region]:
    """The regions with an incoherent one cut out around a reading inside a tile; its ends by bisection towards the ends of the tile."""
    home = next((region for region in regions if region.low <= inside.middle <= region.high), None)
    if home is None or home.verdict == "incoherent" or inside.verdict != "incoherent" or inside.panel is None:
        return regions
    tile = next((t for t in tiles if t[0] <= inside.middle <= t[1]), tiles[0])
    ends = []
    for outer in tile:
        within, beyond = inside.middle, outer
        for _ in range(12):
            middle = between(within, beyond)
            half = min(inside.panel.half, abs(middle - inside.middle), abs(middle - outer)) / 2
            if half > 0 and read(line, middle, [half, half / 2]).verdict == "incoherent":
                within = middle
            else:
                beyond = middle
        ends.append(between(within, beyond))
    low, high = ends
    narrow = Region(low, high, "incoherent", inside.relative, inside.relative, inside.limit)
    left, right = replace(home, high=low), replace(home, low=high)
    i = regions.index(home)
    return [*regions[:i], *(part for part in (left, narrow, right) if part.low < part.high), *regions[i + 1 :]]


def _joined(regions: Sequence[Region], gap: float) -> list[Region]:
    """Incoherent regions that only bisection keeps apart, as one."""
    joined: list[Region] = []
    for region in regions:
        if len(joined) >= 2 and joined[-1].high - joined[-1].low < gap and region.verdict == joined[-2].verdict == "incoherent":
            joined.pop()
            before = joined.pop()
            sizes = min(before.smallest, region.smallest), max(before.largest, region.largest)
            region = Region(before.low, region.high, "incoherent", *sizes, max(before.limit, region.limit))
        joined.append(region)
    return joined


def _label(reading: Reading) -> str:
    return "coherent" if reading.verdict in ("kink", "stepwise", "flat") else reading.verdict


def _boundary(
    line: Line,
    left: tuple[float, float],
    right: tuple[float, float],
    before: Reading,
    after: Reading,
    between: Callable[[float, float], float],
) -> float:
    """Where one verdict gives way to the other, by bisection between the middles of two tiles; their common end where either is not a clear verdict."""
    if {_label(before), _label(after)} != {"coherent", "incoherent"}:
        return left[1]
    low, high = before.middle, after.middle
    half = min(left[1] - left[0], right[1] - right[0]) / 8
    for _ in range(8):
        middle = between(low, high)
        found = read(line, middle, [half, half / 4])
        if found.verdict not in ("coherent", "incoherent"):
            break
        if found.verdict == _label(before):
            low = middle
        else:
            high = middle
    return between(low, high)
