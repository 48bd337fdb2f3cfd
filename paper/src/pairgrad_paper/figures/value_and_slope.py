"""The picture of the README: one value curve, two slopes, and the point where they part."""

from __future__ import annotations

from typing import Any

import torch

import pairgrad as pg
from pairgrad_paper.figures.style import BLACK, BLUE, GREY, VERMILION, open_axes
from pairgrad_paper.tables.defect import clip_onset
from pairgrad_paper.tables.table import Column, Table, Tick

_DIM = 128
_MARKS = (16.0, 48.0, 80.0)  # x / nu of the short segments
_LEFT = (8.0, 110.0)  # x / nu of the left panel
_REACH = 9.0


def data(tick: Tick = lambda: None) -> Table:
    """Value and slopes at dimension 128, x / nu from 0.3 to 1000."""
    original, consistent, paired = (pg.potential(_DIM, name) for name in ("original", "consistent", "paired"))
    nu = float(original.nu)
    grid = torch.cat([torch.logspace(-0.5, 3, 700, dtype=torch.float64), torch.tensor(_MARKS, dtype=torch.float64)]).sort().values
    x = nu * grid
    columns = (grid, original.value(x) - x, 1 - consistent.slope(x), 1 - original.slope(x), paired.complement(x))
    keys = ("x_over_nu", "value_minus_x", "own_complement", "supplied_complement", "exact_complement")
    tick()
    return Table(
        name="value-and-slope",
        title=f"Same value, another slope (dim {_DIM})",
        caption=(
            "Left: the value that the finite recurrence reports, less x, with short segments of the slope of that curve and of the slope that is handed "
            "to the optimizer. Right: 1 - slope, of the derivative of the same value, of the supplied ratio, and of the exact ratio. "
            f"Beyond x/nu = {clip_onset(int(nu)) / nu:.1f} the supplied ratio is clipped at 1 and no longer belongs to the value."
        ),
        label="sec:mismatch-regimes",
        columns=tuple(Column(key, key.replace("_", " "), ".6g") for key in keys),
        rows=tuple(dict(zip(keys, row, strict=True)) for row in zip(*(c.tolist() for c in columns), strict=True)),
    )


def draw(plt: Any, table: Table) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.0))
    _values(left, table)
    _slopes(right, table)
    open_axes(left, right)
    figure.tight_layout()
    return figure


def _values(axes: Any, table: Table) -> None:
    nu = _DIM / 2 - 1
    points = list(
        zip(*(table.numbers(key) for key in ("x_over_nu", "value_minus_x", "own_complement", "supplied_complement")), strict=True)
    )
    inside = [point for point in points if _LEFT[0] <= point[0] <= _LEFT[1]]
    axes.plot([p[0] for p in inside], [p[1] for p in inside], color=BLACK, lw=1.6, label="the value both report")
    for at, height, own, supplied in (p for p in points if p[0] in _MARKS):
        first = at == _MARKS[0]
        for complement, colour, style, label in (
            (own, BLUE, "-", "its own slope"),
            (supplied, VERMILION, "--", "the slope handed to the optimizer"),
        ):
            rise = -complement * _REACH * nu
            axes.plot(
                [at - _REACH, at + _REACH], [height - rise, height + rise], color=colour, ls=style, lw=2.4, label=label if first else None
            )
        axes.plot(at, height, "o", color=BLACK, ms=4)
    axes.set(xlabel=r"$x/\nu$", ylabel=r"value $-\,x$", title=table.title)
    axes.legend()


def _slopes(axes: Any, table: Table) -> None:
    nu = _DIM // 2 - 1
    x, own, supplied, exact = (table.numbers(key) for key in ("x_over_nu", "own_complement", "supplied_complement", "exact_complement"))
    axes.loglog(x, exact, color=GREY, lw=4.5, alpha=0.6, label="exact, and pairgrad's paired")
    axes.loglog(x, own, color=BLUE, lw=1.8, label="derivative of the reported value")
    kept = [(a, b) for a, b in zip(x, supplied, strict=True) if b > 0]
    axes.loglog(*zip(*kept, strict=True), color=VERMILION, ls="--", lw=1.8, label="supplied")
    onset = clip_onset(nu) / nu
    axes.axvline(onset, color=VERMILION, lw=0.8, ls=":")
    axes.set_ylim(1e-4, 1.5)
    axes.text(onset * 1.2, 0.35, f"beyond $x/\\nu = {onset:.1f}$\nclipped: 1 $-$ slope = 0", fontsize=9, color=VERMILION)
    axes.set(xlabel=r"$x/\nu$", ylabel="1 $-$ slope", title="Where the supplied slope leaves its value")
    axes.legend(loc="lower left")
