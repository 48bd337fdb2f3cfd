"""The angle to the mean direction, the unit that draws are made of: its law, its quantile function, and the derivative of a draw, against independent truth.

Thresholds of statistics as in test_sampling.py: a right sampler exceeds one of them with probability at most ONE.
"""

from __future__ import annotations

import math

import flint
import numpy as np
import pytest
import torch
from torch.autograd import grad, gradgradcheck

from pairgrad.distributions.polar import PolarAngle, moving
from tests.distributions.angle_truth import BallAngle, Grid, mode_and_spread, side_integrals
from tests.distributions.laws import COUNT, PAIRS, check_angles, generator, rounding_share
from tests.truth import exact_at, order, working_precision


def truth(quantity: str, dim: int, kappa: float) -> float:
    return float(exact_at(quantity, order(dim), kappa))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_angles_by_rejection(dtype: torch.dtype) -> None:
    pairs = PAIRS if dtype == torch.float64 else PAIRS[1::2]
    for seed, (dim, kappa) in enumerate(pairs):
        angles = PolarAngle(dim).draw(torch.full((COUNT,), kappa, dtype=dtype), torch.Size((COUNT,)), generator(seed))
        assert angles.dtype == dtype
        check_angles(angles, dim, float(torch.tensor(kappa, dtype=dtype)), rounding_share(dim, kappa, dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_angles_by_quantiles(dtype: torch.dtype) -> None:
    """What other devices and compiled code draw: nothing is random here but the share, so a thousand shares are followed to the distribution function.

    The grid of that has a step of 28 / 20,000 spreads; linear interpolation is off by at most an eighth of its square times 1 / 4: 6e-8. The equation is
    one between sums of three logarithms of size 1 to 5 and an integral right to four roundings: 16 eps of a probability. The angle itself is rounded.
    """
    share = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    for dim, kappa in PAIRS:
        angles = PolarAngle(dim).quantile(share, torch.full_like(share, kappa, dtype=dtype))
        assert angles.dtype == dtype
        grid = Grid.of(dim, float(torch.tensor(kappa, dtype=dtype)))
        error = np.abs(np.interp(angles.double().numpy(), grid.angles, grid.below) - share.numpy()).max()
        allowed = 1e-7 + 16 * torch.finfo(dtype).eps + rounding_share(dim, kappa, dtype)
        assert error <= allowed, (dim, kappa, error, allowed)


def test_many_concentrations_in_one_call() -> None:
    """Rejected places are filled with draws of their own concentration."""
    kappa = torch.tensor([0.0, 2.0, 50.0, 1e4], dtype=torch.float64)
    angles = PolarAngle(5).draw(kappa, torch.Size((COUNT // 4, 4)), generator(7))
    for i, k in enumerate(kappa.tolist()):
        check_angles(angles[:, i], 5, k)


def test_tails_of_the_circle_are_reached() -> None:
    """p = 2, kappa = 0, where the angle is uniform: shares down to 1e-12 on either side."""
    tail = torch.tensor([1e-12, 1e-9, 1e-6], dtype=torch.float64)
    zero = torch.zeros_like(tail)
    torch.testing.assert_close(
        PolarAngle(2).quantile(tail, zero), math.pi * tail, rtol=1e-9, atol=4e-15
    )  # the mode is at 0, and 1 - u is what is met
    torch.testing.assert_close(
        math.pi - PolarAngle(2).quantile(1 - tail, zero), math.pi * tail, rtol=1e-3, atol=0
    )  # 1 - 1e-12 has four digits


# An angle is a float, and so is its distance to the end of [0, pi] from which the upper half is computed: eps pi is that share of the spread, by which
# the probability moves. Newton's method ends within a few of these, and the integrals are right to a few eps.
QUANTILE_ROUNDINGS = 8


def test_quantiles_on_the_sphere_against_the_closed_form() -> None:
    """p = 3: 1 - cos is an exponential variable, cut off at 2."""
    share = torch.tensor([1e-6, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 1 - 1e-3, 1 - 1e-6], dtype=torch.float64)
    for kappa in (0.01, 0.5, 3.0, 6.0, 9.0, 11.0, 13.0, 17.0, 25.0, 100.0, 1e4, 1e8):
        k = torch.full_like(share, kappa)
        rest = 2 * torch.sin(PolarAngle(3).quantile(share, k) / 2).square()
        whole = -math.expm1(-2 * kappa)
        below = -torch.expm1(-kappa * rest) / whole
        allowed = QUANTILE_ROUNDINGS * torch.finfo(torch.float64).eps * (1 + math.pi * math.sqrt(kappa))
        assert (below - share).abs().max() <= allowed, (kappa, (below - share).abs().max().item(), allowed)


def test_quantiles_of_extreme_shares_are_angles() -> None:
    """Down to the smallest and up to the largest share that can be drawn."""
    spacing = 2.0**-53
    share = torch.tensor([spacing, 1e-12, 1e-8, 0.5, 1 - 1e-8, 1 - 1e-12, 1 - spacing], dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        kappa = torch.tensor([0.0, 1e-8, 1e-3, 0.1, 1.0, 11.0, 100.0, 1e4, 1e8], dtype=dtype)
        for dim in (2, 3, 4, 5, 64, 4096):
            angles = PolarAngle(dim).quantile(share[:, None].expand(-1, 9), kappa.expand(7, -1))
            assert bool(((angles >= 0) & (angles <= math.pi + 1e-6)).all()), (dim, dtype, angles)
            # a share that is larger has no smaller angle, up to the roundings of pi
            assert bool((angles.diff(dim=0) >= -4 * torch.finfo(dtype).eps * math.pi).all()), (dim, dtype)


# An angle has eps of itself as its own rounding: of the spread of its distribution, theta / spread eps, which is about sqrt(p). R - cos and the change of
# the logarithm of the density, both formed from the angle, carry that, about four times; all else is some eight roundings.
RATE_ROUNDINGS = 4


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
