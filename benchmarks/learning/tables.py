"""The tables of the page, as Markdown, from the records alone."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.learning import growth
from benchmarks.learning.contestants import ALL, COMPILED, DENSE, EAGER, FACTORISED, FLOOR, ORIGINAL, PLAIN, RECORDED, TOUCHED
from benchmarks.learning.goals import MIB, goals
from benchmarks.learning.published import H100_MEBIBYTES, H100_MILLISECONDS
from benchmarks.learning.record import Row, Run, ratio
from benchmarks.markdown import table

LABELS = {
    FLOOR: "floor",
    ORIGINAL: "original recurrence, dense layout",
    RECORDED: "consistent recurrence (recorded), dense layout",
    "log-miller": "log-domain Miller, dense layout",
    DENSE: "AR/FR, dense layout",
    TOUCHED: "AR/FR, touched rows, expanded geometry",
    FACTORISED: "AR/FR, touched rows, factorised geometry, plain torch",
    EAGER[0]: "structure-aware, paired, eager",
    EAGER[1]: "structure-aware, AR/FR, eager",
    COMPILED[0]: "structure-aware, paired, compiled",
    COMPILED[1]: "structure-aware, AR/FR, compiled",
}
LADDER = (
    (ORIGINAL, "the original"),
    (DENSE, "evaluator: recurrence → AR/FR"),
    (TOUCHED, "statistics: dense assignment → touched rows"),
    (FACTORISED, "geometry: expanded → factorised, in plain torch"),
    (EAGER[1], "the library's step in place of plain torch"),
    (COMPILED[1], "compilation"),
)
_SHOWN = (*PLAIN, *EAGER, *COMPILED, FLOOR)


def digits(value: float | None, unit: str = "") -> str:
    """Three significant digits, without an exponent; nothing for None."""
    if value is None:
        return ""
    places = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{places}f}{unit}"


def goals_table(run: Run) -> str:
    return table(("goal", "measured (worst case)", ""), [(goal.text, *goal.verdict()) for goal in goals(run)], right=3)


def costs(run: Run, setting: str, *, published: bool) -> str:
    """One line per contestant; beside them, where `published`, the H100."""
    found = [row for name in _SHOWN if (row := run.find(setting, name)) is not None]
    columns: list[tuple[str, Sequence[str]]] = [
        ("", [LABELS[row.contestant] for row in found]),
        ("ms", [digits(1e3 * row.median) for row in found]),
        ("over the floor", [digits(ratio(row, run.find(row.setting, FLOOR)), "×") for row in found]),
        ("peak increment, MiB", [_mebibytes(row) for row in found]),
    ]
    if run.device == "cpu":
        columns.insert(2, ("of it in the kernel", [f"{row.system_share:.0%}" for row in found]))
    original = run.find(setting, ORIGINAL)
    if original is not None:
        columns.insert(-1, ("faster than original", [digits(ratio(original, row), "×") for row in found]))
        if run.device == "cpu":
            columns.insert(-1, ("the same, without the kernel", [digits(_user(original) / _user(row), "×") for row in found]))
    if published:
        headings = ("H100, ms", "H100, faster than original", "H100, peak increment, MiB")
        columns += zip(headings, zip(*map(_published, found), strict=True), strict=True)
    return table([heading for heading, _ in columns], zip(*(cells for _, cells in columns), strict=True), right=1)


def _user(row: Row) -> float:
    return row.median * (1 - row.system_share)


def _published(row: Row) -> list[str]:
    if row.contestant not in H100_MILLISECONDS.texts:
        return ["", "", ""]
    milliseconds = H100_MILLISECONDS[row.contestant]
    faster = float(H100_MILLISECONDS[ORIGINAL]) / float(milliseconds)
    return [milliseconds.text, digits(faster, "×"), H100_MEBIBYTES[row.contestant].text]


def _mebibytes(row: Row) -> str:
    return "" if row.peak is None else digits(row.peak / MIB)


def attribution(run: Run) -> str:
    """The original with its parts exchanged one after the other; factors to the line before."""
    lines: list[list[str]] = []
    before: Row | None = None
    for name, text in LADDER:
        row = run.find("paper", name)
        if row is None:
            continue
        smaller = before.peak / row.peak if before is not None and before.peak and row.peak else None
        faster, overall = ratio(before, row), ratio(run.find("paper", ORIGINAL), row)
        lines.append([text, digits(1e3 * row.median), digits(faster, "×"), digits(overall, "×"), _mebibytes(row), digits(smaller, "×")])
        before = row
    header = (
        "switched on",
        "ms",
        "faster than the line before",
        "than the original",
        "peak increment, MiB",
        "smaller than the line before",
    )
    return table(header, lines, right=1)


def exponents(run: Run) -> str:
    middle = growth.centre(quick=run.quick)
    lines = []
    for name in growth.CONTESTANTS:
        found = [growth.series(run.growth, middle, variable, name) for variable in growth.VARIABLES]
        if any(found):
            fitted = [s.time_exponent if s else None for s in found] + [s.peak_exponent if s else None for s in found]
            lines.append([LABELS[name], *("" if value is None else f"{value:.2f}" for value in fitted)])
    letters = growth.VARIABLES.values()
    header = ("", *(f"time in {letter}" for letter in letters), *(f"peak in {letter}" for letter in letters))
    return table(header, lines, right=1)


def not_measured(run: Run) -> str:
    """One line per contestant and reason, with the sizes it concerns."""
    places: dict[tuple[str, str], list[str]] = {}
    for row in (*run.rows, *run.growth):
        if row.note and not row.measured:
            places.setdefault((row.contestant, row.note), []).append(str(row.size))
    order = sorted(places, key=lambda place: ALL.index(place[0]))
    return "\n".join(f"- {LABELS[name]}: {note}; at {', '.join(dict.fromkeys(places[name, note]))}" for name, note in order)
