"""The growth of the step, drawn."""

from __future__ import annotations

import io
from pathlib import Path

from benchmarks.learning import growth
from benchmarks.learning.contestants import EAGER, FLOOR, ORIGINAL
from benchmarks.learning.record import Run
from pairgrad.ground.files import write_atomically
from pairgrad_paper.figures.style import BLUE, GREY, SETTINGS, VERMILION, open_axes, pyplot

NAME = "learning-growth.svg"
_LOOKS = {ORIGINAL: (VERMILION, "--", "s"), EAGER[0]: (BLUE, "-", "o"), FLOOR: (GREY, ":", "^")}
_AXES = {"classes": "classes $K$", "dim": "feature dimension $p$", "batch": "images per batch $B$"}


def draw(run: Run, path: Path) -> Path | None:
    """Time against each size; None where nothing was measured. No date inside, so equal measurements are equal files."""
    middle = growth.centre(quick=run.quick)
    lines = {
        variable: [s for name in _LOOKS if (s := growth.series(run.growth, middle, variable, name)) is not None]
        for variable in growth.VARIABLES
    }
    if not any(lines.values()):
        return None
    plt = pyplot()
    with plt.rc_context(SETTINGS):
        figure, panels = plt.subplots(1, len(lines), figsize=(10.0, 4.2), sharey=True)
        for axes, (variable, found) in zip(panels, lines.items(), strict=True):
            for s in found:
                color, line, marker = _LOOKS[s.contestant]
                label = f"{s.contestant}: ${growth.VARIABLES[variable]}^{{{s.time_exponent:.2f}}}$"
                axes.loglog(s.places, [1e3 * t for t in s.seconds], color=color, ls=line, marker=marker, ms=5, label=label)
            ticks = sorted({place for s in found for place in s.places})
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
            axes.set_xlabel(_AXES[variable])
            axes.legend(loc="upper left")
        panels[0].set_ylim(top=10 * panels[0].get_ylim()[1])  # for all panels: room for the legends above the curves
        panels[0].set_ylabel("milliseconds, median, one thread")
        open_axes(*panels)
        figure.tight_layout()
        buffer = io.BytesIO()
        metadata = {"Date": None, "Title": "Growth of the learning step", "Description": f"Time around (B, K, p) = {middle}, log-log."}
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata=metadata)
        plt.close(figure)
    return write_atomically(path, buffer.getvalue())
