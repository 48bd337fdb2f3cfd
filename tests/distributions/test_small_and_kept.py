"""What one object may keep, the ways a density is computed by, and shapes and lengths that were misread."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.distributions import unit_vector

DTYPES = (torch.float64, torch.float32)


def law(dim: int, kappa: float, dtype: torch.dtype = torch.float64) -> pg.VonMisesFisher:
    generator = torch.Generator().manual_seed(dim)
    mu = normalize(torch.randn(dim, dtype=torch.float64, generator=generator), dim=-1)
    return pg.VonMisesFisher(mu.to(dtype), torch.tensor(kappa, dtype=dtype))


@pytest.mark.parametrize("change", [lambda k: k.mul_(2), lambda k: k.data.mul_(2)], ids=["in place", "behind autograd's back"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_concentration_that_changes_is_seen(shape: tuple[int, ...], change) -> None:
    mu = torch.eye(5, dtype=torch.float64)[0]
    kappa = torch.full(shape, 3.0, dtype=torch.float64)
    vmf = pg.VonMisesFisher(mu, kappa)
    before = vmf.entropy(), vmf.log_prob(mu)
    change(kappa)
    fresh = pg.VonMisesFisher(mu, 6.0)
    for old, new, wanted in zip(before, (vmf.entropy(), vmf.log_prob(mu)), (fresh.entropy(), fresh.log_prob(mu)), strict=True):
        assert (old != new).all()
        torch.testing.assert_close(new, wanted.expand(shape), rtol=1e-14, atol=0)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_results_are_the_callers_own(shape: tuple[int, ...]) -> None:
    vmf = pg.VonMisesFisher(torch.eye(5)[0], torch.full(shape, 3.0))
    for method in (vmf.entropy, lambda: vmf.log_prob(vmf.mean_direction)):
        first = method().clone()
        method().zero_()
        assert torch.equal(method(), first)
    assert torch.equal(copy.deepcopy(vmf).entropy(), vmf.entropy())


@pytest.mark.parametrize("shape", [(), (3,)])
def test_gradients_after_a_call_without_them(shape: tuple[int, ...]) -> None:
    mu = torch.eye(5, dtype=torch.float64)[0]
    kappa = torch.full(shape, 3.0, dtype=torch.float64, requires_grad=True)
    vmf = pg.VonMisesFisher(mu, kappa)
    with torch.no_grad():
        assert not vmf.entropy().requires_grad
        assert not vmf.log_prob(mu).requires_grad
    for _ in range(2):  # the graph is a new one each time
        (by_entropy,) = grad(vmf.entropy().sum(), kappa)
        (by_density,) = grad(vmf.log_prob(mu).sum(), kappa)
        potential = pg.potential(5)
        torch.testing.assert_close(by_entropy, -kappa.detach() * potential.curvature(kappa.detach()), rtol=1e-13, atol=0)
        torch.testing.assert_close(by_density, potential.complement(kappa.detach()), rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.5), (3, 10.0), (3, 1e6), (16, 1e5), (64, 32.0), (512, 11.0), (512, 1e7), (4096, 2e4)])
def test_densities_of_few_and_of_many_directions_agree(dim: int, kappa: float, dtype: torch.dtype) -> None:
    """To 16 eps of the terms, as is promised of each, whatever way they are computed by: few, many, and with a gradient."""
    vmf = law(dim, kappa, dtype)
    x = vmf.sample((2**15 // dim + 50,), torch.Generator().manual_seed(1))
    x = torch.cat([x, normalize(x.flip(0) + 0.5 * x, dim=-1), -x[:3]])
    wide = pg.VonMisesFisher(normalize(vmf.mean_direction.double(), dim=-1), kappa)
    distance = (x.double() - vmf.mean_direction.double()).square().sum(-1) / 2
    peak = wide.log_prob(wide.mean_direction)
    wanted = peak - kappa * distance
    terms = pg.potential(dim).deficit(wide.concentration) + kappa * distance + abs(pg.HypersphericalUniform(dim).entropy().double())
    room = 16 * torch.finfo(dtype).eps * terms
    with_gradient = vmf.log_prob(x.clone().requires_grad_()).detach()
    few = torch.cat([vmf.log_prob(part) for part in x.split(max(1, 2**13 // dim))])
    for got in (vmf.log_prob(x), with_gradient, few):
        assert got.dtype == dtype
        assert ((got.double() - wanted).abs() <= room).all()


@pytest.mark.parametrize("count", [(), (1,), (7,), (4, 3)])
@pytest.mark.parametrize("batch", [(), (3,), (4, 1)])
def test_gradients_of_densities_of_all_shapes(count: tuple[int, ...], batch: tuple[int, ...]) -> None:
    if count == (7,) and batch:
        return
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(*batch, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    kappa = (torch.rand(batch, dtype=torch.float64, generator=generator) + 0.5).requires_grad_()
    x = torch.randn(*count, 4, dtype=torch.float64, generator=generator, requires_grad=True)

    def density(raw: torch.Tensor, kappa: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return pg.VonMisesFisher(normalize(raw, dim=-1), kappa).log_prob(normalize(x, dim=-1))

    assert gradcheck(density, (raw, kappa, x))
    assert gradgradcheck(density, (raw, kappa, x))


def test_gradients_of_many_densities_are_those_of_their_sum() -> None:
    vmf = law(6, 20.0)
    x = vmf.sample((5000,), torch.Generator().manual_seed(0)).requires_grad_()
    mu, kappa = vmf.mean_direction.clone().requires_grad_(), vmf.concentration.clone().requires_grad_()
    weights = torch.linspace(-1, 2, 5000, dtype=torch.float64)
    got = grad((weights * pg.VonMisesFisher(mu, kappa).log_prob(x)).sum(), (x, mu, kappa))
    offset = (x - mu).detach()
    by_x = -kappa.detach() * weights[:, None] * offset
    rise = pg.potential(6).complement(kappa.detach()) - offset.square().sum(-1) / 2
    for found, wanted in zip(got, (by_x, -by_x.sum(0), (weights * rise).sum()), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("batch", [(1,), (32,), (4, 32)])
def test_a_concentration_with_the_dimension_of_the_coordinates(batch: tuple[int, ...]) -> None:
    """It would broadcast to (32, 32): every direction with every concentration."""
    mu = normalize(torch.ones(*batch, 8), dim=-1)
    with pytest.raises(ValueError, match=r"concentration must have the shape .*: use concentration\.squeeze\(-1\)"):
        pg.VonMisesFisher(mu, torch.ones(*batch, 1))
    assert pg.VonMisesFisher(mu, torch.ones(*batch, 1).squeeze(-1)).batch_shape == batch


def test_other_shapes_broadcast() -> None:
    mu = normalize(torch.ones(3, 8), dim=-1)
    assert pg.VonMisesFisher(mu[:, None], torch.ones(5)).batch_shape == (3, 5)
    assert pg.VonMisesFisher(mu, torch.ones(7, 1, 3)).batch_shape == (7, 1, 3)
    assert pg.VonMisesFisher(mu[0], torch.ones(4, 1)).batch_shape == (4, 1)


@pytest.mark.parametrize("dim", [4368, 10_000, 1_000_000])
def test_unit_vectors_in_float32_with_many_coordinates(dim: int) -> None:
    same = torch.ones(dim) / torch.tensor(dim, dtype=torch.float64).sqrt().float()
    drawn = normalize(torch.randn(dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=-1).float()
    for mu in (same, drawn, torch.stack([same, drawn])):
        vmf = pg.VonMisesFisher(mu, 5.0)
        vmf.log_prob(mu)
        assert unit_vector.check(mu).all()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("dim", [3, 40_000])
@pytest.mark.parametrize("factor", [0.99, 1.01, torch.nan])
def test_vectors_that_are_not_unit(dim: int, dtype: torch.dtype, factor: float) -> None:
    good = normalize(torch.ones(dim, dtype=torch.float64), dim=-1)
    bad = torch.stack([good, factor * good]).to(dtype)
    with pytest.raises(ValueError, match="mean_direction must hold unit vectors"):
        pg.VonMisesFisher(bad, 2.0)
    if dtype != torch.float16:
        with pytest.raises(ValueError, match="value must hold unit vectors"):
            pg.VonMisesFisher(good.to(dtype), 2.0).log_prob(bad)
        with pytest.raises(ValueError, match="x must hold unit vectors"):
            pg.VonMisesFisher.fit(bad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("dim", "kappa", "count"), [(2, 3.0, 50), (3, 10.0, 100), (3, 1e6, 9000), (16, 8.0, 9000), (64, 500.0, 600)])
def test_fits_of_one_sample_of_a_batch_and_with_weights_agree(dim: int, kappa: float, count: int, dtype: torch.dtype) -> None:
    x = law(dim, kappa, dtype).sample((count,), torch.Generator().manual_seed(2))
    alone = pg.VonMisesFisher.fit(x)
    others = pg.VonMisesFisher.fit(x[None]), pg.VonMisesFisher.fit(x, torch.ones(count)), pg.VonMisesFisher.fit(x.clone().requires_grad_())
    eps = torch.finfo(dtype).eps
    for other in others:
        torch.testing.assert_close(other.concentration.reshape(()).detach(), alone.concentration, rtol=64 * eps, atol=0)
        torch.testing.assert_close(other.mean_direction.reshape(-1).detach(), alone.mean_direction, rtol=0, atol=16 * eps)
        for a, b in zip(other.estimate, alone.estimate, strict=True):
            torch.testing.assert_close(a.reshape(()), b, rtol=64 * eps, atol=0)


@pytest.mark.parametrize("kappa", [0.0, 1e-300, 1.0, 1e18, 1e300])
@pytest.mark.parametrize("dim", [2, 3, 5])
def test_any_number_of_draws_and_densities(dim: int, kappa: float) -> None:
    """None, one, few and many, of any concentration, without a warning."""
    vmf = pg.VonMisesFisher(torch.eye(dim, dtype=torch.float64)[0], kappa)
    one = pg.VonMisesFisher(torch.eye(dim, dtype=torch.float64)[:1], torch.tensor([kappa], dtype=torch.float64))
    for shape in ((), (0,), (3, 0), (2,), (20_000,)):
        x = vmf.sample(shape)
        assert (x.shape, vmf.log_prob(x).shape) == ((*shape, dim), shape)
        assert x.isfinite().all()
        assert one.log_prob(one.sample(shape)).shape == (*shape, 1)
    assert one.entropy().shape == (1,)


@pytest.mark.parametrize("estimator", ["mle", "unbiased", "closed-form", "banerjee", "sra"])
@pytest.mark.parametrize("count", [200, 3000])
def test_fits_have_tangents_as_they_have_gradients(count: int, estimator: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = normalize(torch.randn(count, 8, dtype=torch.float64, generator=generator) + 0.1, dim=-1)
    tangent = torch.randn(x.shape, dtype=x.dtype, generator=generator)
    recorded = x.clone().requires_grad_()
    (gradient,) = grad(pg.VonMisesFisher.fit(recorded, estimator=estimator).concentration, recorded)
    with forward_ad.dual_level():
        fitted = pg.VonMisesFisher.fit(forward_ad.make_dual(x, tangent), estimator=estimator)
        moved = forward_ad.unpack_dual(fitted.concentration).tangent
    torch.testing.assert_close(moved, (gradient * tangent).sum(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [10, 4000])
def test_gradients_of_densities_in_batches(count: int) -> None:
    vmf = law(6, 3.0)
    x = vmf.sample((count,), torch.Generator().manual_seed(0))
    rows = [torch.autograd.functional.jacobian(lambda t: vmf.log_prob(t)[:3], x, vectorize=way) for way in (False, True)]
    torch.testing.assert_close(*rows)


@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize("count", [1, 1000])
def test_a_density_is_computed_in_the_wider_dtype(count: int, batch: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    mu = normalize(torch.randn(*batch, 64, generator=generator), dim=-1)
    kappa = 10 + torch.rand(batch, generator=generator)
    x = normalize(torch.randn(count, *batch, 64, generator=generator), dim=-1)
    wanted = pg.VonMisesFisher(mu.double(), kappa.double(), validate_args=False).log_prob(x.double())
    for got in (
        pg.VonMisesFisher(mu.double(), kappa.double(), validate_args=False).log_prob(x),
        pg.VonMisesFisher(mu, kappa, validate_args=False).log_prob(x.double()),
        pg.VonMisesFisher(mu, kappa.double(), validate_args=False).log_prob(x),
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_gradients_under_autocast_have_all_their_digits() -> None:
    vmf = law(40, 50.0, torch.float32)
    x, mu = vmf.sample((2000,), torch.Generator().manual_seed(0)), vmf.mean_direction.clone().requires_grad_()
    gradients = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            gradients += grad(pg.VonMisesFisher(mu, 50.0).log_prob(x).sum(), mu)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-3)


def test_a_fit_is_made_of_separate_tensors() -> None:
    fitted = pg.VonMisesFisher.fit(law(8, 5.0).sample((50,)))
    length = fitted.estimate.resultant_length.clone()
    fitted.concentration.mul_(torch.ones((), dtype=torch.float64, requires_grad=True))
    assert torch.equal(fitted.estimate.resultant_length, length)
    assert pg.VonMisesFisher.fit(torch.empty(0, 5, 3)).batch_shape == (0,)


def test_extreme_numbers_are_silent_whatever_numpy_is_told() -> None:
    axis = torch.tensor([1.0, 0.0, 0.0])
    with np.errstate(all="raise"):
        for kappa in (1e-30, 3e38):
            vmf = pg.VonMisesFisher(axis, kappa)
            for x in (axis, -axis, torch.tensor([1.0, 1e-30, 0.0]), vmf.sample((2,))):
                vmf.log_prob(x)
                vmf.log_prob(x.clone().requires_grad_()).sum().backward()
        assert (pg.VonMisesFisher(axis, 3e38).sample((2,))[:, 1:] != 0).any()


def test_negated_views() -> None:
    """Imaginary parts of conjugates: torch notes the sign and changes no number."""
    mu, x = (torch.complex(t, -t).conj().imag for t in (torch.eye(4)[0], normalize(torch.randn(30, 4), dim=-1)))
    assert mu.is_neg()
    vmf = pg.VonMisesFisher(mu, 2.0)
    torch.testing.assert_close(vmf.log_prob(x), pg.VonMisesFisher(mu.clone(), 2.0).log_prob(x.clone()))
    assert torch.equal(pg.VonMisesFisher.fit(x).concentration, pg.VonMisesFisher.fit(x.clone()).concentration)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [2, 3, 16, 64])
def test_fits_to_many_vectors_are_right_to_rounding(dim: int, dtype: torch.dtype) -> None:
    """The concentration for the mean length of exact sums, to 8 eps: a sum of 10,000 terms one after the other is off by 20."""
    x = law(dim, dim / 2).sample((10_000,), torch.Generator().manual_seed(3)).to(dtype)
    sums = [math.fsum(column) for column in normalize(x.double(), dim=-1).t().tolist()]
    length = torch.tensor(math.hypot(*sums) / len(x), dtype=torch.float64)
    got = pg.VonMisesFisher.fit(x).concentration.double()
    torch.testing.assert_close(got, pg.potential(dim).concentration(length), rtol=8 * torch.finfo(dtype).eps, atol=0)
