"""What line searches and trust regions make of a gradient that is not the loss's.

The problem is a regression of concentrations: log kappa_i = w' x_i + b at known mean directions. It is smooth and has one minimum; the likelihood of the exact
density at the result says how far from it an optimizer stopped.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

import pairgrad as pg
from benchmarks.matter.arms import ARFR, CONSISTENT, FLOORED, ORIGINAL, PAIRED, SWITCHED, Arm, Normalizer, exact_potential
from benchmarks.matter.trial import Trial

DIM, SAMPLES, INPUTS = 128, 2000, 5
MIDDLE, SPREAD = 1500.0, 0.8  # of the true concentrations
ARMS = (PAIRED, ARFR, CONSISTENT, ORIGINAL, SWITCHED, FLOORED)
SMALL = 1e-6  # of the reported gradient, relative to the first: what counts as converged


def problem(seed: int) -> tuple[Tensor, Tensor]:
    """Inputs with a column of ones, and the cosines of draws to their known mean directions."""
    torch.manual_seed(2000 + seed)
    inputs = torch.cat([torch.randn(SAMPLES, INPUTS, dtype=torch.float64), torch.ones(SAMPLES, 1, dtype=torch.float64)], 1)
    weights = torch.randn(INPUTS, dtype=torch.float64)
    kappa = MIDDLE * (SPREAD * (inputs[:, :-1] @ (weights / weights.norm()))).exp()
    mean = torch.zeros(DIM, dtype=torch.float64)
    mean[0] = 1
    return inputs, pg.VonMisesFisher(mean.expand(SAMPLES, -1), kappa).sample()[:, 0]


class Loss:
    """What is minimized: reported value, supplied gradient, and the derivative of that gradient in a direction; calls are counted."""

    def __init__(self, potential: Normalizer, inputs: Tensor, cosines: Tensor) -> None:
        self.potential, self.inputs, self.cosines, self.calls = potential, inputs, cosines, 0

    def of(self, weights: Tensor) -> Tensor:
        self.calls += 1
        kappa = (self.inputs @ weights).clamp(-20, 25).exp()
        return (self.potential(kappa) - kappa * self.cosines).mean()

    def pair(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(weights).requires_grad_()
        value = self.of(point)
        (gradient,) = torch.autograd.grad(value, point)
        return value.item(), gradient.numpy()

    def turned(self, weights: np.ndarray, direction: np.ndarray) -> np.ndarray:
        point = torch.from_numpy(weights).requires_grad_()
        (gradient,) = torch.autograd.grad(self.of(point), point, create_graph=True)
        (product,) = torch.autograd.grad(gradient @ torch.from_numpy(direction), point)
        return product.numpy()


def lbfgs(loss: Loss, start: np.ndarray) -> tuple[np.ndarray, int, str]:
    """torch's, with a strong Wolfe line search."""
    weights = torch.from_numpy(start.copy()).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=500, max_eval=2000, tolerance_grad=1e-9, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss.of(weights)
        value.backward()
        return value

    optimizer.step(closure)
    return weights.detach().numpy(), optimizer.state[weights]["n_iter"], ""


def by_scipy(method: str, **options: Any) -> Callable[[Loss, np.ndarray], tuple[np.ndarray, int, str]]:
    def solve(loss: Loss, start: np.ndarray) -> tuple[np.ndarray, int, str]:
        more = {"hessp": loss.turned} if method.startswith("trust") else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = scipy.optimize.minimize(loss.pair, start, jac=True, method=method, options=options, **more)
        return found.x, found.nit, "" if found.success else str(found.message).strip().rstrip(".")

    return solve


def adam(loss: Loss, start: np.ndarray) -> tuple[np.ndarray, int, str]:
    weights = torch.from_numpy(start.copy()).requires_grad_()
    optimizer = torch.optim.Adam([weights], 0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    for _ in range(500):
        optimizer.zero_grad()
        loss.of(weights).backward()
        optimizer.step()
        schedule.step()
    return weights.detach().numpy(), 500, ""


METHODS: dict[str, Callable[[Loss, np.ndarray], tuple[np.ndarray, int, str]]] = {
    "Adam (torch)": adam,
    "L-BFGS, strong Wolfe (torch)": lbfgs,
    "L-BFGS-B (SciPy)": by_scipy("L-BFGS-B", maxiter=500, ftol=1e-14, gtol=1e-9),
    "trust region, Newton-CG (SciPy)": by_scipy("trust-ncg", maxiter=500, gtol=1e-9),
}


@lru_cache(maxsize=1)
def minimum(seed: int) -> tuple[Tensor, Tensor, np.ndarray, float]:
    """The problem, the weights of the exact likelihood's minimum, and the minimum."""
    inputs, cosines = problem(seed)
    exact = Loss(exact_potential(DIM), inputs, cosines)
    best, _, _ = by_scipy("trust-ncg", maxiter=500, gtol=1e-10)(exact, _start())
    return inputs, cosines, best, exact.pair(best)[0]


def _start() -> np.ndarray:
    weights = np.zeros(INPUTS + 1)
    weights[-1] = math.log(DIM)
    return weights


def measured(method: str, arm: Arm, seed: int) -> dict[str, float]:
    """How an optimizer ended, by what it was told and by the exact likelihood."""
    inputs, cosines, best, least = minimum(seed)
    loss = Loss(arm.of(DIM), inputs, cosines)
    first = float(np.linalg.norm(loss.pair(_start())[1]))
    loss.calls = 0
    point, iterations, message = METHODS[method](loss, _start())
    calls = loss.calls
    gradient = float(np.linalg.norm(loss.pair(point)[1])) / first
    return {
        "iterations": iterations,
        "calls": calls,
        "complained": float(bool(message)),
        "gradient": gradient,
        "converged": float(gradient <= SMALL),
        "excess": Loss(exact_potential(DIM), inputs, cosines).pair(point)[0] - least,
        "ratio": math.exp(float(np.median(inputs.numpy() @ (point - best)))),
    }


def optimizers(seeds: int, few: bool, data_root: Path | None) -> Iterator[Trial]:
    for seed in range(seeds):
        for method in list(METHODS)[1:2] if few else METHODS:
            for arm in ARMS:
                yield Trial("optimizers", method, arm.name, seed, partial(measured, method, arm, seed))
