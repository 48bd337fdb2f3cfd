"""Figure proco-conditions: the relative coherence defect by concentration, recurrence depth and dimension."""

from __future__ import annotations

import math
from typing import Any

from pairgrad_paper.figures.style import BLACK
from pairgrad_paper.tables.defect import finite_start_defect
from pairgrad_paper.tables.published import CAPTURED_DIMENSION, CAPTURED_RANGE
from pairgrad_paper.tables.table import Column, Row, Table, Tick

CONCENTRATIONS = tuple(2.0**k for k in range(-2, 11))  # x / nu
DEPTHS = (2, 3, 4, 6, 8)  # M / nu
DIMENSIONS = (128, 256, 512, 1024)
FLOOR = -16  # of the colours, as in the paper


def data(tick: Tick = lambda: None) -> Table:
    """All 260 conditions; one tick per dimension and depth."""
    rows: list[Row] = []
    for dim in DIMENSIONS:
        nu = dim // 2 - 1
        for depth in DEPTHS:
            for concentration in CONCENTRATIONS:
                defect = finite_start_defect(nu, depth * nu, concentration * nu)
                rows.append(
                    {
                        "dim": dim,
                        "start_over_nu": depth,
                        "x_over_nu": concentration,
                        "clipped": bool(defect.raw_ratio > 1),
                        "log10_relative_defect": defect.log10_relative,
                        "drawn": max(defect.log10_relative, FLOOR),
                    }
                )
            tick()
    return Table(
        name="concentration-depth",
        title="Where the supplied slope and the derivative part, by concentration and depth",
        caption=(
            "Colour: log10 of |supplied slope - derivative of the finite potential| / |that derivative|; values below 1e-16 share the darkest colour, "
            "and the CSV has them to all digits. Numbers in the cells are the same logarithm; a star marks a supplied slope that is clipped at 1. "
            "The diamond is the median captured PATT query (p = 512, M = 2 nu, x/nu = 392.7)."
        ),
        label="fig:proco-conditions",
        columns=(
            Column("dim", "dim", "d"),
            Column("start_over_nu", "M/nu", "d"),
            Column("x_over_nu", "x/nu", "g"),
            Column("clipped", "clipped"),
            Column("log10_relative_defect", "log10 relative defect", ".4f"),
            Column("drawn", "drawn", ".4f"),
        ),
        rows=tuple(rows),
        notes=("Computed with epsilon = 0, by the recurrence of the errors in ball arithmetic: defects of 1e-10000 keep their digits.",),
    )


def draw(plt: Any, table: Table) -> Any:
    figure, panels = plt.subplots(len(DIMENSIONS), 1, figsize=(10.0, 9.6), sharex=True, layout="constrained")
    mesh = None
    for axes, dim in zip(panels, DIMENSIONS, strict=True):
        mesh = _panel(axes, table, dim)
    panels[-1].set_xticks(range(len(CONCENTRATIONS)), [f"{c:g}" for c in CONCENTRATIONS])
    panels[-1].set_xlabel(r"concentration $x/\nu$")
    for axes in panels:
        axes.set_yticks(range(len(DEPTHS)), [str(depth) for depth in DEPTHS])
        axes.set_ylabel(r"depth $M/\nu$")
    bar = figure.colorbar(mesh, ax=panels, extend="min", pad=0.02, aspect=45)
    bar.set_label(r"$\log_{10}\,|$supplied $-\ \tilde\Phi'|\,/\,|\tilde\Phi'|$")
    figure.suptitle(
        "How far the supplied slope is from the derivative of its value, by concentration and depth  (*: clipped at 1)", fontsize=12
    )
    return figure


def _panel(axes: Any, table: Table, dim: int) -> Any:
    drawn = {(row["start_over_nu"], row["x_over_nu"]): row for row in table.rows if row["dim"] == dim}
    grid = [[drawn[depth, concentration]["drawn"] for concentration in CONCENTRATIONS] for depth in DEPTHS]
    mesh = axes.imshow(grid, cmap="cividis", vmin=FLOOR, vmax=0, origin="lower", aspect="auto")
    for y, depth in enumerate(DEPTHS):
        for x, concentration in enumerate(CONCENTRATIONS):
            row = drawn[depth, concentration]
            value = float(str(row["log10_relative_defect"]))
            if value > FLOOR:
                text = f"{value:.1f}{'*' if row['clipped'] else ''}".replace("-", "\u2212")
                axes.text(x, y, text, ha="center", va="center", fontsize=9, color="white" if value < FLOOR / 2 else BLACK)
    axes.text(1.5, 3.0, "below $10^{-16}$", ha="center", va="center", fontsize=9, color="white")
    if dim == CAPTURED_DIMENSION:
        at = math.log2(sum(CAPTURED_RANGE) / 2 / CONCENTRATIONS[0])
        # below the numbers of its row, not on them
        axes.plot(at, -0.27, marker="D", ms=6.5, mfc="white", mec=BLACK, mew=1.3, ls="none", label="captured queries")
        axes.legend(loc="lower left", labelcolor="white", handletextpad=0.2)
    axes.set_title(f"$p = {dim}$,  $\\nu = {dim // 2 - 1}$")
    return mesh
