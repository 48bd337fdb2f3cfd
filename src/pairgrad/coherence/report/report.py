"""What an audit hands back: a verdict, its limit, findings, and the words to explain them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from pairgrad.coherence.causes.picture import FieldPicture
from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.verdict import MEANING, PASSING, Judgement, Verdict
from pairgrad.coherence.measure.scan import Region
from pairgrad.coherence.report.summary import glossary, number, summary
from pairgrad.ground.files import write_atomically
from pairgrad.ground.text import printable

SCHEMA = "pairgrad.audit/2"
METHOD = (
    "How it was found: at the inputs, the derivative must be what short differences of the value say. Along segments, the value must change by the "
    "integral of the supplied gradient; a defect is reported there where differences agree with it. Both must exceed their noise, which is estimated "
    "from the same numbers."
)
LIMITS = "What is smaller than the limit, nearer to the inputs than the distances stated, or between the states looked at is not seen."


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
    at: float | None = None  # the place of a scan, as a number


@dataclass(frozen=True)
class ArgumentGradient:
    """The gradient of one argument at the inputs, as supplied and as the value has it.

    Attributes:
        argument: its name.
        relative: |supplied - true| / |true|; infinite where the true gradient is zero.
        error: what that may be off by; it covers the choice of directions where not every coordinate was measured.
        factor: the number c for which c times the true gradient is nearest to the supplied one.
        index, supplied, true: the element that is off most, of those that were measured, and both gradients there.
        method: "coordinates" (each measured), "forward" (the body of the forward differentiated, confirmed along directions) or "directions".
    """

    argument: str
    relative: float
    error: float
    factor: float
    index: tuple[int, ...]
    supplied: float
    true: float
    method: str


@dataclass(frozen=True)
class Curve:
    """Work and energy along a segment through one state: how the value changes from the middle on, and what the supplied gradient adds up to.

    t is in units of the size of the argument, or the argument itself where a domain is scanned. A residual `value - work` that drifts by more than `allowance`
    is a defect.
    """

    state: str
    argument: str
    verdict: str
    t: tuple[float, ...]
    value: tuple[float, ...]
    work: tuple[float, ...]
    allowance: float


class SavedReport:
    """How reports are written to files and read again."""

    _schema: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def to_json(self, path: str | FilePath | None = None, *, indent: int | None = 2) -> str:
        """The report as JSON, with the name of its schema, and into a file if a path is given."""
        text = json.dumps(self.to_dict(), indent=indent, allow_nan=False)
        if path is not None:
            write_atomically(path, text + "\n")
        return text

    def to_html(self, path: str | FilePath) -> FilePath:
        """The report as one page to be read in a browser, without a network; returns the path. Needs the extra `pairgrad[html]`."""
        from pairgrad.coherence.report.page import render

        return write_atomically(path, render(self))  # pyright: ignore[reportArgumentType] (a Report or a RunReport)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The report that `to_dict` or a JSON file was made from."""
        found = data.get("schema") if isinstance(data, Mapping) else None
        if found != cls._schema:
            raise ValueError(f"data must be a report of schema {cls._schema!r}, as {cls.__name__}.to_dict makes it, got {found!r}")
        return restored(cls, data)


@dataclass(frozen=True, repr=False)
class Report(SavedReport):
    """The result of [`audit`][pairgrad.coherence.audit.audit].

    Attributes:
        name: of the callable.
        verdict: a [`Verdict`][pairgrad.coherence.Verdict]; compares equal to its string.
        passed: whether the verdict is coherent or kink, or what was measured is what was declared.
        intent: what was declared with [`intended`][pairgrad.intended], or None.
        limit: the smallest defect, over the size of the gradient, that would have been seen at every state where anything was resolved.
        typical_limit: the smallest that would have been seen at half of them.
        defect: |supplied - true| / |true| of the gradient, for the argument that is off most; 0 if no defect was seen, infinite where the true gradient is 0.
        defect_error: what that number may be off by; it covers the choice of directions.
        findings: everything found, gravest first.
        states: the readings behind them.
        regions: for a domain, {argument: regions}, with the verdict in each.
        false_alarm_rate: of the audit, under its noise model; tests: over how many tests.
        evaluations, seconds: what it cost.
        dtype, seed, effort: how it was made.
        complete: False if the audit was stopped (time was up, or the callable began to raise) before it had looked at everything that a verdict needs. Such a
            report does not pass.
        verdicts: every verdict, as a [`Judgement`][pairgrad.coherence.Judgement]; those that nothing excuses first, gravest first. `verdict` is the first.
        gradients: supplied and true gradient at the inputs, for each argument, as an [`ArgumentGradient`][pairgrad.coherence.ArgumentGradient]; empty if no
            defect was seen there.
        checks: what came of each check. "first order": "right", "wrong" or "not judged"; "second order": also "refused"; "re-entrant", "linear" and "layouts":
            "yes", "no" or "not judged". Where they were tried: "forward mode", "vmap", "no grad", "compiled" and "half precision", as for
            "second order".
        left_out: what was not looked at, and why.
        scales: the shortest and the longest distance from a state at which something was resolved, over the size of the argument; NaN if there is none.
        hint: a guess at the cause from simple ratios, in a sentence; empty if nothing fits. It is not part of the verdict.
        place: the custom backward that is at fault, with its file and line, if one is.
        cached: whether it was not made now, but found in a folder of results (`cache=` of an audit).
        curves: work and energy at the places that speak loudest.
        picture: the supplied field on a plane through the inputs, where the audit found a defect there.
    """

    _schema = SCHEMA

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
    complete: bool = True
    curves: tuple[Curve, ...] = ()
    picture: FieldPicture | None = None
    verdicts: tuple[Judgement, ...] = ()
    gradients: tuple[ArgumentGradient, ...] = ()
    checks: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    scales: tuple[float, float] = (math.nan, math.nan)
    hint: str = ""
    place: str = ""
    cached: bool = False

    def quantiles(self, *levels: float) -> tuple[float, ...]:
        """The relative defect along all resolved directions of first order, at these levels between 0 and 1; without a defect, a reading is noise."""
        told = sorted(
            state.relative for state in self.states if state.order == 1 and state.verdict not in ("unresolved", "outside", "flat")
        )
        return tuple(told[min(int(level * len(told)), len(told) - 1)] if told else math.nan for level in levels)

    def passes(self, allowed: Iterable[Verdict | str] = ()) -> bool:
        """Whether everything the audit came to passes, is accounted for by what was declared, or is among the verdicts allowed."""
        return all(judgement.passes or judgement.verdict in tuple(allowed) for judgement in self.verdicts)

    @property
    def meaning(self) -> str:
        """What the verdict means, in a sentence."""
        stopped = self.verdict is Verdict.INCONCLUSIVE and not self.complete
        return "the audit was stopped before it could tell" if stopped else MEANING[self.verdict]

    @property
    def headline(self) -> str:
        """The verdict with its number."""
        if self.verdict in (Verdict.COHERENT, Verdict.KINK, Verdict.JUMP):
            within = [finding for finding in self.findings if finding.kind in ("defect", "second-order") and finding.severity == "note"]
            if within:
                worst = max(within, key=lambda finding: finding.numbers["relative"]).numbers
                return f"{self.verdict.value} within the tolerance: off by {number(worst['relative'])} of the gradient (± {number(worst['error'])})"
            worst = f" ({number(self.limit)} at the worst state)" if self.limit > 10 * self.typical_limit else ""
            return f"{self.verdict.value}, to {number(self.typical_limit if worst else self.limit)} of the gradient{worst}"
        of = {
            Verdict.INCOHERENT: "the gradient",
            Verdict.SECOND_ORDER: "the second derivative",
            Verdict.TRANSFORMED: "the eager result",
        }.get(self.verdict)
        if self.defect > 0 and of is not None:
            if not math.isfinite(self.defect):
                return f"{self.verdict.value}: {of} is infinitely far off, or not zero where the true one is"
            return f"{self.verdict.value}, by {number(self.defect)} of {of} (± {number(self.defect_error)})"
        return self.verdict.value

    def __repr__(self) -> str:
        return f"Report({self.name!r}, {self.headline!r}, passed={self.passed})"

    @property
    def summary(self) -> str:
        """The first lines of the report: verdict and backward, what is wrong, the checks, the element that is off most, a hint."""
        return summary(self)

    def __str__(self) -> str:
        lines = [""]
        if not self.passed:
            lines.append(f"{self.name}: {self.headline}")
        lines.append(f"{self.meaning[:1].upper()}{self.meaning[1:]}.")
        if len(self.verdicts) > 1:
            lines.append(f"All verdicts: {'; '.join(map(_judged, self.verdicts))}")
        lines += [f"  - {finding}" for finding in self.findings]
        for argument, regions in self.regions.items():
            lines.append(f"  over {argument}:")
            for region in regions:
                seen = (
                    f"defect {number(region.smallest)} to {number(region.largest)}"
                    if region.verdict == "incoherent"
                    else f"limit {number(region.limit)}"
                )
                lines.append(f"    {region.low:>12.6g} to {region.high:<12.6g} {region.verdict}, {seen}")
        if self.regions:
            median, most, largest = self.quantiles(0.5, 0.9, 1.0)
            lines.append(
                f"  relative defect over all directions: median {number(median)}, 90 % below {number(most)}, largest {number(largest)}"
            )
        lines += [f"  not looked at: {what}" for what in self.left_out]
        resolved = sum(state.verdict not in ("unresolved", "outside", "flat") for state in self.states)
        lines.append(
            f"  {resolved} of {len(self.states)} directions resolved; {self.evaluations} calls in {self.seconds:.2g} s; {self.dtype}, seed {self.seed}; "
            f"false-alarm rate {self.false_alarm_rate:g} over {self.tests} tests{'; from the cache' if self.cached else ''}"
        )
        return "\n".join([self.summary, *map(printable, lines)])

    def explain(self) -> str:
        """The report in plain words: the first lines, what was found, likely causes, what to do, what it cannot tell, and what the words mean."""
        parts = [f"{self.name} is {self.headline}: {self.meaning}."]
        if self.intent:
            excused = (
                "and what was measured is what was declared, so the audit passes"
                if self.passed
                else "but what was measured is not only that"
            )
            parts.append(f"It is declared as {self.intent!r}, {excused}.")
        for finding in self.findings:
            text = f"{finding.where}: {finding.text}." if finding.where else f"{finding.text[:1].upper()}{finding.text[1:]}."
            if finding.severity == "alarm" and finding.causes:
                causes = "; ".join(f"({letter}) {cause}" for letter, cause in zip("abcdef", finding.causes, strict=False))
                text += f" Likely causes: {causes}. What to do: {finding.remedy}."
            parts.append(text)
        if self.left_out:
            parts.append(f"Not looked at: {'; '.join(self.left_out)}.")
        parts.append(self._method())
        first = "\n".join(textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False) for line in self.summary.splitlines())
        filled = [first, *(textwrap.fill(printable(part), 100) for part in parts), glossary(" ".join([self.summary, *parts]))]
        return printable("\n\n".join(filled), lines=True)  # lines begin elsewhere now

    def _method(self) -> str:
        rate = f"Under that noise model a coherent function is accused with a probability of at most {self.false_alarm_rate:g} per audit ({self.tests} tests)."
        return f"{METHOD} {rate} {LIMITS}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists, schema "pairgrad.audit/2"; infinities and NaN as strings."""
        data = asdict(self)
        data["verdict"] = self.verdict.value
        data["schema"] = SCHEMA
        data["headline"] = self.headline
        data["quantiles"] = dict(zip(("0.1", "0.5", "0.9", "1"), self.quantiles(0.1, 0.5, 0.9, 1.0), strict=True))
        data["meaning"] = self.meaning
        data["summary"] = self.summary.splitlines()
        for finding, entry in zip(self.findings, data["findings"], strict=True):
            entry["causes"], entry["remedy"] = list(finding.causes), finding.remedy
        return plain(data)


def restored(kind: Any, data: Any) -> Any:
    """Plain data as what the annotations of a dataclass say it was."""
    origin, inside = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{f.name: restored(hints[f.name], data[f.name]) for f in dataclasses.fields(kind) if f.name in data})  # type: ignore[operator]
    if origin in (Union, UnionType):
        return None if data is None else restored(next(option for option in inside if option is not NoneType), data)
    if origin is tuple:
        kinds = itertools.repeat(inside[0]) if inside[-1] is ... else inside
        return tuple(restored(k, item) for k, item in zip(kinds, data, strict=False))
    if origin is dict:
        return {key: restored(inside[1], item) for key, item in data.items()}
    if isinstance(data, str) and data in _NOT_FINITE and (kind is float or kind is Any):
        return _NOT_FINITE[data]
    if kind is Any:
        return data
    return kind(data)


_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # one NaN for all, so that restored reports compare equal


def _judged(judgement: Judgement) -> str:
    """A verdict with its number."""
    off = judgement.verdict not in PASSING and judgement.relative > 0
    size = f" by {number(judgement.relative)} (± {number(judgement.error, 1)})" if off else ""
    return f"{judgement.verdict.value}{size}{' as declared' if judgement.excused else ''}"


def plain(value: Any) -> Any:
    """Data that JSON can hold: keys as strings, tuples as lists, what is not finite as a string."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)
