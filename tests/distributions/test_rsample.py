"""Draws that move with the parameters: the derivative of each draw against the quantile function, and of expectations against the moments."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from torch.autograd import grad
from torch.nn.functional import normalize

import pairgrad as pg
from tests.truth import exact_at, order

# One seed in a million fails a right sampler, at each of some fifty comparisons.
Z = NormalDist().inv_cdf(1 - 1e-6 / 2)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def truth(quantity: str, dim: int, kappa: float) -> float:
    return float(exact_at(quantity, order(dim), kappa))


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.0), (2, 3.0), (3, 1.0), (5, 0.0), (5, 2.0), (64, 32.0), (512, 11.0)])
def test_derivatives_of_the_mean(dim: int, kappa: float) -> None:
    """d E[w] / d kappa = R' and d^2 E[w] / d kappa^2 = R'', each within the sampling error of its own average.

    The derivative of the proposal alone, which has been taken for it, gives 0.1277 at p = 5, kappa = 2, where R' is 0.1474.
    """
    k = torch.full((40_000 if dim < 512 else 10_000,), kappa, dtype=torch.float64, requires_grad=True)
    mu = torch.eye(1, dim, dtype=torch.float64)[0]
    w = pg.VonMisesFisher(mu, k).rsample((), generator(dim))[:, 0]
    (first,) = grad(w.sum(), k, create_graph=True)
    (second,) = grad(first.sum(), k)
    bend = -2 * truth("slope", dim, kappa) * truth("curvature", dim, kappa)
    if kappa:
        bend -= (dim - 1) * (truth("curvature", dim, kappa) / kappa - truth("slope", dim, kappa) / kappa**2)
    for got, wanted in ((first.detach(), truth("curvature", dim, kappa)), (second, bend)):
        error = (got.mean() - wanted) / (got.std() / math.sqrt(len(k)))
        assert abs(error.item()) <= Z, (dim, kappa, got.mean().item(), wanted)
    if (dim, kappa) == (5, 2.0):
        assert round(truth("curvature", 5, 2.0), 4) == 0.1474
        assert abs(first.mean().item() - 0.1277) > 10 * first.std().item() / math.sqrt(len(k))


@pytest.mark.parametrize(("dim", "dtype"), [(2, torch.float64), (5, torch.float64), (5, torch.float32), (64, torch.float32)])
def test_derivatives_of_the_mean_vector(dim: int, dtype: torch.dtype) -> None:
    """d/d mu E[a.x] = R a along the sphere, and d/d kappa E[a.x] = R' a.mu."""
    count, kappa = 20_000, 2.0
    mu = normalize(torch.randn(dim, dtype=torch.float64, generator=generator(dim)), dim=-1)
    free = mu.to(dtype).expand(count, dim).clone().requires_grad_()
    k = torch.full((count,), kappa, dtype=dtype, requires_grad=True)
    a = torch.randn(dim, dtype=torch.float64, generator=generator(dim + 1))
    x = pg.VonMisesFisher(normalize(free, dim=-1), k).rsample((), generator(3))
    by_mu, by_kappa = grad((x @ a.to(dtype)).sum(), (free, k))
    slope, curvature = (truth(q, dim, kappa) for q in ("slope", "curvature"))
    wanted = slope * (a - (a @ mu) * mu)
    by_mu, by_kappa = by_mu.double(), by_kappa.double()
    rounding = 64 * torch.finfo(dtype).eps
    assert bool(((by_mu.mean(0) - wanted).abs() <= Z * by_mu.std(0) / math.sqrt(count) + rounding).all())
    assert abs(by_kappa.mean().item() - curvature * (a @ mu).item()) <= Z * by_kappa.std().item() / math.sqrt(count) + rounding
    # across the sphere normalize lets nothing through
    assert (by_mu @ mu).abs().max() <= rounding * a.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [2, 3, 5, 512])
def test_finite_from_the_uniform_distribution_to_a_point(dim: int, dtype: torch.dtype) -> None:
    """Draws, and gradients of first and second order."""
    kappa = torch.tensor([0.0, 1e-30, 1e-8, 1e-3, 1.0, 1e3, 1e6, 1e8], dtype=dtype)
    mu = normalize(torch.ones(dim, dtype=dtype), dim=-1).requires_grad_()
    k = kappa.clone().requires_grad_()
    x = pg.VonMisesFisher(mu, k).rsample((500,), generator(dim))
    assert bool(x.isfinite().all())
    by_mu, by_kappa = grad((x * torch.linspace(-1, 2, dim, dtype=dtype)).sum(), (mu, k), create_graph=True)
    assert bool(by_mu.isfinite().all())
    assert bool(by_kappa.isfinite().all())
    (twice,) = grad(by_kappa.sum(), k)
    assert bool(twice.isfinite().all()), twice


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_concentrations_beyond_the_root_of_the_largest_number(dtype: torch.dtype) -> None:
    """The square of kappa overflows: draws keep their spread, 1 / sqrt(kappa), and their gradient is finite."""
    kappa = 1e25 if dtype == torch.float32 else 1e200
    for dim in (2, 3, 8):
        k = torch.full((1000,), kappa, dtype=dtype, requires_grad=True)
        x = pg.VonMisesFisher(torch.eye(1, dim, dtype=dtype)[0], k).rsample((), generator(1))
        theta = (x[:, 1:].detach().double() * math.sqrt(kappa)).norm(dim=-1)  # what is across the first axis is as small as the angle
        # kappa theta^2 is a chi-square variable of p - 1 degrees
        scaled = theta.square().mean().item()
        assert abs(scaled - (dim - 1)) <= Z * math.sqrt(2 * (dim - 1) / 1000), (dim, scaled)
        (by_kappa,) = grad(x[:, 1:].sum(), k)
        assert bool(by_kappa.isfinite().all())


def test_nothing_but_the_parameters_has_a_gradient() -> None:
    vmf = pg.VonMisesFisher(torch.tensor([0.0, 1.0]), torch.tensor(2.0))
    assert not vmf.rsample((3,)).requires_grad
    moved = pg.VonMisesFisher(torch.tensor([0.0, 1.0]), torch.tensor(2.0, requires_grad=True))
    assert moved.rsample((3,)).requires_grad
    assert not moved.sample((3,)).requires_grad
    # the draws are the same bits with and without
    assert torch.equal(moved.rsample((3,), generator(1)).detach(), vmf.rsample((3,), generator(1)))
