"""What an audit hands back: a verdict, its limit, findings, and the words to explain them."""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pairgrad.coherence.scan import Region
from pairgrad.coherence.verdict import MEANING, PASSING, Finding, Verdict
from pairgrad.ground.files import write_atomically

SCHEMA = "pairgrad.audit/1"


@dataclass(frozen=True)
class StateDefect:
    """The defect along one line through one state, with both methods beside each other; relative to the size of the gradient."""

    state: str
    argument: str
    verdict: str
    relative: float
    error: float
    by_differences: float
    limit: float
    absolute: float | None
    order: int


@dataclass(frozen=True, repr=False)
class Report:
    """The result of [`audit`][pairgrad.audit].

    Attributes:
        name: of the callable.
        verdict: a [`Verdict`][pairgrad.coherence.Verdict]; compares equal to its string.
        passed: whether the verdict is coherent or kink, or what was measured is what was declared.
        intent: what was declared with [`intended`][pairgrad.intended], or None.
        limit: the smallest defect, over the size of the gradient, that would have been seen at every state that could tell.
        typical_limit: the smallest that would have been seen at half of them.
        defect: the largest defect seen, over the size of the gradient; 0 if none was.
        defect_error: what that number may be off by.
        findings: everything found, gravest first.
        states: the readings behind them.
        regions: for a domain, {argument: regions}, with the verdict in each.
        false_alarm_rate: of the audit, under its noise model; tests: how many tests it was shared between.
        evaluations, seconds: what it cost.
        dtype, seed, effort: how it was made.
    """

    name: str
    verdict: Verdict
    passed: bool
    intent: str | None
    limit: float
    typical_limit: float
    defect: float
    defect_error: float
    findings: tuple[Finding, ...]
    states: tuple[StateDefect, ...]
    regions: dict[str, tuple[Region, ...]] = field(default_factory=dict)
    false_alarm_rate: float = 1e-3
    tests: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    dtype: str = "float64"
    seed: int = 0
    effort: str = "standard"

    def quantiles(self, *levels: float) -> tuple[float, ...]:
        """The relative defect over all lines of first order that told, at these levels between 0 and 1; where none was seen, the reading, which is noise."""
        told = sorted(state.relative for state in self.states if state.order == 1 and state.verdict not in ("unresolved", "outside"))
        return tuple(told[min(int(level * len(told)), len(told) - 1)] if told else math.nan for level in levels)

    # Words ------------------------------------------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        """The verdict with its number."""
        if self.verdict in (Verdict.COHERENT, Verdict.KINK, Verdict.JUMP):
            worst = f" ({_number(self.limit)} at the worst state)" if self.limit > 10 * self.typical_limit else ""
            return f"{self.verdict.value}, to {_number(self.typical_limit if worst else self.limit)} of the gradient{worst}"
        if self.verdict is Verdict.INCOHERENT and self.defect > 0:
            return f"{self.verdict.value}, by {_number(self.defect)} of the gradient (± {_number(self.defect_error)})"
        return self.verdict.value

    def __repr__(self) -> str:
        return f"Report({self.name!r}, {self.headline!r}, passed={self.passed})"

    def __str__(self) -> str:
        declared = f" [declared: {self.intent}]" if self.intent else ""
        lines = [f"{self.name}: {self.headline}{declared}", f"  {MEANING[self.verdict]}"]
        lines += [f"  - {finding}" for finding in self.findings]
        for argument, regions in self.regions.items():
            lines.append(f"  over {argument}:")
            for region in regions:
                seen = (
                    f"defect {_number(region.smallest)} to {_number(region.largest)}"
                    if region.verdict == "incoherent"
                    else f"limit {_number(region.limit)}"
                )
                lines.append(f"    {region.low:>12.6g} to {region.high:<12.6g} {region.verdict}, {seen}")
        if self.regions:
            median, most, largest = self.quantiles(0.5, 0.9, 1.0)
            lines.append(
                f"  relative defect over all lines: median {_number(median)}, 90 % below {_number(most)}, largest {_number(largest)}"
            )
        told = [state for state in self.states if state.verdict not in ("unresolved", "outside")]
        lines.append(
            f"  {len(told)} of {len(self.states)} lines told; {self.evaluations} calls, {self.seconds:.2g} s, {self.dtype}, seed {self.seed}; "
            f"false-alarm rate {self.false_alarm_rate:g} over {self.tests} tests"
        )
        return "\n".join(lines)

    def explain(self) -> str:
        """The report in plain words: what was asked, what was found, likely causes, what to do, what it cannot tell."""
        parts = [f"{self.name} is {self.headline}: {MEANING[self.verdict]}."]
        if self.intent:
            excused = (
                "and what was measured is what was declared, so the audit passes"
                if self.passed
                else "but what was measured is not only that"
            )
            parts.append(f"It is declared as {self.intent!r}, {excused}.")
        for finding in self.findings:
            text = f"{'' if not finding.where else finding.where + ': '}{finding.text}."
            if finding.severity == "alarm" and finding.causes:
                causes = "; ".join(f"({letter}) {cause}" for letter, cause in zip("abcdef", finding.causes, strict=False))
                text += f" Likely causes: {causes}. What to do: {finding.remedy}."
            parts.append(text)
        parts.append(self._method())
        return "\n\n".join(textwrap.fill(part, 100) for part in parts)

    def _method(self) -> str:
        return (
            "How it was found: the value along a segment must change by the integral of the supplied gradient, and the derivative at a point must be what "
            "differences of the value say. A defect is reported where both disagree with the backward, agree with each other, and exceed their noise, which "
            "is estimated from the same numbers. Under that noise model a coherent function is accused with a probability of at most "
            f"{self.false_alarm_rate:g} per audit ({self.tests} tests). What is smaller than the limit, or between the states looked at, is not seen."
        )

    # Data -------------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists; infinities and NaN as strings."""
        data = asdict(self)
        data["verdict"] = self.verdict.value
        data["schema"] = SCHEMA
        data["headline"] = self.headline
        data["quantiles"] = dict(zip(("0.1", "0.5", "0.9", "1"), self.quantiles(0.1, 0.5, 0.9, 1.0), strict=True))
        data["meaning"] = MEANING[self.verdict]
        for finding, entry in zip(self.findings, data["findings"], strict=True):
            entry["causes"], entry["remedy"] = list(finding.causes), finding.remedy
        return _plain(data)

    def to_json(self, path: str | FilePath | None = None, *, indent: int | None = 2) -> str:
        """The report as JSON (schema "pairgrad.audit/1"), and into a file if a path is given."""
        text = json.dumps(self.to_dict(), indent=indent, allow_nan=False)
        if path is not None:
            write_atomically(FilePath(path), text + "\n")
        return text


def passes(verdict: Verdict) -> bool:
    return verdict in PASSING


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "infinity"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)
