"""Lines through states: which directions are looked along, and what was observed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from pairgrad.coherence.measure.differences import Difference
from pairgrad.coherence.measure.limits import LADDER, SMALLEST_EFFECT, TELLING
from pairgrad.coherence.measure.panel import Panel, measure, noise_allowance
from pairgrad.coherence.measure.path import Line, Path, Pullable, guarded, random_cotangent
from pairgrad.coherence.measure.state import Reading, both_methods, combined, examine
from pairgrad.coherence.subject.curves import Straight, power_of_two_below, random_signs, scales, snapped, still
from pairgrad.coherence.subject.subject import Evaluation, Point, Stopped, Subject

# In grad_output the gradient is linear, without noise along a line, while the second backward rounds: only a missing part is called a defect there.
GROSS = 0.1
_CERTAIN = 0.01  # of the defect of a second derivative: what it may be off by at the most; sums over many kinks are known far worse
_SUBTLE = 1e-6  # a defect of a second derivative so small that it is near the limit, where few digits of it are known
_TIES = 0.01  # a tie that is handled wrongly is off by more; what is less is how gradients of large arguments round
FEW = 4  # coordinates that get lines of their own
SEPARATE = 12  # tensors that get lines of their own; more are put into that many groups
OUTPUTS = 24  # likewise for outputs
ALONG, ACROSS = "all tensors, along the gradient", "all tensors, along a random direction"  # the lines of effort "whole"


# The first segment on which all tensors of a model move at once. A thousand small steps to the same side are a large one.
_FIRST = {torch.float64: 2.0**-12, torch.float32: 2.0**-13, torch.float16: 2.0**-3, torch.bfloat16: 2.0**-3}
_FACTOR, _SEGMENTS = 8.0, 4  # from one to the next, and how many there are at the most


@dataclass(frozen=True, eq=False)
class Observation:
    """What one line said of one state."""

    state: str
    argument: str
    reading: Reading
    line: Line
    scale: float | None  # by which every moved coordinate moves, if they all move alike
    order: int = 1

    @property
    def absolute(self) -> float | None:
        """Size of the defect of the gradient: exact for a single number, otherwise its root mean square over directions is."""
        return None if self.scale is None else abs(self.reading.defect) / self.scale

    @property
    def place(self) -> str:
        """The state, or its neighbourhood where the defect was met beside it; a scan names the place itself."""
        return self.state if self.reading.middle == 0 or " = " in self.state else f"a place near {self.state}"


@dataclass(frozen=True)
class Effort:
    """How much is looked at."""

    relative: int  # lines through a state for each tensor, coordinates moved in proportion to their size
    even: int  # lines with all coordinates of a tensor moved by about its root mean square
    states: int  # drawn from a domain
    tiles: int  # of a scan
    sweeps: int  # scans with all coordinates moving at once
    separate: int = SEPARATE  # tensors that get lines of their own


EFFORTS = {
    "glance": Effort(1, 0, 1, 16, 0),
    "quick": Effort(1, 1, 4, 32, 1),
    "standard": Effort(2, 2, 8, 64, 2),
    "thorough": Effort(6, 6, 32, 256, 4),
    "whole": Effort(2, 0, 1, 16, 1, separate=1),
}


def groups(names: Sequence[str], separate: int = SEPARATE, together: str = "all tensors") -> list[tuple[str, list[int]]]:
    """Tensors that are moved together: each alone, or in groups if there are many; and all of them."""
    indices = list(range(len(names)))
    if len(names) <= separate:
        parts = [(names[i], [i]) for i in indices]
    else:
        chunks = [indices[k::separate] for k in range(separate)]
        parts = [(names[chunk[0]] + f" and {len(chunk) - 1} more" * (len(chunk) > 1), chunk) for chunk in chunks]
    return parts if len(parts) == 1 else [*parts, (together, indices)]


def line_through(
    subject: Pullable,
    point: Point,
    moved: Sequence[int],
    cotangent: Point,
    generator: torch.Generator,
    *,
    relative: bool,
    coordinate: int | None = None,
    towards: Point | None = None,
) -> tuple[Line, float | None]:
    """A straight line through a state with random signs, or those of `towards`, and the step of every coordinate if it is one number; or along one
    coordinate alone.

    Steps are eighths of the size, drawn at random, from five to twelve: with signs alone, a defect of (1, -1) would hide from every other line.
    """
    curves, exact, steps = [], [], set()
    constraints = getattr(subject, "constraints", {})
    for i, tensor in enumerate(point):
        if i not in moved:
            curves.append(still(tensor))
            exact.append(curves[-1])
            continue
        scale = scales(tensor, relative=relative)
        step = scale
        if tensor.numel() > 1:
            step = scale * (torch.randint(5, 13, scale.shape, generator=generator).to(scale) / 8)
        if coordinate is not None:
            step = torch.zeros_like(scale, memory_format=torch.contiguous_format)
            step.view(-1)[coordinate] = scale.reshape(-1)[coordinate]
        steps |= {float(step.max())} if relative and coordinate is None else {_size(step[step > 0])}
        if relative and coordinate is None and tensor.numel() > 1:
            steps |= {0.0}  # no one number
        signs = random_signs(tensor, generator)
        if towards is not None:
            signs = torch.where(towards[i] == 0, signs, towards[i].double().sign())
        constraint, direction = constraints.get(i), signs * step
        base = snapped(tensor, scale) if constraint is None or constraint.exact else tensor
        curves.append(Straight(base, direction) if constraint is None else constraint.curve(base, direction))
        exact.append(Straight(tensor, direction) if constraint is None else constraint.curve(tensor, direction))
        if constraint is not None:
            steps |= {0.0}  # it may be shortened to stay inside
    largest = max((float(tensor.double().abs().max()) for tensor in point if tensor.numel()), default=1.0)
    line = Line(subject, Path(tuple(curves)), cotangent, reference=max(1.0, largest), exact=Path(tuple(exact)))
    roughness = getattr(subject, "roughness", ())
    line.roughness = max((roughness[i] for i in moved if i < len(roughness)), default=0.0)
    return line, steps.pop() if len(steps) == 1 else None


def settled(seen: list[Observation]) -> list[Observation]:
    """All observations of one state, each held against the noise of the value there.

    The noise belongs to the state and the dtype: a line along which the value happens to keep all its bits, such as a shift of all logits, takes that of
    the others.
    """
    noise: dict[torch.dtype, float] = {}
    for o in seen:
        panel = o.reading.panel if o.reading.verdict == "coherent" else None  # elsewhere the fit leaves a defect, or a kink, too
        if panel is not None and not panel.rough:
            noise[o.line.dtype] = max(panel.noise, noise.get(o.line.dtype, 0.0))
    return [_against(observation, noise.get(observation.line.dtype, 0.0)) for observation in seen]


def _against(observation: Observation, noise: float) -> Observation:
    """The observation, unresolved if its defect drowns in the noise that other lines through the state have."""
    reading = observation.reading
    if reading.verdict != "incoherent" or reading.panel is None or reading.panel.noise >= noise:
        return observation
    drowned = max(map(abs, reading.panel.drift)) <= noise_allowance(noise)
    if reading.decided and reading.slope is not None:
        drowned = abs(reading.slope.defect) <= 8 * noise / reading.slope.shortest
    return replace(observation, reading=replace(reading, verdict="unresolved")) if drowned else observation


def observe(subject: Subject, point: Point, state: str, effort: Effort, generator: torch.Generator) -> Iterator[Observation]:
    """Looks along lines through one state, argument by argument and output by output; `settled` is for all of them.

    The first line of every argument comes before the second of any, so that none is left out if time is short. Where a line has shown a defect beyond
    doubt, the argument has its verdict, and gets no further lines.
    """
    if effort.separate == 1 and len(subject.names) > 1:
        yield from _observe_whole(subject, point, state, effort, generator)
        return
    plans = [(name, moved, _plan(subject, point, moved, effort)) for name, moved in groups(subject.names, effort.separate)]
    settled_already: set[str] = set()
    found_here: list[Observation] = []
    for turn in range(max(len(plan) for *_, plan in plans)):
        for name, moved, plan in plans:
            if turn >= len(plan) or name in settled_already:
                continue
            relative, coordinate = plan[turn]
            cotangent = random_cotangent(subject.outputs, generator)
            towards = (
                guarded(subject, lambda cotangent=cotangent: subject.pull(point, cotangent)) if turn == 1 and coordinate is None else None
            )
            gradients = None if towards is None or not towards.finite else towards.gradients  # along them a wrong factor adds up
            line, step = line_through(
                subject, point, moved, cotangent, generator, relative=relative, coordinate=coordinate, towards=gradients
            )
            found = Observation(state, name, examine(line, LADDER[line.dtype]), line, step)
            found_here.append(found)
            yield found
            if found.reading.verdict == "incoherent" and found.reading.relative > 1e3 * found.reading.error:
                settled_already.add(name)
    kinked = {i for o in found_here if o.reading.verdict == "kink" for name, moved, _ in plans if name == o.argument for i in moved}
    if sum(point[i].numel() for i in kinked) > 1:
        cotangent = random_cotangent(subject.outputs, generator)
        line = _shift(subject, point, kinked, cotangent)
        reading = examine(line, LADDER[line.dtype])
        if reading.verdict == "incoherent" and reading.relative < _TIES:
            reading = replace(reading, verdict="unresolved")
        yield Observation(state, subject.names[min(kinked)] if len(kinked) == 1 else "all tensors", reading, line, None)
    if len(subject.outputs) > 1:
        moved = list(range(len(subject.names)))
        for output_name, chosen in groups(subject.output_names, OUTPUTS, "all outputs")[:OUTPUTS]:
            cotangent = tuple(
                random_cotangent([output], generator)[0] if i in chosen else torch.zeros_like(output)
                for i, output in enumerate(subject.outputs)
            )
            line, step = line_through(subject, point, moved, cotangent, generator, relative=True)
            yield Observation(state, f"all tensors, through {output_name}", examine(line, LADDER[line.dtype]), line, step)


def _shift(subject: Subject, point: Point, moved: Iterable[int], cotangent: Point) -> Line:
    """All numbers by the same amount: ties stay ties, so that a maximum has a slope along it where it has none along others."""
    size = float(power_of_two_below(torch.tensor(max(_size(point[i]) for i in moved))))
    curves = [Straight(x, torch.full_like(x, size, dtype=torch.float64)) if i in moved else still(x) for i, x in enumerate(point)]
    path = Path(tuple(curves))
    line = Line(subject, path, cotangent, exact=path)
    line.roughness = max(subject.roughness[i] for i in moved)
    return line


def _plan(subject: Subject, point: Point, moved: Sequence[int], effort: Effort) -> list[tuple[bool, int | None]]:
    """The lines for one group of tensors: whether coordinates move in proportion to their size, and which one moves alone."""
    count = sum(point[i].numel() for i in moved)
    plan: list[tuple[bool, int | None]] = [*[(True, None)] * effort.relative, *[(False, None)] * effort.even]
    if count == 1:
        return [(True, None)] * max(1, min(effort.relative, sum(output.numel() for output in subject.outputs)))
    if len(moved) > 1:
        return [(True, None)]
    if count <= FEW and not any(i in subject.constraints for i in moved):
        return [*((True, k) for k in range(count)), *plan[: effort.relative]]
    return plan


def _observe_whole(subject: Subject, point: Point, state: str, effort: Effort, generator: torch.Generator) -> Iterator[Observation]:
    """All tensors at once: along the signs of the supplied gradient, where the value has most to tell, and along random ones. Kinks are not pursued: in a
    large model they are everywhere. Where time is up, the segments of a line that were looked at are enough for an answer.
    """
    everything = range(len(point))
    cotangent = random_cotangent(subject.outputs, generator)
    gradient = subject.pull(point, cotangent).gradients
    for name, towards in ((ALONG, gradient), *[(ACROSS, None)] * (effort.relative - 1)):
        line, step = line_through(subject, point, everything, cotangent, generator, relative=True, towards=towards)
        found = Reading(0.0, None, None, SMALLEST_EFFECT[line.dtype], "outside")
        try:
            for reading in _from_segment_to_segment(line):
                found = reading
        except Stopped:
            if found.panel is not None:
                yield Observation(state, name, found, line, step)
            raise
        yield Observation(state, name, found, line, step)


def _from_segment_to_segment(line: Line) -> Iterator[Reading]:
    """Readings at the state from more and more segments: shorter ones where kinks decide what is seen, longer ones where noise does, until neither helps."""
    pairs: list[tuple[Panel, Difference]] = []
    best, half = math.inf, _FIRST[line.dtype]
    for _ in range(_SEGMENTS):
        pair = both_methods(line, 0.0, half)
        pairs += pair
        if not pairs:
            half /= _FACTOR  # outside of the domain
            continue
        found = combined(line, pairs, 0.0)
        if found.verdict == "unresolved" and best <= TELLING:
            return  # something on the way that is not at the state
        yield found
        if found.limit > 0.9 * best or (len(pairs) > 1 and found.settled):
            return
        best, half = found.limit, half / _FACTOR if not pair or pair[0][0].rough else half * _FACTOR


class GradientOf:
    """The supplied gradient of a subject, weighted to one number, as a callable of its own: its backward is the second backward of the subject.

    A point is one of the subject, followed by the cotangent, which the gradient depends on too.
    """

    def __init__(self, subject: Subject, weights: Point) -> None:
        self.subject, self.weights, self.constraints = subject, weights, subject.constraints

    def outputs_at(self, point: Sequence[torch.Tensor], /) -> tuple[torch.Tensor, ...]:
        count = len(self.weights)
        gradients = self.subject.pull(point[:count], point[count:]).gradients
        total = sum((gradient.double() * weight).sum() for gradient, weight in zip(gradients, self.weights, strict=True))
        assert isinstance(total, torch.Tensor)
        return (total,)

    def outside(self, error: Exception, /) -> None:
        self.subject.outside(error)

    def pull(self, point: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor], /) -> Evaluation:
        count = len(self.weights)
        return self.subject.pull_twice(point[:count], point[count:], self.weights)


def observe_second(subject: Subject, point: Point, effort: Effort, generator: torch.Generator) -> Iterator[Observation]:
    """Looks at the supplied gradient as a function of the state and of the cotangent, with the second backward as its gradient."""
    one = (torch.ones((), dtype=torch.float64, device=point[0].device),)
    parts = [part for part in groups(subject.names) if part[0] != "all tensors"]
    parts.append(("grad_output", [len(point) + i for i in range(len(subject.outputs))]))
    for name, moved in parts:
        for _ in range(max(2, effort.relative)):
            cotangent = random_cotangent(subject.outputs, generator)
            weights = tuple(random_signs(tensor, generator) * _size(tensor) for tensor in point)
            line, _ = line_through(GradientOf(subject, weights), (*point, *cotangent), moved, one, generator, relative=True)
            line.largest = line.inside = max(
                float(weight.abs().max()) for weight in weights
            )  # a gradient is often the difference of numbers near one
            reading = examine(line, LADDER[line.dtype])
            if name == "grad_output" and reading.verdict == "incoherent" and reading.relative < GROSS:
                reading = replace(reading, verdict="unresolved")
            if reading.verdict == "incoherent" and line.epsilon < 1e-6 and (_is_uncertain(reading) or _in_steps(line, reading)):
                reading = replace(reading, verdict="unresolved")
            yield Observation("the inputs", name, reading, line, None, order=2)


def _is_uncertain(found: Reading) -> bool:
    """Whether a large defect is known to two digits at the most, as what a sum over many kinks looks like."""
    return found.relative > _SUBTLE and found.error > _CERTAIN * found.relative


def _in_steps(line: Line, found: Reading) -> bool:
    """Whether the gradient is right on a short segment around the state, on which the defect would show: it moves from kink to kink.

    Only a longer segment adds these steps up, to something that the second derivative between them does not have.
    """
    shortest = LADDER[line.dtype][-1]
    for half in (*(shortest * 2.0**-k for k in (9, 6, 3)), *LADDER[line.dtype][-1:0:-1]):
        panel = measure(line, found.middle, half)
        if panel is not None and (panel.flat or (not panel.significant and panel.limit <= 0.1 * found.relative)):
            return True
    return False


def _size(tensor: torch.Tensor) -> float:
    """The root mean square, without overflow or underflow of the squares; 1 for zeros."""
    unit = float(power_of_two_below(tensor.abs().max()))
    return unit * math.sqrt(float((tensor.double() / unit).square().mean())) if unit > 0 else 1.0
