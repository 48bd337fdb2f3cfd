"""How far the supplied gradient is from the derivative of the value at one state: |supplied - true| / |true|, argument by argument, with an error bar.

Few coordinates are measured one by one. Of many, the part of the defect along the supplied gradient is measured, and the part across it is estimated from
random directions: for signs drawn at random, the mean square of a vector along them is its length. The error bar covers that draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from pairgrad.coherence.measure.limits import coarsest
from pairgrad.coherence.measure.path import Path
from pairgrad.coherence.measure.slope import Probe, Slope, sharpened, slope_at
from pairgrad.coherence.subject.curves import Straight, random_signs, scales, still
from pairgrad.coherence.subject.subject import Evaluation, Point, Subject

COORDINATES = 96  # measured one by one up to this many
DIRECTIONS = 16  # drawn where there are more
_SHOWN = 3  # coordinates that are measured where there are more, to show one
_SPREAD = (0.55, 2.35)  # of the mean of 16 squares of normal numbers: their variance lies within these multiples of it, 95 times out of 100


@dataclass(frozen=True, eq=False)
class Measured:
    """The gradient of one argument, as supplied and as the value has it.

    Attributes:
        place: of the argument among the differentiated tensors.
        relative: |supplied - true| / |true|; infinite where the true one is zero.
        error: what that may be off by.
        factor: the number c for which c times the true gradient is nearest to the supplied one.
        index, supplied, true: the element that is off most, of those that were measured, and both gradients there.
        method: "coordinates", "forward" (its body differentiated, and confirmed along directions), or "directions".
        gradient: the true gradient, in full; None by directions.
        given: the supplied one.
        uncertainty: error of each element, absolute; None if `gradient` is.
    """

    place: int
    relative: float
    error: float
    factor: float
    index: tuple[int, ...]
    supplied: float
    true: float
    method: str
    given: torch.Tensor
    gradient: torch.Tensor | None = None
    uncertainty: torch.Tensor | None = None

    @property
    def certain(self) -> bool:
        """Whether it is known to be off."""
        return self.relative > self.error


class Gradients:
    """Measures the gradients at one state for one cotangent."""

    def __init__(self, subject: Subject, point: Point, cotangent: Point) -> None:
        self._subject, self._point, self._cotangent = subject, point, cotangent
        self.pulled: Evaluation = subject.pull(point, cotangent)
        self._weights = [weight.dtype for weight in cotangent if bool(weight.any())]

    def measure(self, place: int, candidate: Point | None = None) -> Measured | None:
        """The gradient of one argument; None where too little of it can be measured.

        Args:
            candidate: what the gradients may be, such as those of the differentiated forward; taken if directions confirm it.
        """
        generator = torch.Generator().manual_seed(0)
        given = self.pulled.gradients[place].double()
        if candidate is not None and self._confirms(place, given, candidate[place].double(), generator):
            error = torch.zeros_like(given)
            return self._compared(place, given, candidate[place].double(), error, "forward")
        if given.numel() <= COORDINATES:
            return self._by_coordinates(place, given)
        return self._by_directions(place, given, generator)

    def _dtype(self, place: int) -> torch.dtype:
        return coarsest([self._point[place].dtype, *self._weights])

    def slope(self, place: int, direction: torch.Tensor) -> Slope | None:
        """The defect along a direction of one argument, or its projection where the argument has a constraint."""
        tensor, constraint = self._point[place], self._subject.constraints.get(place)
        shortened = 1.0
        if constraint is None:
            curve = Straight(tensor, direction)
        else:
            curve = constraint.curve(tensor, direction)
            velocity, wanted = curve.velocity(0.0), constraint.project(tensor, direction)
            length = float(wanted.norm())
            shortened = float((velocity * wanted).sum()) / length**2 if length > 0 else 0.0
            if shortened <= 0 or float((velocity - shortened * wanted).norm()) > 1e-6 * float(velocity.norm()):
                return None  # a constraint may bend a direction, to stay inside, and then it is another one
        path = Path(tuple(curve if i == place else still(other) for i, other in enumerate(self._point)))
        dtype = self._dtype(place)
        probe = Probe(self._subject, path, self._cotangent, torch.finfo(dtype).eps, known=self.pulled)
        found = slope_at(probe, dtype) if probe.finite else None
        if found is None or not math.isfinite(found.error):
            return None
        found = sharpened(probe, found, dtype)
        return replace(found, defect=found.defect / shortened, error=found.error / shortened)

    def _confirms(self, place: int, given: torch.Tensor, candidate: torch.Tensor, generator: torch.Generator) -> bool:
        """Whether a gradient has the slopes that the value has: along the defect it would make, along itself, and along random directions."""
        size = _scale(self._point[place])
        defect = given - candidate
        directions = [_along(vector, size) for vector in (defect, candidate) if bool(vector.any())]
        directions += [size * random_signs(given, generator) for _ in range(2)]
        for direction in directions:
            found = self.slope(place, direction)
            if found is None:
                return False
            expected = float((defect * direction).sum())
            if abs(found.defect - expected) > found.error + 1e-3 * abs(expected):
                return False
        return bool(torch.isfinite(candidate).all())

    def _by_coordinates(self, place: int, given: torch.Tensor) -> Measured | None:
        if place in self._subject.constraints and given.numel() > 1:
            return self._by_directions(place, given, torch.Generator().manual_seed(0))
        steps = scales(self._point[place], relative=True)
        true, error = given.clone().reshape(-1), torch.full((given.numel(),), math.inf, dtype=torch.float64)
        for k in range(given.numel()):
            direction = torch.zeros_like(steps, memory_format=torch.contiguous_format)
            step = float(steps.reshape(-1)[k])
            direction.view(-1)[k] = step
            found = self.slope(place, direction)
            if found is not None:
                true[k] -= found.defect / step
                error[k] = found.error / step
        known = torch.isfinite(error)
        if not bool(known.any()):
            return None
        return self._compared(place, given, true.reshape(given.shape), error.reshape(given.shape), "coordinates")

    def _compared(self, place: int, given: torch.Tensor, true: torch.Tensor, error: torch.Tensor, method: str) -> Measured:
        known = torch.isfinite(error)
        defect, size = torch.where(known, given - true, 0.0), float(torch.where(known, true, 0.0).norm())
        uncertain = float(torch.where(known, error, 0.0).norm())
        off = float(defect.norm())
        relative = off / size if size > uncertain else math.inf if off > uncertain else 0.0
        bar = uncertain / size * (1 + relative) if size > uncertain else math.inf
        if math.isinf(relative):
            bar = 0.0
        worst = int((defect.abs() - torch.where(known, error, 0.0)).reshape(-1).argmax())
        factor = float((given * true)[known].sum()) / size**2 if size > uncertain else math.nan
        return Measured(
            place,
            relative,
            max(bar, 4 * torch.finfo(self._dtype(place)).eps),
            factor,
            _index(worst, given),
            float(given.reshape(-1)[worst]),
            float(true.reshape(-1)[worst]),
            method,
            given,
            true if bool(known.all()) else None,
            error if bool(known.all()) else None,
        )

    def _by_directions(self, place: int, given: torch.Tensor, generator: torch.Generator) -> Measured | None:
        """|defect|^2 = (along the supplied gradient)^2 + (across it)^2."""
        size = _scale(self._point[place])
        constraint = self._subject.constraints.get(place)
        inside = given if constraint is None else constraint.project(self._point[place], given)
        length = float(inside.norm())
        along, along_error = 0.0, 0.0
        unit = inside / length if length > 0 else None
        if unit is not None:
            found = self.slope(place, _along(unit, size))
            if found is None:
                return None
            reach = float(_along(unit, size).norm())
            along, along_error = found.defect / reach, found.error / reach
        squares, errors = [], []
        for _ in range(DIRECTIONS):
            direction = random_signs(given, generator)
            if constraint is not None:
                direction = constraint.project(self._point[place], direction)
            if unit is not None:
                direction = direction - (direction * unit).sum() * unit
            found = self.slope(place, size * direction)
            if found is not None:
                seen, noise = found.defect / size, found.error / size
                squares.append(max(0.0, seen**2 - noise**2))
                errors.append(noise**2)
        if len(squares) < DIRECTIONS // 2:
            return None
        across = sum(squares) / len(squares)
        noise = sum(errors) / len(errors)
        low, high = across * _SPREAD[0], across * _SPREAD[1] + noise
        defect = math.hypot(along, math.sqrt(across))
        bounds = [math.hypot(along, math.sqrt(value)) for value in (low, high)]
        true = [math.sqrt(max(0.0, length**2 - 2 * length * along + value**2)) for value in (defect, *bounds)]
        if true[0] <= along_error:
            return None
        relative = defect / true[0]
        error = max(abs(bound / size - relative) for bound, size in zip(bounds, true[1:], strict=True)) + along_error / true[0]
        factor = (length**2 - length * along) / true[0] ** 2
        shown = self._shown(place, given)
        return Measured(place, relative, error, factor, *shown, "directions", given)

    def _shown(self, place: int, given: torch.Tensor) -> tuple[tuple[int, ...], float, float]:
        """The largest coordinates of the supplied gradient, and of them the one that is off most."""
        steps = scales(self._point[place], relative=True)
        found: list[tuple[float, int, float]] = []
        for k in given.abs().reshape(-1).topk(_SHOWN).indices.tolist():
            direction = torch.zeros_like(steps, memory_format=torch.contiguous_format)
            direction.view(-1)[k] = step = float(steps.reshape(-1)[k])
            slope = self.slope(place, direction)
            if slope is not None:
                found.append((abs(slope.defect), k, slope.defect / step))
        if not found:
            return (), math.nan, math.nan
        _, k, defect = max(found)
        supplied = float(given.reshape(-1)[k])
        return _index(k, given), supplied, supplied - defect


def _scale(tensor: torch.Tensor) -> float:
    """A power of two near the root mean square of a tensor."""
    return float(scales(tensor, relative=False).reshape(-1)[0])


def _along(vector: torch.Tensor, size: float) -> torch.Tensor:
    """The direction of a vector, with its largest element as long as the argument is large."""
    return vector / float(vector.abs().max()) * size


def _index(flat: int, tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), tensor.shape)) if tensor.ndim else ()
