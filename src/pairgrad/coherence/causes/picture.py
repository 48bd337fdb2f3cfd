"""The supplied field on a plane through the inputs, beside the field that belongs to the value; for one number, the two slopes against it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pairgrad.coherence.causes.consequences import Consistent
from pairgrad.coherence.causes.consistent import differentiated_forward
from pairgrad.coherence.measure.path import OUTSIDE, Line
from pairgrad.coherence.measure.scan import Scan
from pairgrad.coherence.subject.curves import scales
from pairgrad.coherence.subject.subject import Point, Subject

GRID = 9  # arrows along each side
SLOPES = 33  # places where the argument is one number
REACH = 0.5  # how far any coordinate moves, over the size of its tensor
_STEP = 2.0**-5  # of differences, over the width of the picture
_CENTRAL = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


@dataclass(frozen=True)
class FieldPicture:
    """The supplied field on a plane through the state, with the value under it, and the consistent field where it is known.

    The axes are in units of the sizes of the coordinates. Rows go along y, entries of a row along x; a place where the callable is not finite holds NaN.
    A function of one number has one row: x is the number itself, and the first entry of each pair is the slope.
    """

    axes: tuple[str, str]
    x: tuple[float, ...]
    y: tuple[float, ...]
    value: tuple[tuple[float, ...], ...]
    supplied: tuple[tuple[tuple[float, float], ...], ...]
    consistent: tuple[tuple[tuple[float, float], ...], ...] | None = None


def field_picture(subject: Subject, consistent: Consistent | None = None, *, size: int = GRID, seed: int = 0) -> FieldPicture | None:
    """What to draw around the inputs; None if the value is not one number, if there is no gradient, or if too little of the plane is in the domain.

    The plane is spanned by the consistent gradient and by the part of the defect across it; if the defect only lengthens or shortens the gradient, by the
    direction in which the gradient turns. The consistent field comes from the forward body if `consistent` does, else from differences of the value in the
    plane, where these tell the two fields apart. Costs up to 2 `size`² pulls, or one and eight calls of the forward for each arrow.
    """
    if len(subject.outputs) != 1 or subject.outputs[0].numel() != 1 or not subject.connected:
        return None
    plane = _Plane(subject)
    supplied = plane.flat(consistent.supplied) if consistent is not None else plane.gradient(plane.origin)
    known = plane.flat(consistent.gradient) if consistent is not None else supplied
    if supplied is None or known is None:
        return None
    first = _unit(known) if _unit(known) is not None else _unit(supplied)
    if first is None:
        return None
    by_forward = consistent is not None and consistent.method == "forward"
    if len(known) == 1:
        first = torch.ones_like(first)
        return _picture(plane, (first,), (subject.names[0], ""), (_ticks(first, SLOPES), (0.0,)), by_forward)
    second, label = _second(plane, first, supplied - known, seed)
    x, y = _ticks(first, size), _ticks(second, size)
    return _picture(plane, (first, second), ("along the gradient", label), (x, y), by_forward)


def slope_picture(subject: Subject, scans: Sequence[tuple[str, Scan, Line]]) -> FieldPicture | None:
    """For a function of one number that was scanned: the slope supplied and the slope of the value, as the segments of the scan measured them. No calls."""
    if len(subject.tensors) != 1 or subject.tensors[0].numel() != 1 or len(subject.outputs) != 1 or subject.outputs[0].numel() != 1:
        return None
    for name, found, line in scans:
        low, high = (found.regions[0].low, found.regions[-1].high) if found.regions else (-math.inf, math.inf)
        places = {
            reading.middle: reading.panel for reading in found.readings if reading.panel is not None and low <= reading.middle <= high
        }
        rows = [(at, places[at], line.value(at)) for at in sorted(places)]
        told = [(at, panel, value) for at, panel, value in rows if value is not None]
        if len(told) < 2:
            continue
        return FieldPicture(
            axes=(name, ""),
            x=tuple(at for at, _, _ in told),
            y=(0.0,),
            value=(tuple(value for _, _, value in told),),
            supplied=(tuple((panel.slope + panel.defect, 0.0) for _, panel, _ in told),),
            consistent=(tuple((panel.slope, 0.0) for _, panel, _ in told),),
        )
    return None


class _Plane:
    """The arguments of a callable as one vector, in units of the sizes of its tensors."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._units = [scales(tensor, relative=False) for tensor in subject.tensors]
        if len(subject.tensors) == 1 and subject.tensors[0].numel() == 1:
            self._units = [torch.ones_like(self._units[0])]  # a single number is its own coordinate
        self.origin = torch.cat([(t.double() / unit).reshape(-1).cpu() for t, unit in zip(subject.tensors, self._units, strict=True)])
        self._cotangent = (torch.ones_like(subject.outputs[0]),)

    def flat(self, gradients: Point) -> torch.Tensor | None:
        """A gradient in these units, or None if it is not finite."""
        vector = torch.cat([(g.double() * unit).reshape(-1).cpu() for g, unit in zip(gradients, self._units, strict=True)])
        return vector if bool(torch.isfinite(vector).all()) else None

    def gradient(self, place: torch.Tensor) -> torch.Tensor | None:
        return self.pull(place)[1]

    def pull(self, place: torch.Tensor) -> tuple[float, torch.Tensor | None]:
        """Value and supplied gradient; NaN and None outside the domain."""
        with contextlib.suppress(*OUTSIDE):
            found = self.subject.pull(self._point(place), self._cotangent)
            value = float(found.outputs[0])
            return (value, self.flat(found.gradients)) if math.isfinite(value) else (math.nan, None)
        return math.nan, None

    def value(self, place: torch.Tensor) -> float:
        with contextlib.suppress(*OUTSIDE):
            return float(self.subject.outputs_at(self._point(place))[0])
        return math.nan

    def _point(self, place: torch.Tensor) -> Point:
        parts = torch.split(place, [tensor.numel() for tensor in self.subject.tensors])
        return tuple(
            (part.reshape(tensor.shape).to(unit) * unit).to(tensor.dtype)
            for part, tensor, unit in zip(parts, self.subject.tensors, self._units, strict=True)
        )


def _unit(vector: torch.Tensor) -> torch.Tensor | None:
    length = float(vector.norm())
    return vector / length if math.isfinite(length) and length > 0 else None


def _ticks(direction: torch.Tensor, count: int) -> tuple[float, ...]:
    """Places along a direction, as far as no coordinate moves by more than REACH."""
    reach = REACH / float(direction.abs().max())
    return tuple(torch.linspace(-reach, reach, count, dtype=torch.float64).tolist())


def _second(plane: _Plane, first: torch.Tensor, defect: torch.Tensor, seed: int) -> tuple[torch.Tensor, str]:
    """The other direction of the plane: the defect across the first; where there is none, the way the gradient turns; else any."""
    turned = plane.gradient(plane.origin + _ticks(first, 3)[2] / 2 * first)
    here = plane.gradient(plane.origin)
    turn = turned - here if turned is not None and here is not None else torch.zeros_like(first)
    for vector, label in ((defect, "across it, towards the defect"), (turn, "across it, the way it turns")):
        across = vector - (vector @ first) * first
        if float(across.norm()) > 1e-3 * float(vector.norm()) > 0 and (unit := _unit(across)) is not None:
            return unit, label
    drawn = torch.randn(len(first), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    unit = _unit(drawn - (drawn @ first) * first)
    return (first if unit is None else unit), "across it, at random"


def _picture(
    plane: _Plane, basis: Sequence[torch.Tensor], axes: tuple[str, str], ticks: tuple[Sequence[float], Sequence[float]], by_forward: bool
) -> FieldPicture | None:
    x, y = ticks
    single = len(basis) == 1
    if single:  # a number is drawn where it is, in proportion to its size
        here = float(plane.origin[0])
        x = [here + t * (abs(here) or 1.0) for t in x]
        places = [[torch.tensor([t], dtype=torch.float64) for t in x]]
    else:
        places = [[plane.origin + s * basis[0] + t * basis[1] for s in x] for t in y]
    value, supplied = [], []
    for row in places:
        pulled = [plane.pull(place) for place in row]
        value.append(tuple(v for v, _ in pulled))
        supplied.append(tuple(_projected(gradient, basis) for _, gradient in pulled))
    if sum(math.isfinite(s[0]) for row in supplied for s in row) < 2:
        return None
    if by_forward:
        with differentiated_forward():
            consistent = [tuple(_projected(plane.gradient(place), basis) for place in row) for row in places]
    else:
        consistent = _by_differences(plane, places, basis, supplied, x[-1] - x[0])
    return FieldPicture(axes, tuple(x), tuple(y), tuple(value), tuple(supplied), None if consistent is None else tuple(consistent))


def _projected(gradient: torch.Tensor | None, basis: Sequence[torch.Tensor]) -> tuple[float, float]:
    if gradient is None:
        return math.nan, math.nan
    return float(gradient @ basis[0]), float(gradient @ basis[1]) if len(basis) == 2 else 0.0


def _by_differences(
    plane: _Plane,
    places: list[list[torch.Tensor]],
    basis: Sequence[torch.Tensor],
    supplied: list[tuple[tuple[float, float], ...]],
    width: float,
) -> list[tuple[tuple[float, float], ...]] | None:
    """Central differences of fourth order; None where they could not tell the two fields apart: then there is nothing to see."""

    def slopes(place: torch.Tensor, step: float) -> tuple[float, float]:
        found = [sum(weight * plane.value(place + k * step * e) for k, weight in _CENTRAL) / step for e in basis]
        return found[0], found[1] if len(found) == 2 else 0.0

    step = _STEP * width
    found = [tuple(slopes(place, step) for place in row) for row in places]
    probes = [(i, j) for i, row in enumerate(places) for j in range(len(row)) if (i + j) % 8 == 0]
    error = _middle([math.dist(slopes(places[i][j], step / 2), found[i][j]) for i, j in probes])
    gap = _middle([math.dist(a, b) for given, row in zip(supplied, found, strict=True) for a, b in zip(given, row, strict=True)])
    return found if gap > 4 * error else None


def _middle(values: Sequence[float]) -> float:
    finite = sorted(value for value in values if math.isfinite(value))
    return finite[len(finite) // 2] if finite else math.inf
