"""Every published number beside ours: whether they are equal in all digits, equal in size, or differ and why, or what it takes to have ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pairgrad_paper.tables import published
from pairgrad_paper.tables.paper_items import item_of
from pairgrad_paper.tables.published import SETUP, TEXT, Printed, PrintedColumn
from pairgrad_paper.tables.table import Cell, Column, Row, Table

DIGITS, SIZE, DIFFERS, NOT_RUN = VERDICTS = ("equal in all digits", "equal in size", "differs", "not run")
NEAR = 0.1  # of the published number: as far as ours may be from it to be equal in size
NOT_KNOWN = "not known"
Rows = Sequence[Row]


@dataclass(frozen=True)
class _Ours:
    """Where ours of a published column is found.

    Attributes:
        printed: the column, or the one number.
        table: the table or figure of the catalogue.
        value: takes its rows and the key of the published row; None where there is none.
        why: ours differs, where it does.
        needs: what it takes to have ours, where there is none.
    """

    printed: PrintedColumn[Any] | Printed
    table: str
    value: Callable[[Rows, Any], float | None]
    why: str = NOT_KNOWN
    needs: str = ""

    def pairs(self, rows: Rows) -> Iterable[tuple[Printed, float | None]]:
        if isinstance(self.printed, Printed):
            yield self.printed, self.value(rows, None) if rows else None
            return
        for key in self.printed:
            yield self.printed[key], self.value(rows, key) if rows else None


def _cell(rows: Rows, key: str, **where: Any) -> float | None:
    """The number of the first row that has these cells."""
    found = next((row[key] for row in rows if all(row[name] == value for name, value in where.items())), None)
    return float(found) if isinstance(found, (int, float)) else None


def _by(key: str, row: str) -> Callable[[Rows, Any], float | None]:
    """A column, by the column that has the published key."""
    return lambda rows, wanted: _cell(rows, key, **{row: wanted})


def _one(key: str, **where: Any) -> Callable[[Rows, Any], float | None]:
    """One cell."""
    return lambda rows, _: _cell(rows, key, **where)


def _last_state(key: str) -> Callable[[Rows, Any], float | None]:
    """A column by view, at the last captured state."""
    return lambda rows, view: _cell(rows, key, step=max(_known(rows, "step")), view=view)


def _known(rows: Rows, key: str) -> list[float]:
    return [float(cell) for row in rows if isinstance(cell := row[key], (int, float))]


def _task(end: str) -> Callable[[Rows, Any], float | None]:
    headings = {"accuracy": "accuracy", "auroc": "AUROC", "fpr95": "FPR95"}
    return lambda rows, key: _cell(rows, f"{key[2]}_{end}", recipe=key[0], metric=headings[key[1]])


def _quotient(key: str, above: str, below: str) -> Callable[[Rows, Any], float | None]:
    def value(rows: Rows, _: Any) -> float | None:
        first, second = (_cell(rows, key, method=method) for method in (above, below))
        return first / second if first is not None and second else None

    return value


_STATE = "another state than the paper's, whose captured features are not public; what was run here is on the page of our table"
_SCORES = f"{_STATE}. The error of a score grows with the length of the features, which the paper does not print; how much of it that explains is not known"
_BATCH = f"{_STATE}. The largest coordinate depends on the features and on the size of the batch"
_SINGLETONS = "another run, whose data the page of our table names: the share is close to that of the classes with one sample, which depends on the data"
_CAPTURED = "a record of captured states, as `pairgrad frozen` makes it"
_VISITED = "a record of a ProCo run, as `pairgrad states` makes it"
_TRAINING = "GPUs: for CIFAR nine runs of 100 epochs of ResNet18 for each imbalance factor, for ImageNet-LT three runs of ResNet50"
_H100 = "an H100; our times on a CPU are in `h100-local`"
_OTHER_GPU = "other hardware or another version of torch; which of them matters is not known"
_RUNS = "other runs: what they say of their data is on the page of our table, and seeds vary as the deviations say"
_CUSF = "the package CUSF, which is not a dependency here; `log-bessel` on the same page combines two logarithms in float64 as it does"
_DENSE, _STRUCTURED, _ORIGINAL = "AR/FR", "Structure-aware AR/FR", "Original recurrence"

_OURS: tuple[_Ours, ...] = (
    _Ours(published.SUMMARY_MEAN, "task-summary", _task("mean"), _RUNS, _TRAINING),
    _Ours(published.SUMMARY_DEVIATION, "task-summary", _task("deviation"), _RUNS, _TRAINING),
    _Ours(published.FITTED_SLOPE, "constants", _one("value", quantity="slope of the largest AR/FR error, log-log, against p")),
    _Ours(
        published.PROCO_FIRST_BATCH,
        "proco-states",
        lambda rows, _: _percent(_cell(rows, "above", when="first batch", what="queries")),
        _SINGLETONS,
        _VISITED,
    ),
    _Ours(
        published.TWO_CLASS_RAW_RATIO, "constants", lambda rows, kappa: _cell(rows, "value", quantity=f"two classes: raw ratio at {kappa}")
    ),
    _Ours(published.TWO_CLASS_DERIVATIVE, "constants", lambda rows, kappa: _cell(rows, "value", quantity=f"two classes: F' at {kappa}")),
    _Ours(published.TWO_CLASS_ANTISYMMETRY, "constants", _one("value", quantity="two classes: antisymmetry J12 - J21")),
    *(
        _Ours(column, "backward-counterfactual", _last_state(key), why, _CAPTURED)
        for column, key, why in (
            (published.COUNTERFACTUAL_SCORE, "score", _STATE),
            (published.COUNTERFACTUAL_LOSS, "loss", _STATE),
            (published.COUNTERFACTUAL_DEFECTS, "defect", _STATE),
            (published.COUNTERFACTUAL_RELATIVE, "relative", _STATE),
            (published.COUNTERFACTUAL_LARGEST, "largest", _BATCH),
        )
    ),
    _Ours(published.PARITY_RAW, "parity", _by("raw", "nu")),
    _Ours(published.PARITY_SCALED, "parity", _by("scaled", "nu")),
    _Ours(published.PARITY_LIMIT, "parity", _by("limit", "nu")),
    _Ours(published.PARITY_ERROR, "parity", _by("relative_error", "nu")),
    *(
        _Ours(printed, "captured-audit", _one("largest", comparison=comparison), why, _CAPTURED)
        for printed, comparison, why in (
            (published.CAPTURED_FINITE_SCORE, "finite-potential score", _SCORES),
            (published.CAPTURED_ARFR_SCORE, "AR/FR score", _SCORES),
            (published.CAPTURED_RATIO_ERROR, "clipped slope", _STATE),
            (published.CAPTURED_DEFECT, "supplied slope", _STATE),
        )
    ),
    _Ours(published.RATIO_CUSF, "ratio-fidelity", lambda *_: None, needs=_CUSF),
    _Ours(published.RATIO_ARFR, "ratio-fidelity", _by("arfr_error", "dim")),
    _Ours(published.RATIO_CERTIFICATE, "ratio-fidelity", _by("certificate", "dim")),
    _Ours(published.DIFFERENCE_LOG_MILLER, "difference-fidelity", _by("log_miller_exact_error", "dim")),
    _Ours(published.DIFFERENCE_CUSF, "difference-fidelity", lambda *_: None, needs=_CUSF),
    _Ours(published.DIFFERENCE_ARFR, "difference-fidelity", _by("arfr_error", "dim")),
    _Ours(published.CLASS_COUNT_SCORE, "class-count", _one("score_bound")),
    _Ours(published.CLASS_COUNT_LOSS, "class-count", _one("loss_bound")),
    _Ours(published.FIELD_MISMATCH, "patt-measured-field", lambda rows, _: 100 * median(_known(rows, "mismatch")), _STATE, _CAPTURED),
    _Ours(published.H100_MILLISECONDS, "h100-local", _by("gpu_ms", "method"), _OTHER_GPU, _H100),
    _Ours(published.H100_MEBIBYTES, "h100-local", _by("gpu_mib", "method"), _OTHER_GPU, _H100),
    _Ours(published.H100_EVALUATOR, "h100-local", _one("gpu_faster", method=_DENSE), _OTHER_GPU, _H100),
    _Ours(published.H100_EXECUTION, "h100-local", _quotient("gpu_ms", _DENSE, _STRUCTURED), _OTHER_GPU, _H100),
    _Ours(published.H100_BOTH, "h100-local", _one("gpu_faster", method=_STRUCTURED), _OTHER_GPU, _H100),
    _Ours(published.H100_MEMORY, "h100-local", _quotient("gpu_mib", _ORIGINAL, _STRUCTURED), _OTHER_GPU, _H100),
    _Ours(published.TASK_MEAN, "task-complete", _task("mean"), _RUNS, _TRAINING),
    _Ours(published.TASK_DEVIATION, "task-complete", _task("deviation"), _RUNS, _TRAINING),
)
SOURCES = tuple(dict.fromkeys(ours.table for ours in _OURS))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def verdict(printed: Printed, ours: float | None) -> str:
    """What ours says of the published number.

    Examples:
        >>> verdict(Printed("2.74e-06", ""), 2.7399e-6), verdict(Printed("2.74e-06", ""), 2.9e-6), verdict(Printed("0", ""), 1e-9)
        ('equal in all digits', 'equal in size', 'differs')
    """
    if ours is None:
        return NOT_RUN
    if printed.same_digits(ours):
        return DIGITS
    return SIZE if abs(ours - float(printed)) <= NEAR * abs(float(printed)) else DIFFERS


def numbers(tables: Mapping[str, Rows]) -> Table:
    """Every number; `tables` are the rows of `SOURCES` by name, those that could be made."""
    rows = tuple(_row(ours, printed, value) for ours in _OURS for printed, value in ours.pairs(tables.get(ours.table, ())))
    return Table(
        name="numbers",
        title="Every published number",
        caption=(
            f"{sentence(rows)} Equal in size: within {100 * NEAR:.0f} % of the published number. These are the numbers of the paper's tables and captions that "
            f"are results, and the {sum(row['place'] == TEXT for row in rows)} that its text states beside them. "
            f"{sum(setup.count for setup in SETUP)} further numbers of its tables and captions say what was run. tab:task-complete prints the numbers of "
            "tab:task-summary again. Ours in tab:backward-counterfactual are of the last captured state, in tab:captured-audit the largest over all of them."
        ),
        label="",
        columns=(
            Column("label", "in the paper"),
            Column("place", "place", shown=False),
            Column("row", "row"),
            Column("column", "column"),
            Column("published", "published"),
            Column("ours", "ours", ".4g"),
            Column("ratio", "ours / published", ".4f"),
            Column("verdict", "verdict"),
            Column("why", "why, or what it needs", shown=False),
            Column("table", "our table"),
        ),
        rows=rows,
        parts=(_counted(rows), differing(rows), _not_run(rows)),
    )


def _row(ours: _Ours, printed: Printed, value: float | None) -> Row:
    found = verdict(printed, value)
    return {
        "label": printed.label,
        "place": printed.place,
        "row": printed.row,
        "column": printed.column,
        "published": printed.text,
        "ours": value,
        "ratio": value / float(printed) if value is not None and float(printed) else None,
        "verdict": found,
        "why": {DIFFERS: ours.why, NOT_RUN: ours.needs}.get(found),
        "table": ours.table,
    }


def counts(rows: Iterable[Row]) -> dict[str, int]:
    """How many of each verdict."""
    found = Counter(str(row["verdict"]) for row in rows)
    return {each: found[each] for each in VERDICTS}


def sentence(rows: Rows) -> str:
    """All of them in one sentence."""
    return f"{len(rows)} published number{'s' * (len(rows) != 1)}: {in_words(rows)}."


def in_words(rows: Rows, of_all: bool = False) -> str:
    """The counts that are not zero, in words; `of_all` says of how many they are.

    Examples:
        >>> rows = [{"verdict": "differs"}, {"verdict": "equal in size"}, {"verdict": "not run"}, {"verdict": "differs"}]
        >>> in_words(rows), in_words(rows, of_all=True)
        ('1 equal in size, 2 differ, 1 not run', '1 of 4 equal in size, 2 differ, 1 not run')
    """
    first, *others = [f"{count} {'differ' if each == DIFFERS and count > 1 else each}" for each, count in counts(rows).items() if count]
    return ", ".join([first.replace(" ", f" of {len(rows)} ", 1) if of_all else first, *others])


def _counted(rows: Rows) -> Table:
    """A row for each table, figure and section of the paper."""
    places = list(dict.fromkeys((str(row["label"]), str(row["place"])) for row in rows))
    found = [(label, place, [row for row in rows if (row["label"], row["place"]) == (label, place)]) for label, place in places]
    return Table(
        name="numbers-counted",
        title="By table",
        caption="",
        label="",
        columns=(Column("label", "in the paper"), Column("place", "place"), Column("table", "our table"), *_counts_columns()),
        rows=(
            *(
                {
                    "label": label,
                    "place": place,
                    "table": ", ".join(dict.fromkeys(str(row["table"]) for row in each)),
                    **_counts_cells(each),
                }
                for label, place, each in found
            ),
            {"label": "all", "place": "", "table": "", **_counts_cells(rows)},
        ),
    )


def _counts_columns() -> tuple[Column, ...]:
    return (Column("numbers", "numbers", "d"), *(Column(each, each, "d") for each in VERDICTS))


def _counts_cells(rows: Rows) -> dict[str, Cell]:
    return {"numbers": len(rows), **counts(rows)}


def differing(rows: Rows) -> Table:
    """The numbers that differ, with the reason."""
    kept = ("label", "row", "column", "published", "ours", "ratio", "why")
    return Table(
        name="numbers-differing",
        title="What differs, and why",
        caption="",
        label="",
        columns=(
            Column("label", "in the paper"),
            Column("row", "row"),
            Column("column", "column"),
            Column("published", "published"),
            Column("ours", "ours", ".3g"),
            Column("ratio", "ours / published", ".4f"),
            Column("why", "why"),
        ),
        rows=tuple({key: row[key] for key in kept} for row in rows if row["verdict"] == DIFFERS),
    )


def _not_run(rows: Rows) -> Table:
    """What it takes to have ours of the others."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["verdict"] == NOT_RUN:
            found.setdefault((str(row["label"]), str(row["why"])), []).append(row)
    return Table(
        name="numbers-not-run",
        title="What was not run, and what it needs",
        caption="",
        label="",
        columns=(Column("label", "in the paper"), Column("numbers", "numbers", "d"), Column("needs", "needs")),
        rows=tuple({"label": label, "numbers": len(each), "needs": needs} for (label, needs), each in found.items()),
    )


def beside(rows: Rows, name: str) -> list[Row]:
    """The numbers that an item of the catalogue stands beside: those that it is compared with, else those of its table or figure of the paper."""
    own = [row for row in rows if row["table"] == name]
    item = item_of(name)
    return own or [row for row in rows if item is not None and item.name == name and row["label"] == item.label]
