"""Ratio fidelity across feature dimensions: Table dimension-main, with a column for `"paired"`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

import pairgrad as pg
from pairgrad.ground.arithmetic import BallArithmetic
from pairgrad.potentials.reference import Balls

DIMENSIONS = (64, 128, 256, 512, 1024, 2048, 4096)
POINTS = 61
PUBLISHED_ARFR = {64: 2.74e-6, 128: 3.29e-7, 256: 4.03e-8, 512: 4.99e-9, 1024: 6.21e-10, 2048: 7.74e-11, 4096: 9.66e-12}

# CUSF [Plesner_2024], adjacent log-Bessel values in CPU float64, as the paper printed it; the library itself is not a dependency.
PUBLISHED_CUSF = {64: 3.37e-12, 128: 2.38e-11, 256: 2.29e-11, 512: 1.85e-11, 1024: 2.45e-11, 2048: 8.87e-11, 4096: 5.76e-10}


@dataclass(frozen=True)
class RatioFidelity:
    """Largest errors of the ratio over the paper's 61 concentrations, x / nu from 1e-3 to 1e3."""

    dim: int
    arfr: float  # absolute, of the formula itself (evaluated in balls)
    arfr_published: float | None
    certificate: float  # nu^-3, eq. a2-bound
    log_bessel: float  # absolute, two accurate logarithms combined in float64
    cusf_published: float | None
    paired_float64: float  # relative, of the kernel in float64, rounding included
    paired_float32: float

    HEADER = (
        "dim",
        "arfr_error",
        "arfr_published",
        "certificate",
        "log_bessel_error",
        "cusf_published",
        "paired_float64_relative",
        "paired_float32_relative",
    )

    def row(self) -> tuple[float | int | None, ...]:
        errors = (
            self.arfr,
            self.arfr_published,
            self.certificate,
            self.log_bessel,
            self.cusf_published,
            self.paired_float64,
            self.paired_float32,
        )
        return (self.dim, *errors)


def ratio_fidelity(dimensions: tuple[int, ...] = DIMENSIONS) -> Iterator[RatioFidelity]:
    """One row per dimension, as it is computed."""
    import flint

    ops = BallArithmetic()
    for dim in dimensions:
        pot, paper = pg.potential(dim), pg.potential(dim, "arfr")
        balls = Balls(pot.nu, 60)
        x = float(pot.nu) * torch.logspace(-3, 3, POINTS, dtype=torch.float64)
        exact = balls.apply("slope", x)
        before, flint.ctx.prec = flint.ctx.prec, 256
        try:
            formula = [paper.formulas().slope(ops, flint.arb(v)) for v in x.tolist()]
            arfr = max(float(abs(a - r)) for a, r in zip(formula, exact, strict=True))
        finally:
            flint.ctx.prec = before
        certificate = paper.ratio_bound()
        assert certificate is not None
        single = x.to(torch.float32)
        yield RatioFidelity(
            dim=dim,
            arfr=arfr,
            arfr_published=PUBLISHED_ARFR.get(dim),
            certificate=certificate,
            log_bessel=_largest_error(pg.potential(dim, "log-bessel").slope(x), exact),
            cusf_published=PUBLISHED_CUSF.get(dim),
            paired_float64=_largest_relative(pot.slope(x), exact),
            paired_float32=_largest_relative(pot.slope(single), balls.apply("slope", single)),
        )


def _largest_error(got: torch.Tensor, exact: np.ndarray) -> float:
    import flint

    return max(float(abs(flint.arb(g) - r)) for g, r in zip(got.double().tolist(), exact, strict=True))


def _largest_relative(got: torch.Tensor, exact: np.ndarray) -> float:
    import flint

    # the subtraction comes first: it is exact up to the radius of the ball, whatever the working precision
    return max(float(abs((flint.arb(g) - r) / r)) for g, r in zip(got.double().tolist(), exact, strict=True))
