"""Corollary complexity-certificate as a picture: bounds fall and the recurrence's time grows with the dimension."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pairgrad_paper.figures.style import BLUE, GREEN, VERMILION, open_axes
from pairgrad_paper.records import Records
from pairgrad_paper.tables.complexity import complexity
from pairgrad_paper.tables.table import Table


def data(records: Records) -> Table:
    """The table `complexity`, with the figure's name, and a caption that says what is drawn."""
    return replace(
        complexity(records),
        name="complexity-certificate",
        title="Deeper recurrence, tighter certificate",
        caption=(
            "Left: the paper's certificate 8/(p - 2)^3 and the bound proven here, of the ratio of AR/FR on the whole axis. Right: measured time of value and "
            "slope together, of the recurrence with its p - 2 dependent steps and of the pair, whose depth does not grow with p."
        ),
    )


def draw(plt: Any, table: Table) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.2))
    dim = table.numbers("dim")
    left.loglog(dim, table.numbers("certificate"), color=VERMILION, ls="--", marker="o", ms=5, label="certificate $8/(p-2)^3$")
    left.loglog(dim, table.numbers("proven"), color=GREEN, ls="-.", marker="^", ms=5, label="proven here")
    left.set(ylabel=r"bound of $|A_R(x) - R(x)|$, all $x \geq 0$", title="The bound of the error falls")
    right.loglog(
        dim, table.numbers("recurrence_milliseconds"), color=VERMILION, ls="--", marker="s", ms=5, label="recurrence (depth $p - 2$)"
    )
    right.loglog(dim, table.numbers("paired_milliseconds"), color=BLUE, ls="-", marker="o", ms=5, label="paired (fixed depth)")
    last = table.rows[-1]
    right.annotate(
        f"{float(str(last['time_ratio'])):.0f} times",
        (dim[-1], (float(str(last["recurrence_milliseconds"])) * float(str(last["paired_milliseconds"]))) ** 0.5),
        ha="right",
        va="center",
        fontsize=9,
        xytext=(-6, 0),
        textcoords="offset points",
    )
    right.annotate(
        "",
        (dim[-1], float(str(last["recurrence_milliseconds"])) / 1.15),
        xytext=(dim[-1], float(str(last["paired_milliseconds"])) * 1.15),
        arrowprops={"arrowstyle": "<->", "lw": 0.8},
    )
    right.set(ylabel="milliseconds, median, one thread", title="The time of the recurrence grows")
    for axes in (left, right):
        axes.set_xticks(dim, [f"{d:.0f}" for d in dim])
        axes.minorticks_off()
        axes.set_xlabel("feature dimension $p$")
    left.legend(loc="upper right")
    right.legend(loc="upper left")
    open_axes(left, right)
    figure.tight_layout()
    return figure
