"""What is fixed before a pass over the classes: nothing of it depends on values that live on a device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch

from pairgrad.ground.devices import kind
from pairgrad.potentials import Potential, kernels
from pairgrad.sphere.geometry import Temperature

# exp(+-margin), times a gain of 1e-5 or summed over a million classes, stays far from underflow and overflow
MARGIN = {torch.float32: 64.0, torch.float64: 650.0}
SMALLEST_TILE = 256


class Sizes(NamedTuple):
    """How many elements (rows, classes) tiles have.

    Attributes:
        eager: where each operation runs by itself.
        in_graph: where the whole pass is one graph, in tiles of equal size.
        whole: of all classes together, up to where the pass is one graph; beyond it is a loop over calls of one compiled tile.
        streamed: of that tile.
    """

    eager: int
    in_graph: int
    whole: int
    streamed: int


# On the host a tile is 256 kB of float32, so that a chain of operations stays in cache. Compiled, the chain is one loop over all classes at once, and where
# that is too large, tiles stay in cache between the two products. A device has nothing to do between small tiles: launches count there, against memory,
# a dozen tiles of 16 MiB at once in eager mode and two of 112 MiB where the chain is fused. A graph has at most nine of those.
_HOST = Sizes(eager=2**16, in_graph=2**23, whole=2**23, streamed=2**18)
_DEVICE = Sizes(eager=2**22, in_graph=7 * 2**22, whole=9 * 7 * 2**22, streamed=7 * 2**22)
_ALIGNED = 16  # tiles begin at a multiple of this, for matrix products


def sizes(device: torch.device) -> Sizes:
    """The sizes for a device."""
    return _DEVICE if kind(device).queued else _HOST


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
        eager_tile: classes per tile where a pass with this plan runs operation by operation.
        compiled_tiles: whether tiles are visited by a compiled function.
        tangential: whether features are brought to unit length, so that the part of the gradient along the feature can be left out.
        normaliser: whether log sum_j exp z_j is wanted.
        share: what the gradient may be multiplied with where that costs nothing, 1 / rows for a mean; `Result.share` says whether it was.
    """

    pot: Potential
    temperature: Temperature
    terms: tuple[int, int] | None
    fixed: bool
    gradient: bool
    tile: int
    eager_tile: int
    compiled_tiles: bool = False
    tangential: bool = False
    normaliser: bool = False
    share: float = 1.0

    def without_fixed_top(self) -> Plan:
        return replace(self, fixed=False)

    def in_eager(self) -> Plan:
        """For a pass of which nothing is compiled."""
        return replace(self, tile=self.eager_tile, compiled_tiles=False)

    def tiles(self, num_classes: int) -> Iterator[tuple[int, int]]:
        """First and last class of every tile; what is left after whole compiled tiles is not compiled."""
        whole = num_classes - num_classes % self.tile if self.compiled_tiles else num_classes
        for start in range(0, whole, self.tile):
            yield start, min(start + self.tile, whole)
        for start in range(whole, num_classes, self.eager_tile):
            yield start, min(start + self.eager_tile, num_classes)


def plan(
    pot: Potential,
    temperature: Temperature,
    dtype: torch.dtype,
    device: torch.device,
    *,
    rows: int,
    num_classes: int,
    longest: float | None,
    spread: float | None,
    gradient: bool,
    tile: int | None = None,
    compiled: bool = False,
    tangential: bool = False,
    normaliser: bool = False,
) -> Plan:
    """The plan for features no longer than `longest` and log priors within `spread` of each other; None where that is not known."""
    make = _plan.__wrapped__ if isinstance(temperature, torch.Tensor) or torch.compiler.is_compiling() else _plan
    return make(
        pot, temperature, dtype, sizes(device), rows, num_classes, longest, spread, gradient, tile, compiled, tangential, normaliser
    )


@lru_cache(maxsize=256)  # training asks for the same plan at every step
def _plan(
    pot: Potential,
    temperature: Temperature,
    dtype: torch.dtype,
    size: Sizes,
    rows: int,
    num_classes: int,
    longest: float | None,
    spread: float | None,
    gradient: bool,
    tile: int | None,
    compiled: bool,
    tangential: bool,
    normaliser: bool,
) -> Plan:
    reach = longest / temperature if longest is not None and isinstance(temperature, (int, float)) else None
    fixed = reach is not None and spread is not None and 2 * reach + spread <= 2 * MARGIN[dtype]
    tiled = compiled and streams(rows, num_classes, size)
    eager_tile = max(SMALLEST_TILE, size.eager // max(rows, 1)) if tile is None else tile
    if tile is None and tiled:
        tile = max(SMALLEST_TILE, size.streamed // max(rows, 1))
    elif tile is None and compiled:
        number = max(1, math.ceil(rows * num_classes / size.in_graph))
        tile = num_classes if number == 1 else _ALIGNED * math.ceil(num_classes / (number * _ALIGNED))
    elif tile is None:
        tile = eager_tile
    terms = kernels.series_terms(pot, reach, dtype)
    tile, eager_tile = min(tile, num_classes), min(eager_tile, num_classes)
    return Plan(pot, temperature, terms, fixed, gradient, tile, eager_tile, tiled, tangential, normaliser)


def streams(rows: int, num_classes: int, size: Sizes) -> bool:
    """Whether compiled code goes through the classes tile by tile."""
    return rows * num_classes > size.whole
