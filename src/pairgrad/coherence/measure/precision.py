"""Whether a gradient in half precision is as good as its dtype allows: beside the same function in float64, and beside torch's own operations.

Two numbers decide for each argument, from several draws of states and cotangents. The error |g - g64| / |g64| may not exceed what rounding explains: some
units of rounding, and what the gradient changes by if its arguments are rounded once more. And <g - g64, g64> / |g64|^2, the error along the gradient, must be
small on average: rounding to nearest goes either way, so that over many elements a small bias stands out from it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from pairgrad.coherence.finding import Finding
from pairgrad.coherence.measure.limits import coarsest, student_quantile
from pairgrad.coherence.measure.path import guarded, random_cotangent
from pairgrad.coherence.measure.structure import norm
from pairgrad.coherence.subject.curves import random_signs
from pairgrad.coherence.subject.subject import Point, Subject

DRAWS = 16
FEWEST = 4  # draws without which nothing is said
# In units of rounding. Torch's own functions stay below 13 units, and below 0.35 units of bias over thousands of elements, on the CPU.
_ROUNDINGS, _CONDITION, _BIAS = 16.0, 2.0, 0.4
_MANY = 256  # elements from which on a bias is judged
_RATE = 1e-5  # at which a bias is taken for one by chance
_MOVED = 0.125  # of each element: states are drawn as far from the inputs
_TWICE = 2.0  # the error of a reference that a function may have


@dataclass(eq=False)
class Precision:
    """What came of it: "right", "wrong" or "not judged", the largest error that counts as right, and the findings."""

    result: str = "not judged"
    limit: float = math.inf
    findings: list[Finding] = field(default_factory=list)


@dataclass(eq=False)
class _Errors:
    """Of one argument, draw by draw, over the size of the gradient."""

    whole: list[float] = field(default_factory=list)
    along: list[float] = field(default_factory=list)
    condition: list[float] = field(default_factory=list)


def examine_precision(
    subject: Subject, wide: Subject, generator: torch.Generator, reference: Subject | None = None, tolerance: float = 0.0
) -> Precision:
    """Compares a subject in half precision with `wide`, the same function in float64.

    Args:
        reference: torch's own operations in half precision: their error, doubled, is what is allowed then.
        tolerance: errors below it pass.
    """
    errors, value = [_Errors() for _ in subject.tensors], _Errors()
    others = [_Errors() for _ in subject.tensors] if reference is not None else []
    for k in range(DRAWS):
        point = subject.tensors if k == 0 or subject.constraints else _near(subject.tensors, generator)
        cotangent = _weights(subject, generator)
        found = _compared(subject, wide, point, cotangent, generator)
        beside = _compared(reference, wide, point, cotangent, generator) if reference is not None else found
        if found is None or beside is None:
            continue
        for place, numbers in enumerate(found):
            _add(errors[place], numbers)
            if others:
                _add(others[place], beside[place])
        if k:
            _add(value, _value_change(subject, wide, point))
    made = Precision()
    if min((len(e.whole) for e in errors if e.whole), default=0) < FEWEST:
        return made
    for place, found in enumerate(errors):
        if found.whole:
            _judge(made, subject, place, found, value, others[place] if others else None, tolerance)
    return made


def _near(tensors: Point, generator: torch.Generator) -> Point:
    moved = (1 + _MOVED * (2 * torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device) - 1) for x in tensors)
    return tuple((x.double() * factor).to(x.dtype) for x, factor in zip(tensors, moved, strict=True))


def _weights(subject: Subject, generator: torch.Generator) -> Point:
    """Cotangents of another size in every draw, so that a constant that is rounded once is rounded otherwise in each."""
    factor = 0.75 + 0.5 * float(torch.rand((), generator=generator, dtype=torch.float64))
    return tuple((u.double() * factor).to(u.dtype) for u in random_cotangent(subject.outputs, generator))


_Numbers = tuple[float, float, float] | None  # whole error, error along the gradient, condition


def _compared(subject: Subject, wide: Subject, point: Point, cotangent: Point, generator: torch.Generator) -> list[_Numbers] | None:
    """The errors of each gradient at one state; None where a function raises or a gradient is not finite."""
    exact, weights = tuple(x.double() for x in point), tuple(u.double() for u in cotangent)
    rounded = tuple(x * (1 + torch.finfo(y.dtype).eps / 2 * random_signs(x, generator)) for x, y in zip(exact, point, strict=True))
    pulled = [
        guarded(owner, lambda owner=owner, x=x, u=u: owner.pull(x, u))
        for owner, x, u in ((subject, point, cotangent), (wide, exact, weights), (wide, rounded, weights))
    ]
    if any(evaluation is None or not evaluation.finite for evaluation in pulled):
        return None
    low, true, beside = (evaluation.gradients for evaluation in pulled if evaluation is not None)
    return [_relative(g, t, b) for g, t, b in zip(low, true, beside, strict=True)]


def _relative(low: torch.Tensor, true: torch.Tensor, beside: torch.Tensor) -> _Numbers:
    size, tiny = norm([true]), torch.finfo(low.dtype).tiny
    if size <= tiny * math.sqrt(true.numel()):
        return None  # the dtype does not hold it
    error = low.double() - true
    return norm([error]) / size, float((error / size * (true / size)).sum()), norm([beside - true]) / size


def _value_change(subject: Subject, wide: Subject, point: Point) -> _Numbers:
    """The error of the change of the value from the inputs to a state, along the true change: a gradient may have the bias that the value has."""
    low = guarded(subject, lambda: subject.outputs_at(point))
    ends = [guarded(wide, lambda x=x: wide.outputs_at(tuple(y.double() for y in x))) for x in (subject.tensors, point)]
    if low is None or ends[0] is None or ends[1] is None:
        return None
    true = [b - a for a, b in zip(*ends, strict=True)]
    size = norm(true)
    if not (0 < size < math.inf):
        return None
    change = [b.double() - a.double() for a, b in zip(subject.outputs, low, strict=True)]
    error = sum(float(((c - t) / size * (t / size)).sum()) for c, t in zip(change, true, strict=True))
    return abs(error), error, 0.0


def _add(errors: _Errors, numbers: _Numbers) -> None:
    if numbers is not None and all(map(math.isfinite, numbers)):
        for kept, number in zip((errors.whole, errors.along, errors.condition), numbers, strict=True):
            kept.append(number)


def _mean(numbers: Sequence[float]) -> tuple[float, float]:
    """The mean, and what it may be off by."""
    if len(numbers) < FEWEST:
        return 0.0, math.inf
    spread = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return statistics.fmean(numbers), student_quantile(_RATE, len(numbers) - 1) * spread


def _judge(made: Precision, subject: Subject, place: int, found: _Errors, value: _Errors, other: _Errors | None, tolerance: float) -> None:
    dtype = coarsest([subject.tensors[place].dtype, *(output.dtype for output in subject.outputs)])
    unit, name = torch.finfo(dtype).eps / 2, str(dtype).removeprefix("torch.")
    error, condition = statistics.median(found.whole), statistics.median(found.condition)
    bias, uncertain = _mean(found.along)
    allowed, allowed_bias, by = _ROUNDINGS * unit + _CONDITION * condition, _BIAS * unit, "rounding explains"
    if other is not None:
        theirs, their_bias = statistics.median(other.whole), _mean(other.along)
        allowed, allowed_bias = _TWICE * theirs + unit, _TWICE * abs(their_bias[0]) + their_bias[1] + unit / 8
        by = f"the reference has {theirs:.2g}, and twice that is"
    made.limit = allowed if math.isinf(made.limit) else max(made.limit, allowed)
    where, texts = subject.names[place], []
    if error > allowed:
        texts.append((error, f"in {name} the gradient is off by {error:.2g} of the one in float64, where {by} {allowed:.2g}"))
    shared, known = _mean(value.along)
    explained = abs(shared) > known and abs(bias - shared) <= 0.5 * abs(bias)
    if subject.tensors[place].numel() >= _MANY and abs(bias) - uncertain > allowed_bias and not explained:
        count = subject.tensors[place].numel()
        size = f"{bias:+.2g} (± {uncertain:.1g}) of its size over {count} elements"
        texts.append((abs(bias), f"in {name} the gradient is biased by {size}, where rounding leaves less than {allowed_bias:.2g}"))
    for relative, text in texts:
        severity = "alarm" if relative > tolerance else "note"
        made.findings.append(Finding("precision", severity, text, where, {"relative": relative, "error": uncertain, "bias": bias}))
    if any(finding.severity == "alarm" for finding in made.findings):
        made.result = "wrong"
    elif made.result != "wrong":
        made.result = "right"
