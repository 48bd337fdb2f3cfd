"""What a page says and shows of a report: the words of its head, the figures, the tables, and how to make it again."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.report.page.figures import EVENTS, Figure, Mark, Place, curve_figure, defect_figure, region_strip
from pairgrad.coherence.report.page.svg import prettily, pretty, rounded
from pairgrad.coherence.report.report import ArgumentGradient, Report, StateDefect
from pairgrad.coherence.report.run import NodeReport
from pairgrad.coherence.report.summary import apart

FINDINGS = 60  # shown in full
ROWS = 200  # of a table of readings
NODES = 24  # with figures
SWEEP = "position along the sweep"
UNTOLD = ("unresolved", "outside", "flat")


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', ':', '?', '!')) else '.'}" if text else ""


def listed(words: Sequence[str], most: int = 4) -> str:
    """Words in a sentence: "a, b and c", with at most `most` of them named."""
    shown = list(words[:most]) + ([f"{len(words) - most} more"] if len(words) > most else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def size(report: Report) -> tuple[str, str]:
    """How large the defect is, and what else is to be known of that number."""
    if report.defect > 0 and report.verdict not in (Verdict.COHERENT, Verdict.KINK, Verdict.JUMP):
        return f"{pretty(report.defect)} of the gradient", f"± {pretty(report.defect_error, 2)}; 1 would be as large as the gradient itself"
    if not math.isfinite(report.limit):
        return "not measured", "no direction was resolved"
    typical = f"; at half of them {pretty(report.typical_limit, 2)} would have been" if report.limit > 2 * report.typical_limit else ""
    return (
        f"none above {pretty(report.limit)}",
        f"of the gradient: that much would have been seen at every state where anything was resolved{typical}",
    )


def where(report: Report) -> tuple[str, str]:
    """Where the trouble is, and what it comes from."""
    alarms = [finding for finding in report.findings if finding.severity == "alarm"]
    bad = {name: [r for r in regions if r.verdict == "incoherent"] for name, regions in report.regions.items()}
    told = {name: dict(zip(report.regions[name], ends(report, name), strict=True)) for name in bad}
    ranges = [f"{name} from {listed([' to '.join(told[name][r]) for r in found], 3)}" for name, found in bad.items() if found]
    nodes = [
        finding.where for finding in report.findings if finding.kind == "node" and (finding.severity != "note" or "this is" in finding.text)
    ]
    source = f"in {listed(nodes, 2)}" if nodes else ""
    if ranges:
        return "; ".join(ranges), source
    if alarms:
        names = list(dict.fromkeys(finding.where for finding in alarms if finding.where))
        wrong = [state for state in report.states if state.verdict == "incoherent"]
        place = max(wrong, key=lambda state: state.relative).state if wrong else ""
        return listed(names, 3) or "the function as a whole", "; ".join(filter(None, [f"at {prettily(place)}" if place else "", source]))
    found = [card for card in cards(report) if card.first.kind == report.verdict.value]
    if found:
        more = sum(len(card.findings) for card in found[1:])
        where = found[0].first.where
        return f"{where}: {found[0].text}" if where else sentence(found[0].text), f"and {more} more, elsewhere" if more else ""
    return ("nowhere", "among the states looked at") if report.passed else ("not known", "")


def known(value: float, digits: int = 3) -> str:
    """A number; nothing where it is not one."""
    return pretty(value, digits) if math.isfinite(value) else ""


def pair(gradient: ArgumentGradient) -> tuple[str, str]:
    """The supplied and the true number of the element that is off most, with digits enough to see the difference."""
    if not (math.isfinite(gradient.supplied) and math.isfinite(gradient.true)):
        return "", ""
    supplied, true = apart(gradient.supplied, gradient.true)
    return prettily(supplied), prettily(true)


def curves(report: Report) -> list[Figure]:
    """Work and energy, a figure for each curve that has more than a point."""
    return [
        curve_figure(curve, scanned, events(report, curve.argument) if scanned and curve.argument in report.regions else ())
        for curve, scanned in ((curve, " = " in curve.state) for curve in report.curves)
        if len(curve.t) > 1
    ]


def events(report: Report, name: str) -> list[Place]:
    """The leaps of an argument, or on sweeps, whose places are known."""
    return [
        Place(finding.kind, float(finding.numbers["at"]), prettily(finding.text))
        for finding in report.findings
        if finding.kind in EVENTS and finding.where == name and _known(finding)
    ]


def defects(report: Report, order: int = 1) -> list[Figure]:
    """One figure for each scanned argument, and one for the lines through single states."""
    states = [state for state in report.states if state.order == order]
    drawn = []
    scanned = [state for state in states if state.at is not None]
    for name in dict.fromkeys(state.argument for state in scanned):
        group = [state for state in scanned if state.argument == name]
        regions = report.regions.get(name, ())
        marks = [_mark(state, float(state.at or 0.0)) for state in group]
        under = "The strip under the axis is the verdict of each region." if regions else ""
        strip, leaps = region_strip(regions, ends(report, name)), events(report, name) if order == 1 else ()
        drawn.append(defect_figure(f"Over {name}", marks, name if regions else SWEEP, strip=strip, under=under, events=leaps))
    single = [state for state in states if state.at is None]
    if len(single) > 1:
        marks = [_mark(state, float(i)) for i, state in enumerate(single, 1)]
        strip, start = [], 1
        for i, (name, run) in enumerate(itertools.groupby(single, key=lambda state: state.argument)):
            count = len(list(run))
            strip.append((start - 0.5, start + count - 0.5, f"part-{i % 2}", name))
            start += count
        names = list(dict.fromkeys(state.argument for state in single))
        strip = strip if len(names) > 1 else []
        under = f"The strip divides the directions by what is moved: {listed(names, 5)}." if len(names) > 1 else ""
        title = "Directions through single states" if order == 1 else "Second derivatives: directions through the inputs"
        drawn.append(defect_figure(title, marks, "direction, in the order looked at", strip=strip, under=under, whole=True))
    return drawn


def visits(node: NodeReport) -> Figure | None:
    """Defects of a node against the number of the visit."""
    if not node.states:
        return None
    marks = []
    for state in node.states:
        seen = not state.passed and state.defect > 0
        words = f"visit {state.visit}: {state.verdict}, {_reading(seen, state.defect, state.error, state.limit)}"
        marks.append(Mark(float(state.visit), state.defect, state.error, state.limit, state.verdict, seen, words))
    return defect_figure("At the states visited", marks, "number of the visit", whole=True)


def _mark(state: StateDefect, x: float) -> Mark:
    seen = state.verdict == "incoherent"
    words = f"{state.argument}, {prettily(state.state)}: {state.verdict}, {_reading(seen, state.relative, state.error, state.limit)}"
    return Mark(x, state.relative, state.error, state.limit, state.verdict, seen, words)


def _reading(seen: bool, relative: float, error: float, limit: float) -> str:
    return f"{pretty(relative)} ± {pretty(error, 2)}" if seen else f"limit {pretty(limit)}"


def gravest(states: Sequence[StateDefect]) -> list[StateDefect]:
    """For a table: what is off first, by its size, then what could tell least."""
    return sorted(states, key=lambda s: (s.verdict != "incoherent", -s.relative if s.verdict == "incoherent" else -s.limit))[:ROWS]


_SEVERAL = {"jump": "leaps", "kink": "leaps of the gradient", "region": "places where the supplied gradient changes its form"}
_DIGITS = 1e-6  # of a domain: finer than that, a place is not printed in a list


@dataclass(frozen=True)
class Card:
    """One finding, or several of one kind at one argument, with one sentence for all of them."""

    findings: tuple[Finding, ...]
    text: str

    @property
    def first(self) -> Finding:
        return self.findings[0]


def cards(report: Report) -> list[Card]:
    """The findings in their order, those of places together."""
    groups: dict[Any, list[Finding]] = {}
    for i, finding in enumerate(report.findings):
        key = (finding.kind, finding.severity, finding.where) if finding.kind in _SEVERAL else i
        groups.setdefault(key, []).append(finding)
    return [Card(tuple(group), prettily(group[0].text) if len(group) == 1 else _together(report, group)) for group in groups.values()]


def _together(report: Report, group: Sequence[Finding]) -> str:
    """How many, and where."""
    first, regions = group[0], report.regions.get(group[0].where, ())
    span = regions[-1].high - regions[0].low if regions else 2.0
    known = sorted((float(f.numbers["at"]), max(float(f.numbers.get("width", 0.0)), _DIGITS * span)) for f in group if _known(f))
    places = list(dict.fromkeys(rounded(at, 4 * width) for at, width in known))
    others = list(dict.fromkeys(at for f in group if not _known(f) for at in _STATE.findall(f.text)))
    along = "at" if regions or first.kind == "region" else "on sweeps, at t\u00a0=\u00a0"
    said = [f"{along} {listed(places, 12)}".replace("\u00a0 ", "\u00a0")] if places else []
    said += [listed([f"at {prettily(state)}" for state in others], 3)] if others else []
    return f"{len(group)} {_SEVERAL[first.kind]}{', ' if said else ''}{', and '.join(said)}"


_STATE = re.compile(r"\bat ((?:the inputs|state \d+ of the domain)\b)")


def _known(finding: Finding) -> bool:
    at = finding.numbers.get("at")
    return isinstance(at, (int, float)) and math.isfinite(at)


def meaning(report: Report) -> str:
    """Of the verdict; numbers that are not finite are called so."""
    first = [state for state in report.states if state.order == 1]
    if report.verdict is Verdict.INCONCLUSIVE and report.complete and first and all(state.verdict == "outside" for state in first):
        return "the value or the gradient is not finite (NaN or infinity) around these states, or the function raises there: nothing can be said"
    return report.meaning


def ends(report: Report, name: str) -> list[tuple[str, str]]:
    """Both ends of each region of an argument, with the digits that are known.

    The ends of the domain are as given, and located places as exact as they were located. Other ends were found between the middles of two tiles, to
    about a quarter of their distance where both verdicts are clear.
    """
    regions = report.regions.get(name, ())
    if not regions:
        return []
    span = regions[-1].high - regions[0].low
    located = [(float(f.numbers["at"]), float(f.numbers.get("width", 0.0))) for f in report.findings if f.where == name and _known(f)]
    middles = sorted(state.at for state in report.states if state.argument == name and state.at is not None)
    words = [pretty(regions[0].low, 6)]
    for before, after in itertools.pairwise(regions):
        end = before.high
        exact = [width for at, width in located if at == end]
        if exact:
            words.append(rounded(end, max(4 * min(exact), _DIGITS * span)))
            continue
        k = bisect.bisect(middles, end)
        apart = middles[k] - middles[k - 1] if 0 < k < len(middles) else span / max(len(middles), 1)
        clear = {before.verdict, after.verdict} == {"coherent", "incoherent"}
        narrow = min(region.high - region.low for region in (before, after)) / 10  # found inside a tile
        words.append(f"about {rounded(end, min(apart / 4 if clear else apart, narrow) or span)}")
    return list(itertools.pairwise([*words, pretty(regions[-1].high, 6)]))


def numbers(finding: Finding) -> list[tuple[str, str]]:
    """What was measured, name by name."""
    return [(key.replace("_", " "), _shown(value)) for key, value in finding.numbers.items() if value is not None]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return pretty(value, 6)
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(item) for item in value)
    return str(value)


def percent(*shares: float) -> str:
    """One share, or an interval."""
    return f"{' to '.join(pretty(100 * share, 2 if len(shares) > 1 and share < 0.995 else 3) for share in shares)}\u00a0%"
