"""Captured PATT states: what changes when only the backward rule does, and in which precision and geometry."""

from __future__ import annotations

from pairgrad_paper.records import Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import counted, frozen, near, others, stand_in, to_be_met
from pairgrad_paper.tables.table import Check, Column, Row, Table, compared, compared_columns, number

_CHANGED = "Only the backward rule changed, at captured states: same scores, same losses, other gradients"
_CROSSED = "The mismatch at a captured state, in both precisions and both geometries"


def backward_counterfactual(records: Records) -> Table:
    """`"original"` against `"consistent"` on both contrastive views of every captured state (tab:backward-counterfactual)."""
    label = published.COUNTERFACTUAL_RELATIVE.label
    record = frozen(records, _CHANGED, label)
    at = {(line["step"], line["view"]): line for line in record.of("state")}
    rows: list[Row] = []
    for line in record.of("counterfactual"):
        view, state = line["view"], at[line["step"], line["view"]]
        rows.append(
            {
                "step": line["step"],
                "view": view,
                "score": line["score"],
                "loss": line["loss"],
                "mean_loss": line["mean_loss"],
                **compared("defect", line["defect"], published.COUNTERFACTUAL_DEFECTS[view]),
                **compared("relative", line["relative"], published.COUNTERFACTUAL_RELATIVE[view]),
                **compared("largest", line["largest"], published.COUNTERFACTUAL_LARGEST[view]),
                "capped": state["capped"],
                "classes": state["classes"],
                "radius_low": state["radius_low"],
                "radius_high": state["radius_high"],
            }
        )
    low, high = published.CAPTURED_RANGE
    return Table(
        name="backward-counterfactual",
        title=_CHANGED,
        caption=(
            'Largest differences between "original" and "consistent" at the same captured features, labels and class states: of the '
            "scores, of the mean loss, and of the feature gradient of the mean loss (length of the difference over length of the "
            "consistent gradient, and largest coordinate). Defect: largest |supplied slope - derivative|. Views 2 and 3 are the augmented "
            "views of the vMF term; a step is the number of updates before the capture."
        ),
        label=label,
        columns=(
            Column("step", "step", "d"),
            Column("view", "view", "d"),
            Column("score", "max score difference", ".1e"),
            Column("loss", "loss difference", ".1e"),
            Column("mean_loss", "mean loss", ".4f", shown=False),
            *compared_columns("defect", "max defect", ".3e", printed="published"),
            *compared_columns("relative", "gradient, relative", ".3e", printed="published"),
            *compared_columns("largest", "gradient, max", ".2e", printed="published"),
            Column("capped", "classes at the cap", "d"),
            Column("classes", "classes", "d", shown=False),
            Column("radius_low", "smallest r/nu", ".2f"),
            Column("radius_high", "largest r/nu", ".2f"),
        ),
        rows=tuple(rows),
        checks=(
            counted("scores and losses equal in every bit, as in the paper,", [row["score"] == 0 == row["loss"] for row in rows]),
            *to_be_met(
                record,
                counted(
                    "largest defect within one percent of the published",
                    [near(number(row, "defect"), published.COUNTERFACTUAL_DEFECTS[int(number(row, "view"))]) for row in rows],
                ),
                counted(
                    "relative change of the gradient within one percent of the published",
                    [near(number(row, "relative"), published.COUNTERFACTUAL_RELATIVE[int(number(row, "view"))]) for row in rows],
                ),
            ),
        ),
        notes=(
            stand_in(record, "resnet18", "cifar100-lt") + f" Captured batches of {record.facts['batch_size']}.",
            f"The paper prints r/nu from {low} to {high} for one of its states; ours depend on the length of the features. The largest "
            "coordinate of the gradient depends on the features and on the size of the batch too.",
            *others(records, record),
        ),
    )


def precision_geometry(records: Records) -> Table:
    """`"original"` against `"consistent"` on one captured view, in both precisions and both geometries."""
    label = "app:mechanism-protocol"
    record = frozen(records, _CROSSED, label)
    keys = ("precision", "geometry", "step", "view", "score", "loss", "relative", "largest")
    rows = tuple({key: line[key] for key in keys} for line in record.of("cross"))
    cells = {(row["precision"], row["geometry"]) for row in rows}
    relative = [number(row, "relative") for row in rows]
    return Table(
        name="precision-geometry",
        title=_CROSSED,
        caption=(
            'Differences between "original" and "consistent" on the same captured view, with radii in float32 or float64, through the '
            "expanded (batch, classes, dim) tensor or from one matrix product: largest score, mean loss, feature gradient of the mean "
            "loss (relative to the consistent one, and largest coordinate)."
        ),
        label=label,
        columns=(
            Column("precision", "precision"),
            Column("geometry", "geometry"),
            Column("step", "step", "d"),
            Column("view", "view", "d"),
            Column("score", "max score difference", ".1e"),
            Column("loss", "loss difference", ".1e"),
            Column("relative", "gradient, relative", ".4e"),
            Column("largest", "gradient, max", ".3e"),
        ),
        rows=rows,
        checks=(
            Check("both precisions are crossed with both geometries", len(cells) == 4),
            counted("scores and losses equal in every bit", [row["score"] == 0 == row["loss"] for row in rows]),
            counted(f"gradients differ, by {min(relative):.3e} to {max(relative):.3e},", [value > 0 for value in relative]),
        ),
        notes=(
            stand_in(record, "resnet18", "cifar100-lt") + " The paper states the result of this comparison without a table.",
            *others(records, record),
        ),
    )
