"""The report of a sweep: a table of configurations, those that fail first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.report.page import Entry, contents
from pairgrad.coherence.report.report import Report, SavedReport, plain
from pairgrad.ground.files import write_atomically
from pairgrad.ground.text import printable

_LISTED = 12  # rows of the table of each kind that does not fail
_FAILS, _OPEN, _PASSES, _REFUSED = "fails", "undecided", "passes", "refused"
_ORDER = (_FAILS, _OPEN, _PASSES, _REFUSED)
_PLURAL = {_FAILS: "fail", _OPEN: "undecided", _PASSES: "pass", _REFUSED: "refused"}
_CONDITIONS = 3  # in a rule


@dataclass(frozen=True)
class SweepRow:
    """One configuration and what came of it.

    Attributes:
        configuration: its values in words, by name.
        changed: how many of them are not the first of their list.
        elements: how many numbers its arguments hold.
        result: "fails", "undecided", "passes", or "refused" where the function raises for it before there is a gradient.
        text: the verdict with its number, or the error.
        report: of the audit, if there was one.
        seconds: what it took.
    """

    configuration: dict[str, str]
    changed: int
    elements: int
    result: str
    text: str
    report: Report | None
    seconds: float

    @property
    def name(self) -> str:
        """The configuration in one line."""
        return ", ".join(f"{name}={value}" for name, value in self.configuration.items())

    @property
    def size(self) -> tuple[int, int, int]:
        """What the table is sorted by: what fails first, then the fewest changed values, then the fewest elements."""
        return _ORDER.index(self.result), self.changed, self.elements


@dataclass(frozen=True, repr=False)
class SweepReport(SavedReport):
    """The result of [`sweep`][pairgrad.coherence.sweep.sweep].

    Attributes:
        name: of the callable.
        rows: a [`SweepRow`][pairgrad.coherence.SweepRow] for each configuration that was audited: the smallest failing one first, then those that could not
            be decided, those that pass, and those that the function refuses.
        not_reached: the first configurations for which no time was left; count: of all of them.
        total: how many configurations there are.
        seconds: what the sweep took.
    """

    _schema: ClassVar[str] = "pairgrad.sweep/1"

    name: str
    rows: tuple[SweepRow, ...]
    not_reached: tuple[str, ...] = ()
    total: int = 0
    seconds: float = 0.0
    factors: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every configuration that was reached passes or is refused, and at least one passes."""
        results = {row.result for row in self.rows}
        return _PASSES in results and not results & {_FAILS, _OPEN}

    @property
    def complete(self) -> bool:
        """Whether every configuration was reached."""
        return len(self.rows) == self.total

    @property
    def failing(self) -> tuple[SweepRow, ...]:
        """The configurations that fail, the smallest first."""
        return tuple(row for row in self.rows if row.result == _FAILS)

    @property
    def rule(self) -> str:
        """What the failing configurations, and no others, have in common, in a sentence; empty if a few values do not say it."""
        left = [row.configuration for row in self.rows if row.result == _FAILS]
        good = [row.configuration for row in self.rows if row.result == _PASSES]
        varied = [[(name, value) for value in values] for name, values in self.factors.items() if len(values) > 1]
        said = []
        for count in (1, 2):
            for condition in (c for names in itertools.combinations(varied, count) for c in itertools.product(*names)):
                holds = [all(row[name] == value for name, value in condition) for row in left]
                if any(holds) and not any(all(row[name] == value for name, value in condition) for row in good):
                    said.append(" and ".join(f"{name} is {value}" for name, value in condition))
                    left = [row for row, held in zip(left, holds, strict=True) if not held]
        return f"it fails exactly where {', or '.join(said)}" if good and said and not left and len(said) <= _CONDITIONS else ""

    @property
    def headline(self) -> str:
        """How many configurations fail, of how many."""
        counts = {result: sum(row.result == result for row in self.rows) for result in _ORDER}
        said = ", ".join(f"{count} {_PLURAL[result] if count > 1 else result}" for result, count in counts.items() if count)
        reached = (
            f" of {self.total} configurations" if self.complete else f" of {len(self.rows)} configurations reached, {self.total} in all"
        )
        return f"{said or 'none looked at'}{reached}"

    def __repr__(self) -> str:
        return f"SweepReport({self.name!r}, {self.headline!r}, passed={self.passed})"

    def __str__(self) -> str:
        lines = [f"{'PASS' if self.passed else 'FAIL' if self.failing else 'UNDECIDED'} {self.name}: {self.headline}"]
        if self.rule:
            lines.append(f"{self.rule[:1].upper()}{self.rule[1:]}.")
        lines += ["", *_table(self._shown())]
        hidden = len(self.rows) - len(self._shown())
        lines += [f"  and {hidden} more that pass or are refused"] if hidden else []
        count = self.total - len(self.rows)
        if count:
            more = ", ..." if count > len(self.not_reached) else ""
            lines.append(f"  not reached, because time was up ({self.seconds:.3g} s): {count}: {'; '.join(self.not_reached)}{more}")
        worst = self.rows[0] if self.rows else None
        if worst is not None and worst.result in (_FAILS, _OPEN) and worst.report is not None:
            lines += [
                "",
                f"The smallest one that {'fails' if worst.result == _FAILS else 'is undecided'}, {worst.name}:",
                *worst.report.summary.split("\n"),
            ]
        return "\n".join(map(printable, lines))

    def _shown(self) -> list[SweepRow]:
        return [row for result in _ORDER for row in [r for r in self.rows if r.result == result][: None if result == _FAILS else _LISTED]]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists, schema "pairgrad.sweep/1"."""
        rows = [asdict(row) | {"report": None if row.report is None else row.report.to_dict()} for row in self.rows]
        extra = {"schema": self._schema, "headline": self.headline, "passed": self.passed, "complete": self.complete, "rule": self.rule}
        return plain(asdict(self) | {"rows": rows} | extra)

    def to_html(self, path: str | Path) -> Path:
        """A folder with a page for each audit, and `index.html`, which leads to them and names what has none. Needs the extra `pairgrad[html]`."""
        folder, entries = Path(path), []
        for number, row in enumerate(self.rows):
            if row.report is not None:
                file = row.report.to_html(folder / f"{number}.html")
                entries.append(Entry(file.name, row.name, row.report.verdict.value, row.result == _PASSES, row.text))
        raising = [f"{row.name}: {row.result}, {row.text}" for row in self.rows if row.report is None]
        head = "; ".join(part for part in (self.headline, self.rule, *raising) if part)
        return write_atomically(folder / "index.html", contents(f"Sweep of {self.name}", head, entries))


def row_of(
    configuration: dict[str, str], changed: int, inputs_elements: int, outcome: Report | str, *, refused: bool, seconds: float
) -> SweepRow:
    """The row of a report, or of the sentence for an error."""
    if isinstance(outcome, str):
        return SweepRow(configuration, changed, inputs_elements, _REFUSED if refused else _FAILS, outcome, None, seconds)
    result = _PASSES if outcome.passed else _OPEN if outcome.verdict is Verdict.INCONCLUSIVE else _FAILS
    return SweepRow(configuration, changed, inputs_elements, result, outcome.headline, outcome, seconds)


def _table(rows: Sequence[SweepRow]) -> list[str]:
    """Aligned columns: the values, then what came of them."""
    names = list(rows[0].configuration) if rows else []
    cells = [[*names, "result", "what was seen"], *([*row.configuration.values(), row.result, row.text] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]) - 1)] if rows else []
    return ["  " + "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in cells]
