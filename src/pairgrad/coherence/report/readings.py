"""Readings of an audit as a report holds them: one row for each line, and the curves of those that speak loudest."""

from __future__ import annotations

from collections.abc import Sequence

from pairgrad.coherence.judge.conclusions import by_argument, of_order, tells
from pairgrad.coherence.measure.explore import Observation
from pairgrad.coherence.measure.panel import work_and_energy
from pairgrad.coherence.report.report import Curve, StateDefect

CURVES = 6  # that a report holds


def state_defect(observation: Observation) -> StateDefect:
    """An observation as a report has it."""
    reading = observation.reading
    return StateDefect(
        state=observation.place,
        argument=observation.argument,
        verdict=reading.verdict,
        relative=reading.relative,
        error=reading.error,
        by_differences=0.0 if reading.difference is None else reading.difference.relative,
        limit=reading.limit,
        absolute=observation.absolute,
        order=observation.order,
        at=reading.middle if " = " in observation.state else None,
    )


def loudest_curves(observations: Sequence[Observation]) -> tuple[Curve, ...]:
    """Work and energy at the place that speaks loudest for each argument."""
    drawn = []
    for _, group in by_argument(of_order(observations, 1)):
        told = [o for o in group if tells(o) and o.reading.panel is not None]
        if told:
            drawn.append(max(told, key=lambda o: (o.reading.verdict == "incoherent", o.reading.relative / max(o.reading.limit, 1e-300))))
    drawn.sort(key=lambda o: (o.reading.verdict != "incoherent", -o.reading.relative))
    return tuple(_curve(observation) for observation in drawn[:CURVES])


def _curve(observation: Observation) -> Curve:
    panel = observation.reading.panel
    assert panel is not None
    t, value, work = work_and_energy(observation.line, panel)
    return Curve(
        state=observation.place,
        argument=observation.argument,
        verdict=observation.reading.verdict,
        t=tuple(t.tolist()),
        value=tuple(value.tolist()),
        work=tuple(work.tolist()),
        allowance=panel.allowance,
    )
