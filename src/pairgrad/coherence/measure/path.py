"""Paths through the space of arguments, and what a callable says along one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard, TypeVar

import torch

from pairgrad.coherence.measure.limits import coarsest
from pairgrad.coherence.subject.curves import Curve, random_signs
from pairgrad.coherence.subject.subject import Evaluation, Point

OUTSIDE = (ValueError, ArithmeticError, IndexError, RuntimeError, AssertionError)  # what a callable raises outside its domain
_T = TypeVar("_T")


class Pullable(Protocol):
    """What a line needs of the callable: outputs and supplied gradients at a point. A `Subject`, or the gradient of one as a function."""

    def outputs_at(self, point: Sequence[torch.Tensor], /) -> tuple[torch.Tensor, ...]: ...
    def pull(self, point: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor], /) -> Evaluation: ...
    def outside(self, error: Exception, /) -> None: ...


@dataclass(frozen=True, eq=False)
class Path:
    """A curve through the space of arguments: one curve for each tensor. Points are in the dtypes of the arguments, velocities in float64."""

    curves: tuple[Curve, ...]

    def point(self, t: float) -> Point:
        return tuple(curve.point(t) for curve in self.curves)

    def velocity(self, t: float) -> Point:
        return tuple(curve.velocity(t) for curve in self.curves)


@dataclass(frozen=True)
class Sample:
    """Along a line at one t: the contracted value, the supplied derivative, and the sizes their rounding errors go by."""

    value: float
    work: float  # <supplied gradient, velocity>
    value_size: float  # sqrt(sum (u_i f_i)^2)
    gradient_size: float  # sqrt(sum (g_j v_j)^2)


class Line:
    """A callable with a fixed cotangent along a path. Samples are kept: panels that touch share their ends.

    Contractions are made in float64, so that they add nothing to the rounding of float32 callables.
    """

    def __init__(
        self,
        subject: Pullable,
        path: Path,
        cotangent: Sequence[torch.Tensor],
        *,
        through_origin: bool = False,
        reference: float = 1.0,
        exact: Path | None = None,
    ) -> None:
        self.subject, self.path, self._through_origin = subject, path, through_origin
        self.inside = 0.0  # a size that numbers on the way to the value are known to have
        self.roughness = 0.0  # of the supplied gradient, from neighbour to neighbour
        self.exact = exact  # the path through the very state, where that of the line is moved by a few units in the last place
        self.reference = reference  # a size that quantities inside the callable are likely to have: that of its arguments, or 1
        self.cotangent = tuple(cotangent)
        self._weights = tuple(u.double() for u in cotangent)
        moved = [x.dtype for x, velocity in zip(path.point(0.0), path.velocity(0.0), strict=True) if bool(velocity.any())]
        seen = [u.dtype for u in cotangent if bool(u.any())]
        self.dtype = coarsest([*moved, *seen] or [x.dtype for x in path.point(0.0)])  # what rests, or has no weight, hides nothing
        self.epsilon = torch.finfo(self.dtype).eps
        self.largest = 0.0  # value_size met so far
        self.steepest = 0.0  # gradient_size met so far
        self.panels = 0  # measured on it
        self._samples: dict[float, Sample | None] = {}
        self._values: dict[float, tuple[float, float] | None] = {}

    def unit(self, t: float) -> float:
        """The change of t that moves the arguments by about their own size: 1, or |t| where t itself is the argument."""
        return abs(t) if self._through_origin and t else 1.0

    def at(self, t: float) -> Sample | None:
        """None where the callable raises, is not finite or has outputs of other shapes: outside its domain."""
        if t not in self._samples:
            self._samples[t] = self._sample(t)
        return self._samples[t]

    def value(self, t: float) -> float | None:
        """The contracted value alone, by the forward alone."""
        sample = self._samples.get(t)
        if sample is not None:
            return sample.value
        if t not in self._values:
            outputs = guarded(self.subject, lambda: self.subject.outputs_at(self.path.point(t)))
            self._values[t] = contracted(outputs, self._weights) if fits(outputs, self._weights) else None
        found = self._values[t]
        return None if found is None or not math.isfinite(found[0]) else found[0]

    def _sample(self, t: float) -> Sample | None:
        evaluation = guarded(self.subject, lambda: self.subject.pull(self.path.point(t), self.cotangent))
        if evaluation is None or not fits(evaluation.outputs, self._weights):
            return None
        value, value_size = contracted(evaluation.outputs, self._weights)
        work, gradient_size = contracted(evaluation.gradients, self.path.velocity(t))
        if not (math.isfinite(value) and math.isfinite(work)):
            return None
        self.largest, self.steepest = max(self.largest, value_size), max(self.steepest, gradient_size)
        return Sample(value, work, value_size, gradient_size)


def guarded(subject: Pullable, call: Callable[[], _T]) -> _T | None:
    """The result of a call away from the inputs, or None where it raises what a callable raises outside its domain.

    A callable that fails at the inputs too, or for want of memory, is not outside of its domain: `Subject.outside` ends the audit.
    """
    try:
        return call()
    except OUTSIDE as error:
        subject.outside(error)
        return None


def fits(outputs: Sequence[torch.Tensor] | None, weights: Sequence[torch.Tensor]) -> TypeGuard[Sequence[torch.Tensor]]:
    """Whether there are as many outputs as at the state, of the same shapes: where they are others, another function begins."""
    return outputs is not None and [output.shape for output in outputs] == [weight.shape for weight in weights]


def contracted(tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> tuple[float, float]:
    """<weights, tensors> and sqrt(sum (w t)^2), in float64."""
    total, square = 0.0, 0.0
    for tensor, weight in zip(tensors, weights, strict=True):
        product = tensor.double() * weight
        total += float(product.sum())
        square += float((product * product).sum())
    return total, math.sqrt(square)


def random_cotangent(outputs: Sequence[torch.Tensor], generator: torch.Generator, *, short: bool = False) -> Point:
    """Weights of ordinary size, 1 for a single number.

    They fill the mantissa of their dtype, so that a backward that rounds them is off. `short` ones are eighths, which every dtype holds exactly.
    """
    if len(outputs) == 1 and outputs[0].numel() == 1:
        return (torch.ones_like(outputs[0]),)
    drawn = []
    for output in outputs:
        sign = random_signs(output, generator)
        eighths = torch.randint(4, 13, output.shape, generator=generator).to(torch.float64)
        if not short:
            eighths = eighths + torch.rand(output.shape, generator=generator, dtype=torch.float64)
        drawn.append((sign * eighths.to(output.device) / 8).to(output.dtype))
    return tuple(drawn)
