"""The results as CSV files and as the page docs/benchmarks.md."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pairgrad
from benchmarks.contestants import (
    BACKWARD,
    COMPILED,
    CONTESTANTS,
    DIRECTIONS,
    DTYPES,
    EAGER,
    FORWARD,
    FUSED,
    LIBRARY,
    PRINTED,
    QUANTITIES,
    Setting,
)
from benchmarks.import_time import ImportTimes
from benchmarks.markdown import table
from benchmarks.timing import Samples

LABELS = {
    "paired": "paired",
    PRINTED: "AR/FR as printed",
    "arfr": "arfr",
    "scott": "scott",
    "log-bessel": "log-bessel",
    "original": "original",
    "consistent": "consistent (tangent)",
    "consistent-autograd": "consistent (autograd)",
    "log-miller": "log-miller",
    "scipy": "scipy.special.ive",
    "tfp-jax": "TensorFlow Probability, JAX",
}
_MODES = (EAGER, COMPILED, FUSED, LIBRARY)
_TITLES = {"slope": "Slope", "value": "Value", "difference": "Difference"}
_COLUMNS = (
    "contestant", "mode", "dtype", "dim", "quantity", "direction", "elements", "repeats",
    "ms_per_million_median", "ms_per_million_q1", "ms_per_million_q3", "ms_per_million_min",
    "ratio_to_compiled_AR", "nonfinite_share", "note",
)  # fmt: skip


@dataclass
class Row:
    """One cell of the tables: what was measured, or in `note` why nothing was."""

    setting: Setting
    elements: int = 0
    samples: Samples = field(default_factory=Samples)
    nonfinite: float = 0.0
    note: str = ""

    @property
    def measured(self) -> bool:
        return bool(self.samples.seconds)

    def per_million(self, seconds: float) -> float:
        """Milliseconds per 1e6 elements."""
        return seconds * 1e3 * (1e6 / self.elements)

    @property
    def median(self) -> float:
        return self.per_million(self.samples.median)


@dataclass
class Results:
    """Everything a run has measured so far."""

    elements: int
    dims: Sequence[int]
    dtypes: Sequence[str]
    command: str
    machine: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    imports: ImportTimes | None = None
    interrupted: bool = False

    def find(self, contestant: str, mode: str, dtype: str, dim: int, quantity: str = "slope", direction: str = FORWARD) -> Row | None:
        """The row of a setting if it was measured."""
        wanted = Setting(contestant, mode, dtype, dim, quantity, direction)
        return next((row for row in self.rows if row.setting == wanted and row.measured), None)

    def ratio(self, row: Row) -> float | None:
        """Time over that of the compiled forward A_R (eq. a2 as printed, default flags) of the same dtype and dimension."""
        reference = self.find(PRINTED, COMPILED, row.setting.dtype, row.setting.dim)
        return row.median / reference.median if reference and row.measured else None


@dataclass(frozen=True)
class Goal:
    """A number to be reached, and what was."""

    text: str
    limit: float
    at_least: bool
    reached: dict[str, float]

    def verdict(self) -> tuple[str, str]:
        """The worst of what was measured and where, and whether it is enough."""
        if not self.reached:
            return "", "not measured"
        worst_of = min if self.at_least else max
        place = worst_of(self.reached, key=self.reached.__getitem__)
        worst = self.reached[place]
        enough = worst >= self.limit if self.at_least else worst <= self.limit
        where = f" ({place})" if place else ""
        return f"{worst:.3g}×{where}", "reached" if enough else "not reached"


def goals(results: Results) -> list[Goal]:
    """The four goals; where a goal speaks of several dtypes or dimensions, the worst of them counts."""

    def quotients(top: tuple[str, str], bottom: tuple[str, str], dims: Iterable[int], dtypes: Iterable[str]) -> dict[str, float]:
        found = {}
        for dtype in dtypes:
            for dim in dims:
                above, below = results.find(*top, dtype, dim), results.find(*bottom, dtype, dim)
                if above and below:
                    found[f"{dtype}, p = {dim}"] = above.median / below.median
        return found

    large = [dim for dim in results.dims if dim >= 64]
    return [
        Goal(
            "compiled paired slope within 1.5× of compiled AR, p ≥ 64",
            1.5,
            False,
            quotients(("paired", COMPILED), (PRINTED, COMPILED), large, results.dtypes),
        ),
        Goal(
            "compiled paired slope at least 100× faster than the ratio of scipy's ive, float64, p = 512",
            100,
            True,
            quotients(("scipy", LIBRARY), ("paired", COMPILED), [512], ["float64"]),
        ),
        Goal(
            "eager paired slope within 4× of eager AR as printed",
            4,
            False,
            quotients(("paired", EAGER), (PRINTED, EAGER), results.dims, results.dtypes),
        ),
        Goal("import pairgrad within 1.15× of import torch", 1.15, False, {"": results.imports.ratio} if results.imports else {}),
    ]


def timings_csv(results: Results) -> str:
    lines: list[Sequence[object]] = [_COLUMNS]
    for row in results.rows:
        s = row.setting
        label = (s.contestant, s.mode, s.dtype, s.dim, s.quantity, s.direction)
        if not row.measured:
            lines.append((*label, "", 0, "", "", "", "", "", "", row.note))
            continue
        times = [f"{row.per_million(t):.5g}" for t in (row.samples.median, *row.samples.quartiles, min(row.samples.seconds))]
        ratio = results.ratio(row)
        ratio_text = "" if ratio is None else f"{ratio:.4g}"
        lines.append((*label, row.elements, len(row.samples.seconds), *times, ratio_text, f"{row.nonfinite:.4g}", row.note))
    return _csv(lines)


def imports_csv(times: ImportTimes) -> str:
    lines: list[Sequence[object]] = [("module", "repeats", "seconds_median", "seconds_q1", "seconds_q3")]
    for module, samples in times.samples.items():
        lines.append((module, len(samples.seconds), *(f"{t:.5g}" for t in (samples.median, *samples.quartiles))))
    return _csv(lines)


def _csv(lines: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()


def page(results: Results) -> str:
    """docs/benchmarks.md, whole."""
    parts = ["# Benchmarks", "This page is written by `python -m benchmarks.run`; edits are lost."]
    if results.interrupted:
        parts.append("The run was interrupted: what it had not reached is missing below.")
    parts += ["## Goals", _goals_table(results), _reading(), "## How it was measured", _method(results)]
    for dtype in results.dtypes:
        parts.append(f"## {dtype}")
        for quantity in QUANTITIES:
            for direction in DIRECTIONS:
                table = _timing_table(results, dtype, quantity, direction)
                if table:
                    parts += [f"### {_TITLES[quantity]}, {direction}, {dtype}", table]
    failures = _failures(results)
    if failures:
        parts += ["## Not measured", failures]
    return "\n\n".join(parts) + "\n"


def _goals_table(results: Results) -> str:
    rows = [(goal.text, *goal.verdict()) for goal in goals(results)]
    return table(("goal", "measured (worst case)", ""), rows, right=3)


def _reading() -> str:
    """Why a goal on the ratio to A_R can be missed: what the paired slope computes beyond it."""
    dims = (64, 512, 4096)
    terms = {name: [len(pairgrad.potential(dim).formulas(dtype).exact.tail) for dim in dims] for name, dtype in DTYPES.items()}
    counts = "; ".join(f"{name} {', '.join(map(str, terms[name]))}" for name in terms)
    return (
        "Beyond what A_R computes, a paired slope evaluates the polynomial that brings its error below rounding; its number of terms at p = "
        f"{', '.join(map(str, dims))}: {counts}. Without fused multiply-add every term is two dependent operations, so the ratio is largest where the"
        " polynomial is longest, and *compiled, FMA* is the fairer column. At p = 4 it also takes the order shift, where A_R is off by a factor of"
        " two for small x; eager torch pays for each of these operations with a pass over memory."
    )


def _method(results: Results) -> str:
    lines = [
        f"- **Command:** `{results.command}`. Every number, with its quartiles, is in `benchmarks/results/`.",
        *(f"- **{name}:** {value}" for name, value in results.machine.items()),
        f"- **Arguments:** {results.elements:,} elements, x/ν log-uniform in [0.01, 100], fixed seed, the same for all; differences are"
        " between x and x + 1.",
        "- **Timing:** all contestants of a dtype and dimension take turns, one call each per round, after warm-up calls that include"
        " compilation. Times are medians, in ms per 1,000,000 elements; in parentheses the ratio to *compiled AR*: eq. a2 as printed,"
        " forward, compiled with default flags, same dtype and dimension, measured in the same rounds.",
        f"- **Spread:** half of the cells have an interquartile range below {_typical_spread(results):.0%} of their median.",
        "- **Modes:** *eager* is torch as it is; *compiled* is `torch.compile(fullgraph=True)`; *compiled, FMA* also allows fused"
        ' multiply-add (`options={"cpp.enable_floating_point_contract_flag": "fast"}`); *library* is the peer\'s own code'
        " (TensorFlow Probability under `jax.jit`). *forward* runs without recording a graph; *forward+backward* includes the gradient.",
        "- **AR/FR as printed** is eqs. a2 and f2 in plain torch, differentiated by autograd, with differences by subtraction; `arfr` is"
        " the same pair in pairgrad, with a supplied derivative and a difference that does not cancel.",
        "- An asterisk marks calls that were timed on fewer elements because they are slow. The recurrences run one step after the other,"
        " so part of their time per element is overhead that a larger batch would share.",
        "- Calls that take more than a tenth of a second are timed three times, the others as often as the command says.",
        "- An empty cell was not part of this run: unless `--full` is given, combinations that are slow to compile are left out, and the"
        " recurrences in float32, which compute in float64 anyway. A dash marks what was tried and could not be measured; the reason is"
        " at the end of the page.",
    ]
    return "\n".join(lines)


def _typical_spread(results: Results) -> float:
    spreads = sorted(
        (third - first) / row.samples.median for row in results.rows if row.measured for first, third in [row.samples.quartiles]
    )
    return spreads[len(spreads) // 2] if spreads else 0.0


def _timing_table(results: Results, dtype: str, quantity: str, direction: str) -> str:
    cells = {
        (row.setting.contestant, row.setting.mode, row.setting.dim): row
        for row in results.rows
        if (row.setting.dtype, row.setting.quantity, row.setting.direction) == (dtype, quantity, direction)
    }
    lines = []
    for contestant in CONTESTANTS:
        for mode in _MODES:
            found = [cells.get((contestant, mode, dim)) for dim in results.dims]
            if any(found):
                lines.append((LABELS[contestant], mode, *(_cell(results, row) for row in found)))
    return table(("contestant", "mode", *(f"p = {dim}" for dim in results.dims)), lines, right=2) if lines else ""


def _cell(results: Results, row: Row | None) -> str:
    if row is None:
        return ""
    if not row.measured:
        return row.note if row.note == "not installed" else "–"
    star = r"\*" if row.elements < results.elements else ""
    ratio = results.ratio(row)
    share = f", {row.nonfinite:.0%} not finite" if row.nonfinite else ""
    return f"{_digits(row.median)}{star}" + (f" ({_digits(ratio)}×)" if ratio is not None else "") + share


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _failures(results: Results) -> str:
    """One line per contestant, mode and reason, with the places it concerns."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for row in results.rows:
        if row.note and not row.measured:
            s = row.setting
            what = f"{s.quantity}{' with backward' if s.direction == BACKWARD else ''}"
            places.setdefault((LABELS[s.contestant], s.mode, row.note), []).append(f"{what} {s.dtype} p={s.dim}")
    return "\n".join(f"- {label}, {mode}: {note} ({'; '.join(where)})" for (label, mode, note), where in places.items())
