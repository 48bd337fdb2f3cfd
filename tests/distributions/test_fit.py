"""`VonMisesFisher.fit`: the maximum of the likelihood, its standard errors, the other estimators, and what is refused."""

import math

import pytest
import torch
from torch.nn.functional import normalize

import pairgrad as pg


def sample(dim, kappa, n=2000, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    mu = normalize(torch.randn(dim, generator=generator, dtype=dtype), dim=-1)
    return mu, pg.VonMisesFisher(mu, kappa).sample((n,), generator=generator)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("dim", "kappa"), [(2, 3.0), (3, 1e8), (8, 5.0), (8, 1e6), (256, 300.0), (4096, 5000.0), (4096, 1e8)])
def test_concentration_and_direction_are_recovered(dim, kappa, dtype):
    """Within five standard errors, and the bias p / (2 n) or so of the relative error. scipy returns 1e-8 from dimension 256 on."""
    mu, x = sample(dim, kappa, dtype=dtype)
    fitted = pg.VonMisesFisher.fit(x)
    facts = fitted.estimate
    bias = dim**2 / (2 * kappa * 2000) + kappa / 2000
    assert abs(fitted.concentration.item() - kappa) < 5 * facts.concentration_error.item() + bias
    angle = 2 * math.asin((fitted.mean_direction - mu).norm().item() / 2)
    spread = facts.direction_error.item() * math.sqrt(dim - 1)
    assert angle < spread * (1 + 5 / math.sqrt(2 * (dim - 1))) + 4 * torch.finfo(dtype).eps


def test_the_fit_is_where_the_likelihood_is_flat():
    """Maximum likelihood, seen from the likelihood: its gradient along the sphere and in the concentration vanishes, and its curvature is the error."""
    _, x = sample(16, 20.0)
    fitted = pg.VonMisesFisher.fit(x)

    def likelihood(raw, kappa):
        return pg.VonMisesFisher(normalize(raw, dim=-1), kappa).log_prob(x).sum()

    point = fitted.mean_direction, fitted.concentration
    by_direction, by_kappa = torch.func.grad(likelihood, argnums=(0, 1))(*point)
    scale = 2000 * 16
    assert by_direction.abs().max() < 1e-13 * scale
    assert by_kappa.abs() < 1e-13 * scale
    ((turn, _), (_, bend)) = torch.func.hessian(likelihood, argnums=(0, 1))(*point)
    torch.testing.assert_close((-bend).rsqrt(), fitted.estimate.concentration_error, rtol=1e-10, atol=0)
    tangent = normalize(torch.randn(16, dtype=torch.float64), dim=-1)
    tangent = normalize(tangent - (tangent @ point[0]) * point[0], dim=-1)
    torch.testing.assert_close((-(tangent @ turn @ tangent)).rsqrt(), fitted.estimate.direction_error, rtol=1e-10, atol=0)


def test_standard_errors_are_those_of_repeated_samples():
    """2000 fits: the spread of the estimates over the stated error is 1, to five of its own standard deviations, 1 / sqrt(2 * 2000)."""
    vmf = pg.VonMisesFisher(torch.eye(8, dtype=torch.float64)[2], 12.0)
    fitted = pg.VonMisesFisher.fit(vmf.sample((2000, 400), generator=torch.Generator().manual_seed(1)))
    assert fitted.batch_shape == (2000,)
    assert abs(fitted.concentration.std() / fitted.estimate.concentration_error.mean() - 1) < 5 / math.sqrt(4000)
    sideways = fitted.mean_direction[:, [0, 1, 3, 4, 5, 6, 7]]
    assert abs(sideways.square().mean().sqrt() / fitted.estimate.direction_error.mean() - 1) < 5 / math.sqrt(2 * 2000 * 7)


def test_concentrated_data_in_float32_lose_nothing():
    """1 - r is 1e-8: below the rounding of r. The reference is float64 on the same float32 vectors."""
    _, x = sample(3, 1e8, dtype=torch.float32)
    rounded = 2**-24 * math.sqrt(1e8)  # a rounding of a coordinate, relative to the distances between the vectors
    for estimator in ("mle", "unbiased", "sra", "banerjee", "closed-form"):
        exact = pg.VonMisesFisher.fit(normalize(x.double(), dim=-1), estimator=estimator).concentration
        assert abs(pg.VonMisesFisher.fit(x, estimator=estimator).concentration / exact - 1) < rounded / 10


def test_weights_are_counts():
    _, x = sample(6, 4.0, n=30)
    counts = torch.randint(0, 4, (30,), generator=torch.Generator().manual_seed(3))
    weighted = pg.VonMisesFisher.fit(x, counts.double())
    repeated = pg.VonMisesFisher.fit(x.repeat_interleave(counts, 0))
    torch.testing.assert_close(weighted.concentration, repeated.concentration)
    torch.testing.assert_close(weighted.mean_direction, repeated.mean_direction)
    torch.testing.assert_close(tuple(weighted.estimate), tuple(repeated.estimate))
    assert torch.equal(pg.VonMisesFisher.fit(x, counts).concentration, weighted.concentration)  # integers count too
    both = pg.VonMisesFisher.fit(x, torch.stack([counts, torch.ones_like(counts)]))  # two fits to the same vectors
    torch.testing.assert_close(both.concentration, torch.stack([weighted.concentration, pg.VonMisesFisher.fit(x).concentration]))
    assert weighted.estimate.sample_size == counts.sum()
    torch.testing.assert_close(pg.VonMisesFisher.fit(x, 2 * torch.ones(30)).estimate.concentration_error * math.sqrt(2),
                               pg.VonMisesFisher.fit(x).estimate.concentration_error)  # fmt: skip


def test_estimators():
    _, x = sample(64, 40.0, n=500)
    fits = {
        name: pg.VonMisesFisher.fit(x, estimator=name).concentration.item()
        for name in ("mle", "unbiased", "closed-form", "banerjee", "sra")
    }
    r = pg.VonMisesFisher.fit(x).estimate.resultant_length.item()
    assert math.isclose(fits["closed-form"], 64 * r / (1 - r * r), rel_tol=1e-12)
    assert math.isclose(fits["banerjee"], r * (64 - r * r) / (1 - r * r), rel_tol=1e-12)
    assert math.isclose(fits["sra"], fits["mle"], rel_tol=1e-9)
    assert abs(fits["banerjee"] / fits["mle"] - 1) > 1e-6
    unbiased = pg.potential(64).concentration(torch.tensor(math.sqrt((500 * r * r - 1) / 499), dtype=torch.float64)).item()
    assert math.isclose(fits["unbiased"], unbiased, rel_tol=1e-12)


def test_few_vectors_in_many_dimensions_look_concentrated_and_unbiased_is_not_fooled():
    _, x = sample(4096, 100.0)
    facts = pg.VonMisesFisher.fit(x).estimate
    assert pg.VonMisesFisher.fit(x).concentration > 100 + 10 * facts.concentration_error
    assert abs(pg.VonMisesFisher.fit(x, estimator="unbiased").concentration - 100) < 5 * 2 * facts.concentration_error
    uniform = pg.HypersphericalUniform(512, dtype=torch.float64).sample((50, 20), generator=torch.Generator().manual_seed(0))
    found = pg.VonMisesFisher.fit(uniform, estimator="unbiased").concentration
    assert 10 < (found == 0).sum() < 40  # about half of the squares are negative
    assert pg.VonMisesFisher.fit(uniform).concentration.min() > 50


def test_differentiable_in_data_and_weights():
    x = sample(3, 3.0, n=3)[1].requires_grad_()
    weights = torch.rand(3, dtype=torch.float64, requires_grad=True)
    for estimator in ("mle", "unbiased", "sra"):

        def fit(x, weights, estimator=estimator):
            fitted = pg.VonMisesFisher.fit(normalize(x, dim=-1), weights + 0.5, estimator=estimator)
            return fitted.mean_direction, fitted.concentration

        assert torch.autograd.gradcheck(fit, (x, weights))
    assert torch.autograd.gradgradcheck(lambda x, weights: fit(x, weights, "mle")[1], (x, weights))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.eye(3)[0],), ValueError, r"x must have shape \(\.\.\., n, p\) with n >= 1 vectors of p >= 2 coordinates"),
        ((torch.ones(4, 3),), ValueError, "x must hold unit vectors"),
        ((torch.eye(3)[:1].expand(5, 3),), ValueError, "x must hold at least two different directions.*without bound"),
        ((torch.eye(3)[:1],), ValueError, "at least two different directions"),
        ((torch.stack([torch.eye(3)[0], -torch.eye(3)[0]]),), ValueError, "its vectors sum to 0"),
        ((torch.eye(3), torch.ones(2)), ValueError, r"weights must have shape \(3,\), one per vector of x"),
        ((torch.eye(3), -torch.ones(3)), ValueError, "weights must be finite and >= 0, got values from -1 to -1"),
        ((torch.eye(3), torch.zeros(3)), ValueError, "weights must have a positive sum"),
        ((torch.eye(3), [1, 1, 1]), TypeError, "weights must be a torch tensor of real numbers"),
    ],
)
def test_what_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        pg.VonMisesFisher.fit(*arguments)


def test_unbiased_needs_counts():
    """(n r^2 - 1) / (n - 1) of weights that sum to 1 is no length."""
    _, x = sample(8, 12.0, n=40)
    with pytest.raises(ValueError, match=r"estimator='unbiased' reads weights as counts, which must sum to 2 or more .* got 1: multiply"):
        pg.VonMisesFisher.fit(x, torch.full((40,), 1 / 40), estimator="unbiased")


@pytest.mark.parametrize("dim", [3, 64])
def test_small_resultants_in_float32(dim):
    """Pairs of opposite vectors, tilted: what is left of their sum is a thousandth, and right to a few roundings of the vectors."""
    generator = torch.Generator().manual_seed(dim)
    half = normalize(torch.randn(200, dim, generator=generator), dim=-1)
    tilt = 2e-3 * torch.eye(dim)[0]
    x = normalize(torch.cat([half + tilt, -half + tilt]), dim=-1)
    exact = pg.VonMisesFisher.fit(normalize(x.double(), dim=-1))
    fitted = pg.VonMisesFisher.fit(x)
    # the mean of 400 rounded vectors is wrong by 2^-24 / sqrt(400) or so in each coordinate, their sum by no more than ten times that
    room = 10 * math.sqrt(dim) * 2**-24 / math.sqrt(400) / exact.estimate.resultant_length.item()
    assert abs(fitted.concentration / exact.concentration - 1) < room
    assert (fitted.mean_direction - exact.mean_direction).norm() < room


def test_autocast_changes_nothing():
    _, x = sample(64, 1e4, n=50, dtype=torch.float32)
    plain = pg.VonMisesFisher.fit(x)
    with torch.autocast("cpu", torch.bfloat16):
        fitted = pg.VonMisesFisher.fit(x)
    assert torch.equal(fitted.concentration, plain.concentration)
    assert torch.equal(fitted.mean_direction, plain.mean_direction)


def test_an_unknown_estimator_is_named():
    with pytest.raises(ValueError, match="estimator must be one of 'mle', 'unbiased', 'closed-form', 'banerjee', 'sra', got 'newton'"):
        pg.VonMisesFisher.fit(torch.eye(3), estimator="newton")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_concentration_from_the_complement(dtype):
    """The inverse of the complement, where 1 - r has fewer digits than the complement has."""
    for dim in (2, 3, 16, 512):
        pot = pg.potential(dim)
        x = torch.logspace(-2, 8, 21, dtype=torch.float64).to(dtype)
        rest = pot.complement(x)
        found = pot.concentration(pot.slope(x), complement=rest)
        assert (found / x - 1).abs().max() < 40 * torch.finfo(dtype).eps
    with pytest.raises(ValueError, match="complement is read by method='newton' only"):
        pot.concentration(torch.tensor(0.5), method="closed-form", complement=torch.tensor(0.5))
