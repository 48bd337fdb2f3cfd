"""Straight-through estimators: a value that moves in steps, with a gradient that is right over long distances only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pairgrad.coherence.measure.panel import Panel, measure
from pairgrad.coherence.measure.path import Line
from pairgrad.coherence.measure.state import Event, locate

LENGTHS = (1.0, 4.0, 16.0, 64.0)
_PIECES = 12
FALLS_TO = 0.2
_SEARCHES = 64  # panels; one search to the end takes about 48


@dataclass(frozen=True)
class StraightThrough:
    """How the residual of value and work, over the work, changes with the length of the segment, and a jump of the value on the way."""

    lengths: tuple[float, ...]
    residuals: tuple[float, ...]
    jump: Event | None

    @property
    def like(self) -> bool:
        """Whether the value leaps and the residual falls as the segment grows: a bug's residual stays."""
        return self.jump is not None and self.falls

    @property
    def falls(self) -> bool:
        """Whether the gradient is right over long distances."""
        return min(self.residuals, default=1.0) < FALLS_TO


def _moves_in_steps(line: Line) -> bool:
    """Whether the value along a segment stands still or leaps, as far as one segment can tell."""
    panel = measure(line, 0.0, 0.25) or measure(line, 0.0, 0.0625)
    if panel is None:
        return False
    stands_still = abs(panel.work + panel.residual) <= 0.05 * panel.absolute_work
    return stands_still or panel.ruggedness > 0.01 * max(map(abs, panel.drift))


def straight_through(line: Line, *, declared: bool = False) -> StraightThrough:
    """Follows a line outwards through a state at which the gradient is not the derivative.

    A jump is looked for where the gradient is right over long distances, or where steps are `declared`.
    """
    if not _moves_in_steps(line):
        return StraightThrough((), (), None)
    lengths, residuals, steepest = [], [], []
    for length in LENGTHS:
        half = length / _PIECES
        pieces = [measure(line, -length + (2 * i + 1) * half, half) for i in range(_PIECES)]
        known = [piece for piece in pieces if piece is not None]
        if len(known) < _PIECES:
            break
        absolute = sum(piece.absolute_work for piece in known)
        if absolute == 0:
            continue
        residuals.append(abs(sum(piece.residual for piece in known)) / absolute)
        lengths.append(length)
        steepest.append(max(known, key=lambda piece: abs(piece.residual) + piece.noise))
    found = StraightThrough(tuple(lengths), tuple(residuals), None)
    return replace(found, jump=_first_jump(line, steepest)) if found.falls or declared else found


def _first_jump(line: Line, pieces: list[Panel]) -> Event | None:
    """The first jump of the value in these pieces; what has cost two searches to the end without one bends, and does not jump."""
    begun = line.panels
    for piece in pieces:
        event = locate(line, piece.middle, piece.half, alone=False)
        if event is not None and event.kind == "jump":
            return event
        if line.panels - begun > _SEARCHES:
            break
    return None
