"""What is measured: quantities, dimensions, dtypes and sizes, and the input that every contestant gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

import pairgrad as pg

CONSTRUCTION, SAMPLE, LOG_PROB, LOG_PROB_GRADIENT = "construction", "sample", "log_prob", "log_prob with gradient"
ENTROPY, ENTROPY_GRADIENT, KL, FIT, BATCH = "entropy", "entropy with gradient", "KL divergence", "fit", "log_prob of a batch"
MANY = 1000  # distributions of a batch
DTYPES = ("float64", "float32")
# Concentration per dimension. At p = 512 and 4096 the cosine is small, and classic formulas underflow.
CONCENTRATIONS = {2: 10.0, 3: 10.0, 16: 16.0, 64: 32.0, 512: 11.0, 4096: 64.0}
# Per quantity its columns: a number of directions or distributions, and whether the object is made in the timed call. With a gradient it has to be.
COLUMNS: dict[str, tuple[tuple[int, bool], ...]] = {
    CONSTRUCTION: ((1, True), (MANY, True)),
    SAMPLE: ((1, False), (100, False), (10_000, False)),
    LOG_PROB: ((1, False), (1, True), (100, False), (10_000, False)),
    LOG_PROB_GRADIENT: ((1, True), (100, True), (10_000, True)),
    ENTROPY: ((1, False), (1, True), (MANY, True)),
    ENTROPY_GRADIENT: ((1, True), (MANY, True)),
    KL: ((1, False), (MANY, False)),
    FIT: ((100, True), (10_000, True)),
    BATCH: ((MANY, False), (MANY, True)),
}
QUANTITIES = tuple(COLUMNS)
_MOST_NUMBERS = 8_000_000  # of one input; at p = 4096 there are fewer directions


@dataclass(frozen=True)
class Place:
    """One row: a quantity, in a dtype and dimension, of `count` directions or distributions; `fresh`: the object is made in the call."""

    quantity: str
    dtype: str
    dim: int
    count: int
    fresh: bool

    @property
    def kappa(self) -> float:
        return self.dim / 2 if self.quantity == FIT else CONCENTRATIONS[self.dim]

    @property
    def column(self) -> tuple[int, bool]:
        """The column of the table; the largest number of directions has one for all dimensions."""
        return next(column for column in COLUMNS[self.quantity] if self.fresh == column[1] and self.count <= column[0])

    def __str__(self) -> str:
        made = ", made in the call" if self.fresh and (self.count, False) in COLUMNS[self.quantity] else ""
        return f"{self.quantity}, {self.dtype}, p = {self.dim}, n = {self.count:,}{made}"


def places(quantities: tuple[str, ...], dims: tuple[int, ...]) -> Iterator[Place]:
    for quantity in quantities:
        for dtype in DTYPES:
            for dim in dims:
                for count, fresh in COLUMNS[quantity]:
                    yield Place(quantity, dtype, dim, count if count * dim <= _MOST_NUMBERS else MANY, fresh)


@dataclass(frozen=True)
class Given:
    """Mean direction and concentration (for a batch, one per row), and directions."""

    mu: np.ndarray
    kappa: float | np.ndarray
    x: np.ndarray
    other_mu: np.ndarray  # of the second distribution of a divergence
    other_kappa: float | np.ndarray


def given(place: Place) -> Given:
    generator = torch.Generator().manual_seed(place.dim)
    dtype = getattr(torch, place.dtype)
    batch = place.count if place.count == MANY and place.quantity in (CONSTRUCTION, KL, BATCH) else 0
    mu, other = (_directions((batch, place.dim) if batch else (place.dim,), generator) for _ in range(2))
    many = batch or (place.count == MANY and place.quantity in (ENTROPY, ENTROPY_GRADIENT))
    kappa = torch.linspace(1, 2, MANY, dtype=torch.float64) * place.kappa if many else torch.tensor(place.kappa, dtype=torch.float64)
    directions = place.quantity in (SAMPLE, LOG_PROB, LOG_PROB_GRADIENT, FIT)
    x = pg.VonMisesFisher(mu, kappa).sample((place.count,) if directions else (), generator)
    numbers = kappa.to(dtype).numpy() if many else place.kappa
    return Given(mu.to(dtype).numpy(), numbers, x.to(dtype).numpy(), other.to(dtype).numpy(), 2 * numbers)


def _directions(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(shape, dtype=torch.float64, generator=generator), dim=-1)
