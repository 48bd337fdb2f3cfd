"""What the audit of a recorded run hands back: every custom backward that was met, ranked, and the loss beside them."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from pairgrad.coherence.finding import ADVICE
from pairgrad.coherence.judge.verdict import GRAVITY, MEANING, Verdict
from pairgrad.coherence.report.report import METHOD, Report, SavedReport, plain
from pairgrad.coherence.report.summary import glossary, number
from pairgrad.ground.text import printable

RUN_SCHEMA = "pairgrad.run/2"


@dataclass(frozen=True)
class NodeState:
    """One visited state of a custom backward.

    Attributes:
        visit: the number of the visit, counted from 0 in the order of the backwards of this function.
        verdict, passed: of the audit there.
        defect, error, limit: relative to the size of the gradient, as in a [`Report`][pairgrad.coherence.Report].
        arguments: what the function was given, described.
    """

    visit: int
    verdict: str
    passed: bool
    defect: float
    error: float
    limit: float
    arguments: str


@dataclass(frozen=True)
class NodeReport:
    """A custom backward at the states that a run visited.

    Attributes:
        name, location: of the Function: file and line.
        verdict: the gravest of all states looked at.
        passed: whether all of them passed.
        intent: what it is declared as, or None.
        visits: how often its backward ran.
        looked: at how many of these states it was audited.
        failed: at how many of those it did not pass.
        share: the share of visited states at which it does not pass, as far as a draw of `looked` of them tells; share_low, share_high: its 95 % interval.
        defect, defect_error: the largest, over the size of the gradient.
        contribution: the share of the gradient of the parameters that is gone if it hands on nothing, in the step that was kept; more than 1 where parts
            cancel, None if it is not on the way there, or that is not known.
        states: those looked at, in the order of the visits.
        worst: the report at the worst of them.
        note: why it was not looked at, if it was not.
        left_out: checks that were not made, and why, such as "second order at 6 of 8 states: time was up".
    """

    name: str
    location: str | None
    verdict: Verdict
    passed: bool
    intent: str | None
    visits: int
    looked: int
    failed: int
    share: float
    share_low: float
    share_high: float
    defect: float
    defect_error: float
    contribution: float | None
    states: tuple[NodeState, ...]
    worst: Report | None = None
    note: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def decided(self) -> int:
        """At how many states it could be judged."""
        return sum(state.verdict != Verdict.INCONCLUSIVE for state in self.states) if self.states else self.looked

    @property
    def headline(self) -> str:
        """The verdict with its numbers."""
        if not self.looked:
            return f"{self.verdict.value}: {self.note}"
        undecided = "" if self.decided == self.looked else f", {self.looked - self.decided} others could not be decided"
        if not self.decided:
            return f"inconclusive at all {self.looked} visited states looked at"
        if self.passed:
            declared = f", as declared: {self.intent}" if self.intent else ""
            assert self.worst is not None
            return f"{self.worst.headline}{declared}, at {self.decided} of {self.visits} visited states{undecided}"
        off = f", by up to {number(self.defect)} of its gradient (± {number(self.defect_error)})" if self.defect > 0 else ""
        low, high = (f"{100 * share:.0f}" for share in (self.share_low, self.share_high))
        spread = "" if self.looked == self.visits else f" (of all {self.visits}: {low} to {high} %)"
        return f"{self.verdict.value}{off}, at {self.failed} of {self.decided} visited states looked at{undecided}{spread}"

    @property
    def details(self) -> tuple[str, ...]:
        """What is wrong at the worst state, line by line, as a report on it begins; empty if it passes."""
        return () if self.passed or self.worst is None else tuple(self.worst.summary.splitlines()[1:])

    def __str__(self) -> str:
        place = f"{self.name} ({self.location})" if self.location else self.name
        carried = ""
        if self.contribution is not None:
            share = f"{100 * self.contribution:.3g} %" if self.contribution <= 1 else "all, and parts that cancel,"
            carried = f"; {share} of the gradient comes through it"
        return printable(f"{place}: {self.headline}{carried}")


@dataclass(frozen=True, repr=False)
class RunReport(SavedReport):
    """The result of [`Recording.audit`][pairgrad.coherence.Recording.audit].

    Attributes:
        verdict, passed: of the run: that of the gravest node, or of the loss if that is graver.
        nodes: every custom backward, those that fail first, then by what they do to the gradient: contribution times defect.
        loss: the report on the loss of one recorded step as a function of its parameters; None if it could not be replayed.
        loss_note: why not; or what else is to be said of it.
        backwards: how many backward passes were recorded.
        notes: what was not seen, and why.
        seconds: what the audit took.
        left_out: checks that were not made, and why, with the name of the function where there are several.
    """

    _schema = RUN_SCHEMA

    verdict: Verdict
    passed: bool
    nodes: tuple[NodeReport, ...]
    loss: Report | None
    loss_note: str
    backwards: int
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    left_out: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        if not self.nodes and self.loss is None:
            return f"{self.verdict.value}: no custom backward was met, and the loss was not replayed"
        undecided = self.verdict is Verdict.INCONCLUSIVE
        failing = [node for node in self.nodes if not node.passed and (undecided or node.verdict is not Verdict.INCONCLUSIVE)]
        if failing:
            groups = {verdict: [node.name for node in failing if node.verdict is verdict] for verdict in GRAVITY}
            if not groups[self.verdict]:
                groups[self.verdict] = ["the loss"]
            said = "; ".join(f"{verdict.value}: {', '.join(names)}" for verdict, names in groups.items() if names)
            return f"{said} ({len(failing)} of {_counted(len(self.nodes), 'custom backward')})"
        loss = "" if self.loss is None else f", loss {self.loss.headline}"
        return f"{self.verdict.value}: {_counted(len(self.nodes), 'custom backward')}{loss}"

    def __repr__(self) -> str:
        return f"RunReport({self.headline!r}, passed={self.passed})"

    def __str__(self) -> str:
        passes = (
            _counted(self.backwards, "backward pass", "backward passes") if self.backwards else "no backward pass with a custom backward"
        )
        lines = [f"{passes} recorded: {self.headline}"]
        for place, node in enumerate(self.nodes, 1):
            lines += [f"  {place}. {node}", *(f"     {line}" for line in node.details)]
        if self.loss is not None:
            lines.append(f"  the loss of a recorded step: {self.loss.headline}")
        if self.loss_note:
            lines.append(f"  {'the loss: ' if self.loss is None else ''}{self.loss_note}")
        lines += [f"  left out: {check}" for check in self.left_out]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(map(printable, lines))

    def explain(self) -> str:
        """The report in plain words: what was met, what is wrong with it, what to do, what it cannot tell."""
        parts = [f"{self.headline[:1].upper()}{self.headline[1:]}. The verdict means: {MEANING[self.verdict]}."]
        for node in self.nodes:
            note = f" {node.note[:1].upper()}{node.note[1:]}." if node.note and node.looked else ""
            worst = f" At the worst state: {'; '.join(node.details)}{'' if node.details[-1].endswith('?') else '.'}" if node.details else ""
            parts.append(f"{node}.{worst}{note}")
        failing = [node for node in self.nodes if not node.passed and node.looked]
        for kind in dict.fromkeys("defect" if node.defect > 0 else "not-reentrant" for node in failing):
            causes, remedy = ADVICE[kind]
            listed = "; ".join(f"({letter}) {cause}" for letter, cause in zip("abc", causes, strict=False))
            parts.append(f"Likely causes: {listed}. What to do: {remedy}.")
        if self.loss is not None:
            note = f" {self.loss_note[:1].upper()}{self.loss_note[1:]}." if self.loss_note else ""
            parts.append(f"The loss of one recorded step, as a function of its parameters, is {self.loss.headline}.{note}")
        elif self.loss_note:
            parts.append(f"The loss was not replayed: {self.loss_note}.")
        if self.left_out:
            parts.append(f"Left out: {'; '.join(self.left_out)}.")
        parts += [f"{note[:1].upper()}{note[1:]}." for note in self.notes]
        parts.append(
            "Visited states are drawn evenly from all that the run met, so the share of bad ones among those looked at estimates that of all. "
            + METHOD
        )
        filled = [*(textwrap.fill(printable(part), 100) for part in parts), glossary(" ".join(parts))]
        return printable("\n\n".join(filled), lines=True)  # lines begin elsewhere now

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists, schema "pairgrad.run/2"; infinities and NaN as strings."""
        data = asdict(self)
        data["verdict"] = self.verdict.value
        data["schema"], data["headline"] = RUN_SCHEMA, self.headline
        for node, entry in zip(self.nodes, data["nodes"], strict=True):
            entry["headline"] = node.headline
            entry["worst"] = None if node.worst is None else node.worst.to_dict()
        data["loss"] = None if self.loss is None else self.loss.to_dict()
        return plain(data)


def ranked(nodes: list[NodeReport]) -> tuple[NodeReport, ...]:
    """Those that fail first; among them, and among the others, by what they do to the gradient of the parameters."""

    def weight(node: NodeReport) -> tuple[Any, ...]:
        carried = 1.0 if node.contribution is None else node.contribution  # not known: its defect alone counts
        return node.passed, node.verdict is Verdict.INCONCLUSIVE, -carried * node.defect, -node.defect, -carried, node.name

    return tuple(sorted(nodes, key=weight))


def interval(bad: int, looked: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `bad` of `looked` were drawn (Wilson's), narrowed to what is possible among `total`."""
    if looked == 0:
        return 0.0, 1.0
    if looked == total:
        return bad / total, bad / total
    z, n, p = 1.959964, looked, bad / looked
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(bad / total, middle - half if bad else 0.0), min(1 - (looked - bad) / total, middle + half if bad < looked else 1.0)


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
