"""Draws: the angle to the mean direction and the direction across it have the distributions they should, by tests with a stated false-alarm rate.

Every statistic of this file is compared with a threshold that a right sampler exceeds with probability at most FALSE_ALARM / TESTS: all together, fewer
than one seed in a hundred thousand would fail. The seeds are fixed.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.distributions import polar
from pairgrad.distributions.polar import PolarAngle
from tests.distributions.angle_truth import Grid, side_integrals

FALSE_ALARM, TESTS = 1e-5, 1000
ONE = FALSE_ALARM / TESTS
COUNT = 200_000
Z = NormalDist().inv_cdf(1 - ONE / 2)

PAIRS = (
    *((2, k) for k in (0.0, 0.3, 2.0, 30.0, 1e4, 1e8)),
    *((3, k) for k in (0.0, 1e-3, 1.0, 10.0, 700.0, 1e8)),
    *((4, k) for k in (0.5, 5.0, 1e3)),
    *((5, k) for k in (0.0, 2.0, 20.0, 1e6)),
    *((8, k) for k in (1.0, 12.0, 300.0)),
    *((64, k) for k in (0.0, 1.0, 32.0, 500.0, 1e8)),
    *((512, k) for k in (0.1, 11.0, 100.0, 2e3, 1e5)),
    *((4096, k) for k in (1.0, 64.0, 5e3, 1e8)),
    *((100_000, k) for k in (0.0, 10.0, 1e4, 1e8)),
)


def kolmogorov(alpha: float, count: int) -> float:
    """The distance that the empirical distribution function exceeds with probability at most alpha (Dvoretzky, Kiefer, Wolfowitz, Massart)."""
    return math.sqrt(math.log(2 / alpha) / (2 * count))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check_angles(angles: torch.Tensor, dim: int, kappa: float, resolution: float = 0.0) -> None:
    """Distribution function, mean and variance of w = cos. `resolution`: by how much rounding may move the distribution function, and the moments in
    units of their standard deviation."""
    grid, values = Grid.of(dim, kappa), angles.double().numpy()
    count = len(values)
    assert np.isfinite(values).all()
    distance = grid.distance(values)
    assert distance <= kolmogorov(ONE, count) + resolution, (dim, kappa, distance)
    rest = 2 * np.sin(values / 2) ** 2
    error = (rest.mean() - grid.mean) / math.sqrt(grid.variance / count)
    assert abs(error) <= Z + resolution * math.sqrt(count), (dim, kappa, error)
    spread = ((rest - grid.mean) ** 2).mean()
    error = (spread - grid.variance) / math.sqrt((grid.fourth - grid.variance**2) / count)
    assert abs(error) <= Z + resolution * math.sqrt(count), (dim, kappa, error)


def rounding_share(dim: int, kappa: float, dtype: torch.dtype) -> float:
    """A share of the spread of the angle that four of its roundings are, times the largest slope of the distribution function, below one."""
    grid = Grid.of(dim, kappa, points=2001)
    lower, upper = np.interp([0.16, 0.84], grid.below, grid.angles)
    return 4 * torch.finfo(dtype).eps * upper / (upper - lower)


def test_the_pairs_are_what_was_promised() -> None:
    assert len(set(PAIRS)) == 40
    assert {(512, 11.0), (64, 32.0)} <= set(PAIRS)
    assert 3 * 2 * len(PAIRS) + 300 <= TESTS


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_angles_by_rejection(dtype: torch.dtype) -> None:
    pairs = PAIRS if dtype == torch.float64 else PAIRS[1::2]
    for seed, (dim, kappa) in enumerate(pairs):
        angles = PolarAngle(dim).draw(torch.full((COUNT,), kappa, dtype=dtype), generator(seed))
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
    angles = PolarAngle(5).draw(kappa.expand(COUNT // 4, 4), generator(7))
    for i, k in enumerate(kappa.tolist()):
        check_angles(angles[:, i], 5, k)


def test_what_rejection_leaves_open_is_drawn_by_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polar, "ROUNDS", 1)
    angle, asked = PolarAngle(5), []
    quantile = angle.quantile
    monkeypatch.setattr(angle, "quantile", lambda share, kappa: asked.append(share.numel()) or quantile(share, kappa))
    check_angles(angle.draw(torch.full((COUNT // 4,), 5.0, dtype=torch.float64), generator(8)), 5, 5.0)
    assert COUNT // 40 < sum(asked) < COUNT // 8  # what the first round rejects


def test_three_dimensions_by_the_closed_form() -> None:
    """The quantile function in closed form against the one by integrals; draws from it are among those tested above."""
    share = torch.linspace(1e-3, 1 - 1e-3, 41, dtype=torch.float64)
    for kappa in (0.0, 1e-12, 1e-3, 1.0, 30.0, 1e8):
        k = torch.full_like(share, kappa)
        torch.testing.assert_close(polar._quantile_on_the_sphere(share, k), PolarAngle(3).quantile(share, k), rtol=1e-12, atol=0)


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


@pytest.mark.parametrize("dim", [2, 3, 5, 64, 4096])
def test_most_proposals_are_accepted(dim: int) -> None:
    """At least 65 %, whatever the concentration: the claim from which the number of rounds follows. A share of 1e4 draws has a deviation of 0.5 %."""
    kappa = torch.logspace(-3, 8, 23, dtype=torch.float64).expand(10_000, -1)
    _, rejected = PolarAngle(dim)._proposals(kappa.reshape(-1), generator(dim))
    accepted = 1 - rejected.reshape(kappa.shape).double().mean(0)
    assert accepted.min() >= 0.65 - Z * 0.005


def test_the_mean_where_samplers_of_the_field_fail() -> None:
    """p = 512, kappa = 11: E[w] = 0.0215, where the textbook formula of the envelope has been seen to lose it to rounding."""
    mu = normalize(torch.ones(512, dtype=torch.float64), dim=-1)
    vmf = pg.VonMisesFisher(mu, 11.0)
    length = vmf.mean.norm().item()
    assert round(length, 4) == 0.0215
    for dtype in (torch.float64, torch.float32):
        small = pg.VonMisesFisher(mu.to(dtype), 11.0)
        w = small.sample((4000,), generator(1)).double() @ mu
        deviation = pg.potential(512).curvature(torch.tensor(11.0, dtype=torch.float64)).sqrt().item() / math.sqrt(4000)
        assert abs(w.mean().item() - length) <= Z * deviation


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


@pytest.mark.parametrize("dim", [2, 3, 4, 5, 8, 64, 4096, 100_000])
def test_one_sided_integrals(dim: int) -> None:
    """The probability on either side of the mode over the density there, what quantiles are made of, against extended precision."""
    polar_angle = PolarAngle(dim)
    for dtype in (torch.float64, torch.float32):
        kappa = torch.cat([torch.zeros(1), torch.logspace(-2, 8, 101)]).to(dtype)
        mode = polar_angle._mode(kappa)
        for side in (1.0,) if dim == 2 else (-1.0, 1.0):
            sides = torch.full_like(kappa, side)
            got = polar_angle._mass(mode, kappa, sides).double().numpy()
            wanted, _ = side_integrals(dim, mode.double().numpy(), kappa.double().numpy(), np.full(len(got), side), np.zeros(len(got)))
            error = np.abs(got / wanted.astype(np.float64) - 1) / torch.finfo(dtype).eps
            # the logarithm of the density adds up terms of up to sqrt(p) times its change over one spread, rounded about four times
            allowed = 4 * (2 + math.sqrt(dim))
            assert error.max() <= allowed, (dim, dtype, side, error.max(), kappa[int(error.argmax())].item())


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


def across(vmf: pg.VonMisesFisher, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """w = mu.x, and the unit vector of what is left."""
    mu = vmf.mean_direction.double()
    w = x.double() @ mu
    return w, normalize(x.double() - w[:, None] * mu, dim=-1)


@pytest.mark.parametrize(("dim", "dtype"), [(3, torch.float64), (5, torch.float64), (5, torch.float32), (64, torch.float32)])
@pytest.mark.parametrize("start", ["random", "first axis", "opposite"])
def test_the_tangent_direction_is_uniform_and_independent_of_the_angle(dim: int, dtype: torch.dtype, start: str) -> None:
    """Its squared product with a fixed direction has the distribution Beta(1/2, (p - 2)/2), its sign is fair, and neither goes with w."""
    g = generator(dim)
    mu = normalize(torch.randn(dim, dtype=torch.float64, generator=g), dim=-1)
    if start != "random":
        mu = torch.eye(1, dim, dtype=torch.float64)[0] * (1 if start == "first axis" else -1)
    vmf = pg.VonMisesFisher(mu.to(dtype), dim / 2)
    count = COUNT // 10
    w, v = across(vmf, vmf.sample((count,), g))
    basis = torch.linalg.qr(torch.cat([mu[:, None], torch.randn(dim, 2, dtype=torch.float64, generator=g)], 1)).Q[:, 1:]
    products = v @ basis
    for i in range(2):
        squared = products[:, i].square().clamp(max=1)
        assert stats.kstest(squared.numpy(), stats.beta(0.5, (dim - 2) / 2).cdf).statistic <= kolmogorov(ONE, count) + 1e-4
        assert abs((products[:, i] > 0).double().mean().item() - 0.5) <= Z / (2 * math.sqrt(count))
        for function in (torch.sign, torch.square):
            correlation = torch.corrcoef(torch.stack([function(products[:, i]), w]))[0, 1].item()
            assert abs(correlation) <= Z / math.sqrt(count)
    assert abs(torch.corrcoef(products.T)[0, 1].item()) <= Z / math.sqrt(count)
    assert abs(torch.corrcoef(torch.sign(products).T)[0, 1].item()) <= Z / math.sqrt(count)


def test_both_sides_of_the_circle() -> None:
    mu = normalize(torch.tensor([0.6, -0.8], dtype=torch.float64), dim=-1)
    vmf = pg.VonMisesFisher(mu, 1.5)
    x = vmf.sample((COUNT // 4,), generator(2))
    w, v = across(vmf, x)
    right = (v @ torch.tensor([0.8, 0.6], dtype=torch.float64)) > 0
    assert abs(right.double().mean().item() - 0.5) <= Z / (2 * math.sqrt(len(x)))
    for half in (right, ~right):
        check_angles(torch.arccos(w[half]), 2, 1.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_axes_give_unit_vectors_and_gradients(dtype: torch.dtype) -> None:
    """The reflection has no denominator that vanishes at the first axis, nor near it."""
    for dim in (2, 3, 64):
        for first in (1.0, -1.0, 1 - 1e-7, -1 + 1e-7):
            mu = torch.zeros(dim, dtype=dtype)
            mu[0], mu[1] = first, math.sqrt(max(0.0, 1 - first**2))
            mu = normalize(mu, dim=-1).requires_grad_()
            for kappa in (0.0, 3.0, 1e8):
                k = torch.tensor(kappa, dtype=dtype, requires_grad=True)
                x = pg.VonMisesFisher(mu, k).rsample((200,), generator(3))
                # cos^2 + sin^2, and a reflection of a unit vector: some eight roundings
                assert (x.detach().double().norm(dim=-1) - 1).abs().max() <= 8 * torch.finfo(dtype).eps
                gradients = torch.autograd.grad(x[:, -1].sum() + x[:, 0].sum(), (mu, k))
                assert all(bool(v.isfinite().all()) for v in gradients), (dim, first, kappa)
                assert gradients[0].abs().max() <= 200 * dim
            if dim == 3:
                mean = pg.VonMisesFisher(mu.detach(), 3.0).sample((20_000,), generator(4)).double().mean(0) @ mu.detach().double()
                assert abs(mean.item() - (1 / math.tanh(3) - 1 / 3)) <= Z * math.sqrt(0.1 / 20_000)


def test_batches_and_generators() -> None:
    mu = normalize(torch.randn(3, 1, 4, dtype=torch.float64, generator=generator(5)), dim=-1)
    kappa = torch.tensor([0.5, 40.0], dtype=torch.float64)
    vmf = pg.VonMisesFisher(mu, kappa)
    x = vmf.sample((20_000,), generator(6))
    assert x.shape == (20_000, 3, 2, 4)
    assert torch.equal(x, vmf.sample((20_000,), generator(6)))
    assert not torch.equal(x, vmf.sample((20_000,), generator(7)))
    torch.manual_seed(6)
    assert torch.equal(x, vmf.sample((20_000,)))
    deviation = vmf.variance.max().sqrt().item() / math.sqrt(20_000)
    assert (x.mean(0) - vmf.mean).abs().max() <= Z * deviation
    centred = x - vmf.mean
    covariance = torch.einsum("nabi,nabj->abij", centred, centred) / len(x)
    # products of coordinates are at most 1 in size and have variances below one quarter
    assert (covariance - vmf.covariance).abs().max() <= Z * 0.5 / math.sqrt(len(x))
    assert not vmf.sample().requires_grad


@pytest.mark.parametrize("dim", [2, 3, 50])
def test_uniform_directions(dim: int) -> None:
    x = pg.HypersphericalUniform(dim, dtype=torch.float64).sample((COUNT // 10,), generator(dim))
    squared = x[:, 0].square().numpy()
    assert stats.kstest(squared, stats.beta(0.5, (dim - 1) / 2).cdf).statistic <= kolmogorov(ONE, len(x))
    assert abs((x[:, 1] > 0).double().mean().item() - 0.5) <= Z / (2 * math.sqrt(len(x)))
    assert (x.norm(dim=-1) - 1).abs().max() <= 8 * torch.finfo(torch.float64).eps


@pytest.mark.parametrize("dim", [8, 256, 4096])
def test_fits_find_the_concentration(dim: int) -> None:
    """Also where scipy's fit stops at the lower end of its search, 1e-8."""
    for kappa in (dim / 20, dim / 2, 5.0 * dim, 1e6):
        count = 2000 if dim < 4096 else 400
        mu = normalize(torch.randn(dim, dtype=torch.float64, generator=generator(dim)), dim=-1)
        x = pg.VonMisesFisher(mu, kappa).sample((count,), generator(int(kappa)))
        fitted = pg.VonMisesFisher.fit(x)
        facts = fitted.estimate
        assert facts is not None
        # r^2 of n draws has the mean R^2 + (1 - R^2) / n: the length is too long by (1 - R^2) / 2 n R, the concentration by that over R'
        pot, k = pg.potential(dim), torch.tensor(kappa, dtype=torch.float64)
        bias = pot.complement(k) * (1 + pot.slope(k)) / (2 * count * pot.slope(k) * pot.curvature(k))
        error = (fitted.concentration - kappa - bias).abs() / facts.concentration_error
        assert error <= Z + bias / facts.concentration_error / 4, (dim, kappa, fitted.concentration, error)
        # the score of the likelihood is 0
        length = x.mean(0).norm()
        torch.testing.assert_close(pot.slope(fitted.concentration), length, rtol=1e-13, atol=0)
        torch.testing.assert_close(facts.resultant_length, length, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_coinciding_directions_have_no_fit(dtype: torch.dtype) -> None:
    """Copies of one direction differ from their mean direction by its rounding, which is not a spread."""
    for dim in (2, 3, 8, 100):
        x = normalize(torch.randn(dim, dtype=dtype, generator=generator(dim)), dim=-1)
        for count in (1, 2, 5, 1000):
            with pytest.raises(ValueError, match="at least two different directions"):
                pg.VonMisesFisher.fit(x.expand(count, dim))
