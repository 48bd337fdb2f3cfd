"""What a page says and shows of a report: the words of its head, the figures, the tables, and how to make it again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from pairgrad.coherence.page.figures import Figure, Mark, curve_figure, defect_figure, picture_figure, region_strip
from pairgrad.coherence.page.svg import pretty
from pairgrad.coherence.report import Report, StateDefect
from pairgrad.coherence.run import NodeReport, RunReport
from pairgrad.coherence.verdict import Finding, Verdict

FINDINGS = 60  # shown in full
ROWS = 200  # of a table of readings
NODES = 24  # with figures
SWEEP = "position along the sweep"
UNTOLD = ("unresolved", "outside")


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', ':', '?', '!')) else '.'}" if text else ""


def listed(words: Sequence[str], most: int = 4) -> str:
    shown = list(words[:most]) + ([f"{len(words) - most} more"] if len(words) > most else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


# The head -------------------------------------------------------------------------------------------------------------


def size(report: Report) -> tuple[str, str]:
    """How large the defect is, and what else is to be known of that number."""
    if report.defect > 0 and report.verdict not in (Verdict.COHERENT, Verdict.KINK, Verdict.JUMP):
        return f"{pretty(report.defect)} of the gradient", f"± {pretty(report.defect_error, 2)}; 1 would be as large as the gradient itself"
    if not math.isfinite(report.limit):
        return "not measured", "no line could tell"
    typical = f"; at half of them {pretty(report.typical_limit, 2)} would have been" if report.limit > 2 * report.typical_limit else ""
    return f"none above {pretty(report.limit)}", f"of the gradient: that much would have been seen at every state that could tell{typical}"


def where(report: Report) -> tuple[str, str]:
    """Where the trouble is, and what it comes from."""
    alarms = [finding for finding in report.findings if finding.severity == "alarm"]
    bad = {name: [r for r in regions if r.verdict == "incoherent"] for name, regions in report.regions.items()}
    ranges = [
        f"{name} from {listed([f'{pretty(r.low, 5)} to {pretty(r.high, 5)}' for r in found], 3)}" for name, found in bad.items() if found
    ]
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
        return listed(names, 3) or "the function as a whole", "; ".join(filter(None, [f"at {place}" if place else "", source]))
    events = [finding for finding in report.findings if finding.kind == report.verdict.value]
    if events:
        return sentence(f"{events[0].where}: {events[0].text}" if events[0].where else events[0].text), (
            f"and {len(events) - 1} more" if len(events) > 1 else ""
        )
    return ("nowhere", "among the states looked at") if report.passed else ("not known", "")


def looked(report: Report) -> tuple[str, str]:
    """How many lines were looked along, and what they showed."""
    off = sum(state.verdict == "incoherent" for state in report.states)
    mute = sum(state.verdict in UNTOLD for state in report.states)
    parts = [
        f"{off:,} show a defect" if off else "",
        f"{len(report.states) - off - mute:,} show none",
        f"{mute:,} could not tell" if mute else "",
    ]
    return f"{len(report.states):,} line{'s' * (len(report.states) != 1)} through states", listed(list(filter(None, parts)))


# Figures --------------------------------------------------------------------------------------------------------------


def curves(report: Report) -> list[Figure]:
    return [curve_figure(curve, scanned=" = " in curve.state) for curve in report.curves if len(curve.t) > 1]


def picture(report: Report) -> Figure | None:
    return None if report.picture is None else picture_figure(report.picture)


def defects(report: Report, order: int = 1) -> list[Figure]:
    """One figure for each scanned argument, and one for the lines through single states."""
    states = [state for state in report.states if state.order == order]
    drawn = []
    for name, group in _grouped(state for state in states if state.at is not None):
        regions = report.regions.get(name, ())
        marks = [_mark(state, float(state.at or 0.0)) for state in group]
        under = "The strip under the axis is the verdict of each region." if regions else ""
        drawn.append(defect_figure(f"Over {name}", marks, name if regions else SWEEP, strip=region_strip(regions), under=under))
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
        under = f"The strip parts the lines by what is moved: {listed(names, 5)}." if len(names) > 1 else ""
        title = "Lines through single states" if order == 1 else "Second derivatives: lines through the inputs"
        drawn.append(defect_figure(title, marks, "line, in the order looked at", strip=strip, under=under, whole=True))
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


def _grouped(states: Iterable[StateDefect]) -> list[tuple[str, list[StateDefect]]]:
    groups: dict[str, list[StateDefect]] = {}
    for state in states:
        groups.setdefault(state.argument, []).append(state)
    return list(groups.items())


def _mark(state: StateDefect, x: float) -> Mark:
    seen = state.verdict == "incoherent"
    words = f"{state.argument}, {state.state}: {state.verdict}, {_reading(seen, state.relative, state.error, state.limit)}"
    return Mark(x, state.relative, state.error, state.limit, state.verdict, seen, words)


def _reading(seen: bool, relative: float, error: float, limit: float) -> str:
    return f"{pretty(relative)} ± {pretty(error, 2)}" if seen else f"limit {pretty(limit)}"


def gravest(states: Sequence[StateDefect]) -> list[StateDefect]:
    """For a table: what is off first, by its size, then what could tell least."""
    return sorted(states, key=lambda s: (s.verdict != "incoherent", -s.relative if s.verdict == "incoherent" else -s.limit))[:ROWS]


# Words and numbers ----------------------------------------------------------------------------------------------------


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
    return f"{' to '.join(f'{100 * share:.{2 if len(shares) > 1 and share < 0.995 else 3}g}' for share in shares)}\u00a0%"


def snippet(report: Report | RunReport) -> str:
    """Python that makes the report again, as far as the report knows how it was made."""
    if isinstance(report, RunReport):
        reports = [report.loss, *(node.worst for node in report.nodes)]
        seed = next((f"seed={each.seed}" for each in reports if each is not None), "")
        lines = [
            "import pairgrad as pg",
            "",
            f"with pg.record({seed}) as recording:",
            "    ...                              # the same steps of training, from the same start",
            "report = recording.audit()",
        ]
        return "\n".join([*lines, "print(report.explain())"])
    lines = ["import torch, pairgrad as pg", "", f"fn = ...                             # {' '.join(report.name.split())}"]
    lines.append(f"inputs = ...                         # what it was audited at, in {report.dtype}")
    options = [f"effort={report.effort!r}", f"seed={report.seed}"]
    if report.regions:
        ends = {name: (regions[0].low, regions[-1].high) for name, regions in report.regions.items() if regions}
        options.insert(0, f"domain={ends!r}")
    if report.intent:
        options.append(f"intent={report.intent!r}")
    return "\n".join([*lines, f"report = pg.audit(fn, inputs, {', '.join(options)})", "print(report.explain())"])


# A run ----------------------------------------------------------------------------------------------------------------


def worst(report: RunReport) -> tuple[str, str]:
    """The largest defect of any node that fails."""
    failing = [node for node in report.nodes if not node.passed and node.defect > 0]
    if not failing:
        return ("none seen", "in the custom backwards looked at") if report.passed else ("not measured", "see what was found, node by node")
    node = max(failing, key=lambda node: node.defect)
    return f"{pretty(node.defect)} of its gradient", f"± {pretty(node.defect_error, 2)}, in {node.name}, at worst"


def loss(report: RunReport) -> tuple[str, str]:
    if report.loss is None:
        return "not replayed", report.loss_note
    told = size(report.loss)
    return report.loss.verdict.value, told[0]
