"""The figure of docs/does-it-matter.md."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from statistics import mean
from typing import Any

from benchmarks.matter.seeds import Found, Results, interval
from pairgrad_paper.figures.style import BLACK, BLUE, GREEN, GREY, PURPLE, SETTINGS, VERMILION, open_axes, pyplot

ORANGE = "#E69F00"
STYLES = {
    "paired": (BLUE, "o", "-"),
    "paired, moved": (GREY, "o", "-"),
    "arfr": (GREEN, "v", "--"),
    "consistent": (PURPLE, "s", "--"),
    "original": (VERMILION, "X", "-"),
    "switch at 100": (ORANGE, "D", "-."),
    "log(1e-6 + ive)": (BLACK, "P", ":"),
    "ratio detached": ("#56B4E9", "^", "-"),
}
LINES = (  # dimension, arm, where its words stand, and the words
    (128, "paired", (2.2e4, 1.35), "paired: right"),
    (128, "log(1e-6 + ive)", (11, 8.5), "log(1e-6 + ive), p = 128"),
    (128, "original", (1.8e4, 0.25), "original,\np = 128"),
    (3, "switch at 100", (11, 0.0055), "switch at 100, p = 3"),
)
LOSSES = (  # experiment, setting, what, the sign of a loss, and the words
    ("regression", "simulated, p = 128", "nats", 1, "regression, p = 128"),
    ("regression", "simulated, p = 3", "nats", 1, "regression, p = 3"),
    ("regression", "words, p = 50", "nats", 1, "directions of words, p = 50"),
    ("classes", "newsgroups, p = 384", "nats", 1, "newsgroups classifier, p = 384"),
    ("autoencoder", "digits, p = 16", "elbo", -1, "autoencoder, p = 16"),
    ("autoencoder", "digits, p = 64", "elbo", -1, "autoencoder, p = 64"),
    ("cap", "newsgroups, p = 128", "nats", 1, "features by SGD at the cap"),
)
SMALL = 0.01  # nats: the axis is linear below


def picture(trials: Mapping[str, Found]) -> bytes:
    """Learned beside true concentrations, and what a wrong slope costs, as a PNG."""
    plt, results = pyplot(), Results(trials)
    with plt.rc_context(SETTINGS):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(5, 6))
        _learned(left, results)
        _costs(right, results)
        open_axes(left, right)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Title": "Does it matter?"})
        plt.close(figure)
    return buffer.getvalue()


def _learned(axes: Any, results: Results) -> None:
    for dim, arm, place, words in LINES:
        points = []
        for setting in results.settings("one"):
            if setting.startswith(f"p = {dim},"):
                ratios = results.values("one", setting, arm, "ratio")
                if not any(math.isnan(ratio) for ratio in ratios):
                    points.append((float(setting.split("kappa = ")[1]), mean(ratios)))
        colour, marker, line = STYLES[arm]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, ls=line, ms=5, lw=1.6)
        axes.annotate(words, place, color=colour, fontsize=9.5)
    axes.set(xscale="log", yscale="log", xlabel=r"true concentration $\kappa$", ylabel=r"learned $\kappa$ / true $\kappa$", ylim=(2e-3, 20))
    axes.set_title("Maximum likelihood stops where the supplied slope says", loc="left")


def _costs(axes: Any, results: Results) -> None:
    """A row for each setting, a mark with its confidence interval for each arm."""
    named: set[str] = set()
    for row, (experiment, setting, what, sign, _) in enumerate(LOSSES):
        arms = [arm for arm in results.arms(experiment, setting) if arm != "paired"]
        for place, arm in enumerate(arms):
            values = [sign * value for value in results.differences(experiment, setting, arm, what)]
            colour, marker, _ = STYLES[arm]
            y = row + (place - (len(arms) - 1) / 2) * 0.11
            if any(math.isnan(value) for value in values):
                axes.plot(0.985, y, marker=marker, color=colour, ms=5, transform=axes.get_yaxis_transform())
                axes.annotate(
                    "diverged  ", (0.985, y), xycoords=axes.get_yaxis_transform(), ha="right", va="center", fontsize=9, color=colour
                )
                continue
            middle, half = interval(values)
            axes.errorbar(middle, y, xerr=half, fmt=marker, color=colour, ms=5, lw=1.2, label=None if arm in named else arm)
            named.add(arm)
    axes.axvline(0, color=BLUE, lw=1)
    axes.annotate(
        "paired",
        (0, 1),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        color=BLUE,
        fontsize=9.5,
    )
    axes.set_xscale("symlog", linthresh=SMALL, linscale=0.6)
    axes.set_yticks(range(len(LOSSES)), [words for *_, words in LOSSES])
    axes.invert_yaxis()
    axes.set_xlabel("held-out nats per sample lost beside paired (95 % interval over seeds)")
    axes.set_title("What it costs", loc="left", pad=14)
    axes.set_xlim(right=3000)
    axes.set_xticks([-1, -0.1, 0, 0.1, 1, 10, 100], ["−1", "−0.1", "0", "0.1", "1", "10", "100"])
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=4)
