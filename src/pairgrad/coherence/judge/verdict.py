"""Verdicts: what an audit can come to, and what each means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What an audit comes to. Members are strings: `report.verdict == "coherent"`."""

    COHERENT = "coherent"
    INCOHERENT = "incoherent"
    SECOND_ORDER = "second-order"
    TRANSFORMED = "transformed"
    JUMP = "jump"
    KINK = "kink"
    NOT_REENTRANT = "not-reentrant"
    STRAIGHT_THROUGH = "straight-through-like"
    INCONCLUSIVE = "inconclusive"


PASSING = (Verdict.COHERENT, Verdict.KINK)

# Gravest first.
GRAVITY = (
    Verdict.INCOHERENT,
    Verdict.SECOND_ORDER,
    Verdict.TRANSFORMED,
    Verdict.NOT_REENTRANT,
    Verdict.STRAIGHT_THROUGH,
    Verdict.JUMP,
    Verdict.INCONCLUSIVE,
    Verdict.KINK,
    Verdict.COHERENT,
)

MEANING = {
    Verdict.COHERENT: "the supplied gradient is the derivative of the computed value, to the limit stated",
    Verdict.INCOHERENT: "the backward does not supply the derivative of the value that the forward computes",
    Verdict.SECOND_ORDER: "the gradient is right, but what is supplied for its derivative, the second derivative, is not",
    Verdict.TRANSFORMED: "the gradient is right, but forward mode, vmap or the compiled function gives something else",
    Verdict.JUMP: "the gradient is right where the value is smooth, but the value leaps somewhere: no gradient can tell of that",
    Verdict.KINK: "the gradient is right on both sides of places where it leaps and the value does not, as with relu or abs",
    Verdict.NOT_REENTRANT: "a second call or a second backward at the same state gives another result, or an argument is edited in place",
    Verdict.STRAIGHT_THROUGH: "the value moves in steps that the gradient ignores, and over long distances the two agree: a straight-through estimator",
    Verdict.INCONCLUSIVE: "the value is too rough, too noisy, too flat or not finite at these states to say anything",
}


@dataclass(frozen=True)
class Judgement:
    """One verdict of an audit, which may come to several.

    Attributes:
        verdict: what it is.
        relative, error: how far off, over the size of the true gradient, and what that may be off by. For a verdict that passes: the smallest defect that
            would have been seen, and 0.
        text: the finding it rests on, in a sentence; empty for a verdict that passes.
        excused: whether what was declared accounts for it.
    """

    verdict: Verdict
    relative: float = 0.0
    error: float = 0.0
    text: str = ""
    excused: bool = False

    @property
    def passes(self) -> bool:
        """Whether the verdict passes by itself or is excused."""
        return self.excused or self.verdict in PASSING


def gravest(verdicts: list[Verdict]) -> Verdict:
    """The gravest of several; coherent if there is none."""
    return min(verdicts, key=GRAVITY.index, default=Verdict.COHERENT)
