"""Empirical distribution functions, for the figures that draw them."""

from __future__ import annotations

from collections.abc import Iterable


def cumulative(values: Iterable[float]) -> tuple[list[float], list[float]]:
    """The empirical distribution function as steps: values in order, and the share at or below each; it begins at zero.

    Examples:
        >>> cumulative([3.0, 1.0])
        ([1.0, 1.0, 3.0], [0.0, 0.5, 1.0])
    """
    ordered = sorted(values)
    shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
    return [ordered[0], *ordered], [0.0, *shares]
