"""The hyperspherical autoencoder of examples/hyperspherical_vae.py with other divergences to the uniform prior.

KL(kappa) = kappa R(kappa) - Phi(kappa), up to a constant, and its derivative is kappa R'(kappa). An arm computes it from its value and its supplied slope.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from examples.hyperspherical_vae import Digits, HypersphericalVAE, load, log_likelihood
from torch import Tensor
from torch.distributions import kl_divergence

import pairgrad as pg
from benchmarks.matter.arms import ARFR, CONSISTENT, CONTROL, FLOORED, ORIGINAL, PAIRED, SWITCHED, Arm, Normalizer
from benchmarks.matter.regression import moved
from benchmarks.matter.trial import Trial

DIMS, EPOCHS, RISE, BATCH, RATE = (16, 64), 60, 3, 128, 3e-3
DETACHED = Arm(
    "ratio detached",
    "a divergence whose ratio takes no part in the backward: the two terms that are left cancel, and nothing holds the concentration back",
    PAIRED.of,
)
ARMS = (PAIRED, CONTROL, ARFR, CONSISTENT, ORIGINAL, SWITCHED, FLOORED, DETACHED)


def divergence(arm: Arm, potential: Normalizer, kappa: Tensor) -> Tensor:
    """kappa R - Phi, up to a constant, with the supplied slope for R; its own slope is what autograd makes of that."""
    with torch.enable_grad():
        point = kappa if kappa.requires_grad else kappa.detach().requires_grad_()
        value = potential(point)
        (slope,) = torch.autograd.grad(value.sum(), point, create_graph=arm is not DETACHED, retain_graph=True)
    return kappa * slope - value


def trained(arm: Arm, digits: Digits, dim: int, seed: int, epochs: int) -> HypersphericalVAE | None:
    """None where the loss became infinite or NaN."""
    torch.manual_seed(seed)
    model, potential = HypersphericalVAE(dim), arm.of(dim)
    if arm is CONTROL:
        moved(model)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    steps = math.ceil(len(digits.train) / BATCH)
    for epoch in range(epochs):
        for step, rows in enumerate(torch.randperm(len(digits.train)).split(BATCH)):
            model.rise = min(1.0, (epoch + (step + 1) / steps) / RISE)
            images = digits.train[rows]
            posterior = model.posterior(images)
            fit = model.likelihood(posterior.rsample()).log_prob(images)
            loss = (model.rise * divergence(arm, potential, posterior.concentration.double()) - fit).mean()
            optimizer.zero_grad()
            loss.backward()
            if not all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters() if parameter.grad is not None):
                return None
            optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def judged(model: HypersphericalVAE | None, digits: Digits) -> dict[str, float]:
    """By the exact divergence, on test images."""
    if model is None:
        return dict.fromkeys(("elbo", "likelihood", "divergence", "kappa"), math.nan)
    posterior = model.posterior(digits.test)
    fit = model.likelihood(posterior.rsample((10,))).log_prob(digits.test).mean(0)
    exact = kl_divergence(posterior, pg.HypersphericalUniform(model.dim))
    return {
        "elbo": (fit - exact).mean().item(),
        "likelihood": log_likelihood(model, digits.test).mean().item(),
        "divergence": exact.mean().item(),
        "kappa": posterior.concentration.median().item(),
    }


def autoencoder(seeds: int, few: bool, data_root: Path | None) -> Iterator[Trial]:
    for seed in range(seeds):
        for dim in DIMS[:1] if few else DIMS:
            for arm in ARMS[-1:] if few else ARMS:
                yield Trial("autoencoder", f"digits, p = {dim}", arm.name, seed, partial(_measured, arm, dim, seed, 2 if few else EPOCHS))


def _measured(arm: Arm, dim: int, seed: int, epochs: int) -> dict[str, float]:
    digits = load(seed)
    return judged(trained(arm, digits, dim, seed, epochs), digits)
