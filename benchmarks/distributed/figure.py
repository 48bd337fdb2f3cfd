"""Time of a step by ranks."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from benchmarks.distributed.record import Record, Timing
from pairgrad.ground.files import write_atomically
from pairgrad_paper.figures.style import BLUE, GREY, SETTINGS, open_axes, pyplot

NAME = "distributed-scaling.png"
ACROSS = 2  # panels beside one another


def draw(record: Record, path: Path) -> Path | None:
    """A panel per contest; None where nothing was timed. No date inside, so equal records are equal files."""
    contests = record.contests()
    if not contests:
        return None
    plt = pyplot()
    with plt.rc_context(SETTINGS):
        rows = math.ceil(len(contests) / ACROSS)
        figure, grid = plt.subplots(rows, min(len(contests), ACROSS), figsize=(3.2 * min(len(contests), ACROSS), 3.4 * rows), squeeze=False)
        panels = list(grid.flat)
        for axes, timings in zip(panels, contests, strict=False):
            _panel(axes, record, timings)
        for axes in grid[:, 0]:
            axes.set_ylabel("milliseconds per step")
        for axes in panels[len(contests) :]:
            axes.axis("off")
        panels[0].legend(loc="lower left")
        open_axes(*panels)
        figure.tight_layout()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
        plt.close(figure)
    return write_atomically(path, buffer.getvalue())


def _panel(axes: Any, record: Record, timings: list[Timing]) -> None:
    case = timings[0].case
    ranks = [timing.case.ranks for timing in timings]
    medians = [1e3 * timing.samples.median for timing in timings]
    quartiles = [[1e3 * q for q in timing.samples.quartiles] for timing in timings]
    errors = [
        [m - low for m, (low, _) in zip(medians, quartiles, strict=True)],
        [high - m for m, (_, high) in zip(medians, quartiles, strict=True)],
    ]
    axes.errorbar(ranks, medians, errors, color=BLUE, marker="o", ms=6, capsize=3, label="measured, quartiles")
    usable = [number for number in ranks if number <= record.cores]
    axes.plot(usable, [medians[0] / number for number in usable], color=GREY, ls=":", label="one rank / ranks")
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [f"{n}" if n <= record.cores else f"{n}\n(on {record.cores} cores)" for n in ranks])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ranks")
    if case.layout == "classes":
        title = f"classes shared out\n$K$ = {case.classes:,}, $B$ = {case.batch}, views: {case.views}"
    else:
        title = f"data parallel, {case.exchange}\n$K$ = {case.classes:,}, $B$ = {case.batch}"
    axes.set_title(title)
