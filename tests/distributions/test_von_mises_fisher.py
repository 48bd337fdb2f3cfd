"""`VonMisesFisher` and `HypersphericalUniform` as torch.distributions: shapes, wrappers, arguments, dtypes, compiling."""

import copy
import math
import pickle

import pytest
import torch
from torch import distributions as D
from torch.func import grad, hessian, vmap
from torch.nn.functional import normalize

import pairgrad as pg
from pairgrad.distributions import unit_vector

P = 5


def directions(*shape, seed=0, dtype=torch.float64):
    return normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype), dim=-1)


@pytest.fixture
def batch():
    """Three distributions: uniform, moderate, concentrated."""
    return pg.VonMisesFisher(directions(3, P), torch.tensor([0.0, 2.0, 1e3], dtype=torch.float64))


def test_shapes(batch):
    assert (batch.batch_shape, batch.event_shape, batch.dim) == ((3,), (P,), P)
    assert batch.sample().shape == (3, P)
    assert batch.sample((7, 2)).shape == (7, 2, 3, P)
    assert batch.log_prob(directions(4, 1, P)).shape == (4, 3)
    for value in (batch.entropy(), batch.cross_entropy(batch)):
        assert value.shape == (3,)
    for value in (batch.mean, batch.mode, batch.variance, batch.stddev):
        assert value.shape == (3, P)
    assert batch.covariance.shape == batch.covariance_matrix.shape == (3, P, P)


def test_parameters_broadcast():
    wide = pg.VonMisesFisher(directions(4, 1, P), torch.rand(3, dtype=torch.float64))
    assert wide.batch_shape == (4, 3)
    assert wide.mean_direction.shape == (4, 3, P)
    assert wide.concentration.shape == (4, 3)
    one = pg.VonMisesFisher(directions(P, dtype=torch.float32), 2)
    assert one.concentration.dtype == torch.float32
    for mean, rate in ((torch.float32, torch.float64), (torch.float64, torch.float32)):
        mixed = pg.VonMisesFisher(normalize(directions(P, dtype=mean), dim=-1), torch.tensor(2.0, dtype=rate), validate_args=False)
        assert mixed.concentration.dtype == mixed.mean_direction.dtype == mixed.sample().dtype == mixed.entropy().dtype == torch.float64


def test_expand_copies_nothing_and_changes_nothing(batch):
    wide = batch.expand((6, 3))
    x = directions(3, P, seed=1)
    assert wide.batch_shape == (6, 3)
    assert wide.mean_direction.data_ptr() == batch.mean_direction.data_ptr()
    assert torch.equal(wide.log_prob(x), batch.log_prob(x).expand(6, 3))
    assert wide.sample().shape == (6, 3, P)
    uniform = pg.HypersphericalUniform(P).expand((2,))
    assert (uniform.batch_shape, uniform.sample((4,)).shape, uniform.entropy().shape) == ((2,), (4, 2, P), (2,))


def test_independent_and_mixture_of_the_same_family(batch):
    x = directions(8, 3, P, seed=2)
    torch.testing.assert_close(D.Independent(batch, 1).log_prob(x), batch.log_prob(x).sum(-1))
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    mixture = D.MixtureSameFamily(D.Categorical(weights), batch)
    draws = mixture.sample((11,))
    assert draws.shape == (11, P)
    direct = torch.logsumexp(torch.log(weights) + batch.log_prob(draws[:, None]), -1)
    torch.testing.assert_close(mixture.log_prob(draws), direct)
    torch.testing.assert_close(mixture.mean, weights @ batch.mean)
    second = batch.covariance + batch.mean[..., None] * batch.mean[..., None, :]
    total = torch.einsum("k,kij->ij", weights, second) - torch.outer(mixture.mean, mixture.mean)
    torch.testing.assert_close(mixture.variance, total.diagonal())


def test_variance_is_the_diagonal_of_the_covariance(batch):
    torch.testing.assert_close(batch.variance, batch.covariance.diagonal(dim1=-2, dim2=-1))
    along = torch.einsum("bi,bij,bj->b", batch.mean_direction, batch.covariance, batch.mean_direction)
    torch.testing.assert_close(along, pg.potential(P).curvature(batch.concentration))
    torch.testing.assert_close(batch.covariance.diagonal(dim1=-2, dim2=-1).sum(-1), 1 - batch.mean.square().sum(-1))  # |x| = 1


def test_cross_entropy_is_entropy_plus_divergence(batch):
    other = pg.VonMisesFisher(directions(3, P, seed=4), torch.tensor([5.0, 1e6, 0.0], dtype=torch.float64))
    torch.testing.assert_close(batch.cross_entropy(other), batch.entropy() + D.kl_divergence(batch, other))
    uniform = pg.HypersphericalUniform(P, dtype=torch.float64)
    torch.testing.assert_close(batch.cross_entropy(uniform), batch.entropy() + D.kl_divergence(batch, uniform))
    with pytest.raises(TypeError, match="other must be a VonMisesFisher or a HypersphericalUniform, got Normal"):
        batch.cross_entropy(D.Normal(0.0, 1.0))


def test_divergences_with_the_uniform_distribution(batch):
    uniform, zero = pg.HypersphericalUniform(P, dtype=torch.float64), pg.VonMisesFisher(directions(P), 0.0)
    torch.testing.assert_close(D.kl_divergence(batch, uniform), D.kl_divergence(batch, zero), rtol=1e-14, atol=0)
    torch.testing.assert_close(D.kl_divergence(uniform, batch), D.kl_divergence(zero, batch), rtol=1e-14, atol=0)
    assert D.kl_divergence(uniform, uniform) == 0
    assert D.kl_divergence(batch, batch).eq(0).all()
    assert D.kl_divergence(batch, uniform.expand((4, 3))).shape == (4, 3)
    with pytest.raises(ValueError, match="must live on one sphere, got dimensions 5 and 6"):
        D.kl_divergence(batch, pg.HypersphericalUniform(6))


def test_uniform():
    uniform = pg.HypersphericalUniform(3, dtype=torch.float64)
    assert uniform.log_prob(directions(2, 3)).tolist() == [-math.log(4 * math.pi)] * 2
    assert uniform.mean.tolist() == [0, 0, 0]
    torch.testing.assert_close(uniform.covariance, torch.eye(3, dtype=torch.float64) / 3)
    assert uniform.variance.tolist() == [1 / 3] * 3
    x = uniform.sample((20000,), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(x.norm(dim=-1), torch.ones(20000, dtype=torch.float64))
    assert (x.mean(0).abs() < 5 / math.sqrt(3 * 20000)).all()  # five standard deviations
    with pytest.raises(ValueError, match="dim must be an integer >= 2, got 1: a direction needs"):
        pg.HypersphericalUniform(1)


def test_two_dimensions_are_von_mises():
    angle, kappa = torch.tensor(0.7, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
    unit = lambda a: torch.stack([torch.cos(a), torch.sin(a)], -1)  # noqa: E731
    x = torch.linspace(-3, 3, 11, dtype=torch.float64)
    ours = pg.VonMisesFisher(unit(angle), kappa).log_prob(unit(x))
    torch.testing.assert_close(
        ours, D.VonMises(angle, kappa).log_prob(x), rtol=1e-6, atol=1e-6
    )  # torch's Bessel functions are right to 1e-7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (torch.ones(3), 1.0),
            ValueError,
            r"mean_direction must hold unit vectors, of length 1 to within 4e-06, got the length 1\.732.*normalize",
        ),
        ((torch.eye(3)[0] * math.nan, 1.0), ValueError, "mean_direction must hold unit vectors.*got the length nan"),
        ((torch.eye(3)[0], -2.0), ValueError, "concentration must be finite and >= 0, got -2 in .*softplus"),
        ((torch.eye(3)[0], math.inf), ValueError, "concentration must be finite and >= 0, got inf"),
        ((torch.eye(3), torch.ones(2)), ValueError, r"concentration must broadcast against the batch \(3,\) of mean_direction"),
        ((torch.ones(1), 1.0), ValueError, r"mean_direction must have shape \(\.\.\., p\) with p >= 2 coordinates"),
        (([1.0, 0.0], 1.0), TypeError, "mean_direction must be a floating-point torch tensor"),
        ((torch.eye(3)[0], True), TypeError, "concentration must be a floating-point torch tensor"),
        ((torch.eye(3, dtype=torch.int64)[0], 1.0), TypeError, "mean_direction must have dtype float32 or float64"),
    ],
)
def test_a_wrong_parameter_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        pg.VonMisesFisher(*arguments)


def test_a_wrong_value_is_named(batch):
    with pytest.raises(ValueError, match=r"value must have shape \(\.\.\., 5\)"):
        batch.log_prob(torch.ones(3))
    with pytest.raises(ValueError, match="value must hold unit vectors"):
        batch.log_prob(torch.ones(P))
    with pytest.raises(ValueError, match="value must hold unit vectors"):
        pg.HypersphericalUniform(P).log_prob(torch.ones(P))


def test_validation_can_be_left_out_and_does_not_depend_on_the_default_of_torch():
    loose = pg.VonMisesFisher(torch.ones(3), -1.0, validate_args=False)
    assert loose.log_prob(torch.ones(3)).isfinite()
    default = D.Distribution._validate_args
    try:  # importing the compiler does this
        D.Distribution.set_default_validate_args(False)
        with pytest.raises(ValueError, match="concentration"):
            pg.VonMisesFisher(torch.eye(3)[0], -1.0)
    finally:
        D.Distribution.set_default_validate_args(default)


def test_constraints():
    assert pg.VonMisesFisher.arg_constraints["mean_direction"] is unit_vector
    assert pg.VonMisesFisher.support.event_dim == 1
    assert unit_vector.check(torch.eye(3)).tolist() == [True] * 3
    assert unit_vector.check(torch.eye(3) * (1 + 2e-6)).tolist() == [True] * 3  # float32: 32 roundings
    assert unit_vector.check(torch.eye(3) * 1.001).tolist() == [False] * 3
    assert unit_vector.check(torch.eye(3).double() * (1 + 2e-6)).tolist() == [False] * 3
    assert repr(unit_vector) == "UnitVector()"


def test_copies(batch):
    x = directions(3, P, seed=3)
    for other in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert torch.equal(other.log_prob(x), batch.log_prob(x))
    assert repr(batch) == "VonMisesFisher(dim=5, batch_shape=(3,), dtype=torch.float64)"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_dtypes_are_computed_in_float32(dtype):
    mu = directions(64, dtype=torch.float32).to(dtype)
    vmf = pg.VonMisesFisher(mu, torch.tensor(30.0, dtype=dtype))
    x = vmf.sample((3,))
    assert x.dtype == vmf.log_prob(x).dtype == vmf.entropy().dtype == dtype
    wide = pg.VonMisesFisher(mu.float(), torch.tensor(30.0), validate_args=False).log_prob(x.float())
    assert torch.equal(vmf.log_prob(x), wide.to(dtype))


def test_autocast_changes_no_draw_and_no_density():
    vmf = pg.VonMisesFisher(directions(2, 64, dtype=torch.float32), torch.tensor([30.0, 1e4]))
    plain = vmf.sample((5,), generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(vmf.sample((5,), generator=torch.Generator().manual_seed(0)), plain)
        moving = vmf.rsample((5,), generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(moving, plain, rtol=0, atol=3e-7)  # the same sums in another order
        assert torch.equal(vmf.log_prob(plain), pg.VonMisesFisher(vmf.mean_direction, vmf.concentration).log_prob(plain))
        half = pg.VonMisesFisher(vmf.mean_direction.bfloat16(), vmf.concentration.bfloat16())
        assert half.log_prob(half.mean_direction).dtype == half.entropy().dtype == torch.float32


def test_a_half_direction_with_a_wider_concentration_is_a_unit_vector_there():
    vmf = pg.VonMisesFisher(directions(64, dtype=torch.float32).half(), torch.tensor(30.0))
    assert vmf.log_prob(vmf.sample()).isfinite()


def test_samples_carry_no_derivative_of_either_mode():
    mu, kappa = directions(P), torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    assert not pg.VonMisesFisher(mu, kappa).sample().requires_grad
    _, tangent = torch.func.jvp(lambda k: pg.VonMisesFisher(mu, k).sample(), (kappa.detach(),), (torch.ones_like(kappa.detach()),))
    assert not tangent.any()


@pytest.mark.parametrize("dim", [2, 3, 16])
def test_draws_under_vmap(dim):
    mu, kappa = directions(6, dim), torch.linspace(0, 9, 6, dtype=torch.float64)
    for function, arguments in (
        (lambda m: pg.VonMisesFisher(m, 2.0).rsample(), (mu,)),
        (lambda k: pg.VonMisesFisher(mu[0], k).rsample(), (kappa,)),
        (lambda m, k: pg.VonMisesFisher(m, k).sample((3,)), (mu, kappa)),
    ):
        drawn = vmap(function, randomness="different")(*arguments)
        torch.testing.assert_close(drawn.norm(dim=-1), torch.ones(drawn.shape[:-1], dtype=torch.float64))
        assert len(drawn.reshape(-1, dim).unique(dim=0)) == drawn.numel() // dim or dim == 2


def test_numbers_of_numpy_are_concentrations():
    np = pytest.importorskip("numpy")
    for number in (np.float32(3), np.int64(3), np.float64(3), 3):
        assert pg.VonMisesFisher(directions(P), number).concentration == 3


def test_direction_and_value_gradients_agree_with_the_definition_along_the_sphere():
    """kappa mu.x, of a direction that is normalised: the two formulas are one function on the sphere."""
    raw, x, kappa = torch.randn(P, dtype=torch.float64, requires_grad=True), directions(P, seed=5), torch.tensor(7.0, dtype=torch.float64)
    ours = torch.func.hessian(lambda v: pg.VonMisesFisher(normalize(v, dim=-1), kappa, validate_args=False).log_prob(x))(raw)
    plain = torch.func.hessian(lambda v: kappa * (normalize(v, dim=-1) @ x))(raw)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_torch_func():
    mu, x, kappa = directions(4, 16), directions(4, 16, seed=1), torch.rand(4, dtype=torch.float64) * 9
    log_prob = lambda m, k, v: pg.VonMisesFisher(m, k).log_prob(v)  # noqa: E731
    by_kappa = vmap(grad(log_prob, argnums=1))(mu, kappa, x)
    torch.testing.assert_close(by_kappa, (mu * x).sum(-1) - pg.potential(16).slope(kappa))
    bend = hessian(lambda k: pg.VonMisesFisher(mu, k).entropy().sum())(kappa)
    pot = pg.potential(16)
    torch.testing.assert_close(bend.diagonal(), -pot.curvature(kappa) - kappa * vmap(grad(lambda k: pot.curvature(k)))(kappa))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("backend", "dims"), [("eager", (23,)), pytest.param("inductor", (23, 29, 31), marks=pytest.mark.slow)])
def test_compiled_whole(monkeypatch, backend, dims):
    """Made, used and drawn from inside one graph, for a dimension that was never used before, and then for others."""
    monkeypatch.undo()  # the compiler allocates what the tests poison

    def step(raw, kappa, x):
        vmf = pg.VonMisesFisher(normalize(raw, dim=-1), kappa)
        return vmf.log_prob(x), D.kl_divergence(vmf, pg.HypersphericalUniform(x.shape[-1])), vmf.rsample((2,))

    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for dim in dims:
        raw, x = torch.randn(4, dim, dtype=torch.float64), directions(4, dim)
        kappa = torch.tensor([0.0, 1.0, 30.0, 1e5], dtype=torch.float64, requires_grad=True)
        log_prob, divergence, draws = compiled(raw, kappa, x)
        torch.testing.assert_close(log_prob, step(raw, kappa, x)[0])
        torch.testing.assert_close(divergence, step(raw, kappa, x)[1])
        assert draws.shape == (2, 4, dim)
        torch.testing.assert_close(draws.detach().norm(dim=-1), torch.ones(2, 4, dtype=torch.float64))
        draws[..., 0].sum().backward()
        assert kappa.grad.isfinite().all()
        assert (kappa.grad[1:3] != 0).all()


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_draws_of_several_batch_sizes(monkeypatch, backend):
    """The second size is symbolic: the last batch of an epoch."""
    monkeypatch.undo()
    compiled = torch.compile(lambda mu, kappa: pg.VonMisesFisher(mu, kappa).sample(), fullgraph=True, backend=backend)
    for size in (8, 9, 5):
        assert compiled(directions(size, 3), torch.ones(size, dtype=torch.float64)).shape == (size, 3)
