"""Paths through the space of arguments, and what a callable says along one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard, TypeVar

import torch

from pairgrad.coherence.measure.limits import coarsest
from pairgrad.coherence.subject.subject import Evaluation, Point

OUTSIDE = (ValueError, ArithmeticError, IndexError, RuntimeError, AssertionError)  # what a callable raises outside its domain
_T = TypeVar("_T")


class Pullable(Protocol):
    """What a line needs of the callable: outputs and supplied gradients at a point. A `Subject`, or the gradient of one as a function."""

    def outputs_at(self, point: Sequence[torch.Tensor], /) -> tuple[torch.Tensor, ...]: ...
    def pull(self, point: Sequence[torch.Tensor], cotangent: Sequence[torch.Tensor], /) -> Evaluation: ...


@dataclass(frozen=True, eq=False)
class Straight:
    """x(t) = base + t direction. With a snapped base and steps that are powers of two, x(t) is exact: see `snapped`."""

    base: torch.Tensor
    direction: torch.Tensor  # float64

    def point(self, t: float) -> torch.Tensor:
        return (self.base.double() + t * self.direction).to(self.base.dtype)

    def velocity(self, t: float) -> torch.Tensor:
        return self.direction


@dataclass(frozen=True, eq=False)
class Geometric:
    """x(t) = centre exp(t rate), coordinate by coordinate: for ranges that span orders of magnitude."""

    centre: torch.Tensor
    rate: torch.Tensor  # float64

    def point(self, t: float) -> torch.Tensor:
        return (self.centre.double() * torch.exp(t * self.rate)).to(self.centre.dtype)

    def velocity(self, t: float) -> torch.Tensor:
        return self.centre.double() * torch.exp(t * self.rate) * self.rate


def still(x: torch.Tensor) -> Straight:
    """A curve that stays at x."""
    return Straight(x, torch.zeros_like(x, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class Path:
    """A curve through the space of arguments: one curve for each tensor. Points are in the dtypes of the arguments, velocities in float64."""

    curves: tuple[Straight | Geometric, ...]

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
        self, subject: Pullable, path: Path, cotangent: Sequence[torch.Tensor], *, through_origin: bool = False, reference: float = 1.0
    ) -> None:
        self.subject, self.path, self._through_origin = subject, path, through_origin
        self.reference = reference  # a size that quantities inside the callable are likely to have: that of its arguments, or 1
        self.cotangent = tuple(cotangent)
        self._weights = tuple(u.double() for u in cotangent)
        dtypes = [u.dtype for u in cotangent] + [x.dtype for x in path.point(0.0)]
        self.dtype = coarsest(dtypes)
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
            outputs = _guarded(lambda: self.subject.outputs_at(self.path.point(t)))
            self._values[t] = _contracted(outputs, self._weights) if self._fits(outputs) else None
        found = self._values[t]
        return None if found is None or not math.isfinite(found[0]) else found[0]

    def _fits(self, outputs: Sequence[torch.Tensor] | None) -> TypeGuard[Sequence[torch.Tensor]]:
        """Whether there are as many outputs as at the state, of the same shapes: where they are others, another function begins."""
        return outputs is not None and [output.shape for output in outputs] == [weight.shape for weight in self._weights]

    def _sample(self, t: float) -> Sample | None:
        evaluation = _guarded(lambda: self.subject.pull(self.path.point(t), self.cotangent))
        if evaluation is None or not self._fits(evaluation.outputs):
            return None
        value, value_size = _contracted(evaluation.outputs, self._weights)
        work, gradient_size = _contracted(evaluation.gradients, self.path.velocity(t))
        if not (math.isfinite(value) and math.isfinite(work)):
            return None
        self.largest, self.steepest = max(self.largest, value_size), max(self.steepest, gradient_size)
        return Sample(value, work, value_size, gradient_size)


def _guarded(call: Callable[[], _T]) -> _T | None:
    """The result of a call away from the arguments given, or None where it raises what a callable raises outside its domain."""
    try:
        return call()
    except OUTSIDE:
        return None


def _contracted(tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> tuple[float, float]:
    """<weights, tensors> and sqrt(sum (w t)^2), in float64."""
    total, square = 0.0, 0.0
    for tensor, weight in zip(tensors, weights, strict=True):
        product = tensor.double() * weight
        total += float(product.sum())
        square += float((product * product).sum())
    return total, math.sqrt(square)


def power_of_two_below(x: torch.Tensor) -> torch.Tensor:
    """2**floor(log2 x) for x > 0, in float64; zero stays zero."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.where(mantissa == 0, 0.0, torch.ldexp(torch.full_like(mantissa, 0.5), exponent))


def scales(x: torch.Tensor, *, relative: bool) -> torch.Tensor:
    """The size by which each coordinate is moved, a power of two: its own if `relative`, else the root mean square of the tensor; 1 where that is zero."""
    size = x.double().abs()
    overall = size.square().mean().sqrt()
    overall = torch.where((overall > 0) & torch.isfinite(overall), overall, torch.ones_like(overall))
    wanted = torch.where(size > 0, size, overall) if relative else overall.expand_as(size)
    return power_of_two_below(wanted)


def snapped(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x moved by a few units in its last place, so that x + t scale is exact for every |t| <= 1 that is not too fine a binary fraction."""
    grid = power_of_two_below(torch.maximum(x.double().abs(), scale)) * (4 * torch.finfo(x.dtype).eps)
    return torch.where(grid > 0, torch.round(x.double() / grid) * grid, x.double()).to(x.dtype)


def random_signs(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One of -1 and 1 for each element, in float64."""
    return (torch.randint(0, 2, x.shape, generator=generator) * 2 - 1).to(torch.float64).to(x.device)


def random_cotangent(outputs: Sequence[torch.Tensor], generator: torch.Generator) -> Point:
    """Weights of ordinary size with few bits, so that every dtype holds them; 1 for a single number."""
    if len(outputs) == 1 and outputs[0].numel() == 1:
        return (torch.ones_like(outputs[0]),)
    drawn = []
    for output in outputs:
        sign = random_signs(output, generator)
        eighths = torch.randint(4, 13, output.shape, generator=generator).to(torch.float64).to(output.device) / 8
        drawn.append((sign * eighths).to(output.dtype))
    return tuple(drawn)
