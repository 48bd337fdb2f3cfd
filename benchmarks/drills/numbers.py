"""Random calls of numeric functions over the whole range of their arguments, each result beside an enclosure by ball arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import flint
import numpy as np
import torch
from tests.potentials.ends import ONE_POINT, TWO_POINT, WAYS, Compared, compared, draw, draw_dim, exactly
from tests.tolerances import SCORE_ROUNDINGS
from tests.truth import working_precision

import pairgrad as pg
from benchmarks.drills.row import Row
from benchmarks.learning.exact import Exact
from benchmarks.progress import progress

DTYPES = (torch.float64, torch.float32)
BATCH = 61  # numbers in a call: neither all in vector registers nor all out of them
OF_POTENTIALS, OF_DISTRIBUTIONS, OF_SCORES = 37_000, 16_000, 8_000  # calls of each function in each dtype: a million in all
FEW = 150
TERMS = 16  # eps of the terms of the definition: what is documented for densities and entropies
TEMPERATURE = 0.1

Batch = Callable[[np.random.Generator, torch.dtype, str], Iterator[Compared]]
"""Calls a function at some random states, in one of `WAYS`, and compares."""


def numbers(directory: Path, few: bool) -> Iterator[Row]:
    """One row for each function."""
    functions: list[tuple[str, Batch, int]] = [
        *((f"`potential.{quantity}`", partial(_potential, quantity), OF_POTENTIALS) for quantity in ONE_POINT + TWO_POINT),
        ("`VonMisesFisher.log_prob`", _density, OF_DISTRIBUTIONS),
        ("`VonMisesFisher.entropy`", _entropy, OF_DISTRIBUTIONS),
        ("`vmf_scores`", _scores, OF_SCORES),
    ]
    for index, (name, batch, calls) in enumerate(functions):
        worst, tried, wrong = 0.0, 0, list[Compared]()
        for each, dtype in enumerate(DTYPES):
            rng, round_, least = np.random.default_rng((7, index, each)), 0, tried + (FEW if few else calls)
            while tried < least:
                for found in batch(rng, dtype, WAYS[round_ % len(WAYS)]):
                    tried += 1
                    worst = max(worst, found.error)
                    wrong += [found] * (not found.error <= 1)
                round_ += 1
        progress("numbers", index + 1, len(functions))
        yield Row(_words(name), f"{tried:,} numbers", _found(worst, wrong), len(wrong))


def _words(name: str) -> str:
    return name.replace("potential.concentration from complement`", "potential.concentration(..., complement=)`")


def _found(worst: float, wrong: list[Compared]) -> str:
    if not wrong:
        return f"largest error {worst:.2f} of the documented one"
    first = max(wrong, key=lambda found: found.error)
    return (
        f"{len(wrong)} went wrong, the worst: {first.quantity} in {first.dtype} at dim {first.dim}, {first.points}: got {first.got!r}, "
        f"expected {first.expected!r}, {first.error:.3g} times the documented error"
    )


def _potential(quantity: str, rng: np.random.Generator, dtype: torch.dtype, way: str) -> Iterator[Compared]:
    dim = draw_dim(rng)
    return compared(quantity, dtype, dim, *draw(rng, quantity, dim, dtype, BATCH), way=way)


def _distribution(rng: np.random.Generator, dtype: torch.dtype) -> tuple[int, torch.Tensor, torch.Tensor]:
    """A dimension, a direction along the first axis, and concentrations for which every term of a density is a number of the dtype."""
    dim = draw_dim(rng)
    (kappa,) = draw(rng, "value", dim, dtype, BATCH)
    mean = torch.zeros(dim, dtype=dtype)
    mean[0] = 1
    return dim, mean, kappa.abs().clamp(max=torch.finfo(dtype).max / 8)


def _parts(kappas: torch.Tensor, way: str) -> tuple[torch.Tensor, ...]:
    """A single concentration takes another way through the library."""
    return kappas.split(1 if way == "one" else len(kappas))


def _log_area(dim: int) -> flint.arb:
    half = flint.arb(dim) / 2
    return flint.arb(2).log() + half * flint.arb.pi().log() - half.lgamma()


def _density(rng: np.random.Generator, dtype: torch.dtype, way: str) -> Iterator[Compared]:
    """kappa - Phi(kappa) - kappa |x - mu|^2 / 2 - log |S|, at directions from mu itself to its opposite."""
    dim, mean, kappas = _distribution(rng, dtype)
    angle = math.pi * 10 ** rng.uniform(-9, 0) if rng.random() < 0.9 else rng.choice([0.0, math.pi])
    x = torch.zeros(dim, dtype=dtype)
    x[0], x[1] = math.cos(angle), math.sin(angle)
    got = torch.cat([pg.VonMisesFisher(mean, part).log_prob(x) for part in _parts(kappas, way)])
    with working_precision(320):
        distance = ((1 - flint.arb(x[0].item())) ** 2 + flint.arb(x[1].item()) ** 2) / 2
        area = _log_area(dim)
    for kappa, result in zip(kappas.tolist(), got.tolist(), strict=True):
        deficit = exactly("deficit", dim, kappa)
        with working_precision(320):
            drop = flint.arb(kappa) * distance
            truth, terms = deficit - drop - area, deficit + drop + abs(area)
            yield _beside("log_prob", dtype, dim, (kappa, angle), result, truth, terms)


def _entropy(rng: np.random.Generator, dtype: torch.dtype, way: str) -> Iterator[Compared]:
    """log |S| - (kappa R - Phi(kappa))."""
    dim, mean, kappas = _distribution(rng, dtype)
    got = torch.cat([pg.VonMisesFisher(mean, part).entropy() for part in _parts(kappas, way)])
    with working_precision(320):
        area = _log_area(dim)
    for kappa, result in zip(kappas.tolist(), got.tolist(), strict=True):
        value, slope = exactly("value", dim, kappa), exactly("slope", dim, kappa)
        with working_precision(320):
            truth, terms = area + value - kappa * slope, abs(area) + value + kappa * slope
            yield _beside("entropy", dtype, dim, (kappa,), result, truth, terms)


def _beside(
    quantity: str, dtype: torch.dtype, dim: int, points: tuple[float, ...], got: float, truth: flint.arb, terms: flint.arb
) -> Compared:
    allowed = TERMS * torch.finfo(dtype).eps * terms
    error = float(abs(flint.arb(got) - truth) / allowed) if math.isfinite(got) else math.inf
    return Compared(quantity, dtype, dim, points, got, float(truth), error)


def _scores(rng: np.random.Generator, dtype: torch.dtype, way: str) -> Iterator[Compared]:
    """Unit features beside classes of any concentration, near them, opposite, or anywhere."""
    dim = int(2 ** rng.uniform(1, 8))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    features = torch.nn.functional.normalize(torch.randn(4, dim, generator=generator, dtype=torch.float64), dim=-1)
    spread = 10 ** rng.uniform(-8, 1)
    rows = features[:3] * rng.choice([-1.0, 1.0]) + spread * torch.randn(3, dim, generator=generator, dtype=torch.float64)
    kappas = torch.from_numpy(10 ** rng.uniform(-3, 5, 3))
    features, rows, kappas = features.to(dtype), rows.to(dtype), kappas.to(dtype)
    got = pg.vmf_scores(features, pg.ClassState(rows, kappas), TEMPERATURE)
    truth = Exact.of(features, rows, kappas, TEMPERATURE).scores()
    allowed = SCORE_ROUNDINGS * torch.finfo(dtype).eps / 2 / TEMPERATURE
    for row, exact in zip(got.double().tolist(), truth.tolist(), strict=True):
        for kappa, result, wanted in zip(kappas.tolist(), row, exact, strict=True):
            error = abs(result - wanted) / allowed if math.isfinite(result) else math.inf
            yield Compared("score", dtype, dim, (kappa, spread), result, wanted, error)
