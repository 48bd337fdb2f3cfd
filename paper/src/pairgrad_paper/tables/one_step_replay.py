"""One optimizer step from shared states, by the supplied gradient and by the consistent one."""

from __future__ import annotations

from pairgrad_paper.records import Records
from pairgrad_paper.tables.captured_source import counted, frozen, others, stand_in
from pairgrad_paper.tables.table import Column, Table, number

_TITLE = "One step from a shared state: other parameter gradients and other updates"
_ROUNDING = 1e-6  # relative, of a float32 gradient of a whole network: what is left beyond this is not rounding


def one_step_replay(records: Records) -> Table:
    """Parameter gradients and optimizer updates of `"original"` against `"consistent"`, a row per captured state."""
    label = "app:mechanism-interventions"
    record = frozen(records, _TITLE, label)
    keys = (
        *("step", "scores_equal", "loss_equal", "total_loss"),
        *("gradient_gap", "gradient_scaling", "gradient_residual", "update_gap", "update_scaling", "update_residual"),
        *("parameters", "optimizer"),
    )
    rows = tuple({key: line[key] for key in keys} for line in record.of("replay"))
    return Table(
        name="one-step-replay",
        title=_TITLE,
        caption=(
            "From one model, optimizer and class state, one batch: gradient of the total loss with respect to all parameters, and the "
            'update that the optimizer makes of it, by "original" and by "consistent". Gap: length of the difference over length of the '
            "consistent one. Best factor: the one number that, times the consistent one, comes closest; left: what remains then, over the "
            "length of the supplied one."
        ),
        label=label,
        columns=(
            Column("step", "step", "d"),
            Column("scores_equal", "scores equal"),
            Column("loss_equal", "losses equal"),
            Column("total_loss", "total loss", ".4f"),
            Column("gradient_gap", "gradient, gap", ".3e"),
            Column("gradient_scaling", "best factor", ".6f"),
            Column("gradient_residual", "left", ".3e"),
            Column("update_gap", "update, gap", ".3e"),
            Column("update_scaling", "best factor", ".6f"),
            Column("update_residual", "left", ".3e"),
            Column("parameters", "parameters", ",d", shown=False),
            Column("optimizer", "optimizer"),
        ),
        rows=rows,
        checks=(
            counted("scores and losses equal in every bit", [row["scores_equal"] is row["loss_equal"] is True for row in rows]),
            counted("gradients and updates differ", [number(row, "gradient_gap") > 0 < number(row, "update_gap") for row in rows]),
            counted(
                "one factor for the whole gradient leaves more than rounding (1e-6)",
                [number(row, "gradient_residual") > _ROUNDING for row in rows],
            ),
            counted(
                "one factor for the whole update leaves more than rounding (1e-6)",
                [number(row, "update_residual") > _ROUNDING for row in rows],
            ),
        ),
        notes=(
            stand_in(record, "resnet18") + f" {rows[0]['parameters']:,} parameters. The paper states the result without numbers.",
            *others(records, record),
        ),
    )
