"""Whether what was declared with `intended` accounts for what an audit found, and what an undeclared gradient looks like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.conclusions import defective, of_order
from pairgrad.coherence.measure.explore import Observation
from pairgrad.coherence.measure.gradient import Measured
from pairgrad.coherence.measure.straight import StraightThrough

EXCUSABLE = frozenset(
    {"defect", "no-gradient", "straight-through", "not-linear", "second-order"}
)  # alarms that a declaration can account for
_SAME = 1e-3  # how far a gradient may be from a multiple of another one, over its size, to be called one


@dataclass(frozen=True, eq=False)
class Facts:
    """What an excuse is weighed against.

    Attributes:
        observations: all of them.
        measured: the gradients at the inputs, as far as they are known.
        straight: what was found of a straight-through estimator, if it was looked for.
        draws: whether the callable draws random numbers.
        complete: whether the audit came to its end.
    """

    observations: Sequence[Observation]
    measured: Sequence[Measured]
    straight: StraightThrough | None
    draws: bool
    complete: bool


def excused(intent: str, alarms: Sequence[Finding], facts: Facts) -> tuple[list[Finding], str]:
    """The alarms that the declared intent accounts for, and why or why not."""
    if intent == "overwrites-input":
        edits = [finding for finding in alarms if finding.kind == "edits" and finding.where != "grad_output"]
        return edits, "declared as 'overwrites-input', " + ("and it does" if edits else "but it does not")
    able = [finding for finding in alarms if finding.kind in EXCUSABLE]
    others = {finding.kind for finding in alarms} - EXCUSABLE
    beside = f"; it does not account for: {', '.join(sorted(others))}" if others else ""
    if not able:
        return [], f"declared as {intent!r}{beside}"
    if not facts.complete:
        return [], f"declared as {intent!r}; whether that accounts for what was found was not looked at"
    holds, why = _ACCOUNTS[intent](facts)
    return (able if holds else []), f"declared as {intent!r}, {'and' if holds else 'but'} {why}{beside}"


def _in_steps(facts: Facts) -> tuple[bool, str]:
    seen = defective(facts.observations, 1)
    flat = all(abs(o.reading.slope.true) <= 1e-6 * o.reading.slope.scale for o in seen if o.reading.slope is not None)
    known = any(o.reading.slope is not None for o in seen)
    if (facts.straight is not None and facts.straight.jump is not None) or (known and flat):
        return True, "the value does move in steps"
    return False, "the value does not move in steps"


def _drawn(facts: Facts) -> tuple[bool, str]:
    if facts.draws:
        return True, "it draws random numbers; the law of the gradient was not checked"
    return False, "it draws no random numbers"


def _capped(facts: Facts) -> tuple[bool, str]:
    """Whether the supplied gradient is nowhere longer than the derivative and points to the same side, coordinate by coordinate where that is known."""
    known = _in_full(facts.measured)
    if known:
        shorter = all(
            bool(((given * true.sign() >= -slack) & (given.abs() <= true.abs() + slack + 1e-6 * true.abs().max())).all())
            for given, true, slack in known
        )
        how = "coordinate by coordinate"
    else:
        readings = [o.reading for o in of_order(facts.observations, 1) if o.reading.slope is not None]
        pairs = [(reading.slope.supplied, reading.slope.true) for reading in readings if reading.slope is not None]
        supplied, true = (math.sqrt(sum(pair[k] ** 2 for pair in pairs)) for k in (0, 1))
        shorter = bool(pairs) and supplied <= true * (1 + 1e-6) and sum(a * b for a, b in pairs) >= 0
        how = "along the lines looked at"
    return shorter, f"the gradient is {'' if shorter else 'not '}the derivative shortened, {how}"


def _reversed(facts: Facts) -> tuple[bool, str]:
    factor = _multiple(facts.measured)
    return (factor is not None and factor < 0), _as_multiple(factor)


def _scaled(facts: Facts) -> tuple[bool, str]:
    factor = _multiple(facts.measured)
    return (factor is not None and factor > 0), _as_multiple(factor)


def _as_multiple(factor: float | None) -> str:
    return "the gradient is not a multiple of the derivative" if factor is None else f"the gradient is {factor:.6g} times the derivative"


def _preconditioned(facts: Facts) -> tuple[bool, str]:
    holds = bool(facts.measured) and all(m.factor > 0 for m in facts.measured if m.certain)
    return holds, f"the gradient {'points' if holds else 'does not point'} into the half-space of the derivative"


def _unclamped(facts: Facts) -> tuple[bool, str]:
    known = _in_full(facts.measured)
    holds = bool(known) and all(
        bool(((true.abs() <= slack) | ((given - true).abs() <= slack + _SAME * true.abs())).all()) for given, true, slack in known
    )
    return holds, f"the gradient is {'' if holds else 'not '}right wherever the value moves"


_ACCOUNTS = {
    "straight-through": _in_steps,
    "clamped-straight-through": _unclamped,
    "implicit-reparameterization": _drawn,
    "gradient-cap": _capped,
    "reversal": _reversed,
    "scaling": _scaled,
    "preconditioned": _preconditioned,
}


def _in_full(measured: Sequence[Measured]) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Supplied and true gradient with a slack for each element; empty if any is not known in full."""
    found = []
    for m in measured:
        if m.gradient is None or m.uncertainty is None:
            return []
        slack = 4 * m.uncertainty + 1e-9 * m.gradient.abs().max()
        found.append((m.given, m.gradient, slack))
    return found


def _multiple(measured: Sequence[Measured]) -> float | None:
    """The number that the derivatives of all arguments are multiplied with, if there is one."""
    factors = [m.factor for m in measured if math.isfinite(m.factor) and m.relative > 0]
    if not factors or any(math.isinf(m.relative) for m in measured):
        return None
    for m in measured:
        left = math.sqrt(max(0.0, m.relative**2 + 2 * m.factor - 1 - m.factor**2))  # |supplied - factor true| over |true|
        if math.isfinite(m.factor) and left > _SAME * abs(m.factor - 1) + 4 * m.error * max(1.0, abs(m.factor)):
            return None
    same = max(factors) - min(factors) <= (_SAME + 4 * max(m.error for m in measured)) * max(map(abs, factors))
    return factors[0] if same else None


def looks_like(facts: Facts) -> Finding | None:
    """What an undeclared gradient looks like, if it is wanted now and then: reversed, scaled, passed through a step or a clamp."""
    certain = [m for m in facts.measured if m.certain]
    if not certain:
        return None
    kind, text = "", ""
    factor = _multiple(facts.measured)
    known = _in_full(certain)
    if factor is not None and factor < 0:
        kind, text = "reversal", f"a gradient reversal: {factor:.6g} times the derivative"
    elif factor is not None and abs(factor - 1) > _SAME and sum(m.given.numel() for m in facts.measured) > 1:
        kind, text = "scaling", f"a scaled gradient: {factor:.6g} times the derivative"
    elif known and all(bool((true.abs() <= slack).all()) for _, true, slack in known):
        kind, text = "straight-through", "a straight-through estimator: the value stands still, and a gradient is supplied"
    elif known and any(bool((true.abs() <= slack).any()) for _, true, slack in known) and _unclamped(facts)[0]:
        kind, text = (
            "clamped-straight-through",
            "a clamp that lets gradients pass: the gradient is right where the value moves, and not zero where it does not",
        )
    elif known and sum(given.numel() for given, *_ in known) >= _MANY and all(_same_signs(*parts) for parts in known):
        kind, text = (
            "preconditioned",
            "a preconditioned gradient: every element is the derivative times a positive number, another one for each",
        )
    if not kind:
        return None
    return Finding(
        "looks-like", "note", f"this looks like {text}. If that is meant, declare it: pairgrad.intended({kind!r})", "", {"intent": kind}
    )


_MANY = 4  # elements whose signs do not agree by chance


def _same_signs(given: torch.Tensor, true: torch.Tensor, slack: torch.Tensor) -> bool:
    return bool(((given * true > 0) | (true.abs() <= slack) & (given.abs() <= slack)).all())
