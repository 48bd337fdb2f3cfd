"""The vMF regression loss against fifty digits: values, gradients, Hessians, at zero, at huge concentrations, and what it refuses."""

from __future__ import annotations

import copy
import math
from functools import cache

import mpmath
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.func import grad, hessian, jacfwd, jacrev, vmap

import pairgrad as pg
from pairgrad.losses import VMFRegressionLoss

DTYPES = (torch.float32, torch.float64)
DIMS = (2, 3, 64, 512, 4096)
COHERENT = ("paired", "arfr", "consistent", "scott", "log-bessel")
ALL = (*COHERENT, "original", "log-miller", "reference")

# In roundings u of the dtype. Value: the bracket, the distance and their sum are rounded once or twice each, and a coordinate of the direction, wrong
# by 1.5 u of itself, moves kappa |mu - t|^2 / 2 by kappa |mu - t| u; the length, wrong by 2 u of itself, moves the bracket by kappa (1 - R) u.
VALUE_ROUNDINGS = 4
# Gradient, relative to |mu_i| + |t_i|: direction, difference, slope (up to 7 u), the projection and the length of a rounded target.
GRADIENT_ROUNDINGS = 12
# Derivative by the concentration, |mu - t|^2 / 2 - (1 - R), relative to the sum of both and |mu - t|: a complement (up to 7 u) and a distance.
RADIAL_ROUNDINGS = 10
# Hessian relative to 1 / p, in units of u^(2/3): terms of size 1 / |v| cancel just outside the border |v| = u^(1/3) sqrt(p), a few at a time.
HESSIAN_UNITS = 30


@cache
def bessel(dim: int, kappa: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Phi - kappa + (p / 2) log(2 pi), and R."""
    with mpmath.workdps(50):
        nu, k = mpmath.mpf(dim) / 2 - 1, mpmath.mpf(kappa)
        constant = mpmath.mpf(dim) / 2 * mpmath.log(2 * mpmath.pi)
        if kappa == 0:
            return -nu * mpmath.log(2) - mpmath.loggamma(nu + 1) + constant, mpmath.mpf(0)
        below = mpmath.besseli(nu, k)
        return mpmath.log(below) - nu * mpmath.log(k) - k + constant, mpmath.besseli(nu + 1, k) / below


class Truth:
    """The loss of one sample, whose target is the direction of the given one, and its derivatives."""

    def __init__(self, prediction: torch.Tensor, target: torch.Tensor, concentration: float | None = None) -> None:
        with mpmath.workdps(50):
            v, t = ([mpmath.mpf(c) for c in vector.tolist()] for vector in (prediction, target))
            size = mpmath.sqrt(mpmath.fsum(c * c for c in t))
            t = [c / size for c in t]
            length = mpmath.sqrt(mpmath.fsum(c * c for c in v))
            kappa = length if concentration is None else mpmath.mpf(concentration)
            mu = [c / length for c in v] if length else t
            cos = mpmath.fdot(mu, t)
            bracket, ratio = bessel(len(v), kappa)
            self.kappa, self.mu, self.t = kappa, mu, t
            self.distance = mpmath.sqrt(2 * (1 - cos))
            self.terms = abs(bracket) + kappa * (1 - cos)
            self.value = bracket + kappa * (1 - cos)
            self.complement = 1 - ratio
            self.by_concentration = ratio - cos
            if concentration is None:
                self.by_prediction = [ratio * m - c if length else -c for m, c in zip(mu, t, strict=True)]
            else:
                self.by_prediction = [kappa / length * (cos * m - c) for m, c in zip(mu, t, strict=True)]

    def value_scale(self) -> mpmath.mpf:
        area = abs(bessel(len(self.mu), 0.0)[0])  # the bracket is log |S| less kappa - Phi(kappa)
        return self.terms + area + self.kappa * (self.distance + self.complement)


def states(dim: int, dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Predictions of all lengths, at angles of order 1 and 1/100."""
    pairs = []
    for kappa in (1e-30, 1e-7, 3e-3, 1.0, dim / 2, 30 * dim, 1e5) if dim < 1000 else (3e-3, dim / 2, 1e5):
        for spread in (1.0, 1e-2):
            target = F.normalize(torch.randn(dim, dtype=torch.float64), dim=-1)
            other = F.normalize(target + spread * F.normalize(torch.randn(dim, dtype=torch.float64), dim=-1), dim=-1)
            pairs.append(((kappa * other).to(dtype), target.to(dtype)))
    return pairs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_values_and_gradients_of_a_vector(dim: int, dtype: torch.dtype) -> None:
    unit = torch.finfo(dtype).eps / 2
    loss = VMFRegressionLoss(dim)
    for prediction, target in states(dim, dtype):
        truth = Truth(prediction, target)
        prediction.requires_grad_()
        value = loss(prediction, target)
        assert value.dtype == dtype
        bound = VALUE_ROUNDINGS * unit * truth.value_scale()
        assert abs(value.item() - truth.value) <= bound, (dim, float(truth.kappa), value.item(), float(truth.value))
        (gradient,) = torch.autograd.grad(value, prediction)
        rows = zip(gradient.tolist(), truth.by_prediction, truth.mu, truth.t, strict=True)
        excess = max(float(abs(got - want) / (abs(m) + abs(c))) for got, want, m, c in rows)
        assert excess <= GRADIENT_ROUNDINGS * unit, (dim, float(truth.kappa), excess / unit)
        # along the direction little is left of the two: 1 - cos and 1 - R
        radial = mpmath.fdot(gradient.tolist(), truth.mu)
        room = RADIAL_ROUNDINGS * unit * (truth.distance + abs(truth.complement) + truth.distance**2)
        assert abs(radial - truth.by_concentration) <= room, (dim, float(truth.kappa), float(radial), float(truth.by_concentration))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_values_and_gradients_of_a_direction_and_a_concentration(dim: int, dtype: torch.dtype) -> None:
    unit = torch.finfo(dtype).eps / 2
    loss = VMFRegressionLoss(dim)
    for prediction, target in states(dim, dtype):
        kappa = torch.linalg.vector_norm(prediction).clone()
        prediction = 7 * prediction / kappa if kappa > 0 else prediction * 1e30
        truth = Truth(prediction, target, kappa.item())
        prediction.requires_grad_()
        kappa.requires_grad_()
        value = loss(prediction, target, kappa)
        bound = VALUE_ROUNDINGS * unit * truth.value_scale()
        assert abs(value.item() - truth.value) <= bound, (dim, kappa.item(), value.item(), float(truth.value))
        by_prediction, by_concentration = torch.autograd.grad(value, (prediction, kappa))
        room = RADIAL_ROUNDINGS * unit * (truth.distance**2 / 2 + abs(truth.complement) + truth.distance)
        assert abs(by_concentration.item() - truth.by_concentration) <= room, (dim, kappa.item(), by_concentration.item())
        scale = truth.kappa / mpmath.mpf(torch.linalg.vector_norm(prediction.detach().double()).item())
        rows = zip(by_prediction.tolist(), truth.by_prediction, truth.mu, truth.t, strict=True)
        excess = max(float(abs(got - want) / (abs(m) + abs(c))) for got, want, m, c in rows)
        assert excess <= GRADIENT_ROUNDINGS * unit * scale, (dim, kappa.item(), excess / unit)


def test_float32_at_a_concentration_of_1e5_is_far_better_than_the_plain_formula() -> None:
    """The bar of the task: 1e-5 of the result, where Phi(kappa) - v.t in float32 has lost four digits."""
    loss, pot = VMFRegressionLoss(64), pg.potential(64)
    target = F.normalize(torch.randn(64), dim=0)
    prediction = 1e5 * F.normalize(target + 3e-3 * F.normalize(torch.randn(64), dim=0), dim=0)
    want = Truth(prediction, target).value
    plain = pot.value(prediction.norm()) + pot.offset + 32 * math.log(2 * math.pi) - prediction @ target
    assert abs(loss(prediction, target).item() / want - 1) < 1e-6
    assert abs(plain.item() / want - 1) > 1e-5


def test_closed_forms_of_low_dimensions() -> None:
    """dim 3: kappa / (4 pi sinh kappa); dim 2: 1 / (2 pi I_0(kappa))."""
    kappa = torch.tensor([1e-3, 0.7, 12.0, 300.0], dtype=torch.float64)
    cos = torch.tensor([-0.3, 0.2, 0.9, 0.999], dtype=torch.float64)
    sin = (1 - cos**2).sqrt()
    log_sinh = kappa + torch.log(-torch.expm1(-2 * kappa)) - math.log(2)
    space = torch.log(4 * math.pi / kappa) + log_sinh - kappa * cos
    plane = math.log(2 * math.pi) + torch.log(torch.special.i0e(kappa)) + kappa - kappa * cos
    for dim, want in ((3, space), (2, plane)):
        target = torch.zeros(4, dim, dtype=torch.float64)
        target[:, 0] = 1
        direction = torch.zeros_like(target)
        direction[:, 0], direction[:, 1] = cos, sin
        loss = VMFRegressionLoss(dim, reduction="none")
        torch.testing.assert_close(loss(kappa[:, None] * direction, target), want, rtol=1e-12, atol=0)
        torch.testing.assert_close(loss(5 * direction, target, kappa), want, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 3, 512, 4096])
def test_zero(dim: int, dtype: torch.dtype) -> None:
    """Logarithm of the area of the sphere, gradient -t, Hessian I / p."""
    target = F.normalize(torch.randn(2, dim, dtype=dtype), dim=-1)
    prediction = torch.zeros(2, dim, dtype=dtype, requires_grad=True)
    losses = VMFRegressionLoss(dim, reduction="none")(prediction, target)
    area = float(bessel(dim, 0)[0])
    assert losses.tolist() == pytest.approx([area] * 2, rel=2 * torch.finfo(dtype).eps, abs=1e-12)
    (gradient,) = torch.autograd.grad(losses.sum(), prediction, create_graph=True)
    assert torch.equal(gradient, -target)
    direction = torch.randn(2, dim, dtype=dtype)
    (product,) = torch.autograd.grad((gradient * direction).sum(), prediction)
    torch.testing.assert_close(product, direction / dim, rtol=4 * torch.finfo(dtype).eps, atol=0)


def exact_hessian(prediction: torch.Tensor) -> torch.Tensor:
    """R / k (I - mu mu^T) + R' mu mu^T, with R' from the Riccati equation."""
    dim = prediction.numel()
    with mpmath.workdps(50):
        v = mpmath.matrix(prediction.tolist())
        k = mpmath.norm(v)
        ratio = bessel(dim, k)[1]
        bend = 1 - ratio**2 - (dim - 1) * ratio / k
        rows = [[ratio / k * (i == j) + (bend - ratio / k) * v[i] * v[j] / k**2 for j in range(dim)] for i in range(dim)]
        return torch.tensor([[float(c) for c in row] for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 3, 16])
def test_hessian_on_both_sides_of_the_border(dim: int, dtype: torch.dtype) -> None:
    """The border of the expansion around 0 lies where the largest coordinate is u^(1/3) sqrt(p)."""
    unit = torch.finfo(dtype).eps / 2
    border = unit ** (1 / 3) * math.sqrt(dim)
    target = F.normalize(torch.randn(dim, dtype=dtype), dim=0)
    shape = torch.randn(dim, dtype=dtype)
    shape = shape / shape.abs().max()
    loss = VMFRegressionLoss(dim)
    for factor in (1e-3, 0.01, 0.1, 0.999, 1.001, 4.0, 30.0):
        prediction = factor * border * shape
        error = dim * (hessian(lambda v: loss(v, target))(prediction).double() - exact_hessian(prediction)).abs().max()
        assert error <= HESSIAN_UNITS * unit ** (2 / 3), (factor, error.item() / unit ** (2 / 3))


@pytest.mark.parametrize("dim", [4, 16])
@pytest.mark.parametrize("name", COHERENT)
def test_gradcheck(name: str, dim: int) -> None:
    loss = VMFRegressionLoss(dim, name)
    target = F.normalize(torch.randn(3, dim, dtype=torch.float64), dim=-1)
    prediction = (3 * torch.randn(3, dim, dtype=torch.float64)).requires_grad_()
    kappa = (0.5 + dim * torch.rand(3, dtype=torch.float64)).requires_grad_()
    fast = dim > 4
    assert gradcheck(lambda v: loss(v, target), prediction, check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(lambda v: loss(v, target), prediction, fast_mode=fast)
    assert gradcheck(lambda v, k: loss(v, target, k), (prediction, kappa), check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(lambda v, k: loss(v, target, k), (prediction, kappa), fast_mode=fast)


@pytest.mark.parametrize("dim", [2, 3, 512])
def test_gradcheck_of_the_default_at_zero_and_away(dim: int) -> None:
    loss = VMFRegressionLoss(dim)
    target = F.normalize(torch.randn(3, dim, dtype=torch.float64), dim=-1)
    prediction = torch.randn(3, dim, dtype=torch.float64)
    prediction[0] = 0
    prediction.requires_grad_()
    assert gradcheck(lambda v: loss(v, target), prediction, fast_mode=dim > 100)
    assert gradgradcheck(lambda v: loss(v, target), prediction, fast_mode=dim > 100)


def test_gradcheck_refuses_the_incoherent_ones() -> None:
    target = F.normalize(torch.randn(3, 4, dtype=torch.float64), dim=-1)
    prediction = (3 * torch.randn(3, 4, dtype=torch.float64)).requires_grad_()
    for name in ("original", "log-miller"):
        with pytest.raises(GradcheckError):
            gradcheck(lambda v, name=name: VMFRegressionLoss(4, name)(v, target), prediction)


@pytest.mark.parametrize("name", ALL)
def test_every_realization_reports_its_value_and_supplies_its_slope(name: str) -> None:
    loss, pot = VMFRegressionLoss(16, name, reduction="none"), pg.potential(16, name)
    target = F.normalize(torch.randn(5, 16, dtype=torch.float64), dim=-1)
    kappa = torch.tensor([0.0, 0.5, 7.0, 90.0, 2000.0], dtype=torch.float64)
    direction = F.normalize(torch.randn(5, 16, dtype=torch.float64), dim=-1)
    cos = (direction * target).sum(-1)
    phi = pot.value(kappa) + pot.offset + 8 * math.log(2 * math.pi)
    kappa.requires_grad_()
    losses = loss(direction, target, kappa)
    torch.testing.assert_close(losses, phi - kappa * cos, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(losses.sum(), kappa)
    torch.testing.assert_close(gradient, pot.slope(kappa.detach()) - cos, rtol=0, atol=1e-14)
    vector = (kappa.detach()[:, None] * direction).requires_grad_()
    losses = loss(vector, target)
    torch.testing.assert_close(losses, phi - kappa * cos, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(losses.sum(), vector)
    torch.testing.assert_close(gradient, pot.slope(kappa.detach())[:, None] * direction - target, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dim", [2, 3, 512, 4096])
def test_huge_concentrations_stay_finite(dim: int) -> None:
    target = F.normalize(torch.randn(4, dim), dim=-1)
    loss = VMFRegressionLoss(dim)
    for size in (1e19, 1e30, 3e37):
        prediction = (size * F.normalize(torch.randn(4, dim), dim=-1)).requires_grad_()
        value = loss(prediction, target)
        (gradient,) = torch.autograd.grad(value, prediction)
        assert value.isfinite()
        mu = F.normalize(prediction.detach().double(), dim=-1)
        torch.testing.assert_close(gradient.double(), (mu - target) / 4, rtol=0, atol=1e-6)
        kappa = torch.full((4,), size, requires_grad=True)
        value = loss(target.roll(1, 0), target, kappa)
        (gradient,) = torch.autograd.grad(value, kappa)
        assert value.isfinite()
        cos = (target.double() * target.double().roll(1, 0)).sum(-1)
        torch.testing.assert_close(gradient.double(), (1 - cos) / 4, rtol=0, atol=1e-6)


def test_reductions_shapes_and_no_samples() -> None:
    target = F.normalize(torch.randn(2, 3, 8), dim=-1)
    prediction = torch.randn(2, 3, 8)
    single = VMFRegressionLoss(8, reduction="none")(prediction, target)
    assert single.shape == (2, 3)
    torch.testing.assert_close(VMFRegressionLoss(8, reduction="sum")(prediction, target), single.sum())
    torch.testing.assert_close(VMFRegressionLoss(8)(prediction, target), single.sum() / 6)
    assert torch.equal(VMFRegressionLoss(8, reduction="none")(prediction[0, 1], target[0, 1]), single[0, 1])
    empty = torch.zeros(0, 8, requires_grad=True)
    for kappa in (None, torch.ones(0)):
        value = VMFRegressionLoss(8)(empty, torch.zeros(0, 8), kappa)
        assert value.item() == 0
        (gradient,) = torch.autograd.grad(value, empty)
        assert gradient.shape == (0, 8)


def test_one_concentration_for_all() -> None:
    loss = VMFRegressionLoss(8)
    target, prediction = F.normalize(torch.randn(5, 8), dim=-1), torch.randn(5, 8)
    want = loss(prediction, target, torch.full((5,), 40.0))
    assert torch.equal(loss(prediction, target, 40.0), want)
    assert torch.equal(loss(prediction, target, 40), want)
    learned = torch.tensor(40.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(prediction, target, learned), learned)
    mu = F.normalize(prediction, dim=-1)
    torch.testing.assert_close(gradient, pg.potential(8).slope(learned.detach()) - (mu * target).sum(-1).mean())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    loss = VMFRegressionLoss(16)
    target = (torch.randn(4, 16).sign() / 4).to(dtype)  # of length 1 in every dtype
    prediction = (50 * torch.randn(4, 16)).to(dtype).requires_grad_()
    value = loss(prediction, target)
    assert value.dtype == torch.float32
    assert torch.equal(value, loss(prediction.float(), target.float()))
    (gradient,) = torch.autograd.grad(value, prediction)
    assert gradient.dtype == dtype
    assert torch.equal(loss(prediction, target, 0.1), loss(prediction.float(), target.float(), 0.1))


def test_the_widest_dtype_counts() -> None:
    loss = VMFRegressionLoss(16)
    target, prediction = F.normalize(torch.randn(4, 16), dim=-1), torch.randn(4, 16)
    assert torch.equal(loss(prediction, target.double()), loss(prediction.double(), target.double()))
    kappa = torch.rand(4, dtype=torch.float64)
    assert torch.equal(loss(prediction, target, kappa), loss(prediction.double(), target.double(), kappa))


def test_autocast_changes_nothing() -> None:
    loss = VMFRegressionLoss(16)
    target, prediction = F.normalize(torch.randn(4, 16), dim=-1), 20 * torch.randn(4, 16)
    plain = loss(prediction, target), loss(prediction, target, 40.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(prediction, target), plain[0])
        assert torch.equal(loss(prediction, target, 40.0), plain[1])


def test_the_length_of_a_rounded_target_hardly_matters() -> None:
    """To first order in e the loss at (1 + e) t is that at t, angle term times 1 + e: far below kappa e."""
    loss = VMFRegressionLoss(16)
    target = F.normalize(torch.randn(16, dtype=torch.float64), dim=0)
    prediction = 1e5 * F.normalize(target + 1e-3 * torch.randn(16, dtype=torch.float64), dim=0)
    e = 1e-6
    moved, plain = loss(prediction, (1 + e) * target), loss(prediction, target)
    assert abs(moved - plain) < 3 * e  # kappa |mu - t|^2 / 2 is about 0.8, and kappa e is 0.1


def test_torch_func() -> None:
    loss = VMFRegressionLoss(8)
    target = F.normalize(torch.randn(5, 8, dtype=torch.float64), dim=-1)
    prediction = torch.randn(5, 8, dtype=torch.float64)
    prediction[0] = 0
    leaf = prediction.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf, target) * 5, leaf)
    torch.testing.assert_close(vmap(grad(loss))(prediction, target), want, rtol=1e-14, atol=1e-14)

    def single(v: torch.Tensor) -> torch.Tensor:
        return loss(v, target)

    torch.testing.assert_close(jacfwd(single)(prediction), jacrev(single)(prediction), rtol=1e-13, atol=1e-14)
    kappa = torch.rand(5, dtype=torch.float64)
    by_kappa = vmap(grad(loss, argnums=2))(prediction[[1, 1, 2, 3, 4]], target, kappa)
    mu = F.normalize(prediction[[1, 1, 2, 3, 4]], dim=-1)
    torch.testing.assert_close(by_kappa, pg.potential(8).slope(kappa) - (mu * target).sum(-1), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("concentrated", [False, True])
def test_compile_in_one_graph(concentrated: bool, backend: str) -> None:
    """Forward and backward; one prediction is 0, one has a concentration of 1e4."""
    torch._dynamo.reset()
    loss = VMFRegressionLoss(64, reduction="none")
    target = F.normalize(torch.randn(6, 64), dim=-1)
    prediction = torch.randn(6, 64)
    prediction[0], prediction[1] = (1 if concentrated else 0), 1e4 * target[2]
    inputs = (prediction.requires_grad_(), target, *((50 * torch.rand(6)).requires_grad_() for _ in range(concentrated)))
    got, want = torch.compile(loss, fullgraph=True, backend=backend)(*inputs), loss(*inputs)
    torch.testing.assert_close(got, want, rtol=2e-6, atol=0)  # terms of one size, in another order
    leaves = [i for i in inputs if i.requires_grad]
    for g, w in zip(torch.autograd.grad(got.sum(), leaves), torch.autograd.grad(want.sum(), leaves), strict=True):
        torch.testing.assert_close(g, w, rtol=2e-5, atol=2e-6)  # the same, against coordinates of size 1 / 8


def test_nothing_looks_at_the_data_of_other_devices() -> None:
    loss = VMFRegressionLoss(8)
    prediction, target = torch.zeros(3, 8, device="meta", requires_grad=True), torch.zeros(3, 8, device="meta")
    for kappa in (None, 3.0, torch.zeros(3, device="meta")):
        (gradient,) = torch.autograd.grad(loss(prediction, target, kappa), prediction)
        assert gradient.shape == (3, 8)


def test_nothing_to_save_and_copies_agree() -> None:
    loss = VMFRegressionLoss(8, "arfr", reduction="sum")
    assert loss.state_dict() == {}
    loss.load_state_dict({})
    target, prediction = F.normalize(torch.randn(4, 8), dim=-1), torch.randn(4, 8)
    assert torch.equal(copy.deepcopy(loss).half()(prediction, target), loss(prediction, target))
    assert repr(loss) == "VMFRegressionLoss(dim=8, realization='arfr', reduction='sum')"


UNIT = torch.eye(3)[:2]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (UNIT, 2 * UNIT),
            ValueError,
            r"target must hold unit vectors, of length 1 to within 0\.001, got the length 2 .* divide by the length",
        ),
        ((UNIT, 0 * UNIT), ValueError, "target must hold unit vectors, .* got the length 0"),
        ((UNIT, UNIT * torch.nan), ValueError, "target must hold unit vectors, .* got the length nan"),
        (
            (UNIT, (1.03125 * UNIT).half()),
            ValueError,
            r"target must hold unit vectors, of length 1 to within 0\.01, got the length 1\.03125",
        ),
        ((UNIT, UNIT.long()), TypeError, "target must have dtype float32 or float64"),
        ((UNIT, UNIT[:1]), ValueError, r"prediction and target must have one shape, got \(2, 3\) and \(1, 3\)"),
        (
            (torch.eye(4), torch.eye(4)),
            ValueError,
            r"prediction must have shape \(\.\.\., 3\), got a float32 tensor of shape \(4, 4\).*dim is 3",
        ),
        ((torch.tensor(1.0), UNIT), ValueError, r"prediction must have shape \(\.\.\., 3\)"),
        (([1.0, 0.0, 0.0], UNIT), TypeError, "prediction must be a floating-point torch tensor"),
        ((UNIT * torch.inf, UNIT), ValueError, "prediction must be finite, got NaN or infinity"),
        ((UNIT.to("meta"), UNIT), ValueError, "prediction and target must be on one device, got meta and cpu"),
        (
            (UNIT, UNIT, torch.ones(3)),
            ValueError,
            r"concentration must have shape \(2,\), that of prediction without its last dimension, or \(\)",
        ),
        ((UNIT, UNIT, torch.ones(2, 1)), ValueError, r"concentration must have shape \(2,\)"),
        ((UNIT, UNIT, torch.tensor([1.0, -2.0])), ValueError, "concentration must be finite and >= 0, got -2 in .*softplus"),
        ((UNIT, UNIT, -1.0), ValueError, "concentration must be finite and >= 0, got -1"),
        ((UNIT, UNIT, math.inf), ValueError, "concentration must be finite and >= 0, got inf"),
        ((UNIT, UNIT, torch.tensor([1.0, torch.nan])), ValueError, "concentration must be finite and >= 0, got nan"),
        ((UNIT, UNIT, torch.ones(2).long()), TypeError, "concentration must have dtype float32 or float64"),
        ((UNIT, UNIT, True), TypeError, "concentration must be a floating-point torch tensor, got True"),
        ((UNIT, UNIT, torch.ones(2, device="meta")), ValueError, "prediction and concentration must be on one device"),
        ((torch.zeros(2, 3), UNIT, 1.0), ValueError, "prediction must not be 0 when concentration is given, .* leave concentration out"),
    ],
)
def test_errors(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        VMFRegressionLoss(3)(*arguments)


def test_constructor_errors() -> None:
    with pytest.raises(ValueError, match="dim must be an integer >= 2"):
        VMFRegressionLoss(1)
    with pytest.raises(ValueError, match="realization must be one of"):
        VMFRegressionLoss(3, "exact")
    with pytest.raises(ValueError, match="reduction must be one of"):
        VMFRegressionLoss(3, reduction="batchmean")
