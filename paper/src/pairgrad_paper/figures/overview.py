"""Figure overview (fig:overview): one loss and two updates, the defect that tells them apart, and a pair with its certificate; all computed."""

from __future__ import annotations

from typing import Any

import torch

import pairgrad as pg
from pairgrad.ground import BallArithmetic, working_precision
from pairgrad.potentials import Balls
from pairgrad_paper.figures.style import BLACK, BLUE, GREEN, VERMILION, open_axes
from pairgrad_paper.tables.defect import clip_onset, finite_start_defect
from pairgrad_paper.tables.exact import largest_error
from pairgrad_paper.tables.table import Cell, Check, Column, Row, Table, Tick, number

STEPS = 3
_DIM = 128
_NU = _DIM // 2 - 1
_RESULTANT = 0.985  # length of the mean direction of the data whose concentration is fitted
_START, _RATE, _UPDATES, _SHOWN = 100.0, 3e4, 60, 3  # in units of nu; step size; updates; those that the arrows span
_DIGITS, _BITS = 40, 256
_COLUMNS = ("part", "branch", "update", "x_over_nu", "loss", "supplied", "derivative", "defect", "pair_error")


def data(tick: Tick = lambda: None) -> Table:
    """Three parts: descent on one loss with two backwards, the slopes, and the errors of the pair."""
    loss, steps = _descent()
    tick()
    slopes = _slopes()
    tick()
    errors, own_defect = _errors()
    tick()
    ends = {name: [row for row in steps if row["branch"] == name][-1] for name in ("original", "consistent")}
    onset, largest = clip_onset(_NU) / _NU, max(number(row, "defect") for row in slopes)
    bound = _NU**-3
    return Table(
        name="overview",
        title="Same loss, different gradients",
        caption=(
            f"Dimension {_DIM}, nu = {_NU}. (a) The negative log-likelihood of a concentration x, with the recurrence as normaliser, and gradient descent "
            f"on it with two backwards: after {_UPDATES} updates the clipped ratio is at x/nu = {number(ends['original'], 'x_over_nu'):.1f}, and the "
            f"derivative of the same forward at {number(ends['consistent'], 'x_over_nu'):.1f}, where the loss is least; arrows: the first {_SHOWN}. "
            f"(b) The coherence defect: the supplied slope minus the derivative of the value, up to {largest:.3f} at x/nu = {onset:.1f}, where clipping "
            "begins. (c) AR/FR: its slope is the derivative of its value by construction, and differs from the exact ratio by less than "
            f"nu^-3 = {bound:.1e} on the whole axis; beside it the defect of (b)."
        ),
        label="fig:overview",
        columns=tuple(Column(key, key.replace("_", " "), "" if key in _COLUMNS[:3] else ".6g") for key in _COLUMNS),
        rows=(*loss, *steps, *slopes, *errors),
        checks=(
            Check("the error of AR/FR stays below its certificate", max(number(row, "pair_error") for row in errors) < bound),
            Check("the slope of AR/FR is the derivative of its value, to 1e-30 in 77 digits", own_defect < 1e-30),
            Check(
                "both backwards start from one loss, and only the consistent one ends where it is least",
                number(ends["consistent"], "loss") < 1e-2 < number(ends["original"], "loss"),
            ),
        ),
    )


def _row(part: str, **cells: Cell) -> Row:
    return {**dict.fromkeys(_COLUMNS), "part": part, **cells}


def _loss(x: torch.Tensor) -> torch.Tensor:
    """-log-likelihood per sample, up to a constant: log-normaliser less the mean of the inner products."""
    return pg.potential(_DIM, "original").value(x) - _RESULTANT * x


def _descent() -> tuple[list[Row], list[Row]]:
    grid = _NU * torch.linspace(30, 112, 300, dtype=torch.float64)
    heights = _loss(grid)
    least = heights.min()
    rows = [_row("loss", x_over_nu=x / _NU, loss=y) for x, y in zip(grid.tolist(), (heights - least).tolist(), strict=True)]
    steps = []
    for name in ("original", "consistent"):
        backward = pg.potential(_DIM, name)
        x = torch.tensor(_START * _NU, dtype=torch.float64)
        for update in range(_UPDATES + 1):
            steps.append(_row("descent", branch=name, update=update, x_over_nu=x.item() / _NU, loss=(_loss(x) - least).item()))
            x = x - _RATE * (backward.slope(x) - _RESULTANT)
    return rows, steps


def _slopes() -> list[Row]:
    onset = torch.tensor([clip_onset(_NU)], dtype=torch.float64)
    x = torch.cat([_NU * torch.logspace(1, 2.5, 240, dtype=torch.float64), onset]).sort().values
    supplied, derivative = (pg.potential(_DIM, name).slope(x) for name in ("original", "consistent"))
    columns = (x / _NU, supplied, derivative, supplied - derivative)
    keys = ("x_over_nu", "supplied", "derivative", "defect")
    return [_row("slopes", **dict(zip(keys, row, strict=True))) for row in zip(*(c.tolist() for c in columns), strict=True)]


def _errors() -> tuple[list[Row], float]:
    """The error of the pair's slope and the defect of the recurrence, and the largest difference of the pair's slope from the derivative of its value."""
    x = (_NU * torch.logspace(-1, 3, 81, dtype=torch.float64)).tolist()
    exact = Balls(pg.potential(_DIM).nu, _DIGITS).apply("slope", torch.tensor(x, dtype=torch.float64))
    formulas = pg.potential(_DIM, "arfr").formulas()
    rows, own = [], 0.0
    with working_precision(_BITS):
        ops = BallArithmetic()
        for at, wanted in zip(x, exact, strict=True):
            ball = ops.arb(at)
            slope = formulas.slope(ops, ball)
            reach = ball / 10**20  # so small that the difference quotient errs by 1e-40
            quotient = (formulas.value(ops, ball + reach) - formulas.value(ops, ball - reach)) / (2 * reach)
            own = max(own, float(abs(slope - quotient)))
            defect = finite_start_defect(_NU, 2 * _NU, at).absolute
            rows.append(_row("errors", x_over_nu=at / _NU, pair_error=largest_error([slope], [wanted]), defect=defect))
    return rows, own


def draw(plt: Any, table: Table) -> Any:
    figure, panels = plt.subplots(1, 3, figsize=(10.0, 4.2), width_ratios=(1.3, 1, 1))
    parts = {part: [row for row in table.rows if row["part"] == part] for part in ("loss", "descent", "slopes", "errors")}
    _draw_descent(panels[0], parts["loss"], parts["descent"])
    _draw_slopes(panels[1], parts["slopes"])
    _draw_errors(panels[2], parts["errors"])
    for axes, title in zip(panels, ("(a) One loss, two updates", "(b) The defect tells them apart", "(c) Built as a pair"), strict=True):
        axes.set_title(title, fontsize=11, fontweight="bold", pad=10)
        axes.set_xlabel(r"concentration $x/\nu$", fontsize=10)
    open_axes(*panels)
    figure.tight_layout(w_pad=1.5)
    return figure


def _points(rows: list[Row], key: str) -> tuple[list[float], list[float]]:
    return [number(row, "x_over_nu") for row in rows], [number(row, key) for row in rows]


def _draw_descent(axes: Any, loss: list[Row], descent: list[Row]) -> None:
    axes.plot(*_points(loss, "loss"), color=BLACK, lw=2)
    top = max(number(row, "loss") for row in loss)
    for name, colour, marker, words, place, align in (
        ("consistent", BLUE, "s", "derivative of\nthis curve:\nends in the valley", (1, 0.22), "center"),
        ("original", VERMILION, "o", "clipped ratio: ends\nbeside the valley", (3.5, 0.02), "left"),
    ):
        rows = [row for row in descent if row["branch"] == name]
        axes.plot(*_points(rows, "loss"), marker, color=colour, ms=4.5, alpha=0.75)
        x, y = (_points(rows, "loss")[axis] for axis in (0, 1))
        axes.plot(x[-1], y[-1], marker, color=colour, ms=11, mec=BLACK, zorder=4)
        height = y[0] + top * (0.16 if name == "original" else 0.07)
        axes.annotate("", (x[_SHOWN], height), xytext=(x[0], height), arrowprops={"arrowstyle": "-|>", "lw": 2.2, "color": colour})
        axes.text(x[-1] + place[0], y[-1] + place[1] * top, words, ha=align, va="bottom", color=colour, fontsize=9)
    start = next(row for row in descent if row["update"] == 0)
    axes.plot(number(start, "x_over_nu"), number(start, "loss"), "o", color=BLACK, ms=8, zorder=5)
    axes.text(
        number(start, "x_over_nu"),
        number(start, "loss") + 0.36 * top,
        f"one start; arrows:\nthe first {_SHOWN} updates",
        ha="right",
        va="bottom",
        fontsize=9,
    )
    axes.set_ylim(-0.05 * top, 1.05 * top)
    axes.set_ylabel("loss, above its least value", fontsize=10)


def _draw_slopes(axes: Any, rows: list[Row]) -> None:
    x, supplied = _points(rows, "supplied")
    derivative = _points(rows, "derivative")[1]
    axes.fill_between(x, derivative, supplied, color=VERMILION, alpha=0.2, lw=0)
    axes.plot(x, supplied, color=VERMILION, lw=2.2)
    axes.plot(x, derivative, color=BLUE, lw=2.2)
    worst = max(rows, key=lambda row: number(row, "defect"))
    at, low, high = (number(worst, key) for key in ("x_over_nu", "derivative", "supplied"))
    axes.annotate("", (at, low), xytext=(at, high), arrowprops={"arrowstyle": "<->", "lw": 1.4, "color": BLACK, "shrinkA": 0, "shrinkB": 0})
    axes.annotate(
        f"defect $d(x) = {high - low:.3f}$",
        (at * 1.02, (low + high) / 2),
        xytext=(60, 0.962),
        fontsize=9,
        arrowprops={"arrowstyle": "-", "lw": 0.8},
    )
    axes.text(x[-1], 1.003, "supplied to the optimizer", color=VERMILION, fontsize=9, ha="right", va="bottom")
    axes.text(26, 0.952, "derivative of\nthe value", color=BLUE, fontsize=9, va="top")
    axes.set_xscale("log")
    axes.set_xticks([10, 30, 100, 300], ["10", "30", "100", "300"])
    axes.minorticks_off()
    axes.set_ylim(0.9, 1.015)
    axes.set_ylabel("slope", fontsize=10)


def _draw_errors(axes: Any, rows: list[Row]) -> None:
    bound, floor = _NU**-3, 1e-13
    x, error = _points(rows, "pair_error")
    defect = [max(value, floor) for value in _points(rows, "defect")[1]]
    axes.fill_between(x, floor, bound, color=GREEN, alpha=0.12, lw=0)
    axes.axhline(bound, color=GREEN, ls="--", lw=1.8)
    axes.plot(x, error, color=GREEN, lw=2.4)
    axes.plot(x, defect, color=VERMILION, lw=1.6, ls=":")
    axes.text(x[0], bound * 1.5, r"certificate $\nu^{-3}$", color=GREEN, fontsize=9, va="bottom")
    axes.text(0.12, 4e-10, "$|A_R - R|$:\ndistance\nfrom the\nexact ratio", color=GREEN, fontsize=9, va="top")
    axes.text(900, 3e-5, "defect\nof (b)", color=VERMILION, fontsize=9, ha="right")
    axes.text(0.5, 0.92, "$F_R' = A_R$:\nno defect, by construction", transform=axes.transAxes, ha="center", fontsize=9, color=BLACK)
    axes.set(xscale="log", yscale="log")
    axes.set_ylim(floor, 10)
    axes.set_ylabel("absolute error of the slope", fontsize=10)
