"""Readings and observations that are made up, for the tests of what follows from them."""

from __future__ import annotations

from typing import Any, cast

from pairgrad.coherence.differences import Difference
from pairgrad.coherence.explore import Observation
from pairgrad.coherence.panel import Panel
from pairgrad.coherence.path import Line
from pairgrad.coherence.state import Event, Reading

NO_LINE = cast(Line, None)


def panel_of(defect: float = 0.0, gradient: float = 1.0, allowance: float = 1e-6, slope: float = 1.0, **others: float) -> Panel:
    """On a segment of half-length 1/2, without noise."""
    numbers: dict[str, Any] = dict.fromkeys(
        ("noise", "gradient_noise", "quadrature", "work", "absolute_work", "residual", "step", "ruggedness"), 0.0
    )
    numbers |= {"middle": 0.0, "half": 0.5, "drift": (defect / 2, 0.0, 0.0), "value_size": 1.0, "rounding": 1e-16} | others
    return Panel(defect=defect, gradient_size=gradient, allowance=allowance, slope=slope, **numbers)


def seen(
    verdict: str,
    argument: str = "x",
    state: str = "the inputs",
    *,
    panel: Panel | None = None,
    difference: float | None = 0.0,
    event: Event | None = None,
    middle: float = 0.0,
    scale: float | None = None,
    order: int = 1,
    line: Line = NO_LINE,
    allowance: float = 1e-7,
) -> Observation:
    known = None if difference is None else Difference(middle, difference, allowance, 1.0)
    return Observation(state, argument, Reading(middle, panel, known, 1e-12, verdict, event), line, scale, order)
