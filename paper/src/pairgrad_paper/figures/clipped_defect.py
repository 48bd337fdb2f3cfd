"""Figure regime-scaling, panel (a): the clipped defect over a wide range of concentrations, and its asymptote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pairgrad_paper.figures.style import BLACK, BLUE, GREY, VERMILION, open_axes
from pairgrad_paper.finite_start import FiniteStart
from pairgrad_paper.tables.defect import clip_onset, finite_start_defect
from pairgrad_paper.tables.published import CAPTURED_DIMENSION, CAPTURED_RANGE
from pairgrad_paper.tables.table import Column, Row, Table, Tick

ORDERS = (63, 255)
POINTS = 65  # per order
FLOOR = 1e-16  # of the picture, as in the paper

_STYLES = {63: (BLUE, "o", 3.0), 255: (VERMILION, "s", 4.5)}  # colour, marker, size of the marker on the floor


def data(tick: Tick = lambda: None) -> Table:
    """130 conditions; one tick per order."""
    rows: list[Row] = []
    for nu in ORDERS:
        onset, coefficient = clip_onset(nu), float(-FiniteStart(nu).residual_coefficient)  # nu + 3/2
        for scaled in np.logspace(np.log10(0.25), 5, POINTS).tolist():
            x = scaled * nu
            defect = finite_start_defect(nu, 2 * nu, x)
            rows.append(
                {
                    "nu": nu,
                    "x": x,
                    "x_over_nu": scaled,
                    "clipped": x > onset,
                    "clip_onset": onset,
                    "raw_ratio": float(defect.raw_ratio),
                    "log10_defect": defect.log10_absolute,
                    "defect": defect.absolute,
                    "asymptote": coefficient / x,
                }
            )
        tick()
    onsets = ", ".join(f"x = {clip_onset(nu):.1f} at nu = {nu}" for nu in ORDERS)
    return Table(
        name="clipped-defect",
        title="The clipped defect, its onset and its asymptote",
        caption=(
            f"Absolute defect |min(raw ratio, 1) - derivative of the finite potential| at M = 2 nu, {len(ORDERS) * POINTS} conditions; "
            f"the asymptote (nu + 3/2)/x dashed; the clip sets in at {onsets} (dotted). Grey: the captured PATT query radii (nu = 255), an interval "
            "drawn wider than it is. Values below 1e-16 are drawn hollow on that floor; the CSV has them to all digits."
        ),
        label="fig:regime-scaling",
        columns=(
            Column("nu", "nu", "d"),
            Column("x", "x", ".6g"),
            Column("x_over_nu", "x/nu", ".6g"),
            Column("clipped", "clipped"),
            Column("clip_onset", "clip onset", ".1f"),
            Column("raw_ratio", "raw ratio", ".6g"),
            Column("log10_defect", "log10 defect", ".4f"),
            Column("defect", "defect", ".4e"),
            Column("asymptote", "asymptote", ".4e"),
        ),
        rows=tuple(rows),
        notes=("Computed with epsilon = 0, by the recurrence of the errors in ball arithmetic.",),
    )


def draw(plt: Any, table: Table) -> Any:
    figure, axes = plt.subplots(figsize=(8.2, 5.0))
    draw_into(axes, table.rows)
    axes.legend(loc="upper left")
    axes.set_title("Clipping bounds the slope; it does not make it the derivative")
    open_axes(axes)
    figure.tight_layout()
    return figure


def draw_into(axes: Any, conditions: Sequence[Row]) -> None:
    """The rows of `data` as a panel, without title and legend."""
    nu_captured = CAPTURED_DIMENSION / 2 - 1
    low, high = (ratio * nu_captured for ratio in CAPTURED_RANGE)
    axes.axvspan(low, high, color=GREY, lw=3, label=r"query radii that the paper captured ($\nu = 255$)")
    for nu in ORDERS:
        colour, marker, floor_size = _STYLES[nu]
        rows = [row for row in conditions if row["nu"] == nu]
        x, defect, asymptote, onset = ([float(str(row[key])) for row in rows] for key in ("x", "defect", "asymptote", "clip_onset"))
        drawn = [max(d, FLOOR) for d in defect]
        axes.loglog(x, drawn, color=colour, lw=1.0, alpha=0.7)
        for inside, fill, size in ((True, colour, 4.5), (False, "none", floor_size)):
            points = [(a, d) for a, d, true in zip(x, drawn, defect, strict=True) if (true > FLOOR) == inside]
            label = f"$\\nu = {nu}$  ($p = {2 * nu + 2}$)" if inside else None
            axes.loglog(*zip(*points, strict=True), ls="none", marker=marker, ms=size, mfc=fill, mec=colour, label=label)
        beyond = [(a, b) for a, b in zip(x, asymptote, strict=True) if a >= onset[0]]
        label = r"asymptote $(\nu + 3/2)/x$" if nu == ORDERS[-1] else None
        axes.loglog(*zip(*beyond, strict=True), color=BLACK, ls="--", lw=1.2, label=label, zorder=3)
        axes.axvline(onset[0], color=colour, ls=":", lw=1.2)
        axes.text(onset[0] * 0.88, 1e-9, f"clip onset {onset[0]:.1f}", rotation=90, ha="right", va="center", color=colour, fontsize=9)
    axes.axhline(FLOOR, color=GREY, lw=0.8, zorder=1)
    axes.text(axes.get_xlim()[1], FLOOR * 1.4, "below $10^{-16}$: drawn here, hollow", ha="right", fontsize=9, color="dimgrey")
    axes.set_ylim(FLOOR / 5, 1)
    axes.set(xlabel="$x$", ylabel="|supplied $-$ derivative of the value|")
