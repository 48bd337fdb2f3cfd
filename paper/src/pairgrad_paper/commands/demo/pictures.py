"""Two pictures for the page: how two descents part, and the learning curves of the arms."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pairgrad_paper.commands.demo.miniature import Seen
from pairgrad_paper.commands.demo.telling import Picture
from pairgrad_paper.figures.style import BLUE, GREEN, SETTINGS, VERMILION, open_axes, pyplot
from pairgrad_paper.report.items import address
from pairgrad_paper.runs import RunDirectory

_LOOKS: dict[str, dict[str, Any]] = {
    "original": {"color": VERMILION, "marker": "o"},
    "consistent": {"color": BLUE, "marker": "s"},
    "arfr": {"color": GREEN, "marker": "^"},
}


def descent_picture(rows: Sequence[tuple[int, Seen]]) -> Picture:
    """Gradients and descents apart, by update."""
    plt = pyplot()
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
        updates = [update for update, _ in rows]
        axes.semilogy(updates, [seen.gradients for _, seen in rows], color=VERMILION, marker="o", label="gradients at one state, apart")
        later = [(update, seen.descents) for update, seen in rows if seen.descents > 0]
        axes.semilogy([update for update, _ in later], [apart for _, apart in later], color=BLUE, marker="s", label="descents apart")
        axes.set_xlabel("update")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("relative distance")
        axes.legend(loc="center right")
        open_axes(axes)
        return Picture(
            _drawn(plt, figure),
            "The distance of the two gradients stays the same from update to update; that of the two descents begins at zero and grows.",
            "Two backward rules for one loss: the losses are equal in every bit, the gradients are not, and the descents part.",
        )


def training_picture(paths: Mapping[str, Path]) -> Picture:
    """Training loss by epoch, of every arm."""
    plt = pyplot()
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
        for place, (name, path) in enumerate(paths.items()):
            epochs = [event for event in RunDirectory.open(path).events() if event["kind"] == "epoch"]
            x, y = [event["epoch"] + 1 for event in epochs], [event["train_total"] for event in epochs]
            axes.plot(x, y, label=name, markevery=(min(3 * place, len(x) - 1), max(1, len(x) // 8)), markerfacecolor="none", **_LOOKS[name])
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("mean training loss")
        axes.legend()
        open_axes(axes)
        return Picture(
            _drawn(plt, figure),
            "Mean training loss by epoch of original, consistent and arfr: three curves that fall together.",
            "Mean training loss of the three arms. Where one curve is seen, they lie on one another.",
        )


def _drawn(plt: Any, figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    return address("image/svg+xml", buffer.getvalue())
