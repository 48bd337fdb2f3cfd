"""Figure regime-scaling: the clipped defect over concentrations, and what one factor per query leaves of the gradient's mismatch."""

from __future__ import annotations

from statistics import median
from typing import Any

from pairgrad_paper.figures import clipped_defect
from pairgrad_paper.figures.cumulative import cumulative
from pairgrad_paper.figures.style import BLUE, VERMILION, open_axes
from pairgrad_paper.records import Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import counted, frozen, others, short, stand_in
from pairgrad_paper.tables.table import Check, Column, Row, Table, number

_TITLE = "Where the defect is, and what rescaling leaves of it"
_LABEL = "fig:regime-scaling"
_QUERY = ("view", "index", "label", "before", "after", "scaling")
FLOOR = 1e-16


def read(records: Records) -> Table:
    """Panel (a), computed: the conditions of clipped-defect; panel (b), from the record of captured states: its queries."""
    record = frozen(records, _TITLE, _LABEL)
    queries, states = record.of("query"), record.of("state")
    conditions = clipped_defect.data()
    keys = tuple(column.key for column in conditions.columns)
    empty = dict.fromkeys((*keys, *_QUERY))
    rows: list[Row] = [{"panel": "a", **empty, **row} for row in conditions.rows]
    rows += [{"panel": "b", **empty, **{key: line[key] for key in _QUERY}} for line in queries]
    before, after = (median(line[key] for line in queries) for key in ("before", "after"))
    low, high = min(line["radius_low"] for line in states), max(line["radius_high"] for line in states)
    return Table(
        name="regime-scaling",
        title=_TITLE,
        caption=(
            f"(a) Absolute clipped defect at M = 2 nu over {len(conditions.rows)} conditions, its asymptote (nu + 3/2)/x dashed, the onset "
            "of the clip dotted, the paper's captured radii grey, values below 1e-16 hollow on that floor, as in the paper. (b) Cumulative distributions "
            f"over {len(queries)} captured PATT queries ({short(record)}), full feature gradients in float64: |supplied - consistent| / |consistent| before, "
            "and |supplied - c consistent| / |supplied| after the best factor c of each query. In the paper the discrepancy is mainly one of "
            f"length; ours has median {before:.3e} before and {after:.1e} after."
        ),
        label=_LABEL,
        columns=(
            Column("panel", "panel"),
            *conditions.columns,
            Column("view", "view", "d"),
            Column("index", "index", "d"),
            Column("label", "label", "d"),
            Column("before", "before", ".4e"),
            Column("after", "after", ".2e"),
            Column("scaling", "best factor", ".8f"),
        ),
        rows=tuple(rows),
        checks=(
            Check(f"{len(queries)} queries, as in the paper", len(queries) == published.SCALED_QUERIES),
            counted("the best factor leaves less than a tenth of the mismatch", [q["after"] < 0.1 * q["before"] for q in queries]),
        ),
        notes=(
            stand_in(record, "resnet18") + f" Its captured radii: r/nu from {low:.2f} to {high:.2f}.",
            *conditions.notes,
            *others(records, record),
        ),
    )


def draw(plt: Any, table: Table) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.8), width_ratios=(1.15, 1))
    clipped_defect.draw_into(left, [row for row in table.rows if row["panel"] == "a"])
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    left.set_title("(a) The clipped defect over concentrations")
    _queries(right, [row for row in table.rows if row["panel"] == "b"])
    open_axes(left, right)
    figure.tight_layout()
    return figure


def _queries(axes: Any, queries: list[Row]) -> None:
    for key, colour, style, label in (
        ("before", VERMILION, "-", "as supplied"),
        ("after", BLUE, "--", "after the best factor of each query"),
    ):
        values = [max(number(row, key), FLOOR) for row in queries]
        axes.plot(
            *cumulative(values), color=colour, ls=style, lw=1.8, drawstyle="steps-post", label=f"{label}, median {median(values):.1e}"
        )
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set(
        xlabel="relative difference of the feature gradients",
        ylabel="share of queries at or below",
        title=f"(b) {len(queries)} captured queries, before and after rescaling",
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))
