"""Figure theoretical-field: one loss surface in the plane, the gradient that belongs to it, and a supplied field that belongs to none.

The smallest member of the diagnosed family, so that everything can be computed and nothing needs to be drawn by hand: nu = 1, start 2, where the raw
ratio is x / 4 for every x and the value has the derivative I_1 / I_0 - 2 x / (8 + x^2). Not clipped, it parts from the derivative far more than
any recurrence in use. Three classes lie in a plane of the four-dimensional feature space, and fields at features in that plane stay in it.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import pairgrad as pg
from pairgrad.losses import UpdateField, update_field
from pairgrad_paper.figures.style import BLACK, BLUE, VERMILION
from pairgrad_paper.tables.table import Check, Column, Row, Table, Tick, number

_DIM = 4
_ANGLES = (30.0, 75.0, 130.0)  # of the mean directions, in degrees
_CONCENTRATIONS = (13.5, 6.5, 2.25)
_SHARES = (0.25, 0.5, 0.25)  # of the labels, and prior: without evidence, at f = 0, the loss is least
_REACH = 2.5
_POINTS = 33  # per side
_RADIUS = 1.6  # of the circle around the minimum
_LOOP = 121  # points on it; the last is the first
_STRIDE = 4  # of the arrows
_KEYS = (
    "f1",
    "f2",
    "loss",
    "consistent_1",
    "consistent_2",
    "supplied_1",
    "supplied_2",
    "supplied_rotation",
    "supplied_rotation_differentiated",
    "consistent_rotation_differentiated",
)


def field_at(points: torch.Tensor) -> UpdateField:
    """The field at points (N, 2) of the plane, for every label: N rows for the first, N for the second, N for the third."""
    angles = torch.deg2rad(torch.tensor(_ANGLES, dtype=torch.float64))
    directions = torch.nn.functional.pad(torch.stack([torch.cos(angles), torch.sin(angles)], 1), (0, _DIM - 2))
    state = pg.ClassState(directions, torch.tensor(_CONCENTRATIONS, dtype=torch.float64))
    features = torch.nn.functional.pad(points, (0, _DIM - 2)).repeat(len(_SHARES), 1)
    labels = torch.arange(len(_SHARES)).repeat_interleave(len(points))
    log_prior = torch.log(torch.tensor(_SHARES, dtype=torch.float64))
    return update_field(features, labels, state, 1.0, log_prior, pg.potential(_DIM, "original", clip=False))


def averaged(rows: torch.Tensor) -> torch.Tensor:
    """The mean over the labels of what `field_at` has for each: (3 N, ...) -> (N, ...)."""
    return torch.tensordot(torch.tensor(_SHARES, dtype=rows.dtype), rows.unflatten(0, (len(_SHARES), -1)), 1)


def loop() -> torch.Tensor:
    """The circle, (N, 2), its last point the first."""
    turn = torch.linspace(0, 2 * math.pi, _LOOP, dtype=torch.float64)
    return _RADIUS * torch.stack([torch.cos(turn), torch.sin(turn)], 1)


def enclosed_rotation(rings: int = 12, spokes: int = 60) -> float:
    """The rotation d1 G_2 - d2 G_1 of the supplied field, integrated over the disc: Gauss-Legendre in the squared radius, equal weights in the angle."""
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(rings))
    radius = _RADIUS * torch.sqrt((nodes + 1) / 2)
    turn = torch.arange(spokes, dtype=torch.float64) * (2 * math.pi / spokes)
    offsets = torch.stack([torch.cos(turn), torch.sin(turn)], 1)[None] * radius[:, None, None]
    values = _rotation(field_at(offsets.reshape(-1, 2))).reshape(rings, spokes)
    return (math.pi * _RADIUS**2 * (weights / 2) @ values.mean(1)).item()


def _axes() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.eye(2, _DIM, dtype=torch.float64)
    return first, second


def _rotation(field: UpdateField) -> torch.Tensor:
    first, second = _axes()
    return averaged(field.antisymmetry_along(second, first))


def data(tick: Tick = lambda: None) -> Table:
    """Loss, both fields and their rotation on a grid and along a closed curve; two ticks."""
    side = torch.linspace(-_REACH, _REACH, _POINTS, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    rows = _rows("grid", grid)
    tick()
    rows += _rows("loop", loop())
    tick()
    table = tuple(rows)
    around = {name: circulation(table, name) for name in ("consistent", "supplied")}
    enclosed = enclosed_rotation()
    largest, own = (max(abs(number(row, f"{name}_rotation_differentiated")) for row in table) for name in ("supplied", "consistent"))
    return Table(
        name="theoretical-field",
        title="One loss surface, two fields",
        caption=(
            "Contours in both panels: the same cross-entropy of three classes in the plane (nu = 1, start 2; concentrations 13.5, 6.5, "
            "2.25), averaged over labels that occur as often as the prior says, so that it is least at f = 0. Arrows: direction of "
            "descent; pale on the right, those of the left once more. Left: minus the gradient of that loss, perpendicular to the "
            "contours. Right: minus the field that backward supplies, with the raw ratio x/4 for a slope. Colour: the rotation d1 G2 - "
            "d2 G1, the one component of the antisymmetric Jacobian in the plane; on the left it is zero everywhere. Once around the "
            f"circle, G does no work on the left, up to rounding, and {around['supplied']:.3f} on the "
            "right: there is no loss whose gradient it is."
        ),
        label="fig:theoretical-field",
        columns=(Column("part", "part"), *(Column(key, key.replace("_", " "), ".6g") for key in _KEYS)),
        rows=table,
        checks=(
            Check(
                f"the differentiated rotation of the consistent field is zero to rounding (below 1e-14; that of the other is up to {largest:.2e})",
                own <= 1e-14,
            ),
            Check(
                "the differentiated rotation of the supplied field is the predicted one to rounding",
                all(abs(number(row, "supplied_rotation_differentiated") - number(row, "supplied_rotation")) <= 1e-14 for row in table),
            ),
            Check(
                f"the work around the circle is the rotation inside it ({enclosed:.6f}) to 1e-9, and zero for the gradient",
                abs(around["supplied"] - enclosed) <= 1e-9 and abs(around["consistent"]) <= 1e-9,
            ),
        ),
        notes=("An exaggerated case, chosen to be seen: in the regimes of training the mismatch is some thousandths of the slope.",),
    )


def _rows(part: str, points: torch.Tensor) -> list[Row]:
    field = field_at(points)
    first, second = _axes()
    columns = (
        *points.unbind(1),
        averaged(field.loss),
        *averaged(field.consistent)[:, :2].unbind(1),
        *averaged(field.supplied)[:, :2].unbind(1),
        _rotation(field),
        averaged(field.differentiated_along(second, first)),
        averaged(field.with_strength(0).differentiated_along(second, first)),
    )
    return [{"part": part, **dict(zip(_KEYS, values, strict=True))} for values in zip(*(c.tolist() for c in columns), strict=True)]


def circulation(rows: tuple[Row, ...], name: str) -> float:
    """Work of G once around the loop, by the trapezoidal rule in the angle, which is exact to rounding for a smooth periodic function."""
    points = [row for row in rows if row["part"] == "loop"]
    step = 2 * math.pi / (len(points) - 1)
    total = 0.0
    for row, _ in pairwise(points):
        x, y = number(row, "f1"), number(row, "f2")
        total += step * (number(row, f"{name}_2") * x - number(row, f"{name}_1") * y)
    return total


def draw(plt: Any, table: Table) -> Any:
    figure, panels = plt.subplots(1, 2, figsize=(10.0, 5.0), layout="constrained", sharey=True)
    grid = [row for row in table.rows if row["part"] == "grid"]
    top = 2 * max(abs(number(row, "supplied_rotation")) for row in grid)  # the pale half of the colours, for arrows to be seen on
    losses = sorted(number(row, "loss") for row in grid)
    levels = [losses[0] + (losses[-1] - losses[0]) * (k / 13) ** 2 for k in range(1, 13)]  # evenly spaced around a minimum
    shade = None
    for axes, name, colour, title in zip(
        panels,
        ("consistent", "supplied"),
        (BLUE, VERMILION),
        ("The gradient of the loss has no rotation", "What backward supplies rotates"),
        strict=True,
    ):
        x, y, loss, rotation = (_plane(grid, key) for key in ("f1", "f2", "loss", f"{name}_rotation_differentiated"))
        shade = axes.pcolormesh(x, y, rotation, cmap="PuOr", vmin=-top, vmax=top, shading="gouraud", rasterized=True)
        axes.contour(x, y, loss, levels=levels, colors=BLACK, linewidths=0.7, alpha=0.7)
        if name == "supplied":
            _arrows(axes, grid, "consistent", BLUE, width=0.004, alpha=0.45)
        _arrows(axes, grid, name, colour, width=0.0065, alpha=1.0)
        _circle(axes, table, name, colour)
        axes.set(title=title, xlabel="$f_1$", xlim=(-_REACH, _REACH), ylim=(-_REACH, _REACH), aspect="equal")
    panels[0].set_ylabel("$f_2$")
    bar = figure.colorbar(shade, ax=list(panels), shrink=0.85, pad=0.015)
    bar.set_label(r"rotation  $\partial_1 G_2 - \partial_2 G_1$")
    bar.ax.set_ylim(-top / 2, top / 2)
    figure.suptitle("Same loss (contours), different fields (arrows: direction of descent)", fontsize=12)
    return figure


def _plane(grid: list[Row], key: str) -> list[list[float]]:
    values = [number(row, key) for row in grid]
    return [values[start::_POINTS] for start in range(_POINTS)]  # one list for every second coordinate


def _arrows(axes: Any, grid: list[Row], name: str, colour: str, *, width: float, alpha: float) -> None:
    offset = _STRIDE // 2
    kept = [row for index, row in enumerate(grid) if index // _POINTS % _STRIDE == offset and index % _POINTS % _STRIDE == offset]
    descents = [(-number(row, f"{name}_1"), -number(row, f"{name}_2")) for row in kept]
    units = [(x / math.hypot(x, y), y / math.hypot(x, y)) for x, y in descents]
    at = [[number(row, key) for row in kept] for key in ("f1", "f2")]
    axes.quiver(*at, *zip(*units, strict=True), color=colour, scale=15, width=width, alpha=alpha, zorder=3)


def _circle(axes: Any, table: Table, name: str, colour: str) -> None:
    points = [row for row in table.rows if row["part"] == "loop"]
    axes.plot([number(row, "f1") for row in points], [number(row, "f2") for row in points], color=BLACK, lw=2.0, zorder=4)
    axes.plot(0, _RADIUS, marker="<", ms=9, color=BLACK, zorder=4)
    work = round(circulation(table.rows, name), 3) + 0.0  # no -0.000
    box = {"facecolor": "white", "edgecolor": colour, "pad": 3}
    axes.text(0, -_RADIUS, f"$\\oint G \\cdot df = {work:.3f}$", ha="center", va="center", fontsize=11, color=colour, zorder=5, bbox=box)
