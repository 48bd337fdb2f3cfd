"""Figure proco-state-distribution: coherence defects of queries and of the class bank over a ProCo run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pairgrad_paper.figures.style import BLACK, BLUE, GREY, PURPLE, VERMILION, open_axes
from pairgrad_paper.records import Records
from pairgrad_paper.tables import published
from pairgrad_paper.tables.captured_source import short, states
from pairgrad_paper.tables.proco_states import LABEL, SPREAD, proco_states
from pairgrad_paper.tables.table import Row, Table, number

_TITLE = "ProCo: the defect depends on the states that training visits"
FLOOR = 1e-16  # of the picture, as in the paper
_WORDS = 8  # captures that have room for words below them
_PANELS = (("queries", "(a) Radii of queries", BLUE), ("bank", "(b) Concentrations of the class bank", PURPLE))


def read(records: Records) -> Table:
    """The table proco-states, with the figure's name and a caption that says what is drawn."""
    record = states(records, _TITLE, LABEL)
    return replace(
        proco_states(records),
        name="proco-state-distribution",
        title=_TITLE,
        caption=(
            "Absolute differences between the supplied slope and the derivative of the finite potential at M = 2 nu over a ProCo run "
            f"({short(record)}). Boxes: quartiles and median; whiskers: extrema; above a box the share of values above "
            f"{published.PROCO_SCALE:g}, the dashed line, if there are any; values below {FLOOR:g} are drawn at that floor. The paper shows CIFAR-100-LT "
            f"queries, of which {published.PROCO_FIRST_BATCH.text} % are above the line in the first batch and hardly any late in "
            "training, ImageNet queries, and iNaturalist class banks; here are the queries and the bank of one run."
        ),
    )


def draw(plt: Any, table: Table) -> Any:
    figure, panels = plt.subplots(1, 2, figsize=(10.0, 5.0), sharey=True, layout="constrained")
    for axes, (what, title, colour) in zip(panels, _PANELS, strict=True):
        rows = [row for row in table.rows if row["what"] == what]
        _boxes(axes, rows, colour)
        counts = sorted({int(number(row, "count")) for row in rows})
        each = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        axes.set_title(f"{title}: {each} per capture\n(above a box: the share above $10^{{-6}}$, if any)")
    panels[0].set_ylabel("|supplied slope $-$ derivative of the value|")
    open_axes(*panels)
    return figure


def _boxes(axes: Any, rows: list[Row], colour: str) -> None:
    keys = ("whislo", "q1", "med", "q3", "whishi")
    boxes = [dict(zip(keys, (max(number(row, key), FLOOR) for key in SPREAD), strict=True)) for row in rows]
    axes.bxp(
        boxes,
        positions=range(len(boxes)),
        widths=0.5,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "alpha": 0.35, "edgecolor": colour},
        medianprops={"color": BLACK, "lw": 1.8},
        whiskerprops={"color": colour, "lw": 1.4},
        capprops={"color": colour, "lw": 1.4},
    )
    many = len(rows) > _WORDS
    for place, (row, box) in enumerate(zip(rows, boxes, strict=True)):
        share = f"{number(row, 'above'):.1%}" if number(row, "above") else ""
        axes.text(place, box["whishi"] * 2.5, share, ha="center", va="bottom", fontsize=9)
    axes.axhline(published.PROCO_SCALE, color=VERMILION, ls="--", lw=1.2)
    axes.axhline(FLOOR, color=GREY, lw=0.8, zorder=1)
    axes.set_yscale("log")
    axes.set_ylim(FLOOR / 5, 10)
    room = 1.5 if many else 0.6  # a share is wider than a narrow box: beside the first and the last there is room for one
    axes.set_xlim(-room, len(rows) - 1 + room)
    labels = [_short(row) if many else str(row["when"]).replace("first batch", "first\nbatch") for row in rows]
    axes.set_xticks(range(len(rows)), [label if not many or _told(label) else "" for label in labels])
    axes.set_xlabel("end of epoch (1st: the first batch)" if many else "capture")


def _told(label: str) -> bool:
    """Whether one of many captures is named: the first batch, and every fifth epoch."""
    return label == "1st" or (label.isdigit() and int(label) % 5 == 0)


def _short(row: Row) -> str:
    return "1st" if row["when"] == "first batch" else str(row["when"]).removeprefix("epoch ")
