"""Figure mechanism-controls: the antisymmetric Jacobian of the two-class construction by concentration ratio, and its response to the mismatch."""

from __future__ import annotations

import math
from typing import Any

import torch

import pairgrad as pg
from pairgrad_paper.figures.style import BLACK, BLUE, GREEN, GREY, VERMILION, open_axes
from pairgrad_paper.tables import two_class
from pairgrad_paper.tables.defect import clip_onset
from pairgrad_paper.tables.table import Cell, Column, Row, Table, Tick, number

STEPS = len(two_class.RATIOS) + len(two_class.STRENGTHS)
_LINE = 281  # points of the predicted curve
_COLUMNS = (
    Column("part", "part"),
    Column("ratio", "kappa_2 / kappa_1", ".6g"),
    Column("strength", "lambda", ".2f"),
    Column("predicted", "predicted antisymmetry", ".6e"),
    Column("differentiated", "differentiated antisymmetry", ".6e"),
    Column("consistent", "consistent antisymmetry", ".1e"),
    Column("gap", "gradient gap", ".6e"),
    Column("gap_line", "predicted gap", ".6e"),
)


def data(tick: Tick = lambda: None) -> Table:
    """29 ratios, nine strengths, and the predicted curve; one tick per ratio and strength."""
    ratios, strengths = two_class.two_class(tick), two_class.mismatch_strength(tick)
    rows = [_row("ratio", **{key: row[key] for key in ("ratio", "predicted", "differentiated", "consistent")}) for row in ratios.rows]
    rows += [_row("curve", ratio=ratio, predicted=value) for ratio, value in zip(*_curve(), strict=True)]
    rows += [
        _row(
            "strength",
            strength=row["strength"],
            predicted=row["antisymmetry_line"],
            differentiated=row["antisymmetry"],
            gap=row["gap"],
            gap_line=row["gap_line"],
        )
        for row in strengths.rows
    ]
    onset = clip_onset(two_class.DIM // 2 - 1) / two_class.CONCENTRATION
    return Table(
        name="mechanism-controls",
        title="Unequal classes and a mismatched slope: together they rotate the field",
        caption=(
            f"The two-class construction (dim {two_class.DIM}, kappa_1 = {two_class.CONCENTRATION:.0f}, f = 0). (a) J_12 - J_21 against "
            "the ratio of the concentrations: the prediction of eq. ce-curl-obstruction as a line, the differentiated field at "
            f"{len(two_class.RATIOS)} states as circles, and the consistent field, which stays at zero. The second class is clipped to "
            f"the right of {onset:.2f}. (b) The same at ratio 2 and {len(two_class.STRENGTHS)} strengths lambda of the mismatch, with the "
            "length of the gradient gap: both are proportional to lambda. The loss is log 2 throughout."
        ),
        label="fig:mechanism-controls",
        columns=_COLUMNS,
        rows=tuple(rows),
        checks=ratios.checks[:5] + strengths.checks,
    )


def _row(part: str, **cells: Cell) -> Row:
    return {column.key: cells.get(column.key) for column in _COLUMNS} | {"part": part}


def _curve() -> tuple[list[float], list[float]]:
    """(F'(k1) g(k2) - g(k1) F'(k2)) / 4 over the range of the ratios."""
    low, high = (math.log10(ratio) for ratio in (two_class.RATIOS[0], two_class.RATIOS[-1]))
    ratios = torch.logspace(low, high, _LINE, dtype=torch.float64)
    pot = pg.potential(two_class.DIM, "original")
    first, second = two_class.CONCENTRATION * torch.ones_like(ratios), two_class.CONCENTRATION * ratios
    return ratios.tolist(), ((pot.derivative(first) * pot.slope(second) - pot.slope(first) * pot.derivative(second)) / 4).tolist()


def draw(plt: Any, table: Table) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.4))
    _ratios(left, table)
    _strengths(right, table)
    open_axes(left, right)
    figure.tight_layout()
    return figure


def _of(table: Table, part: str, *keys: str, scale: float = 1.0) -> list[list[float]]:
    rows = [row for row in table.rows if row["part"] == part]
    return [[number(row, key) * (1.0 if key in ("ratio", "strength") else scale) for row in rows] for key in keys]


def _ratios(axes: Any, table: Table) -> None:
    axes.axhline(0, color=GREY, lw=0.8)
    onset = clip_onset(two_class.DIM // 2 - 1) / two_class.CONCENTRATION
    axes.axvline(onset, color=GREY, ls=":", lw=1.2)
    axes.text(onset * 0.96, 2.6, "second class\nnot clipped", ha="right", va="center", fontsize=9, color="dimgrey")
    axes.text(onset * 1.04, 2.6, "both classes\nclipped", ha="left", va="center", fontsize=9, color="dimgrey")
    axes.semilogx(*_of(table, "curve", "ratio", "predicted", scale=1e3), color=VERMILION, lw=1.6, label="supplied, predicted")
    axes.semilogx(
        *_of(table, "ratio", "ratio", "differentiated", scale=1e3),
        ls="none",
        marker="o",
        ms=5.5,
        mfc="white",
        mec=VERMILION,
        label="supplied, differentiated",
    )
    axes.semilogx(
        *_of(table, "ratio", "ratio", "consistent", scale=1e3), color=BLUE, ls="none", marker="+", ms=6, label="consistent, differentiated"
    )
    axes.plot(1, 0, marker="s", ms=10, mfc="none", mec=BLACK)
    axes.annotate("equal classes: zero", (1, 0), (1.3, 0.75), fontsize=9, arrowprops={"arrowstyle": "-", "color": BLACK, "shrinkB": 6})
    axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    axes.minorticks_off()
    axes.set(
        xlabel=r"concentration ratio $\kappa_2 / \kappa_1$",
        ylabel=r"$J_{12} - J_{21}$   [$10^{-3}$]",
        title="(a) Rotation needs classes that differ",
    )
    axes.set_ylim(-4.2, 3.1)
    axes.legend(loc="lower right", bbox_to_anchor=(0.86, 0.0))


def _strengths(axes: Any, table: Table) -> None:
    lines = _of(table, "strength", "strength", "gap", "gap_line", "differentiated", "predicted", scale=1e3)
    strength, gap, gap_line, antisymmetry, predicted = lines
    axes.plot(strength, gap_line, color=GREEN, lw=1.6)
    axes.plot(strength, gap, ls="none", marker="s", ms=5.5, mfc="white", mec=GREEN, label="length of the gradient gap")
    axes.plot(strength, [abs(value) for value in predicted], color=VERMILION, lw=1.6)
    axes.plot(
        strength,
        [abs(value) for value in antisymmetry],
        ls="none",
        marker="o",
        ms=5.5,
        mfc="white",
        mec=VERMILION,
        label=r"$|J_{12} - J_{21}|$",
    )
    for at, text in ((0, "derivative\nof the value"), (1, "as\nsupplied")):
        axes.axvline(at, ymax=0.8, color=GREY, ls=":", lw=1.2)
        axes.text(at + 0.03, 7.0, text, fontsize=9, color="dimgrey", va="top")
    axes.set(
        xlabel=r"strength $\lambda$ of the mismatch:   slope $= F' + \lambda\,(g - F')$",
        ylabel=r"size   [$10^{-3}$]",
        title="(b) ... and a slope that is not the derivative",
    )
    axes.legend(loc="upper left", title="lines: predicted; markers: computed", title_fontsize=9)
    axes.set_ylim(bottom=-0.5)
