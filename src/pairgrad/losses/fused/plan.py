"""What is fixed before a pass over the classes: nothing of it depends on values that live on a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from pairgrad.potentials import Potential, kernels
from pairgrad.sphere.geometry import Temperature

# exp(+-margin), times a gain of 1e-5 or summed over a million classes, stays far from underflow and overflow
MARGIN = {torch.float32: 64.0, torch.float64: 650.0}
# Elements of a (rows, classes) tile. In eager mode 128 kB of float32, so that a chain of operations stays in cache. Compiled, the chain is one
# loop: all classes at once up to the second number, and beyond it a loop over compiled tiles of the third.
_EAGER_TILE = 2**15
_COMPILED_WHOLE = 2**23
_COMPILED_TILE = 2**18
SMALLEST_TILE = 256


@dataclass(frozen=True)
class Plan:
    """How a pass goes through the classes.

    Args:
        pot: the potential.
        temperature: tau.
        terms: lengths of the series that stand for logarithms, or None (`kernels.series_terms`).
        fixed: whether `top` can be fixed in advance.
        gradient: whether the gradient in the features is wanted.
        tile: classes per tile.
        compiled_tiles: whether tiles are visited by a compiled function.
        tangential: whether features are brought to unit length, so that the part of the gradient along the feature can be left out.
    """

    pot: Potential
    temperature: Temperature
    terms: tuple[int, int] | None
    fixed: bool
    gradient: bool
    tile: int
    compiled_tiles: bool = False
    tangential: bool = False

    def without_fixed_top(self) -> Plan:
        return replace(self, fixed=False)

    def tiles(self, num_classes: int) -> Iterator[tuple[int, int]]:
        """First and last class of every tile; what is left after whole compiled tiles is taken in small ones, which are not compiled."""
        whole = num_classes - num_classes % self.tile if self.compiled_tiles else num_classes
        for start in range(0, whole, self.tile):
            yield start, min(start + self.tile, whole)
        for start in range(whole, num_classes, SMALLEST_TILE):
            yield start, min(start + SMALLEST_TILE, num_classes)


def plan(
    pot: Potential,
    temperature: Temperature,
    dtype: torch.dtype,
    *,
    rows: int,
    num_classes: int,
    longest: float | None,
    spread: float | None,
    gradient: bool,
    tile: int | None = None,
    compiled: bool = False,
    tangential: bool = False,
) -> Plan:
    """The plan for features no longer than `longest` and log priors within `spread` of each other; None where that is not known."""
    make = _plan.__wrapped__ if isinstance(temperature, torch.Tensor) or torch.compiler.is_compiling() else _plan
    return make(pot, temperature, dtype, rows, num_classes, longest, spread, gradient, tile, compiled, tangential)


@lru_cache(maxsize=256)  # training asks for the same plan at every step
def _plan(
    pot: Potential,
    temperature: Temperature,
    dtype: torch.dtype,
    rows: int,
    num_classes: int,
    longest: float | None,
    spread: float | None,
    gradient: bool,
    tile: int | None,
    compiled: bool,
    tangential: bool,
) -> Plan:
    reach = longest / temperature if longest is not None and isinstance(temperature, (int, float)) else None
    fixed = reach is not None and spread is not None and 2 * reach + spread <= 2 * MARGIN[dtype]
    tiled = compiled and streams(rows, num_classes)
    if tile is None and compiled and not tiled:
        tile = num_classes
    if tile is None:
        tile = max(SMALLEST_TILE, (_COMPILED_TILE if compiled else _EAGER_TILE) // max(rows, 1))
    return Plan(pot, temperature, kernels.series_terms(pot, reach, dtype), fixed, gradient, min(tile, num_classes), tiled, tangential)


def streams(rows: int, num_classes: int) -> bool:
    """Whether compiled code goes through the classes tile by tile."""
    return rows * num_classes > _COMPILED_WHOLE
