"""Captured PATT states: how far scores and slopes are from exact ones, and the supplied slope from the derivative of its own value."""

from __future__ import annotations

from pairgrad_paper.records import Line, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import counted, frozen, near, others, stand_in, to_be_met
from pairgrad_paper.tables.published import Printed
from pairgrad_paper.tables.table import Cell, Column, Row, Table, compared, compared_columns

_TITLE = "Scores and slopes at captured states, against exact ones"
_CASES: tuple[tuple[str, str, str, Printed | None], ...] = (
    ("finite_score", "finite-potential score", "exact score", published.CAPTURED_FINITE_SCORE),
    ("arfr_score", "AR/FR score", "exact score", published.CAPTURED_ARFR_SCORE),
    ("paired_score", "paired score", "exact score", None),
    ("clipped_slope", "clipped slope", "exact Bessel ratio", published.CAPTURED_RATIO_ERROR),
    ("defect", "supplied slope", "derivative of the finite potential", published.CAPTURED_DEFECT),
)


def captured_audit(records: Records) -> Table:
    """The largest discrepancies over all captured views (tab:captured-audit)."""
    label = published.CAPTURED_DEFECT.label
    record = frozen(records, _TITLE, label)
    views, states = record.of("audit"), record.of("state")
    rows = tuple(_row(views, *case) for case in _CASES)
    slopes = {key: max(line[key] for line in views) for key in ("clipped_slope", "defect")}
    low, high = min(line["radius_low"] for line in states), max(line["radius_high"] for line in states)
    short, long = min(line["feature_norm_low"] for line in states), max(line["feature_norm_high"] for line in states)
    capped = sum(line["capped"] for line in states), sum(line["classes"] for line in states)
    return Table(
        name="captured-audit",
        title=_TITLE,
        caption=(
            f"Largest absolute discrepancies over {len(views)} captured views (the paper: {published.CAPTURED_VIEWS}), with the step and "
            "the view at which they occur, and the smallest of the views' own maxima."
        ),
        label=label,
        columns=(
            Column("comparison", "what"),
            Column("reference", "against"),
            *compared_columns("largest", "largest discrepancy", ".3e", printed="published"),
            Column("step", "at step", "d"),
            Column("view", "at view", "d"),
            Column("least", "smallest over the views", ".3e"),
        ),
        rows=rows,
        checks=(
            *to_be_met(
                record,
                counted(
                    "largest discrepancy of the two slopes within one percent of the published",
                    [near(slopes["clipped_slope"], published.CAPTURED_RATIO_ERROR), near(slopes["defect"], published.CAPTURED_DEFECT)],
                ),
            ),
            counted(
                "AR/FR scores closer to the exact ones than those of the finite potential",
                [line["arfr_score"] < line["finite_score"] for line in views],
            ),
        ),
        notes=(
            stand_in(record, "resnet18", "cifar100-lt"),
            f"In the captured views r/nu is from {low:.2f} to {high:.2f}, features have lengths from {short:.2f} to {long:.2f}, and "
            f"{capped[0]} of {capped[1]} class concentrations are at the cap. The slopes depend on r/nu alone; the error of a score is "
            "that of the slope over the way from kappa to r, so it grows with the length of the features. Scores are compared from the same "
            "squared radii in float64, so that the rounding of the geometry is not in them.",
            *others(records, record),
        ),
    )


def _row(views: list[Line], key: str, comparison: str, reference: str, printed: Printed | None) -> Row:
    worst = max(views, key=lambda line: line[key])
    beside: dict[str, Cell] = {f"largest{end}": None for end in ("_published", "_ratio", "_same_digits")} | {"largest": worst[key]}
    return {
        "comparison": comparison,
        "reference": reference,
        **(beside if printed is None else compared("largest", worst[key], printed)),
        "step": worst["step"],
        "view": worst["view"],
        "least": min(line[key] for line in views),
    }
