"""What an audit has gathered, and what follows from it. The audited function is not called here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.conclusions import (
    best_limits,
    by_argument,
    defect_finding,
    defective,
    distinct,
    event_findings,
    of_order,
    second_order_finding,
    straight_through_finding,
    tells,
    undecided,
    worst_of,
)
from pairgrad.coherence.judge.excuses import Facts, excused, looks_like
from pairgrad.coherence.judge.verdict import GRAVITY, Judgement, Verdict
from pairgrad.coherence.measure.explore import ACROSS, ALONG, Observation
from pairgrad.coherence.measure.gradient import Measured
from pairgrad.coherence.measure.limits import PASSABLE, TELLING
from pairgrad.coherence.measure.path import Line
from pairgrad.coherence.measure.precision import Precision
from pairgrad.coherence.measure.scan import Region, Scan
from pairgrad.coherence.measure.straight import StraightThrough

# Which verdict follows from an alarm of which kind.
_FOLLOWS = {
    Verdict.INCOHERENT: ("defect", "no-gradient", "non-finite", "not-linear", "rounds", "undefined", "layout", "precision"),
    Verdict.SECOND_ORDER: ("second-order",),
    Verdict.TRANSFORMED: ("forward-mode", "vmap", "no-grad", "compiled"),
    Verdict.NOT_REENTRANT: ("not-reentrant", "edits"),
}
_STRAIGHT = ("defect", "no-gradient")  # alarms that a value in steps explains


@dataclass(eq=False)
class Evidence:
    """What an audit has gathered so far.

    Attributes:
        names: of the arguments.
        dtype: the coarsest.
        single: whether the value is one number.
        draws: whether the callable draws random numbers.
        connected: whether autograd knows of a way from the arguments to an output.
        findings: of structure and causes.
        observations, scans, regions: what was looked at.
        gradients: at the inputs, of each argument, where a defect was seen there.
        sizes: the gradient at the worst place of an argument, where that is not at the inputs.
        straight: whether the value moves in steps.
        declared: intents of custom Functions inside that account for what they do, {name: intent}; accounted: whether all others are coherent.
        refused: why second derivatives are refused.
        second: what came of second derivatives where they were not observed here.
        precision: what came of the comparison with float64, in half precision.
        transforms: what came of forward mode, vmap and the compiled function, where they were looked at.
        left_out: what was not looked at, and why.
        complete: whether everything that a verdict needs was looked at.
        stopped: why not.
    """

    names: tuple[str, ...]
    dtype: torch.dtype
    single: bool
    draws: bool
    connected: bool
    tolerance: float
    intent: str | None
    findings: list[Finding] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    scans: list[tuple[str, Scan, Line]] = field(default_factory=list)
    regions: dict[str, tuple[Region, ...]] = field(default_factory=dict)
    gradients: list[Measured] = field(default_factory=list)
    sizes: dict[str, Measured] = field(default_factory=dict)
    straight: StraightThrough | None = None
    declared: dict[str, str] = field(default_factory=dict)
    accounted: bool = False
    refused: str = ""
    second: str = "not judged"
    precision: Precision | None = None
    transforms: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    complete: bool = True
    structure: bool = False  # whether all of it was looked at
    stopped: str = ""

    def measured(self, argument: str) -> Measured | None:
        """The gradient of an argument at the inputs, if it was measured."""
        return next((m for m in self.gradients if self.names[m.place] == argument), None)


@dataclass(frozen=True, eq=False)
class Conclusion:
    """What follows: see `Report`, which has the same fields."""

    verdict: Verdict
    passed: bool
    intent: str | None
    verdicts: tuple[Judgement, ...]
    findings: tuple[Finding, ...]
    checks: dict[str, str]
    defect: float
    defect_error: float


def first_order_findings(evidence: Evidence) -> list[Finding]:
    """A finding for every argument that is off, and for every tensor together only if that is all."""
    first = defective(evidence.observations, 1)
    found = []
    for argument, group in by_argument(first):
        if argument in ("all tensors", ACROSS) and len(first) != len(group):
            continue
        at_inputs = worst_of(group).state == "the inputs"
        measured = evidence.measured(argument) if at_inputs else evidence.sizes.get(argument)
        if argument in ("all tensors", ALONG, ACROSS) and at_inputs:
            measured = max((m for m in evidence.gradients if m.certain), key=lambda m: m.relative, default=None)
        found.append(defect_finding(argument, group, evidence.observations, evidence.tolerance, measured))
    return found


def _if_repeatable(structure: Sequence[Finding], defects: Sequence[Finding]) -> list[Finding]:
    """The defects, those that may be nothing but results that change from call to call as warnings."""
    value = max((finding.numbers.get("value", 0.0) for finding in structure if finding.kind == "not-reentrant"), default=0.0)
    gradient = max((finding.numbers.get("gradient", 0.0) for finding in structure if finding.kind == "not-reentrant"), default=0.0)
    return [
        replace(finding, severity="warning")
        if finding.severity == "alarm" and (value > 0 or finding.numbers["relative"] < 8 * gradient)
        else finding
        for finding in defects
    ]


def conclude(evidence: Evidence) -> Conclusion:
    """The verdicts, and a finding for each of their reasons."""
    findings = [*evidence.findings, *_if_repeatable(evidence.findings, first_order_findings(evidence))]
    findings += [
        second_order_finding(argument, group, evidence.observations, evidence.tolerance)
        for argument, group in by_argument([o for o in defective(evidence.observations, 2) if o.reading.error < o.reading.relative / 2])
    ]
    if (
        _passable(evidence) == TELLING and PASSABLE.get(evidence.dtype, TELLING) < TELLING
    ):  # half precision inside: steps have no second derivative
        findings = [replace(f, severity="warning") if f.kind == "second-order" and f.severity == "alarm" else f for f in findings]
    value = "the value" if evidence.single else "a random combination of the outputs"
    findings = distinct([*findings, *event_findings(evidence.observations, evidence.scans, evidence.regions, value)])
    in_steps = evidence.straight is not None and evidence.straight.like
    if in_steps and evidence.straight is not None:
        findings.append(straight_through_finding(evidence.straight))
    undetermined, unknown = _unknown(evidence, findings)
    findings += unknown
    alarms = [finding for finding in findings if finding.severity == "alarm"]
    facts = Facts(evidence.observations, evidence.gradients, evidence.straight, evidence.draws, evidence.complete)
    intent, excuses, said = _excuses(evidence, alarms, facts)
    findings += said
    wrong = any(finding.kind in _STRAIGHT for finding in alarms)
    if intent is None and wrong and not in_steps and (alike := looks_like(facts)) is not None:
        findings.append(alike)
    judgements = _judgements(evidence, findings, excuses, in_steps=in_steps, unknown=undetermined)
    if not evidence.complete:
        findings.append(Finding("note", "warning", evidence.stopped))
        if all(judgement.passes for judgement in judgements):
            judgements = [Judgement(Verdict.INCONCLUSIVE, text=evidence.stopped), *judgements]
    failing = [judgement for judgement in judgements if not judgement.passes]
    verdict = (failing or judgements)[0].verdict
    behind = [(j.relative, j.error) for j in judgements if j.verdict is verdict and j.text and verdict is not Verdict.INCONCLUSIVE]
    behind += [
        (f.numbers["relative"], f.numbers["error"]) for f in findings if f.kind in ("defect", "second-order") and f.severity == "note"
    ]
    defect, error = max(behind, default=(0.0, 0.0))
    order = {"alarm": 0, "warning": 1, "note": 2}
    return Conclusion(
        verdict=verdict,
        passed=not failing,
        intent=intent,
        verdicts=tuple(judgements),
        findings=tuple(sorted(findings, key=lambda finding: order[finding.severity])),
        checks=_checks(evidence, alarms, findings),
        defect=defect,
        defect_error=error,
    )


def _unknown(evidence: Evidence, findings: Sequence[Finding]) -> tuple[bool, list[Finding]]:
    """Whether there is an argument of which nothing is known, and a finding for each, unless the verdict is known anyway."""
    if any(finding.severity == "alarm" and finding.kind in _FOLLOWS[Verdict.INCOHERENT] for finding in findings):
        return False, []
    return undecided(evidence.observations)


def _excuses(evidence: Evidence, alarms: Sequence[Finding], facts: Facts) -> tuple[str | None, list[Finding], list[Finding]]:
    """The intent that counts, the alarms it accounts for, and what is said of that."""
    if evidence.intent is not None:
        if not alarms:
            return evidence.intent, [], []
        accounted, why = excused(evidence.intent, alarms, facts)
        return evidence.intent, accounted, [Finding("intent", "note" if len(accounted) == len(alarms) else "warning", why)]
    inside = evidence.declared
    able = {"defect", "no-gradient", "straight-through", "not-linear"}
    if not (inside and evidence.accounted and alarms) or {finding.kind for finding in alarms} - able:
        return None, [], []
    named = ", ".join(f"{name} ({kind})" for name, kind in inside.items())
    text = f"declared inside: {named}; every other custom backward is coherent, and a further mismatch behind these would not be seen"
    return next(iter(inside.values())), list(alarms), [Finding("intent", "note", text)]


def _judgements(
    evidence: Evidence, findings: Sequence[Finding], excuses: Sequence[Finding], *, in_steps: bool, unknown: bool
) -> list[Judgement]:
    """The set of verdicts, gravest first."""
    found: list[Judgement] = []
    alarms = [finding for finding in findings if finding.severity == "alarm"]
    for verdict, kinds in _FOLLOWS.items():
        behind = [finding for finding in alarms if finding.kind in kinds and not (in_steps and finding.kind in _STRAIGHT)]
        found += _judgement(verdict, behind, excuses)
    if in_steps:
        found += _judgement(Verdict.STRAIGHT_THROUGH, [f for f in alarms if f.kind in (*_STRAIGHT, "straight-through")], excuses)
    jumps = [finding for finding in findings if finding.kind == "jump"]
    if jumps:
        found.append(Judgement(Verdict.JUMP, text=jumps[0].text))
    if not any(judgement.verdict in (Verdict.INCOHERENT, Verdict.STRAIGHT_THROUGH) for judgement in found):
        found.append(_first_order(evidence, findings, unknown=unknown))
    return sorted(found, key=lambda judgement: (judgement.excused, GRAVITY.index(judgement.verdict)))


def _judgement(verdict: Verdict, behind: Sequence[Finding], excuses: Sequence[Finding]) -> list[Judgement]:
    if not behind:
        return []
    left = [finding for finding in behind if finding not in excuses] or list(behind)
    worst = max(left, key=lambda finding: finding.numbers.get("relative", 0.0))
    relative, error = (float(worst.numbers.get(key, 0.0)) for key in ("relative", "error"))
    return [Judgement(verdict, relative, error, _with_place(worst), all(finding in excuses for finding in behind))]


def _first_order(evidence: Evidence, findings: Sequence[Finding], *, unknown: bool) -> Judgement:
    """Of a gradient that nothing speaks against: coherent or kink, unless too little is known of it."""
    rough = [finding for finding in findings if finding.kind == "rough"]
    if rough:
        return Judgement(Verdict.INCONCLUSIVE, rough[0].numbers["relative"], text=_with_place(rough[0]))
    doubtful = [f for f in findings if f.kind == "constraint" and f.severity == "warning"]
    if doubtful:
        return Judgement(Verdict.INCONCLUSIVE, doubtful[0].numbers.get("relative", 0.0), text=_with_place(doubtful[0]))
    kinked = Verdict.KINK if any(finding.kind == "kink" for finding in findings) else Verdict.COHERENT
    if evidence.precision is not None and evidence.precision.result == "right":
        return Judgement(kinked, evidence.precision.limit)
    limits = best_limits(evidence.observations)
    if unknown or not limits:
        unresolved = [f for f in findings if f.kind == "unresolved"]
        unresolved.sort(key=lambda f: "limit" not in f.numbers)  # those that leave the question open come first
        text = _with_place(unresolved[0]) if unresolved else evidence.stopped or "no direction resolves the gradient"
        return Judgement(Verdict.INCONCLUSIVE, text=text)
    allowed = _passable(evidence)
    for (_, argument), worst in sorted(limits.items(), key=lambda item: -item[1]):
        if worst <= (TELLING if argument == ACROSS else allowed):
            continue
        text = (
            f"{argument}: a defect would have to be {worst:.2g} of the gradient to be seen; above {allowed:.2g} nothing is called coherent"
        )
        return Judgement(Verdict.INCONCLUSIVE, worst, text=text)
    return Judgement(kinked, max(limits.values()))


def _with_place(finding: Finding) -> str:
    """The sentence of a finding, with the argument in front."""
    return f"{finding.where}: {finding.text}" if finding.where else finding.text


_HALF = 2.0**-12  # noise of a value that was computed in half precision, over its size


def _passable(evidence: Evidence) -> float:
    """The limit up to which a gradient may be called coherent: higher for a value that is computed in half precision inside."""
    panels = [o.reading.panel for o in of_order(evidence.observations, 1) if tells(o) and o.reading.panel is not None]
    noise = max((panel.noise / panel.value_size for panel in panels if panel.value_size > 0), default=0.0)
    return TELLING if noise >= _HALF else PASSABLE.get(evidence.dtype, TELLING)


def _checks(evidence: Evidence, alarms: Sequence[Finding], findings: Sequence[Finding]) -> dict[str, str]:
    """What each check came to."""
    kinds = {finding.kind for finding in alarms}
    looked = any(map(tells, of_order(evidence.observations, 1)))
    second = any(map(tells, of_order(evidence.observations, 2)))
    first_wrong = bool(kinds & {"defect", "no-gradient", "non-finite", "straight-through"})

    def answer(*wrong: str) -> str:
        return "no" if kinds & set(wrong) else "yes" if evidence.structure and evidence.connected else "not judged"

    return {
        "first order": "wrong" if first_wrong else "right" if looked else "not judged",
        "second order": "wrong" if "second-order" in kinds else "refused" if evidence.refused else "right" if second else evidence.second,
        "re-entrant": answer("not-reentrant", "edits"),
        "linear": answer("not-linear", "rounds", "undefined"),
        "layouts": answer("layout"),
        **({"half precision": evidence.precision.result} if evidence.precision is not None else {}),
        **evidence.transforms,
    }


def incomplete(evidence: Evidence, why: str) -> Evidence:
    """The evidence of an audit that was stopped."""
    return replace(evidence, complete=False, stopped=why)
