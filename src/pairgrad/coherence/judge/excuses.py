"""Whether what was declared with `intended` accounts for what an audit found."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pairgrad.coherence.causes.consequences import consistent_gradient
from pairgrad.coherence.judge.conclusions import defective, of_order
from pairgrad.coherence.judge.verdict import Finding, Verdict
from pairgrad.coherence.measure.explore import Observation
from pairgrad.coherence.measure.straight import StraightThrough
from pairgrad.coherence.subject.subject import Subject

EXCUSABLE = frozenset({"defect", "no-gradient", "straight-through", "not-linear"})  # alarms that a declaration can account for


def excused(
    intent: str,
    alarms: Sequence[Finding],
    subject: Subject,
    observations: Sequence[Observation],
    *,
    verdict: Verdict | None,
    straight: StraightThrough | None,
    complete: bool,
) -> tuple[bool, str]:
    """Whether the declared intent accounts for every alarm, and why or why not.

    Args:
        verdict, straight: what the audit concluded, and what it found of a straight-through estimator, if it looked for one.
        complete: whether the audit came to its end.
    """
    others = {finding.kind for finding in alarms} - EXCUSABLE - {"second-order"}
    if others:
        return False, f"declared as {intent!r}, which does not account for: {', '.join(sorted(others))}"
    if not complete:
        return False, f"declared as {intent!r}; whether that accounts for what was found was not looked at"
    if intent == "straight-through":
        seen = defective(observations, 1)
        flat = all(abs(o.reading.panel.slope) <= 1e-6 * o.reading.panel.size for o in seen if o.reading.panel is not None)
        if verdict is Verdict.STRAIGHT_THROUGH or flat or (straight is not None and straight.jump is not None):
            return True, "declared as 'straight-through', and the value does move in steps"
        return False, "declared as 'straight-through', but the value does not move in steps"
    if intent == "gradient-cap":
        return _is_cap(subject, observations)
    if subject.random:
        return True, "declared as 'implicit-reparameterization', and it draws random numbers; the law of the gradient was not checked"
    return False, "declared as 'implicit-reparameterization', but it draws no random numbers"


def _is_cap(subject: Subject, observations: Sequence[Observation]) -> tuple[bool, str]:
    """Whether the supplied gradient is nowhere longer than the derivative and points to the same side, coordinate by coordinate where that is known."""
    at_inputs = [observation for observation in defective(observations, 1) if observation.state == "the inputs"]
    consistent = consistent_gradient(subject, at_inputs[0]) if at_inputs else None
    if consistent is not None:
        slack = 1e-6 + 4 * consistent.error
        shorter = all(
            bool(((s.double() * c.sign() >= -slack * c.abs()) & (s.double().abs() <= c.abs() * (1 + slack) + slack * c.abs().max())).all())
            for s, c in zip(consistent.supplied, (g.double() for g in consistent.gradient), strict=True)
        )
        how = "coordinate by coordinate"
    else:
        panels = [(o.reading.panel, o.reading.defect) for o in of_order(observations, 1) if o.reading.panel is not None]
        pairs = [(panel.slope + defect, panel.slope) for panel, defect in panels]
        supplied, true = (math.sqrt(sum(pair[k] ** 2 for pair in pairs)) for k in (0, 1))
        shorter = supplied <= true * (1 + 1e-6) and sum(a * b for a, b in pairs) >= 0
        how = "along the lines looked at"
    if shorter:
        return True, f"declared as 'gradient-cap', and the gradient is the derivative shortened, {how}"
    return False, f"declared as 'gradient-cap', but the gradient is not the derivative shortened, {how}"
