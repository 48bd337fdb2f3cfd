"""Curves over seeds: the mean as a line, and how far the seeds are spread as a band."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from pairgrad_paper.tables.table import Row, number


def over_seeds(
    axes: Any, rows: Iterable[Row], x: str, y: str, *, scale: float = 1.0, deviations: bool = False, positive: bool = False, **style: Any
) -> None:
    """Draw the means of the rows with equal `x`, wherever every seed has one; the band reaches from the smallest to the largest.

    Args:
        axes: of matplotlib.
        rows: with a column `seed`.
        x: the column of places.
        y: the column of what is drawn, in units of `scale`.
        deviations: the band is a standard deviation of a sample to each side instead.
        positive: leave out what is zero, which a logarithmic axis has not.
        style: of the line.
    """
    values: dict[float, dict[Any, float]] = {}
    seeds = set()
    for row in rows:
        seeds.add(row["seed"])
        values.setdefault(number(row, x), {})[row["seed"]] = scale * number(row, y)
    places = [place for place, each in values.items() if len(each) == len(seeds)]
    found = [list(values[place].values()) for place in places]
    means = [statistics.fmean(each) for each in found]
    axes.plot(places, [math.nan if positive and not mean else mean for mean in means], **style)
    if len(seeds) > 1:
        widths = [statistics.stdev(each) for each in found]
        low = [mean - width for mean, width in zip(means, widths, strict=True)] if deviations else list(map(min, found))
        high = [mean + width for mean, width in zip(means, widths, strict=True)] if deviations else list(map(max, found))
        axes.fill_between(places, low, high, color=style["color"], alpha=0.2, lw=0)
