"""Figure patt-measured-field: on a slice of a captured feature, the gradient of the loss, the supplied one, and how they differ."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from pairgrad_paper.figures.cumulative import cumulative
from pairgrad_paper.figures.style import BLACK, BLUE, GREEN, GREY, VERMILION, open_axes
from pairgrad_paper.records import Line, Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import frozen, near, others, short, stand_in, to_be_met
from pairgrad_paper.tables.table import Check, Column, Row, Table, number

_TITLE = "The update field of a captured PATT state"
_LABEL = published.FIELD_MISMATCH.label
_FIELDS = ("consistent_1", "consistent_2", "supplied_1", "supplied_2")
_FIRST, _STRIDE = 2, 3  # of the arrows: 8 of 25 points per side, none on the border
_LEVELS = (1e-9, 1e-6, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 6.0, 9.0, 12.0, 20.0, 30.0)  # of the loss, as far as it has them,
_WIDE = 30.0  # where its largest value is this many times its least
FLOOR = 1e-16  # of 1 - cos, which rounding may leave at zero


def read(records: Records) -> Table:
    """The points of the slice, a row each."""
    record = frozen(records, _TITLE, _LABEL)
    facts, points = record.one("field_facts"), record.of("field")
    middle = 100 * median(line["mismatch"] for line in points)
    first, second = facts["explained"]
    size = facts["size"]
    extent = max(abs(line["x"]) for line in points)
    return Table(
        name="patt-measured-field",
        title=_TITLE,
        caption=(
            f"One query ({short(record)}; step {facts['step']}, view {facts['view']}, label {facts['label']}) is moved over a {size} x {size} "
            f"slice along the two principal directions of the features ({first:.0%} and {second:.0%} of their variance), up to {extent:.2f} to each side in "
            "the unit of the features, which is three standard deviations along the first, the class states fixed. Contours: the loss, the same in every bit "
            "for both; where no arrow can be seen the query is classified well, and the gradient is of the size of the small loss. (a) Minus the "
            "gradient of the finite forward; (b) minus the supplied one, on the same scales; (c) their difference times "
            f"{published.FIELD_MAGNIFIED}; {_arrows(size)} interior arrows each. (d, e) Cumulative distributions over all {len(points)} pairs of projected "
            "gradients of |difference| / |gradient of the finite forward| and of 1 - cos of the angle between them. The paper shows mainly a distortion of "
            f"length, median {published.FIELD_MISMATCH.text} %; ours has median {middle:.4f} %."
        ),
        label=_LABEL,
        columns=(
            Column("i", "i", "d"),
            Column("j", "j", "d"),
            Column("x", "first direction", ".6g"),
            Column("y", "second direction", ".6g"),
            Column("loss", "loss", ".6g"),
            *(Column(key, key.replace("_", " "), ".6e") for key in _FIELDS),
            Column("mismatch", "mismatch", ".6e"),
            Column("one_minus_cosine", "1 - cos", ".2e"),
        ),
        rows=tuple(_row(line) for line in points),
        checks=(
            Check("scores and losses equal in every bit at every point, as in the paper", facts["scores_equal"] and facts["losses_equal"]),
            Check(f"{len(points)} points, as in the paper", len(points) == published.FIELD_SIZE**2),
            *to_be_met(
                record,
                Check(
                    f"median mismatch {middle:.4f} %, within one percent of the published {published.FIELD_MISMATCH.text} %",
                    near(middle, published.FIELD_MISMATCH),
                ),
            ),
        ),
        notes=(stand_in(record, "resnet18", "cifar10-lt"), *others(records, record)),
    )


def _row(line: Line) -> Row:
    fields = dict(zip(_FIELDS, (*line["consistent"], *line["supplied"]), strict=True))
    return {key: line[key] for key in ("i", "j", "x", "y", "loss", "mismatch", "one_minus_cosine")} | fields


def _shown(index: int, size: int) -> bool:
    return index % _STRIDE == _FIRST and index < size - 1


def _arrows(size: int) -> int:
    return sum(_shown(index, size) for index in range(size)) ** 2


def draw(plt: Any, table: Table) -> Any:
    figure = plt.figure(figsize=(10.0, 7.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.35, 1))
    panels = above.subplots(1, 3, sharey=True)
    magnified = f"(c) Difference (b) $-$ (a),\nmagnified {published.FIELD_MAGNIFIED}$\\times$"
    for axes, (sign, factor, colour, title) in zip(
        panels,
        (
            ((1, 0), 1, BLUE, "(a) Minus the gradient\nof the loss"),
            ((0, 1), 1, VERMILION, "(b) Minus the supplied\ngradient"),
            ((-1, 1), published.FIELD_MAGNIFIED, GREEN, magnified),
        ),
        strict=True,
    ):
        _contours(axes, table)
        _quiver(axes, table, sign, factor, colour)
        axes.set(title=title, xlabel="first direction", aspect="equal")
    panels[0].set_ylabel("second direction")
    above.supxlabel("directions in units of the features; contours: the loss; same contours and arrow scale in all three", fontsize=9)
    left, right = below.subplots(1, 2)
    _mismatch(left, table)
    _angles(right, table)
    open_axes(left, right)
    return figure


def _contours(axes: Any, table: Table) -> None:
    size = 1 + int(max(table.numbers("i")))
    x, y, loss = (_plane(table, key, size) for key in ("x", "y", "loss"))
    low, high = min(map(min, loss)), max(map(max, loss))
    levels = [level for level in _LEVELS if low < level < high] if high > _WIDE * low else 10
    lines = axes.contour(x, y, loss, levels=levels, colors=GREY, linewidths=0.9)
    for text in axes.clabel(lines, fontsize=9, fmt=_short_level, zorder=5):
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})


def _short_level(level: float) -> str:
    return f"{level:g}" if level >= 0.1 else f"{level:.0e}".replace("e-0", "e-")


def _plane(table: Table, key: str, size: int) -> list[list[float]]:
    plane = [[0.0] * size for _ in range(size)]
    for row in table.rows:
        plane[int(number(row, "j"))][int(number(row, "i"))] = number(row, key)
    return plane


def _quiver(axes: Any, table: Table, sign: tuple[int, int], factor: float, colour: str) -> None:
    """Arrows of minus `factor` times the combination of both fields; the longest of the consistent field is one spacing long."""
    size = 1 + int(max(table.numbers("i")))
    kept = [row for row in table.rows if _shown(int(number(row, "i")), size) and _shown(int(number(row, "j")), size)]
    own, supplied = sign
    vectors = [[-factor * (own * number(row, f"consistent_{k}") + supplied * number(row, f"supplied_{k}")) for row in kept] for k in (1, 2)]
    longest = max(math.hypot(number(row, "consistent_1"), number(row, "consistent_2")) for row in kept)
    spacing = _STRIDE * (max(table.numbers("x")) - min(table.numbers("x"))) / (size - 1)
    at = [[number(row, key) for row in kept] for key in ("x", "y")]
    axes.quiver(*at, *vectors, color=colour, angles="xy", scale_units="xy", scale=longest / spacing, width=0.006, zorder=3)


def _mismatch(axes: Any, table: Table) -> None:
    values = [100 * value for value in table.numbers("mismatch")]
    middle = median(values)
    axes.plot(*cumulative(values), color=VERMILION, lw=1.8, drawstyle="steps-post")
    axes.axvline(middle, color=BLACK, lw=1.2, label=f"median {middle:.4f} %")
    axes.axvline(float(published.FIELD_MISMATCH), color=BLUE, ls="--", lw=1.2, label=f"published median {published.FIELD_MISMATCH.text} %")
    axes.ticklabel_format(useOffset=False)
    axes.locator_params(axis="x", nbins=8)
    axes.set(xlabel="relative mismatch [%]", ylabel="share of points at or below", title="(d) Relative mismatch", ylim=(0, 1.02))
    axes.legend(loc="center left")


def _angles(axes: Any, table: Table) -> None:
    values = [max(value, FLOOR) for value in table.numbers("one_minus_cosine")]
    axes.plot(*cumulative(values), color=GREEN, lw=1.8, drawstyle="steps-post", label=f"median {median(values):.1e}")
    axes.set_xscale("log")
    axes.set_xlim(*(10.0 ** turn(math.log10(end)) for turn, end in ((math.floor, min(values)), (math.ceil, max(values) * 1.001))))
    axes.xaxis.set_minor_formatter("")
    axes.set(xlabel=r"$1 - \cos$ of the angle between the two", ylabel="share of points at or below", title="(e) Direction", ylim=(0, 1.02))
    axes.legend(loc="lower right")
