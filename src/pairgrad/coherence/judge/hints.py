"""What a wrong gradient may come from, read off simple ratios (a batch size, two, a sign, a loss scale), a transpose, a swap, or its small size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pairgrad.coherence.measure.gradient import Measured
from pairgrad.coherence.subject.subject import Subject

_SAME = 1e-3  # how near a ratio must be to a number to be called that number
_ACROSS = 0.01  # of the defect: what a multiple of the true gradient may leave over
_SMALL = 1e-6  # relative; what float32 inside of float64 comes to
_LOSS_SCALE = 2**8  # the smallest power of two that is taken for one


def hint(measured: Sequence[Measured], subject: Subject) -> str:
    """A sentence on the argument that is off most; empty if nothing simple fits."""
    off = [m for m in measured if m.certain]
    if not off:
        return ""
    worst = max(off, key=lambda m: m.relative)
    factor = multiple(worst.relative, worst.error, worst.factor)
    if not bool(worst.given.any()):
        return "the supplied gradient is zero: is None returned for this argument, or is it detached?"
    return _swapped(worst, measured, subject, factor) or _rearranged(worst, factor) or _ratio(factor, worst, subject) or _small(worst)


def multiple(relative: float, error: float, factor: float) -> float | None:
    """The factor, if the supplied gradient is that multiple of the true one and little else; None otherwise."""
    if not (math.isfinite(relative) and math.isfinite(factor)):
        return None
    across = math.sqrt(max(0.0, relative**2 - (1 - factor) ** 2))  # |supplied - factor true| / |true|
    return factor if across <= _ACROSS * relative + min(error, 0.05 * relative) else None


def _swapped(worst: Measured, measured: Sequence[Measured], subject: Subject, factor: float | None) -> str:
    for other in measured:
        if other.place == worst.place or not _same(worst.given, other.gradient, other):
            continue
        name = subject.names[other.place]
        if _same(other.given, worst.gradient, worst):
            return f"the gradients of {subject.names[worst.place]} and {name} are swapped: are they returned in the wrong order?"
        if factor is None:
            return f"this is the gradient of {name}: is it returned in the wrong place?"
    return ""


def _rearranged(worst: Measured, factor: float | None) -> str:
    true, given = worst.gradient, worst.given
    if true is None or factor is not None or true.ndim == 0:
        return ""
    if true.ndim >= 2 and _same(given, true.mT.reshape(true.shape), worst):
        square = true.shape[-1] == true.shape[-2]
        return "the numbers are those of the true gradient transposed: " + (
            "a missing transpose?" if square else "reshape instead of transpose?"
        )
    for dim, size in enumerate(true.shape):
        for word, spread in (("sum", true.sum(dim, keepdim=True)), ("mean", true.mean(dim, keepdim=True))):
            if size > 1 and _same(given, spread.expand_as(true), worst):
                return f"every entry along dimension {dim} is the {word} of the true ones: is this dimension taken for a broadcast one?"
    return ""


def _same(given: torch.Tensor, true: torch.Tensor | None, of: Measured) -> bool:
    if true is None or of.uncertainty is None or given.shape != true.shape or not bool(true.any()):
        return False
    slack = 4 * float(of.uncertainty.norm()) + _SAME * float(true.norm())
    return float((given - true).norm()) <= slack


def _ratio(factor: float | None, worst: Measured, subject: Subject) -> str:
    if factor is None or 4 * worst.error > 0.02 * abs(factor):
        return ""

    def near(number: float) -> bool:
        return abs(factor - number) <= 4 * worst.error + _SAME * abs(number)

    for size, name in _sizes(worst, subject).items():
        two = ", or a factor of two" if size == 2 else ""
        if near(1 / size):
            return f"the ratio is 1/{size}, {name}{two}: mean instead of sum?"
        if near(size):
            return f"the ratio is {size}, {name}{two}: sum instead of mean?"
        if size > 2 and near(math.sqrt(size)):
            return f"the ratio is the square root of {size}, {name}: is a division by it missing?"
        if size > 2 and near(1 / math.sqrt(size)):
            return f"the ratio is 1 over the square root of {size}, {name}: is it divided by twice?"
    if near(-1):
        return "the ratio is -1: a wrong sign?"
    if near(2):
        return "the ratio is 2: a term counted twice, or a factor of two too many?"
    if near(0.5):
        return "the ratio is 1/2: a missing factor of two, as from a square?"
    power = round(math.log2(factor)) if factor > 0 else 0
    if near(2.0**power) and power >= math.log2(_LOSS_SCALE):
        return f"the ratio is {2**power} = 2^{power}, a power of two: a loss scale that is not divided out?"
    if near(2.0**power) and -power >= math.log2(_LOSS_SCALE):
        return f"the ratio is 1/{2**-power} = 2^{power}, a power of two: a loss scale that is divided out twice?"
    return ""


def _small(worst: Measured) -> str:
    if worst.relative > _SMALL:
        return ""
    accepted = 10.0 ** math.ceil(math.log10(2 * worst.relative))
    return f"so small a defect may be a solver that stops at its tolerance, or float32 inside: tolerance={accepted:.0e} accepts it"


def _sizes(worst: Measured, subject: Subject) -> dict[int, str]:
    """Numbers that a reduction may have multiplied or divided by, the likeliest first."""
    tensors = [*subject.outputs, *subject.tensors]
    most = max(tensor.ndim for tensor in tensors)  # a vector beside matrices has no batch dimension
    found: dict[int, str] = {}
    for name, sizes in (
        ("the batch size", [tensor.shape[0] for tensor in tensors if tensor.ndim == most > 0]),
        ("the last dimension", [tensor.shape[-1] for tensor in tensors if tensor.ndim]),
        ("the number of elements", [worst.given.numel(), *(tensor.numel() for tensor in tensors)]),
    ):
        for size in sizes:
            if size > 1:
                found.setdefault(size, name)
    return found
