"""A synthetic class state with queries in the regime of the paper's captured PATT states: what the tables of frozen states are computed at.

The paper's captured features are not at hand. What is known of them is kept: dimension 512, 100 classes of a long-tailed training set, rectified
features that are not normalised, class means longer than 1 and so concentrations at the cap 1e5, temperature 0.1, 128 queries per view, seed 3407, and
for one of the states the range of r / nu.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

import pairgrad as pg
from pairgrad.experiments.frozen.view import View
from pairgrad.experiments.published import CAPTURED_DIMENSION, CAPTURED_RANGE

SEED = 3407
NUM_CLASSES = 100
BATCH = 128
TEMPERATURE = 0.1
CAP = 1e5
UNSEEN_CONCENTRATION = CAPTURED_DIMENSION * 0.9 / (1 - 0.9**2)  # of a class without samples: a mean of length 0.9
LENGTHS = (10.6, 35.4)  # of the features; with the cosines below, the radii span the printed range
_CLASS_SPREAD, _OWN_CLASS, _NOISE = 0.7, 0.25, 1.5  # against a common direction of coordinates of size 1


@dataclass(frozen=True)
class FrozenState:
    """Features (V, B, p) of V views of one batch, labels (B,), the class state and the log prior (K,), in float64."""

    features: torch.Tensor
    labels: torch.Tensor
    state: pg.ClassState
    log_prior: torch.Tensor

    @property
    def seen(self) -> torch.Tensor:
        """(K,), whether a class is at the cap, and not where it was initialised."""
        return self.state.concentration == CAP

    def view(self, index: int) -> View:
        """One of the views, from 0."""
        return View(self.features[index], self.labels, self.state, TEMPERATURE, self.log_prior)

    def to(self, dtype: torch.dtype) -> FrozenState:
        state = pg.ClassState(self.state.mean_direction.to(dtype), self.state.concentration.to(dtype))
        return FrozenState(self.features.to(dtype), self.labels, state, self.log_prior.to(dtype))


def frozen_state(*, views: int = 2, unseen: int = 0, stretch: float = 1.0) -> FrozenState:
    """The state, the same in every run.

    Args:
        unseen: how many of the rarest classes have no samples yet: a random direction, and the concentration they are initialised with.
        stretch: factor of the lengths of the features; 1 for radii in the printed range.
    """
    generator = torch.Generator().manual_seed(SEED)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    counts = torch.tensor([int(500 * 0.01 ** (k / (NUM_CLASSES - 1))) for k in range(NUM_CLASSES)], dtype=torch.float64)
    common, own = normal(CAPTURED_DIMENSION), normal(NUM_CLASSES, CAPTURED_DIMENSION)
    directions = F.normalize(torch.relu(common + _CLASS_SPREAD * own), dim=1)
    initial = F.normalize(normal(NUM_CLASSES, CAPTURED_DIMENSION), dim=1)
    seen = torch.arange(NUM_CLASSES) < NUM_CLASSES - unseen
    concentration = torch.full((NUM_CLASSES,), CAP, dtype=torch.float64).masked_fill(~seen, UNSEEN_CONCENTRATION)
    state = pg.ClassState(torch.where(seen[:, None], directions, initial), concentration)
    labels = torch.multinomial(counts * seen, BATCH, replacement=True, generator=generator)
    noise = (normal(BATCH, CAPTURED_DIMENSION) + normal(views, BATCH, CAPTURED_DIMENSION)) / 2**0.5  # views share half of it
    rectified = torch.relu(common + _OWN_CLASS * own[labels] + _NOISE * noise)
    low, high = LENGTHS
    lengths = stretch * (low + (high - low) * torch.rand(views, BATCH, 1, generator=generator, dtype=torch.float64))
    return FrozenState(lengths * F.normalize(rectified, dim=-1), labels, state, torch.log(counts / counts.sum()))


def in_printed_range(radius: torch.Tensor) -> bool:
    """Whether every r / nu lies in the range that the paper prints for one state, as rounded there."""
    low, high = CAPTURED_RANGE
    scaled = radius / (CAPTURED_DIMENSION / 2 - 1)
    return bool((scaled >= low - 0.005).all() and (scaled <= high + 0.005).all())
