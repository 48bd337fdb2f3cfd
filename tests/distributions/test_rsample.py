"""Draws that move with the parameters: the derivative of each draw against the quantile function, and of expectations against the moments."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import flint
import numpy as np
import pytest
import torch
from torch.autograd import grad, gradgradcheck
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.distributions.polar import PolarAngle, moving
from pairgrad.ground.balls import working_precision
from pairgrad.potentials.reference import Balls
from tests.distributions.angle_truth import BallAngle, mode_and_spread, side_integrals

# One seed in a million fails a right sampler, at each of some fifty comparisons.
Z = NormalDist().inv_cdf(1 - 1e-6 / 2)

# An angle has eps of itself as its own rounding: of the spread of its distribution, theta / spread eps, which is about sqrt(p). R - cos and the change of
# the logarithm of the density, both formed from the angle, carry that, about four times; all else is some eight roundings.
RATE_ROUNDINGS = 4


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def truth(quantity: str, dim: int, kappa: float) -> float:
    return float(getattr(Balls(Fraction(dim, 2) - 1, 30), f"{quantity}_ball")(flint.arb(kappa)))


@pytest.mark.parametrize("dim", [2, 3, 5, 64, 512])
def test_the_rate_is_the_derivative_of_the_quantile_function(dim: int) -> None:
    """By inversion of the distribution function in ball arithmetic, at kappa (1 +- 1e-12): right to 20 digits."""
    balls, angle = BallAngle(dim), PolarAngle(dim)
    for kappa, share in ((2.0, 0.03), (2.0, 0.8), (float(dim), 0.5), (11.0, 0.99)):
        k = torch.tensor(kappa, dtype=torch.float64)
        start = angle.quantile(torch.tensor(share, dtype=torch.float64), k)
        with working_precision(balls.bits):
            step = flint.arb(kappa) * flint.arb(2) ** -40
            middle, above, below = (balls.quantile(share, flint.arb(kappa) + s, start.item()) for s in (0, step, -step))
            wanted = float((above - below) / (2 * step))
        spread = mode_and_spread(dim, kappa)[1]
        eps = torch.finfo(torch.float64).eps
        assert abs(start.item() - float(middle)) <= 8 * eps * (math.pi + spread), (dim, kappa, share)
        rate = angle.rate(torch.tensor(float(middle), dtype=torch.float64), k).item()
        assert abs(rate / wanted - 1) <= RATE_ROUNDINGS * eps * (2 + float(middle) / spread), (dim, kappa, share, rate, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("dim", [2, 3, 4, 5, 8, 64, 512, 4096, 100_000])
def test_rates_everywhere(dim: int, dtype: torch.dtype) -> None:
    """Four spreads below the mode to five above, at all concentrations, against extended precision."""
    kappa = torch.cat([torch.zeros(1), torch.logspace(-2, 8, 61)]).to(dtype)
    places = [mode_and_spread(dim, k) for k in kappa.tolist()]
    mode, spread = (torch.tensor(v, dtype=torch.float64) for v in zip(*places, strict=True))
    steps = torch.tensor([-4.0, -2.0, -1.0, -0.3, 0.0, 0.3, 0.5, 0.7, 1.0, 2.0, 3.0, 5.0], dtype=torch.float64)[:, None]
    # away from the ends, where the distance to pi has lost digits that no formula can bring back
    theta = torch.minimum(torch.maximum(mode + steps * spread, spread / 100), torch.tensor(3.0)).to(dtype)
    k = kappa.expand(theta.shape)
    rest = np.array([truth("complement", dim, v) for v in kappa.tolist()])
    sides = np.where(2 * np.sin(theta.double().numpy() / 2) ** 2 < rest, -1.0, 1.0)
    _, integral = side_integrals(dim, theta.double().numpy(), k.double().numpy(), sides, rest)
    wanted = (-sides * integral).astype(np.float64)
    got = PolarAngle(dim).rate(theta, k)
    eps = torch.finfo(dtype).eps
    allowed = RATE_ROUNDINGS * eps * (2 + theta.double() / spread).numpy()
    error = np.abs(got.double().numpy() / wanted - 1)
    worst = np.unravel_index((error / allowed).argmax(), error.shape)
    assert (error <= allowed).all(), (dim, theta[worst].item(), k[worst].item(), got[worst].item(), wanted[worst], error[worst] / eps)


@pytest.mark.parametrize("dim", [2, 3, 64, 4096])
def test_the_rate_at_the_uniform_distribution(dim: int) -> None:
    theta = torch.linspace(0.05, 3.0, 60, dtype=torch.float64)
    got = PolarAngle(dim).rate(theta, torch.zeros_like(theta))
    wanted = -torch.sin(theta) / (dim - 1)
    spread = 1 / math.sqrt(max(dim - 2, 1))
    # near pi the distance to it carries the rounding of the angle
    tolerance = RATE_ROUNDINGS * torch.finfo(torch.float64).eps * (2 + theta / spread + math.pi / (math.pi - theta))
    near = (theta - math.pi / 2).abs() < 6 * spread  # further away nothing is ever drawn
    assert bool(((got / wanted - 1).abs() <= tolerance)[near].all())


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.0), (2, 3.0), (3, 1.0), (5, 0.0), (5, 2.0), (64, 32.0), (512, 11.0)])
def test_derivatives_of_the_mean(dim: int, kappa: float) -> None:
    """d E[w] / d kappa = R' and d^2 E[w] / d kappa^2 = R'', each within the sampling error of its own average.

    The derivative of the proposal alone, which has been taken for it, gives 0.1277 at p = 5, kappa = 2, where R' is 0.1474.
    """
    k = torch.full((40_000,), kappa, dtype=torch.float64, requires_grad=True)
    angle = PolarAngle(dim)
    w = torch.cos(moving(angle, k, angle.draw(k, generator(dim))))
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


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_derivatives_to_second_order_at_fixed_places(dim: int) -> None:
    """Of the angle with the quantile function as what is differentiated numerically, whose places are fixed."""
    share = torch.tensor([0.01, 0.2, 0.5, 0.9], dtype=torch.float64)
    kappa = torch.tensor([0.4, 3.0, 1.0, 20.0], dtype=torch.float64)
    angle = PolarAngle(dim)

    def first(k):
        leaf = k.detach().clone().requires_grad_()
        (slope,) = grad(moving(angle, leaf, angle.quantile(share, leaf.detach())).sum(), leaf, create_graph=True)
        return slope, grad(slope.sum(), leaf)[0]

    step = 1e-5 * kappa  # errors: its square, 1e-10 times third derivatives over kappa^3; the rounding of angles over it, 1e-10 / kappa
    slope, second = first(kappa)
    (above, _), (below, _) = first(kappa + step), first(kappa - step)
    quantile = [angle.quantile(share, kappa + s) for s in (step, -step)]
    torch.testing.assert_close((quantile[0] - quantile[1]) / (2 * step), slope.detach(), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close((above - below) / (2 * step), second, rtol=1e-7, atol=1e-9)
    theta = angle.quantile(share, kappa)
    assert gradgradcheck(angle.rate, (theta.requires_grad_(), kappa.clone().requires_grad_()), fast_mode=True)


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
        angle = PolarAngle(dim)
        k = torch.full((1000,), kappa, dtype=dtype, requires_grad=True)
        theta = angle.draw(k, generator(1))
        # kappa theta^2 is a chi-square variable of p - 1 degrees
        scaled = (theta.double() * math.sqrt(kappa)).square().mean().item()
        assert abs(scaled - (dim - 1)) <= Z * math.sqrt(2 * (dim - 1) / 1000), (dim, scaled)
        (by_kappa,) = grad(moving(angle, k, theta).sum(), k)
        assert bool(by_kappa.isfinite().all())
        assert bool(angle.quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), k[:2].detach()).isfinite().all())


def test_nothing_but_the_parameters_has_a_gradient() -> None:
    vmf = pg.VonMisesFisher(torch.tensor([0.0, 1.0]), torch.tensor(2.0))
    assert not vmf.rsample((3,)).requires_grad
    moved = pg.VonMisesFisher(torch.tensor([0.0, 1.0]), torch.tensor(2.0, requires_grad=True))
    assert moved.rsample((3,)).requires_grad
    assert not moved.sample((3,)).requires_grad
    # the draws are the same bits with and without
    assert torch.equal(moved.rsample((3,), generator(1)).detach(), vmf.rsample((3,), generator(1)))
