"""Whether the rules that a custom Function has besides its backward agree with it: its `jvp`, its `vmap`, and nestings of them.

A `jvp` is held against the backward by <u, J v> = <J^T u, v>, which is exact but for rounding. Where the two differ, short differences of the value decide
which of them is wrong. A function without a rule raises under the transform, and so cannot be wrong in silence: it counts as refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.measure.limits import SMALLEST_EFFECT, coarsest
from pairgrad.coherence.measure.path import OUTSIDE, Path, contracted, random_cotangent
from pairgrad.coherence.measure.slope import Probe, slope_at
from pairgrad.coherence.measure.structure import SLACK, apart, floors_of
from pairgrad.coherence.subject.backward import custom_functions, has_jvp, may_have_vmap
from pairgrad.coherence.subject.curves import Straight, random_signs, scales, still
from pairgrad.coherence.subject.subject import Point, Stopped, Subject

FORWARD, MAPPED, UNTRACKED = "forward mode", "vmap", "no grad"
_KINDS = {FORWARD: "forward-mode", MAPPED: "vmap", UNTRACKED: "no-grad"}  # of findings
_DRAWS = 2  # directions along which forward mode is looked at
_ROUGH = 64.0  # times how far a gradient goes back and forth between neighbours: what forward mode and backward may differ by
_ROUNDING = 2.0**10  # units of rounding that a derivative along a direction may be off by where terms cancel
_T = TypeVar("_T")


@dataclass(eq=False)
class Transforms:
    """What was found: a result for each transform ("right", "wrong", "refused" or "not judged"), the limit of each that is right, and the findings."""

    results: dict[str, str] = field(default_factory=lambda: dict.fromkeys(_KINDS, "not judged"))
    limits: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def refuse(self, transform: str) -> None:
        if self.results[transform] == "not judged":
            self.results[transform] = "refused"

    def right(self, transform: str, limit: float) -> None:
        if self.results[transform] != "wrong":
            self.results[transform] = "right"
            self.limits[transform] = max(limit, self.limits.get(transform, 0.0))

    def wrong(self, transform: str, text: str, relative: float, limit: float, where: str = "") -> None:
        self.results[transform] = "wrong"
        self.findings.append(Finding(_KINDS[transform], "alarm", text, where, {"relative": relative, "error": limit}))


def examine_transforms(subject: Subject, generator: torch.Generator, *, first: bool, second: bool, all_functions: bool) -> Transforms:
    """Looks at forward mode and vmap where custom Functions have rules of their own.

    Args:
        first, second: whether the derivatives of this order are right.
        all_functions: whether to try forward mode where there are none but torch's own functions too.
    """
    found, outputs = Transforms(), subject.graph()[0]
    custom = custom_functions(outputs)
    if not (custom or all_functions) or not subject.dense or subject.random:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of slow fallbacks
        _untracked(subject, found)
        if all(map(has_jvp, custom)):
            _forward_mode(subject, generator, found, first=first)
            if second and found.results[FORWARD] == "right":
                _nested(subject, generator, found)
        else:
            found.refuse(FORWARD)
        if custom and all(map(may_have_vmap, custom)):
            _mapped(subject, generator, found)
        elif custom:
            found.refuse(MAPPED)
    for transform, limit in found.limits.items():
        if transform in (FORWARD, MAPPED) and found.results[transform] == "right":
            text = f"{transform} agrees with the value and the backward, to {limit:.2g} of the derivative"
            found.findings.append(Finding("note", "note", text, "", {"limit": limit}))
    return found


def _tried(subject: Subject, found: Transforms, transform: str, call: Callable[[], _T]) -> _T | None:
    """The result of a call under a transform, or None where that is refused."""
    try:
        return call()
    except Stopped:
        raise
    except (*OUTSIDE, TypeError, AttributeError) as error:
        subject.outside(error)
        found.refuse(transform)
        return None


def _direction(subject: Subject, generator: torch.Generator) -> Point:
    """Random signs times the size of each input, in float64, within the sets that the inputs stay in."""
    drawn = [random_signs(x, generator) * scales(x, relative=True) for x in subject.inputs]
    return tuple(
        subject.constraints[i].project(x, v) if i in subject.constraints else v
        for i, (x, v) in enumerate(zip(subject.inputs, drawn, strict=True))
    )


def _allowed(subject: Subject) -> float:
    """How far two ways to one derivative may differ, over its size."""
    dtype = coarsest([tensor.dtype for tensor in (*subject.tensors, *subject.outputs)])
    return max(SMALLEST_EFFECT[dtype], _ROUGH * max(subject.roughness), _ROUNDING * torch.finfo(dtype).eps)


def _untracked(subject: Subject, found: Transforms) -> None:
    """The value where no gradient is requested is the one that is differentiated."""
    value = _tried(subject, found, UNTRACKED, subject.untracked)
    if value is None:
        return
    off, slack = apart(value, subject.outputs), _slack(subject)
    if off > slack:
        text = f"under torch.no_grad the value is another, off by {off:.2g} of its size: what is evaluated is not what is differentiated"
        found.wrong(UNTRACKED, text, off, slack)
    else:
        found.right(UNTRACKED, slack)


def _forward_mode(subject: Subject, generator: torch.Generator, found: Transforms, *, first: bool) -> None:
    """By the backward if that is right, else by the value."""
    limit = _allowed(subject)
    for _ in range(_DRAWS):
        direction, cotangent = _direction(subject, generator), random_cotangent(subject.outputs, generator)
        pushed = _tried(subject, found, FORWARD, lambda direction=direction: subject.push(subject.tensors, direction))
        if pushed is None:
            return
        weights = tuple(weight.double() for weight in cotangent)
        off = apart(pushed.outputs, subject.outputs)
        if off > SLACK[coarsest([output.dtype for output in subject.outputs])]:
            found.wrong(FORWARD, f"under forward mode the value is another, off by {off:.2g} of its size", off, limit)
            return
        along, spread = contracted(pushed.gradients, weights)
        pulled = subject.pull(subject.tensors, cotangent)
        supplied, size = contracted(pulled.gradients[: len(direction)], direction)
        scale = max(size, spread, abs(along), abs(supplied))
        if scale == 0 or (first and abs(along - supplied) <= limit * scale):
            found.right(FORWARD, limit)
            continue
        moved = [
            subject.constraints[i].curve(x, d) if i in subject.constraints else Straight(x, d)
            for i, (x, d) in enumerate(zip(subject.inputs, direction, strict=True))
        ]
        path = Path((*moved, *map(still, subject.parameters)))
        _decide(subject, path, cotangent, along, supplied, scale, found, first=first)
        return


def _decide(
    subject: Subject, path: Path, cotangent: Point, along: float, supplied: float, scale: float, found: Transforms, *, first: bool
) -> None:
    """Which of forward mode and backward is wrong: the backward is not if it is known to be right, unless there is a kink; else the value decides."""
    dtype = coarsest([x.dtype for x in (*subject.inputs, *cotangent)])
    probe = Probe(subject, path, cotangent, torch.finfo(dtype).eps)
    slope = slope_at(probe, dtype) if probe.finite else None
    numbers, apart_by = {"forward": along, "backward": supplied}, abs(along - supplied) / scale
    kinked = slope is None or slope.kink > 0
    decided = slope is not None and slope.error <= 0.25 * max(abs(along - supplied), abs(slope.defect))
    if kinked or not (first or decided):
        text = f"forward mode and backward differ by {apart_by:.2g} along one direction, and the value does not tell which is right (a kink, or noise)"
        found.findings.append(Finding(_KINDS[FORWARD], "warning", text, "", numbers))
        return
    assert slope is not None
    true, error = (slope.true, slope.error) if decided else (supplied, _allowed(subject) * scale)
    if abs(along - true) <= max(error, 0.1 * abs(along - supplied)):
        text = "forward mode is right along the directions looked at, so the mistake is in the backward alone"
        found.findings.append(Finding(_KINDS[FORWARD], "note", text, "", numbers | {"true": true}))
        found.right(FORWARD, error / scale)
        return
    size = max(abs(true), slope.size)
    off = f"{abs(along - true) / size:.3g} of the true derivative (± {error / size:.1g})"
    text = f"the jvp is off by {off}: along one direction it gives {along:.6g}, not {true:.6g}"
    found.wrong(FORWARD, text, abs(along - true) / size, error / size)


def _nested(subject: Subject, generator: torch.Generator, found: Transforms) -> None:
    """The second derivative along two directions, three ways: reverse over reverse mode, which is known to be right, and two with forward mode."""
    first, other = _direction(subject, generator), _direction(subject, generator)
    cotangent = random_cotangent(subject.outputs, generator)
    unmoved = tuple(torch.zeros_like(x, dtype=torch.float64) for x in subject.parameters)
    twice = _tried(subject, found, FORWARD, lambda: subject.pull_twice(subject.tensors, cotangent, (*other, *unmoved)))
    if twice is None:
        return
    true, size = contracted(twice.gradients[: len(first)], first)
    ways: dict[str, Callable[[], float]] = {
        "forward over reverse mode": lambda: contracted(subject.push_gradients(subject.tensors, first, cotangent), other)[0],
        "reverse over forward mode": lambda: contracted(
            subject.push(subject.tensors, first, tuple(u.double() for u in cotangent)).gradients, other
        )[0],
    }
    gradient = contracted(subject.pull(subject.tensors, cotangent).gradients[: len(first)], first)[1]
    limit = max(_allowed(subject), SLACK[coarsest([x.dtype for x in subject.tensors])])
    for name, way in ways.items():
        try:
            got = way()
        except OUTSIDE as error:
            subject.outside(error)
            continue  # refused, and so not wrong in silence
        scale = max(size, abs(true), abs(got), gradient)
        relative = abs(got - true) / max(size, abs(true), torch.finfo(torch.float64).tiny)
        if abs(got - true) > limit * scale:
            text = f"the second derivative by {name} is off by {relative:.3g} of that by reverse over reverse mode, which is right"
            found.wrong(FORWARD, text, relative, limit)


def _same(subject: Subject, got: Point, expected: Sequence[torch.Tensor], floors: Sequence[float], slack: float) -> tuple[float, str]:
    """How far the gradient that is off most is off, and its name."""
    offs = [
        (apart([g], [e], [floor]), name)
        for g, e, floor, name in zip(got, expected, floors, subject.names, strict=False)
        if g.shape == e.shape
    ]
    misshapen = [(float("inf"), name) for g, e, name in zip(got, expected, subject.names, strict=False) if g.shape != e.shape]
    worst = max([*misshapen, *offs], default=(0.0, ""))
    return worst if worst[0] > slack else (0.0, "")


def _slack(subject: Subject) -> float:
    return max(SLACK[coarsest([x.dtype for x in (*subject.tensors, *subject.outputs)])], 16 * subject.spread)


def _mapped(subject: Subject, generator: torch.Generator, found: Transforms) -> None:
    """Value and gradient under torch.func.vmap, of two different rows, are those of each row alone."""
    rows = [subject.tensors, tuple(x * (1 - 2.0**-6) for x in subject.inputs) + subject.parameters]
    cotangent = random_cotangent(subject.outputs, generator)
    mapped = _tried(subject, found, MAPPED, lambda: subject.map(rows, cotangent))
    loop = _tried(subject, found, MAPPED, lambda: [subject.pull(row, cotangent) for row in rows])
    if mapped is None or loop is None:
        return
    slack = _slack(subject)
    for got, expected in zip(mapped, loop, strict=True):
        shapes = [o.shape for o in got.outputs] == [o.shape for o in expected.outputs]
        value = apart(got.outputs, expected.outputs) if shapes else float("inf")
        if value > slack:
            found.wrong(MAPPED, f"under torch.func.vmap the value of a row is another, off by {value:.2g} of its size", value, slack)
            return
        off, name = _same(subject, got.gradients, expected.gradients, floors_of(subject, expected.gradients), slack)
        if off:
            text = f"under torch.func.vmap the gradient of a row is another, off by {off:.2g} of its size"
            found.wrong(MAPPED, text, off, slack, name)
            return
    found.right(MAPPED, slack)
