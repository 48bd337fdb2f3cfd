"""Curves of one argument, and the steps and bases that make the points of straight ones exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch


class Curve(Protocol):
    """How one argument moves: points in its dtype, velocities in float64."""

    def point(self, t: float, /) -> torch.Tensor: ...
    def velocity(self, t: float, /) -> torch.Tensor: ...


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


@dataclass(frozen=True, eq=False)
class GreatCircles:
    """x(t) = cos(w t) base + sin(w t) direction / w with w = |direction| / |base|, row by row: each row turns at a constant distance from zero."""

    base: torch.Tensor
    direction: torch.Tensor  # float64, each row at a right angle to the row of the base

    @property
    def rate(self) -> torch.Tensor:
        """The angle that each row turns by while t grows by 1."""
        return torch.linalg.vector_norm(self.direction, dim=-1, keepdim=True) / torch.linalg.vector_norm(
            self.base.double(), dim=-1, keepdim=True
        )

    def point(self, t: float) -> torch.Tensor:
        angle = t * self.rate
        return (angle.cos() * self.base.double() + t * torch.sinc(angle / math.pi) * self.direction).to(self.base.dtype)

    def velocity(self, t: float) -> torch.Tensor:
        angle = t * self.rate
        return angle.cos() * self.direction - self.rate * angle.sin() * self.base.double()


class Rotation:
    """x(t) = exp(t generator) base, with a skew-symmetric generator in float64: the scalar products of the columns stay what they are.

    By the eigenvalues i w of the generator, which makes x(t) smooth in t. torch.linalg.matrix_exp changes its degree with the size of t, and the small jumps
    of its error look like kinks and defects in float64.
    """

    def __init__(self, base: torch.Tensor, generator: torch.Tensor) -> None:
        self.base = base
        self._rates, self._vectors = torch.linalg.eigh(-1j * generator)
        self._rates = self._rates.unsqueeze(-1)
        self._parts = self._vectors.mH @ base.to(torch.complex128)

    def point(self, t: float) -> torch.Tensor:
        half = t * self._rates / 2  # exp(i w t) - 1 = 2 i sin(w t / 2) exp(i w t / 2), without cancellation
        moved = self._vectors @ (2j * half.sin() * torch.exp(1j * half) * self._parts)
        return (self.base.double() + moved.real).to(self.base.dtype)

    def velocity(self, t: float) -> torch.Tensor:
        return (self._vectors @ (1j * self._rates * torch.exp(1j * t * self._rates) * self._parts)).real


def still(x: torch.Tensor) -> Straight:
    """A curve that stays at x."""
    return Straight(x, torch.zeros_like(x, dtype=torch.float64))


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
