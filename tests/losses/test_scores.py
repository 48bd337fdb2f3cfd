"""vMF scores: against ball arithmetic, in both geometries, every dtype and realization, and with gradients for everything that can have one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from benchmarks.learning.exact import Exact
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

import pairgrad as pg
from tests.tolerances import LOSS_GRADIENT_FLOAT32, SCORE_FLOAT32, SCORE_GRADIENT_FLOAT32, SCORE_ROUNDINGS

TAU = 0.1
DTYPES = (torch.float64, torch.float32)
COHERENT = ("paired", "arfr", "scott", "log-bessel", "consistent")
ALL = (*COHERENT, "original", "log-miller")


def inputs(dim: int, batch: int = 4, classes: int = 12, *, spread: float | None = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unit features, rows of any length and concentrations from 0.01 to 1e5 in float32. With `spread`, every row is a feature plus noise of that length,
    every other one turned around; with None, rows are independent of the features."""
    features = F.normalize(torch.randn(batch, dim), dim=1)
    rows = torch.randn(classes, dim) / math.sqrt(dim)
    if spread is not None:
        rows = features[torch.arange(classes) % batch] + spread * rows
        rows[::2] *= -1
    return features, rows * 10 ** (4 * torch.rand(classes, 1) - 2), 10 ** torch.linspace(-2, 5, classes)


def scores_and_gradients(
    features: torch.Tensor, rows: torch.Tensor, concentration: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, K), and dq_ij / df_i, (B, K, p)."""
    batch, classes = len(features), len(rows)
    repeated = features.repeat_interleave(classes, 0).requires_grad_()
    scores = pg.vmf_scores(repeated, pg.ClassState(rows, concentration), TAU, **options)
    own = scores.gather(1, torch.arange(classes).repeat(batch)[:, None])
    (gradient,) = torch.autograd.grad(own.sum(), repeated)
    return scores[::classes].detach(), gradient.reshape(batch, classes, -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("dim", "spread"), [(3, 1.0), (16, 1.0), (128, 0.0), (128, 1.0), (512, None), (1024, 0.3)])
def test_scores_and_their_gradients(dim: int, spread: float | None, dtype: torch.dtype) -> None:
    features, rows, concentration = (t.to(dtype) for t in inputs(dim, spread=spread))
    exact = Exact.of(features, rows, concentration, TAU)
    scores, gradients = scores_and_gradients(features, rows, concentration)
    truth, unit = exact.scores(), torch.finfo(dtype).eps / 2
    # the lengths are 1 up to rounding
    assert (scores.double() - truth).abs().max() <= SCORE_ROUNDINGS * unit / TAU
    if dtype == torch.float32 and spread != 0:
        assert (scores.double() - truth).abs().max() <= SCORE_FLOAT32
    tolerance = SCORE_GRADIENT_FLOAT32 if dtype == torch.float32 else SCORE_GRADIENT_FLOAT32 * 2**-29  # by the ratio of the roundings
    for i in range(len(features)):
        for j in range(len(rows)):
            want, got = exact.gradient(i, j), gradients[i, j].double()
            # the two parts of the resultant cancel where the feature points away from the class; the rounding of each stays
            parts = concentration[j].item() + 1 / TAU
            lost = max(1.0, parts / sum(float(x) ** 2 for x in exact.resultant[i][j]) ** 0.5)
            assert (got - want).norm() <= lost**2 * tolerance * want.norm(), (i, j, lost)


@pytest.mark.parametrize("dim", [128, 512, 1024])
def test_loss_gradients_in_float32(dim: int) -> None:
    features, rows, concentration = inputs(dim)
    prior = torch.log_softmax(torch.linspace(0, 4, len(rows)), 0)
    labels = torch.tensor([0, 5, 11, 2])
    exact = Exact.of(features, rows, concentration, TAU)
    leaf = features.clone().requires_grad_()
    losses = pg.vmf_cross_entropy(leaf, labels, pg.ClassState(rows, concentration), TAU, prior, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    for i, label in enumerate(labels.tolist()):
        loss, want = exact.loss(i, label, prior.tolist())
        assert losses[i].item() == pytest.approx(loss, rel=2 * SCORE_FLOAT32, abs=0), i
        assert (gradient[i].double() - want).norm() <= LOSS_GRADIENT_FLOAT32 * want.norm(), i


@pytest.mark.parametrize("dim", [128, 512, 1024])
@pytest.mark.parametrize("spread", [None, 0.3])
def test_float32_scalars_lose_nothing_against_float64_scalars(dim: int, spread: float | None) -> None:
    """The rounding of the float32 product is what is there to be seen: doing everything after it in float64 gains a quarter at most."""
    features, rows, concentration = inputs(dim, 64, 128, spread=spread)
    truth = pg.vmf_scores(features.double(), pg.ClassState(rows.double(), concentration.double()), TAU)
    got = pg.vmf_scores(features, pg.ClassState(rows, concentration), TAU)
    rates = concentration.double() / rows.double().norm(dim=1)
    squared = (features @ rows.t()).double() * (2 * rates / TAU) + (features * features).sum(1, keepdim=True).double() / TAU**2
    mixed = pg.potential(dim).increment(concentration.double(), squared)
    error, best = ((s.double() - truth).square().mean().sqrt() for s in (got, mixed))
    assert error <= 1.5 * best


@pytest.mark.parametrize("name", ["paired", "arfr", "original", "scott"])
def test_the_two_geometries_agree(name: str) -> None:
    features, rows, concentration = (t.double() for t in inputs(128))
    concentration = concentration.clamp(max=1e4)
    state = pg.ClassState(rows, concentration)
    leaves = [features.clone().requires_grad_() for _ in range(2)]
    factorised = pg.vmf_scores(leaves[0], state, TAU, name)
    expanded = pg.vmf_scores(leaves[1], state, TAU, name, "expanded")
    # a radius of 1e4 is rounded to 1e-12 before the difference is taken, and the recurrences subtract values of that size
    torch.testing.assert_close(factorised, expanded, rtol=0, atol=1e4 * 8 * torch.finfo(torch.float64).eps)
    gradients = [torch.autograd.grad(q.sum(), leaf)[0] for q, leaf in zip((factorised, expanded), leaves, strict=True)]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)


def test_expanded_geometry_in_float32_is_what_costs_the_digits() -> None:
    """Why factorised is the default: at kappa = 1e5, sums of squares round 1e10."""
    features, rows, _ = inputs(512)
    state = pg.ClassState(rows, torch.full((len(rows),), 1e5))
    truth = pg.vmf_scores(features.double(), pg.ClassState(rows.double(), torch.full((len(rows),), 1e5, dtype=torch.float64)), TAU)
    factorised = (pg.vmf_scores(features, state, TAU) - truth).abs().max()
    expanded = (pg.vmf_scores(features, state, TAU, geometry="expanded") - truth).abs().max()
    assert factorised <= SCORE_FLOAT32
    assert expanded > 100 * SCORE_FLOAT32


def test_geometry_dtype() -> None:
    features, rows, concentration = inputs(64)
    single, double = pg.ClassState(rows, concentration), pg.ClassState(rows.double(), concentration.double())
    got = pg.vmf_scores(features, single, TAU, geometry_dtype=torch.float64)
    assert got.dtype == torch.float64
    # the norms of the rows are taken in the dtype of the rows, then everything in float64
    norms = rows.norm(dim=1)
    want = pg.vmf_scores(features.double(), double, TAU)
    torch.testing.assert_close(got, want, rtol=0, atol=2 * torch.finfo(torch.float32).eps / TAU)
    assert norms.dtype == torch.float32
    down = pg.vmf_scores(features.double(), double, TAU, geometry_dtype=torch.float32)
    assert down.dtype == torch.float32
    torch.testing.assert_close(down.double(), want, rtol=0, atol=2 * SCORE_ROUNDINGS * torch.finfo(torch.float32).eps / TAU)
    leaf = features.clone().requires_grad_()
    pg.vmf_scores(leaf, single, TAU, geometry_dtype=torch.float64).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.float32


def test_a_bank_in_float64_geometry_has_nothing_of_float32_left() -> None:
    """Its rates are derived in float64 from float64 norms and kept in its dtype: one rounding against a float64 bank with the same sums."""
    single = pg.ClassBank(5, 64)
    single.update(F.normalize(torch.randn(40, 64), dim=1), torch.arange(40) % 5)
    double = pg.ClassBank(5, 64, dtype=torch.float64)
    double.load_state_dict({name: tensor.double() for name, tensor in single.state_dict().items()})
    features = F.normalize(torch.randn(3, 64, dtype=torch.float64), dim=1)
    got, want = (pg.vmf_scores(features, bank, TAU, geometry_dtype=torch.float64) for bank in (single, double))
    torch.testing.assert_close(got, want, rtol=0, atol=4 * torch.finfo(torch.float32).eps / TAU)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_features(dtype: torch.dtype) -> None:
    """Computed in float32, exactly from the rounded features; the gradient comes back in the dtype of the features."""
    features, rows, concentration = inputs(64)
    half = features.to(dtype).requires_grad_()
    state = pg.ClassState(rows, concentration)
    scores = pg.vmf_scores(half, state, TAU)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, pg.vmf_scores(half.detach().float(), state, TAU))
    (gradient,) = torch.autograd.grad(scores.sum(), half)
    assert gradient.dtype == dtype
    both_half = pg.vmf_scores(half, pg.ClassState(rows.to(dtype), concentration.to(dtype).clamp(max=6e4)), TAU)
    assert both_half.dtype == torch.float32


def test_mixed_dtypes_take_the_wider() -> None:
    features, rows, concentration = inputs(64)
    assert pg.vmf_scores(features, pg.ClassState(rows.double(), concentration.double())).dtype == torch.float64
    assert pg.vmf_scores(features.double(), pg.ClassState(rows, concentration)).dtype == torch.float64


def test_autocast_changes_nothing() -> None:
    features, rows, concentration = inputs(64)
    state = pg.ClassState(rows, concentration)
    plain = pg.vmf_scores(features, state, TAU)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pg.vmf_scores(features, state, TAU), plain)
        half = pg.vmf_scores(features.bfloat16(), state, TAU)
    assert torch.equal(half, pg.vmf_scores(features.bfloat16(), state, TAU))


def test_leading_shapes() -> None:
    features, rows, concentration = inputs(32, 6)
    state = pg.ClassState(rows, concentration)
    flat = pg.vmf_scores(features, state, TAU)
    shaped = pg.vmf_scores(features.reshape(2, 1, 3, 32), state, TAU)
    assert shaped.shape == (2, 1, 3, 12)
    assert torch.equal(shaped.reshape(6, 12), flat)
    assert pg.vmf_scores(features[:0], state, TAU).shape == (0, 12)


def test_a_class_without_direction() -> None:
    """kappa = 0: the score is Phi(||f|| / tau) - Phi(0) whatever the direction; in a bank such a row is zero."""
    pot = pg.potential(32)
    features = torch.randn(5, 32, dtype=torch.float64, requires_grad=True)
    want = pot.value(features.detach().norm(dim=1) / TAU)
    state = pg.ClassState(torch.randn(1, 32, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    bank = pg.ClassBank(1, 32, unseen="uniform", dtype=torch.float64)
    for classes in (state, bank):
        scores = pg.vmf_scores(features, classes, TAU)
        torch.testing.assert_close(scores[:, 0], want, rtol=1e-14, atol=0)
        (gradient,) = torch.autograd.grad(scores.sum(), features)
        slope = pot.slope(features.detach().norm(dim=1) / TAU)
        torch.testing.assert_close(gradient, F.normalize(features.detach(), dim=1) * (slope / TAU)[:, None])


@pytest.mark.parametrize("name", ["paired", "arfr", "scott", "log-bessel"])
def test_zero_features_have_zero_scores(name: str) -> None:
    """and the gradient R(kappa) mu / tau, also at kappa = 0, where the resultant vanishes and nothing may divide by its length."""
    _, rows, concentration = inputs(32)
    concentration[0] = 0
    features = torch.zeros(1, 32, requires_grad=True)
    scores = pg.vmf_scores(features, pg.ClassState(rows, concentration), TAU, name)
    assert scores.abs().max() <= torch.finfo(torch.float32).tiny
    (gradient,) = torch.autograd.grad(scores[0, 0], features, retain_graph=True)
    assert torch.equal(gradient, torch.zeros_like(gradient))
    (gradient,) = torch.autograd.grad(scores[0, 9], features)
    slope = pg.potential(32, name).slope(concentration[9:10].double())
    want = F.normalize(rows[9:10].double(), dim=1) * slope / TAU
    assert (gradient.double() - want).norm() <= (1e-3 if name == "log-bessel" else SCORE_GRADIENT_FLOAT32) * want.norm()


def test_the_score_of_a_bank_is_that_of_its_state() -> None:
    bank = pg.ClassBank(4, 16, dtype=torch.float64)
    bank.update(F.normalize(torch.randn(20, 16, dtype=torch.float64), dim=1), torch.arange(20) % 3)
    features = torch.randn(5, 16, dtype=torch.float64)
    state = pg.ClassState(bank.mean_direction, bank.concentration)
    torch.testing.assert_close(pg.vmf_scores(features, bank, TAU), pg.vmf_scores(features, state, TAU), rtol=1e-13, atol=1e-13)


def test_the_score_is_the_logarithm_of_a_mean() -> None:
    """q_j(f) = log E exp(f . z / tau) for z of class j, in dimension 3, where the integral over the sphere is elementary in cos(angle)."""
    kappa, tau = 4.0, 0.5
    f = torch.tensor([[0.3, -0.2, 0.9]], dtype=torch.float64)
    mu = F.normalize(torch.tensor([[1.0, 2.0, -0.5]], dtype=torch.float64), dim=1)
    # E exp(f.z / tau) = C(kappa) / C(r), C(x) = x / (4 pi sinh x)
    r = (kappa * mu + f / tau).norm().item()
    want = math.log(math.sinh(r) / r) - math.log(math.sinh(kappa) / kappa)
    got = pg.vmf_scores(f, pg.ClassState(mu, torch.tensor([kappa], dtype=torch.float64)), tau).item()
    assert got == pytest.approx(want, rel=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_original_and_consistent_have_equal_scores_and_the_published_defect(dtype: torch.dtype) -> None:
    """p = 128 and radii of 64 nu: the supplied slopes differ by 1.57e-2 of 1."""
    nu = 63
    features = F.normalize(torch.randn(3, 128, dtype=torch.float64), dim=1)
    rows = F.normalize(torch.randn(5, 128, dtype=torch.float64), dim=1)
    state = pg.ClassState(rows.to(dtype), torch.full((5,), 64.0 * nu, dtype=dtype))
    found = []
    for name in ("original", "consistent"):
        leaf = features.to(dtype).requires_grad_()
        scores = pg.vmf_scores(leaf, state, TAU, name)
        found.append((scores, torch.autograd.grad(scores[0, 0], leaf)[0][0]))
    assert torch.equal(found[0][0], found[1][0])
    along = F.normalize(64.0 * nu * rows[0] + features[0] / TAU, dim=0)
    slopes = [(gradient.double() * along).sum().item() * TAU for _, gradient in found]
    assert slopes[0] == pytest.approx(1, abs=1e-5)
    assert slopes[0] - slopes[1] == pytest.approx(1.57e-2, rel=1e-2)


def test_a_realization_is_a_name_or_a_potential() -> None:
    features, rows, concentration = inputs(64)
    state = pg.ClassState(rows, concentration)
    assert torch.equal(pg.vmf_scores(features, state, TAU, "arfr"), pg.vmf_scores(features, state, TAU, pg.potential(64, "arfr")))
    third = pg.vmf_scores(features, state, TAU, pg.potential(64, "arfr", order=3))
    assert not torch.equal(third, pg.vmf_scores(features, state, TAU, "arfr"))
    truth = pg.vmf_scores(features[:1], state, TAU, "reference", geometry_dtype=torch.float64)  # a radius of 1e5 in float64: 1e-11
    torch.testing.assert_close(pg.vmf_scores(features[:1], state, TAU).double(), truth, rtol=0, atol=SCORE_FLOAT32)


def small(dim: int) -> tuple[torch.Tensor, ...]:
    """features, rows, concentration, temperature"""
    double = {"dtype": torch.float64}
    tensors = (torch.randn(2, dim, **double), torch.randn(3, dim, **double), 1 + 20 * torch.rand(3, **double), torch.tensor(0.3, **double))
    return tuple(t.requires_grad_() for t in tensors)


@pytest.mark.parametrize(
    ("name", "geometry"), [*((name, "factorised") for name in COHERENT), ("paired", "expanded"), ("consistent", "expanded")]
)
def test_gradcheck(name: str, geometry: str) -> None:
    """For features, mean directions, concentrations and temperature."""

    def scores(features: torch.Tensor, rows: torch.Tensor, concentration: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return pg.vmf_scores(features, pg.ClassState(rows, concentration), temperature, name, geometry)

    assert gradcheck(scores, small(6))


def test_gradgradcheck() -> None:
    def scores(features: torch.Tensor, rows: torch.Tensor, concentration: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return pg.vmf_scores(features, pg.ClassState(rows, concentration), temperature)

    assert gradgradcheck(scores, small(5), fast_mode=True)


def test_temperature_as_a_tensor_is_the_same_number() -> None:
    features, rows, concentration = inputs(32)
    state = pg.ClassState(rows, concentration)
    number = pg.vmf_scores(features, state, 0.25)
    for shape in ((), (1,), (1, 1)):
        got = pg.vmf_scores(features, state, torch.full(shape, 0.25))
        assert got.shape == number.shape
        torch.testing.assert_close(got, number)


def test_the_gradient_in_a_direction_is_tangent() -> None:
    _, rows, concentration, _ = small(8)
    scores = pg.vmf_scores(torch.randn(4, 8, dtype=torch.float64), pg.ClassState(rows, concentration), TAU)
    (gradient,) = torch.autograd.grad(scores.sum(), rows)
    assert (gradient * rows).sum(1).abs().max() <= 1e-12 * gradient.norm()


def test_torch_func() -> None:
    features, rows, concentration = (t.double() for t in inputs(16, 3, 5))
    state = pg.ClassState(rows, concentration)

    def one(feature: torch.Tensor) -> torch.Tensor:
        return pg.vmf_scores(feature[None], state, TAU)[0]

    torch.testing.assert_close(torch.func.vmap(one)(features), pg.vmf_scores(features, state, TAU), rtol=1e-12, atol=1e-12)
    reverse, forward = torch.func.jacrev(one)(features[0]), torch.func.jacfwd(one)(features[0])
    torch.testing.assert_close(reverse, forward, rtol=1e-12, atol=1e-12)
    _, gradients = scores_and_gradients(features[:1], rows, concentration)
    torch.testing.assert_close(reverse, gradients[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"geometry": "dense"}, ValueError, "geometry must be one of 'factorised', 'expanded', got 'dense'"),
        ({"temperature": 0.0}, ValueError, "temperature must be a positive finite number, got 0.0"),
        ({"temperature": -1}, ValueError, "temperature must be a positive finite number, got -1"),
        ({"temperature": math.inf}, ValueError, "temperature must be a positive finite number, got inf"),
        ({"temperature": math.nan}, ValueError, "temperature must be a positive finite number, got nan"),
        ({"temperature": True}, ValueError, "temperature must be a positive finite number, got True"),
        ({"temperature": "warm"}, ValueError, "temperature must be a positive finite number, got 'warm'"),
        ({"temperature": torch.ones(2)}, ValueError, "temperature must be a positive number or a floating-point tensor with one element"),
        ({"temperature": torch.tensor(1)}, ValueError, "temperature must be a positive number or a floating-point tensor with one element"),
        ({"temperature": torch.tensor(-0.1)}, ValueError, "temperature must be positive and finite, got -0.1"),
        ({"temperature": torch.tensor(torch.nan)}, ValueError, "temperature must be positive and finite, got nan"),
        ({"realization": "exact"}, ValueError, "realization must be one of"),
        ({"realization": pg.potential(10)}, ValueError, "realization must be a potential of dim=8, the dimension of the features"),
        ({"state": torch.ones(3, 8)}, TypeError, "state must be a pairgrad.ClassBank or a pairgrad.ClassState, got a float32 tensor"),
        ({"state": None}, TypeError, "state must be a pairgrad.ClassBank or a pairgrad.ClassState, got None"),
        ({"features": [1.0]}, TypeError, "features must be a floating-point torch tensor"),
        ({"features": torch.ones(2, 8, dtype=torch.int64)}, TypeError, "features must have dtype float32 or float64"),
        ({"features": torch.ones(2, 9)}, ValueError, r"features must have shape \(batch, dim=8\), got a float32 tensor of shape \(2, 9\)"),
        ({"features": torch.ones(8)}, ValueError, r"features must have shape \(batch, dim=8\)"),
        ({"features": torch.full((2, 8), torch.nan)}, ValueError, "features must be finite, got NaN or infinity"),
        ({"features": torch.full((2, 8), torch.inf)}, ValueError, "features must be finite, got NaN or infinity"),
        ({"features": torch.ones(2, 8, device="meta")}, ValueError, "features must be on cpu, where the class state is"),
        ({"geometry_dtype": torch.float16}, TypeError, "geometry_dtype must be torch.float32 or torch.float64, got torch.float16"),
    ],
    ids=lambda v: str(v)[:40] if isinstance(v, dict) else "",
)
def test_errors(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"features": torch.ones(2, 8), "state": pg.ClassState(torch.ones(3, 8), torch.ones(3)), **change}
    with pytest.raises(error, match=message):
        pg.vmf_scores(**arguments)


def test_values_are_not_looked_at_without_validation() -> None:
    state = pg.ClassState(torch.ones(3, 8), torch.ones(3))
    assert pg.vmf_scores(torch.full((2, 8), torch.nan), state, validate=False).isnan().all()


def test_a_wider_geometry_is_as_accurate_as_a_wider_state():
    """The norms of float32 rows are taken in float64 too: scores differ from those of converted tensors by roundings of float64."""
    generator = torch.Generator().manual_seed(8)
    rows, features = torch.randn(7, 48, generator=generator), torch.randn(5, 48, generator=generator)
    concentration = torch.logspace(0, 5, 7)
    narrow, wide = pg.ClassState(rows, concentration), pg.ClassState(rows.double(), concentration.double())
    for geometry in ("factorised", "expanded"):
        mine = pg.vmf_scores(features, narrow, 0.5, geometry=geometry, geometry_dtype=torch.float64)
        theirs = pg.vmf_scores(features.double(), wide, 0.5, geometry=geometry)
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-11)
    labels = torch.arange(5)
    losses = [
        pg.vmf_cross_entropy(features, labels, narrow, 0.5, geometry_dtype=torch.float64),
        pg.vmf_cross_entropy(features.double(), labels, wide, 0.5),
    ]
    torch.testing.assert_close(*losses, rtol=1e-13, atol=0)
