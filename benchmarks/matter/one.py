"""One concentration, learned by maximum likelihood from the cosines of directions that were drawn at a known one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import pairgrad as pg
from benchmarks.matter.arms import ARFR, CONSISTENT, FLOORED, ORIGINAL, PAIRED, SWITCHED, Arm, Normalizer
from benchmarks.matter.trial import Trial

DIMS = (3, 128, 130)
SAMPLES, STEPS, RATE = 2000, 1500, 0.05
TRUE = (10.0, 30.0, 60.0, 100.0, 150.0, 300.0, 600.0, 1000.0, 2000.0, 3000.0, 6350.0, 10_000.0, 30_000.0, 100_000.0)
ARMS = (PAIRED, ARFR, CONSISTENT, ORIGINAL, SWITCHED, FLOORED)
LARGEST = 1e9  # beyond it nothing is learned any more


def mean_cosine(dim: int, kappa: float, seed: int, samples: int = SAMPLES) -> float:
    """Of draws with their own mean direction: what the likelihood depends on."""
    torch.manual_seed(seed)
    mean = torch.zeros(dim, dtype=torch.float64)
    mean[0] = 1
    draws = pg.VonMisesFisher(mean, torch.tensor(kappa, dtype=torch.float64)).sample((samples,))
    return torch.linalg.vector_norm(draws.mean(0)).item()


def by_adam(potential: Normalizer, dim: int, cosines: Tensor, steps: int = STEPS) -> Tensor:
    """The concentration for each mean cosine after Adam on its logarithm, with a rate that falls to 0, from kappa = p; infinite where it ran away."""
    log_kappa = torch.full_like(cosines, math.log(dim)).requires_grad_()
    optimizer = torch.optim.Adam([log_kappa], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        kappa = log_kappa.exp()
        optimizer.zero_grad()
        (potential(kappa) - kappa * cosines).sum().backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            log_kappa.clamp_(max=math.log(LARGEST))
    return torch.where(log_kappa < math.log(LARGEST) - 1, log_kappa.exp(), math.inf).detach()


def one(seeds: int, few: bool, data_root: Path | None) -> Iterator[Trial]:
    """All concentrations and seeds of a dimension and an arm are learned side by side."""
    truths = (6350.0,) if few else TRUE

    @cache
    def learned(dim: int, arm: Arm) -> dict[tuple[float, int], float]:
        points = [(kappa, seed) for kappa in truths for seed in range(seeds)]
        cosines = torch.tensor([mean_cosine(dim, kappa, seed) for kappa, seed in points], dtype=torch.float64)
        return dict(zip(points, by_adam(arm.of(dim), dim, cosines).tolist(), strict=True))

    for dim in DIMS[1:2] if few else DIMS:
        for arm in with_orders(ARMS, dim):
            for kappa in truths:
                for seed in range(seeds):
                    yield Trial(
                        "one",
                        f"p = {dim}, kappa = {kappa:g}",
                        arm.name,
                        seed,
                        lambda dim=dim, arm=arm, kappa=kappa, seed=seed: {"ratio": learned(dim, arm)[kappa, seed] / kappa},
                    )


def with_orders(arms: tuple[Arm, ...], dim: int) -> tuple[Arm, ...]:
    """Those that there are at this dimension: the recurrence needs integer orders."""
    return tuple(arm for arm in arms if dim % 2 == 0 or arm not in (CONSISTENT, ORIGINAL))
