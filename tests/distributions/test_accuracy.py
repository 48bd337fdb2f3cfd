"""Densities, entropies, divergences and moments against ball arithmetic: as many roundings of the terms in their definitions as are stated."""

from __future__ import annotations

import math
from functools import cache

import flint
import mpmath
import numpy as np
import pytest
import torch
from torch.autograd import grad
from torch.distributions import kl_divergence
from torch.nn.functional import normalize

import pairgrad as pg
from tests.tolerances import paired_tolerance
from tests.truth import exact, exact_at, order, working_precision

DTYPES = (torch.float64, torch.float32)
DIMS = (2, 3, 4, 5, 16, 128, 512, 4096, 100_000)
# Numbers of both dtypes, so that one truth serves both.
KAPPAS = (0.0, *(float(np.float32(10.0**k)) for k in range(-8, 9)))
ANGLES = (0.0, 1e-4, 0.03, 1.0, 1.7, math.pi)
BITS = 400

# What the library promises for log_prob, entropy and divergence: this many eps of the sum of the absolute values of the terms of the definition.
PROMISED = 16
# Derivatives are those of the form in which the density and the divergence are computed, with |x - mu|^2 / 2 for 1 - mu.x: the two agree on the sphere,
# and for rounded vectors to a rounding of 1, not of mu.x.
# In the form the density is computed in, deficit - kappa / 2 |x - mu|^2 - log |S|, the terms themselves are right to 5.4 eps (1.2e-15, value and
# difference), 4 eps for a squared distance (blocked sum, square, halving, product with kappa) and one for the area: 8 eps of their sum in float64, in
# float32 below dimension 8 the documented 7e-7 is 5.9 eps.
OWN_FORM = 8


@cache
def truth(dim: int) -> dict[str, np.ndarray]:
    """Balls of Phi - Phi(0), R, R', R'', 1 - R at KAPPAS, and of the logarithm of the area."""
    kappa = torch.tensor(KAPPAS, dtype=torch.float64)
    found = {name: exact(name, dim, kappa, digits=60) for name in ("value", "slope", "curvature", "complement")}
    with working_precision(BITS):
        half = flint.arb(dim) / 2
        found["area"] = np.array(flint.arb(2).log() + half * flint.arb.pi().log() - half.lgamma(), dtype=object)
        found["kappa"] = np.array([flint.arb(k) for k in KAPPAS], dtype=object)
        bend = [flint.arb(0)]
        for k, r, s in list(zip(found["kappa"], found["slope"], found["curvature"], strict=True))[1:]:
            bend.append(-2 * r * s - (dim - 1) * (s / k - r / k**2))
        found["bend"] = np.array(bend, dtype=object)
        found["deficit"] = found["kappa"] - found["value"]
    return found


def excess(got: torch.Tensor, wanted: np.ndarray, terms: np.ndarray) -> float:
    """The largest |got - wanted| in eps of `terms`; where there are no terms, 0 is asked for."""
    eps = torch.finfo(got.dtype).eps
    worst = 0.0
    flat = got.detach().double().reshape(-1).tolist()
    with working_precision(BITS):
        for g, ball, size in zip(flat, np.broadcast_to(wanted, got.shape).ravel(), np.broadcast_to(terms, got.shape).ravel(), strict=True):
            if not math.isfinite(g):
                return math.inf
            error, scale = abs(float(flint.arb(g) - ball)), float(size)
            worst = max(worst, error / (eps * scale) if scale else (math.inf if error else 0.0))
    return worst


def direction(dim: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return normalize(torch.randn(dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), dim=-1).to(dtype)


@cache
def turned(dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """A direction, and others at ANGLES from it; the first and the last are exactly itself and its opposite."""
    mu = direction(dim, dtype)
    wide, other = mu.double(), direction(dim, torch.float64, 1)
    side = normalize(other - (other @ wide) * wide, dim=-1)
    between = [normalize(math.cos(a) * wide + math.sin(a) * side, dim=-1).to(dtype) for a in ANGLES[1:-1]]
    return mu, (mu, *between, -mu)


def exact_dot(a: torch.Tensor, b: torch.Tensor) -> flint.arb:
    """The product of the vectors as they stand: products split into two floats (Dekker), and an exact sum, in two floats."""
    x, y = a.double().numpy(), b.double().numpy()
    product = x * y

    def halves(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        high = 134217729.0 * v
        high = high - (high - v)
        return high, v - high

    (xh, xl), (yh, yl) = halves(x), halves(y)
    parts = [*product.tolist(), *(((xh * yh - product) + xh * yl + xl * yh) + xl * yl).tolist()]
    total = math.fsum(parts)
    with working_precision(BITS):
        return flint.arb(total) + flint.arb(math.fsum([*parts, -total]))


@cache
def products(dim: int, dtype: torch.dtype) -> list[tuple[flint.arb, flint.arb]]:
    """mu.x and |x - mu|^2 / 2, which is 1 - mu.x for unit vectors, of the vectors of `turned` as they stand."""
    mu, others = turned(dim, dtype)
    own = exact_dot(mu, mu)
    found = [(own, flint.arb(0))]
    with working_precision(BITS):
        for x in others[1:-1]:
            cosine = exact_dot(mu, x)
            found.append((cosine, (own + exact_dot(x, x)) / 2 - cosine))
        return [*found, (-own, 2 * own)]


def kappas(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(KAPPAS, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_log_prob(dim: int, dtype: torch.dtype) -> None:
    t = truth(dim)
    mu, others = turned(dim, dtype)
    k = kappas(dtype).requires_grad_()
    for angle, x, (cosine, distance) in zip(ANGLES, others, products(dim, dtype), strict=True):
        got = pg.VonMisesFisher(mu, k).log_prob(x)
        with working_precision(BITS):
            wanted = t["kappa"] * cosine - t["value"] - t["area"]
            terms = t["kappa"] * abs(cosine) + t["value"] + abs(t["area"])
            own = t["deficit"] - t["kappa"] * distance - t["area"]
            own_terms = t["deficit"] + t["kappa"] * distance + abs(t["area"])
            slope, slope_terms = t["complement"] - distance, t["complement"] + distance
        assert got.shape == k.shape
        assert got.dtype == dtype
        assert excess(got, wanted, terms) <= PROMISED, (dim, angle)
        assert excess(got, own, own_terms) <= OWN_FORM, (dim, angle)
        (first,) = grad(got.sum(), k, create_graph=True)
        assert excess(first, slope, slope_terms) <= PROMISED, (dim, angle)
        (second,) = grad(first.sum(), k)
        assert_curvature(-second, t["curvature"], dtype, dim)


def assert_curvature(got: torch.Tensor, wanted: np.ndarray, dtype: torch.dtype, dim: int) -> None:
    allowed = paired_tolerance("curvature", dtype, dim) / torch.finfo(dtype).eps
    assert excess(got, wanted, wanted) <= allowed, dim


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_entropy(dim: int, dtype: torch.dtype) -> None:
    t, k = truth(dim), kappas(dtype).requires_grad_()
    got = pg.VonMisesFisher(direction(dim, dtype), k).entropy()
    with working_precision(BITS):
        wanted = t["area"] + t["value"] - t["kappa"] * t["slope"]
        terms = abs(t["area"]) + t["value"] + t["kappa"] * t["slope"]
        slope = -t["kappa"] * t["curvature"]
        bend_terms = t["curvature"] + t["kappa"] * abs(t["bend"])
        bend = -t["curvature"] - t["kappa"] * t["bend"]
    assert excess(got, wanted, terms) <= PROMISED
    (first,) = grad(got.sum(), k, create_graph=True)
    allowed = paired_tolerance("curvature", dtype, dim) / torch.finfo(dtype).eps
    assert excess(first, slope, -slope) <= allowed
    # R'' is the derivative of the formula of R', as well conditioned as that: one documented accuracy for each of the two terms.
    (second,) = grad(first.sum(), k)
    assert excess(second, bend, bend_terms) <= 2 * allowed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_divergence_and_cross_entropy(dim: int, dtype: torch.dtype) -> None:
    """Every pair of concentrations, each at one of the angles; derivatives in both."""
    t, (mu, others) = truth(dim), turned(dim, dtype)
    first, second = (v.reshape(-1) for v in np.meshgrid(range(len(KAPPAS)), range(len(KAPPAS)), indexing="ij"))
    allowed = paired_tolerance("curvature", dtype, dim) / torch.finfo(dtype).eps
    for i, (angle, nu) in enumerate(zip(ANGLES, others, strict=True)):
        pairs = (first + 2 * second) % len(ANGLES) == i
        a, b = first[pairs], second[pairs]
        ka, kb = (kappas(dtype)[torch.from_numpy(v)].requires_grad_() for v in (a, b))
        p, q = pg.VonMisesFisher(mu, ka), pg.VonMisesFisher(nu, kb)
        cosine, distance = products(dim, dtype)[i]
        with working_precision(BITS):
            x, y, va, vb, ra, rb = (
                t[n][j] for n, j in (("kappa", a), ("kappa", b), ("value", a), ("value", b), ("slope", a), ("slope", b))
            )
            wanted, terms = vb - va + ra * (x - y * cosine), vb + va + ra * (x + y * abs(cosine))
            crossed, crossed_terms = t["area"] + vb - y * ra * cosine, abs(t["area"]) + vb + y * ra * abs(cosine)
            by_a, by_a_terms = t["curvature"][a] * (x - y + y * distance), t["curvature"][a] * (x + y + y * distance)
            by_b, by_b_terms = rb - ra + ra * distance, rb + ra + ra * distance
        got, cross = kl_divergence(p, q), p.cross_entropy(q)
        assert excess(got, wanted, terms) <= PROMISED, (dim, angle)
        assert bool((got >= 0).all())
        assert excess(cross, crossed, crossed_terms) <= PROMISED, (dim, angle)
        d_a, d_b = grad(got.sum(), (ka, kb))
        assert excess(d_a, by_a, by_a_terms) <= max(allowed, PROMISED), (dim, angle)
        assert excess(d_b, by_b, by_b_terms) <= PROMISED, (dim, angle)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_the_uniform_distribution(dim: int, dtype: torch.dtype) -> None:
    t = truth(dim)
    vmf, uniform = pg.VonMisesFisher(direction(dim, dtype), kappas(dtype)), pg.HypersphericalUniform(dim, dtype=dtype)
    with working_precision(BITS):
        wanted = t["kappa"] * t["slope"] - t["value"]
        terms = t["kappa"] * t["slope"] + t["value"]
    assert excess(kl_divergence(vmf, uniform), wanted, terms) <= PROMISED
    # Phi is right relative to itself
    assert excess(kl_divergence(uniform, vmf), t["value"], t["value"]) <= PROMISED
    # the logarithm of the area is a difference of terms of size p log p above dimension 300
    size = np.array(abs(t["area"]) if dim <= 300 else flint.arb(dim) * math.log(dim), dtype=object)
    assert excess(uniform.entropy(), t["area"], size) <= 4
    assert torch.equal(uniform.log_prob(direction(dim, dtype)), -uniform.entropy())
    torch.testing.assert_close(vmf.cross_entropy(uniform), uniform.entropy().expand(len(KAPPAS)), rtol=0, atol=0)
    assert kl_divergence(uniform, pg.HypersphericalUniform(dim, dtype=dtype)) == 0
    assert torch.equal(uniform.variance, torch.full((dim,), 1 / dim, dtype=dtype))
    assert torch.equal(uniform.mean, torch.zeros(dim, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 3, 16])
def test_the_variance_along_an_axis_survives_in_the_matrix(dim: int, dtype: torch.dtype) -> None:
    """At mu = e_1 the first entry of the covariance is R', up to 1e8 times smaller than the others: it must not be what is left of these."""
    t, mu = truth(dim), torch.eye(1, dim, dtype=dtype)[0]
    vmf = pg.VonMisesFisher(mu, kappas(dtype))
    assert_curvature(vmf.covariance[:, 0, 0], t["curvature"], dtype, dim)
    assert_curvature(vmf.variance[:, 0], t["curvature"], dtype, dim)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("axis", [False, True])
def test_moments(dim: int, dtype: torch.dtype, axis: bool) -> None:
    """Mean, variances and covariances of the first coordinates; along an axis, where all of the variance is R'."""
    t = truth(dim)
    mu = torch.eye(1, dim, dtype=dtype)[0] if axis else direction(dim, dtype)
    vmf, few = pg.VonMisesFisher(mu, kappas(dtype)), min(dim, 4)
    with working_precision(BITS):
        m = np.array([flint.arb(v) for v in mu[:few].double().tolist()], dtype=object)
        across = np.array([flint.arb(1) / dim, *(t["slope"][1:] / t["kappa"][1:])], dtype=object)[:, None]
        along = t["curvature"][:, None]
        mean = t["slope"][:, None] * m
        wanted = along * m**2 + across * (1 - m**2)
        # the documented accuracy of the curvature, in units of the promise
        weight = paired_tolerance("curvature", dtype, dim) / torch.finfo(dtype).eps / PROMISED
        terms = weight * along * m**2 + across * (1 - m**2)
        outer = m[:, None] * m
        eye = np.array([[flint.arb(int(i == j)) for j in range(few)] for i in range(few)], dtype=object)
        covariance = across[..., None] * (eye - outer) + along[..., None] * outer
        covariance_terms = across[..., None] * (eye + abs(outer)) + weight * along[..., None] * abs(outer)
    assert excess(vmf.mean[:, :few], mean, abs(mean)) <= PROMISED
    assert excess(vmf.variance[:, :few], wanted, terms) <= PROMISED
    if dim <= 128:
        matrix = vmf.covariance
        assert excess(matrix[:, :few, :few], covariance, covariance_terms) <= PROMISED
        assert torch.equal(vmf.covariance_matrix, matrix)
    torch.testing.assert_close(vmf.stddev.square(), vmf.variance, rtol=4 * torch.finfo(dtype).eps, atol=0)
    assert torch.equal(vmf.mode[0], mu)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 5, 512])
def test_gradients_in_the_directions(dim: int, dtype: torch.dtype) -> None:
    """Along the sphere: kappa (x - (mu.x) mu) of the density, by normalize; -kappa_2 R_1 of it for the divergence."""
    mu, others = turned(dim, dtype)
    for kappa in (1e-3, 2.0, 1e4, 1e8):
        for x in others[1:-1]:
            free = [v.clone().requires_grad_() for v in (mu, x)]
            a, b = (normalize(v, dim=-1) for v in free)
            by_mu, by_x = grad(pg.VonMisesFisher(a, kappa).log_prob(b), free)
            m, y = mu.double(), x.double()
            # a normalised gradient: differences of vectors of length kappa |x - mu| and kappa, each rounded about four times, in norm
            allowed = PROMISED * torch.finfo(dtype).eps * kappa
            assert (by_mu.double() - kappa * (y - (m @ y) * m)).norm() <= allowed
            assert (by_x.double() - kappa * (m - (m @ y) * y)).norm() <= allowed
            first = pg.VonMisesFisher(normalize(free[0], dim=-1), 3.0)
            (by_first,) = grad(kl_divergence(first, pg.VonMisesFisher(x, kappa)), free[0])
            r = float(truth_slope(dim, 3.0))
            assert (by_first.double() + kappa * r * (y - (m @ y) * m)).norm() <= allowed * r


def truth_slope(dim: int, kappa: float) -> flint.arb:
    return exact_at("slope", order(dim), kappa)


def test_second_derivatives_in_everything() -> None:
    """By central differences along a random direction: a smoke test of the double backward, whose parts the tests above hold against the truth."""
    g = torch.Generator().manual_seed(4)
    start, along = ([torch.randn(n, dtype=torch.float64, generator=g) for n in (4, 4, 4, 1, 1)] for _ in range(2))

    def value(points):
        p, q = (pg.VonMisesFisher(normalize(m, dim=-1), torch.exp(k[0])) for m, k in ((points[0], points[3]), (points[1], points[4])))
        parts = p.log_prob(normalize(points[2], dim=-1)), p.entropy(), kl_divergence(p, q), p.cross_entropy(q), p.mean[0], p.variance[1]
        return sum(weight * part for weight, part in zip((0.3, 0.7, 1.1, 1.3, 1.7, 1.9), parts, strict=True))

    def at(step):
        points = [(x + step * v).requires_grad_() for x, v in zip(start, along, strict=True)]
        total = value(points)
        return total, points, grad(total, points, create_graph=True)

    _, points, first = at(0.0)
    slope = sum((d * v).sum() for d, v in zip(first, along, strict=True))
    second = grad(slope, points)
    step = 1e-5  # errors: step^2 of a third derivative of size 1 to 100, and the rounding over the step, 1e-11
    (above, _, higher), (below, _, lower) = at(step), at(-step)
    torch.testing.assert_close((above - below) / (2 * step), slope, rtol=1e-7, atol=1e-8)
    for up, down, wanted in zip(higher, lower, second, strict=True):
        torch.testing.assert_close((up - down) / (2 * step), wanted, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kappa", [1e-3, 0.7, 11.0, 500.0, 1e6])
def test_closed_forms_on_the_circle_and_the_sphere(kappa: float) -> None:
    """p = 3: log(kappa / (4 pi sinh kappa)) + kappa cos. p = 2: kappa cos - log(2 pi I_0)."""
    for dim in (2, 3):
        mu, others = turned(dim, torch.float64)
        for x in others:
            with mpmath.workdps(40):
                k, cosine = (
                    mpmath.mpf(kappa),
                    mpmath.fsum(mpmath.mpf(p) * mpmath.mpf(q) for p, q in zip(mu.tolist(), x.tolist(), strict=True)),
                )
                if dim == 3:
                    constant = mpmath.log(k) - mpmath.log(2 * mpmath.pi) - k - mpmath.log1p(-mpmath.exp(-2 * k))
                else:
                    constant = -mpmath.log(2 * mpmath.pi) - mpmath.log(mpmath.besseli(0, k))
                wanted, terms = k * cosine + constant, k * abs(cosine) + abs(constant)
                error = abs(pg.VonMisesFisher(mu, kappa).log_prob(x).item() - wanted) / terms
            # the constant is value + log |S| here, smaller than the sum of the two
            assert error <= 2 * PROMISED * 2.0**-52, (dim, kappa)


def test_spheres_of_different_dimensions_are_refused() -> None:
    p, q, u = (
        pg.VonMisesFisher(direction(4, torch.float64), 1.0),
        pg.VonMisesFisher(direction(5, torch.float64), 1.0),
        pg.HypersphericalUniform(5),
    )
    for ask in (
        lambda: kl_divergence(p, q),
        lambda: kl_divergence(p, u),
        lambda: kl_divergence(u, p),
        lambda: kl_divergence(pg.HypersphericalUniform(4), u),
        lambda: p.cross_entropy(q),
        lambda: p.cross_entropy(u),
    ):
        with pytest.raises(ValueError, match="one sphere"):
            ask()
