"""Figure class-count-control: score and loss errors against the number of classes, below their certificates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pairgrad_paper.figures.style import BLUE, GREEN, PURPLE, VERMILION, open_axes
from pairgrad_paper.tables.class_count import COUNTS, PRIOR_RATIOS, class_count
from pairgrad_paper.tables.table import Table, Tick

_PRIORS: dict[int, dict[str, Any]] = dict(
    zip(PRIOR_RATIOS, ({"color": BLUE, "marker": "o"}, {"color": PURPLE, "marker": "s"}, {"color": GREEN, "marker": "^"}), strict=True)
)


def data(tick: Tick = lambda: None) -> Table:
    return replace(class_count(tick), name="class-count-control")


def draw(plt: Any, table: Table) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.2), sharey=True)
    places = range(len(COUNTS))
    by_ratio = {ratio: [row for row in table.rows if row["prior_ratio"] == ratio] for ratio in PRIOR_RATIOS}
    even = by_ratio[PRIOR_RATIOS[0]]
    left.plot(places, [row["score_error"] for row in even], color=BLUE, marker="o", label="largest error, the same for all priors")
    left.plot(places, [row["score_certificate"] for row in even], color=BLUE, ls=":", lw=1.6, label="certified at this state")
    left.plot(places, [row["score_bound"] for row in even], color=VERMILION, ls="--", lw=1.8, label="bound of the theorem")
    left.set(title="Scores", ylabel="absolute error")
    for ratio, rows in by_ratio.items():
        right.plot(places, [row["loss_error"] for row in rows], **_PRIORS[ratio], label=f"error, priors {ratio}:1")
        right.plot(places, [row["loss_certificate"] for row in rows], color=_PRIORS[ratio]["color"], ls=":", lw=1.6)
    right.plot([], [], color="black", ls=":", lw=1.6, label="certified at these states")
    right.plot(places, [row["loss_bound"] for row in even], color=VERMILION, ls="--", lw=1.8, label="bound of the theorem")
    right.set(title="Mean cross-entropy")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.set_xticks(list(places), [f"{count:,}" for count in COUNTS])
        axes.set_xlabel("number of classes")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    right.yaxis.set_tick_params(labelleft=True)
    open_axes(left, right)
    figure.tight_layout()
    return figure
