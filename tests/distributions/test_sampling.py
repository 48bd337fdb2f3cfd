"""Draws: the angle to the mean direction and the direction across it have the distributions they should, by tests with a stated false-alarm rate.

The law of the angle itself, in all dimensions and at all concentrations, is tested in test_polar.py; thresholds and their rate are those of laws.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch.nn.functional import normalize

import pairgrad as pg
from tests.distributions.laws import COUNT, ONE, Z, check_angles, generator, kolmogorov


@pytest.mark.parametrize(("dim", "kappa"), [(2, 2.0), (3, 10.0), (4, 5.0), (8, 12.0), (64, 32.0), (512, 100.0)])
def test_angles_of_draws(dim: int, kappa: float) -> None:
    """Through the distribution itself: the angle between a draw and the mean direction, in float64, right to 1e-7 where it is computed from its cosine."""
    mu = normalize(torch.randn(dim, dtype=torch.float64, generator=generator(dim)), dim=-1)
    x = pg.VonMisesFisher(mu, kappa).sample((COUNT // 10,), generator(dim + 1))
    check_angles(torch.arccos((x @ mu).clamp(-1, 1)), dim, kappa, 1e-6)


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
