"""Update fields: against what backward gives, against differentiation and differences of it, and at the places where formulas divide."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest
import torch

import pairgrad as pg
from pairgrad.losses import UpdateField, update_field
from tests.tolerances import FIELD_JACOBIAN_ROUNDINGS, FIELD_ROUTES, LOSS_GRADIENT_FLOAT32

COHERENT = ("paired", "arfr", "scott", "consistent", "reference")
MISMATCHED = ("original", "log-miller")
ALL = (*COHERENT, *MISMATCHED, "log-bessel")
DIM, CLASSES = 64, 7
UNIT = 2.0**-53


def inputs(dtype: torch.dtype = torch.float64, dim: int = DIM, batch: int = 5) -> dict[str, Any]:
    """Features of length 3, rows of any length, concentrations 30 to 1e4 (clipped from 700 on), a prior, temperature 0.5."""
    features = 3 * torch.nn.functional.normalize(torch.randn(batch, dim, dtype=torch.float64), dim=1)
    rows = torch.randn(CLASSES, dim, dtype=torch.float64)
    concentration = 10 ** torch.linspace(1.5, 4, CLASSES, dtype=torch.float64)
    prior = torch.log_softmax(torch.randn(CLASSES, dtype=torch.float64), 0)
    return {
        "features": features.to(dtype),
        "labels": torch.arange(batch) % CLASSES,
        "state": pg.ClassState(rows.to(dtype), concentration.to(dtype)),
        "temperature": 0.5,
        "log_prior": prior.to(dtype),
    }


def backward(given: dict[str, Any], realization: str | pg.Potential, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss per sample and feature gradient of `vmf_cross_entropy`."""
    features = given["features"].clone().requires_grad_()
    loss = pg.vmf_cross_entropy(**{**given, "features": features}, reduction="none", realization=realization, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), features)
    return loss.detach(), gradient


def apart(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest length of a difference over that of what is wanted."""
    return (torch.linalg.vector_norm(got.double() - wanted.double(), dim=1) / torch.linalg.vector_norm(wanted.double(), dim=1)).max().item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_loss_and_supplied_gradient_are_those_of_the_loss(name: str, dtype: torch.dtype) -> None:
    given = inputs(dtype)
    loss, gradient = backward(given, name)
    field = update_field(**given, realization=name)
    assert torch.equal(field.loss, loss)
    assert apart(field.supplied, gradient) <= FIELD_ROUTES[dtype]
    assert field.supplied.dtype == field.probabilities.dtype == field.radius.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", MISMATCHED)
def test_consistent_gradient_is_that_of_the_control_arm(name: str, dtype: torch.dtype) -> None:
    given = inputs(dtype)
    _, gradient = backward(given, "consistent")
    field = update_field(**given, realization=name)
    assert apart(field.consistent, gradient) <= FIELD_ROUTES[dtype]
    assert apart(field.supplied, gradient) > 1e-5  # and the supplied one is another


@pytest.mark.parametrize("name", COHERENT)
def test_a_coherent_realization_has_no_gap(name: str) -> None:
    given = inputs()
    field = update_field(**given, realization=name)
    for zero in (field.radial_defect, field.gap, field.relative_gap, field.residual, field.antisymmetry_norm, field.antisymmetry()):
        assert not zero.any()
    assert torch.equal(field.supplied, field.consistent)
    assert torch.equal(field.mean_supplied, field.mean_consistent)
    assert torch.equal(field.scaling, torch.ones(5, dtype=torch.float64))
    assert torch.equal(field.cosine, torch.ones(5, dtype=torch.float64))
    assert "the supplied field is the gradient of the loss" in str(field)


def test_slopes_are_those_of_the_potential() -> None:
    given = inputs()
    field = update_field(**given)
    pot = pg.potential(DIM, "original")
    tolerance = 8 * UNIT
    assert (field.slope - pot.slope(field.radius)).abs().max() <= tolerance
    assert (field.derivative - pot.derivative(field.radius)).abs().max() <= tolerance
    assert (field.radial_defect - pot.defect(field.radius)).abs().max() <= tolerance
    assert (field.slope[:, -1] == 1).all()  # clipped
    state = given["state"]
    direct = torch.nn.functional.normalize(state.mean_direction, dim=1) * state.concentration[:, None] + given["features"][:, None] / 0.5
    assert (field.radius / torch.linalg.vector_norm(direct, dim=-1) - 1).abs().max() <= 32 * UNIT
    logits = pg.vmf_scores(given["features"], state, 0.5, "original") + given["log_prior"]
    assert (field.probabilities - torch.softmax(logits, 1)).abs().max() <= FIELD_ROUTES[torch.float64]


def test_mean_vectors_are_the_means_of_score_gradients() -> None:
    given = inputs()
    for name, key in (("original", "mean_supplied"), ("consistent", "mean_consistent")):
        features = given["features"].clone().requires_grad_()
        scores = pg.vmf_scores(features, given["state"], 0.5, name)
        field = update_field(**given)
        (mean,) = torch.autograd.grad(scores, features, field.probabilities)
        assert apart(getattr(field, key), mean) <= FIELD_ROUTES[torch.float64]


def test_a_sure_prediction_keeps_the_digits_of_its_gradient() -> None:
    """1 - p_y, below 1e-15, is the sum of the others, not a difference from 1."""
    given = inputs(batch=1)
    state = given["state"]
    mean = torch.nn.functional.normalize(state.mean_direction[:1], dim=1)
    given["features"] = 100 * mean
    loss, gradient = backward(given, "original")
    field = update_field(**given)
    assert 0 < loss.item() < 1e-15
    assert apart(field.supplied, gradient) <= FIELD_ROUTES[torch.float64]


def test_bank_tensor_temperature_half_features_and_geometry_dtype() -> None:
    bank = pg.ClassBank(CLASSES, DIM)
    given = inputs(torch.float32)
    bank.update(given["features"], given["labels"])
    before = {name: tensor.clone() for name, tensor in bank.state_dict().items()}
    given["state"], given["temperature"] = bank, torch.tensor(0.5)
    loss, gradient = backward(given, "original")
    field = update_field(**given)
    assert torch.equal(field.loss, loss)
    assert apart(field.supplied, gradient) <= LOSS_GRADIENT_FLOAT32
    assert all(torch.equal(tensor, before[name]) for name, tensor in bank.state_dict().items())
    wide = update_field(**given, geometry_dtype=torch.float64)
    assert wide.supplied.dtype == wide.loss.dtype == torch.float64
    assert torch.equal(wide.loss, backward(given, "original", geometry_dtype=torch.float64)[0])
    half = update_field(**{**given, "features": given["features"].bfloat16()})
    assert half.supplied.dtype == torch.float32
    assert apart(half.supplied, field.supplied) < 0.2  # features of eight bits


def test_a_measurement_has_no_graph() -> None:
    given = inputs()
    given["features"].requires_grad_()
    given["log_prior"].requires_grad_()
    state = pg.ClassState(given["state"].mean_direction.requires_grad_(), given["state"].concentration.requires_grad_())
    field = update_field(**{**given, "state": state, "temperature": torch.tensor(0.5, requires_grad=True, dtype=torch.float64)})
    for tensor in (field.loss, field.supplied, field.antisymmetry_norm, field.jacobian()):
        assert not tensor.requires_grad


def small(batch: int = 3, dim: int = 12) -> dict[str, Any]:
    """In dimension 12 the clip sets in at 42; at these concentrations the slopes are far from it on either side."""
    given = inputs(dim=dim, batch=batch)
    given["state"] = pg.ClassState(
        given["state"].mean_direction, torch.tensor([1.0, 4.0, 15.0, 25.0, 100.0, 150.0, 400.0], dtype=torch.float64)
    )
    return given


@pytest.mark.parametrize("strength", [1.0, 0.0, -0.5, 3.0])
@pytest.mark.parametrize("name", ["original", "log-miller", "paired"])
def test_antisymmetry_from_the_mean_vectors_and_by_differentiation(name: str, strength: float) -> None:
    field = update_field(**small(), realization=name, strength=strength)
    jacobian = field.jacobian()
    dense, differentiated = field.antisymmetry(), field.differentiated_antisymmetry()
    assert torch.equal(differentiated, jacobian - jacobian.mT)
    tolerance = (
        FIELD_JACOBIAN_ROUNDINGS * UNIT * jacobian.abs().amax((1, 2)) * (1 if name != "log-miller" else 64)
    )  # its logarithms reach 4000
    assert ((dense - differentiated).abs().amax((1, 2)) <= tolerance).all()
    assert (field.antisymmetry_norm - torch.linalg.matrix_norm(dense)).abs().max() <= 16 * UNIT * torch.linalg.matrix_norm(dense).max()
    v, w = field.mean_consistent, field.mean_supplied
    outer = v[:, :, None] * w[:, None] - w[:, :, None] * v[:, None]  # as eq. ce-curl-obstruction is printed
    assert (outer - dense).abs().max() <= 16 * UNIT * (v.abs().max() * w.abs().max())
    a, b = torch.randn(2, 12, dtype=torch.float64)
    along = torch.einsum("i,nij,j->n", a, dense, b)
    size = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    assert (field.antisymmetry_along(a, b) - along).abs().max() <= 16 * UNIT * size * dense.abs().max()
    assert ((field.differentiated_along(a, b) - along).abs() <= 12 * size * tolerance).all()
    each = field.antisymmetry_along(a.expand(3, 12), b.expand(3, 12))
    assert torch.equal(each, field.antisymmetry_along(a, b))
    if name in MISMATCHED and strength:
        assert (torch.linalg.matrix_norm(dense) > 1e4 * tolerance).all()  # something is there to compare


def test_the_jacobian_is_that_of_what_backward_gives() -> None:
    """Differences of the gradients of the loss, as an optimizer would see them; steps of 1e-3 err by third derivatives times 1e-6 / 6."""
    given = small()
    field = update_field(**given)
    step = 1e-3
    columns = []
    for unit in torch.eye(12, dtype=torch.float64):
        (_, above), (_, below) = (backward({**given, "features": given["features"] + s * step * unit}, "original") for s in (1, -1))
        columns.append((above - below) / (2 * step))
    differences = torch.stack(columns, -1)
    assert (differences - field.jacobian()).abs().max() <= 1e-5
    assert (differences - differences.mT - field.antisymmetry()).abs().max() <= 1e-5
    assert field.antisymmetry_norm.min() > 1e-4


def test_a_second_backward_hides_the_obstruction() -> None:
    """The trap: it differentiates the probabilities with the supplied slope, so its Jacobian is symmetric, and not the one of the field."""
    given = small(batch=1)
    features = given["features"].requires_grad_()
    loss = pg.vmf_cross_entropy(**given, realization="original", reduction="sum")
    (gradient,) = torch.autograd.grad(loss, features, create_graph=True)
    rows = [torch.autograd.grad(entry, features, retain_graph=True)[0][0] for entry in gradient[0]]
    hessian = torch.stack(rows)
    field = update_field(**given)
    tolerance = FIELD_JACOBIAN_ROUNDINGS * UNIT * hessian.abs().max()
    assert (hessian - hessian.mT).abs().max() <= tolerance
    assert field.differentiated_antisymmetry().abs().max() > 1e6 * tolerance
    assert (hessian - field.jacobian()[0]).abs().max() > 1e6 * tolerance
    # of a coherent realization both are the same matrix
    loss = pg.vmf_cross_entropy(**given, realization="consistent", reduction="sum")
    (gradient,) = torch.autograd.grad(loss, features, create_graph=True)
    hessian = torch.stack([torch.autograd.grad(entry, features, retain_graph=True)[0][0] for entry in gradient[0]])
    assert (hessian - field.with_strength(0).jacobian()[0]).abs().max() <= tolerance


def test_nearly_parallel_mean_vectors_lose_no_digits() -> None:
    """In the regime of training the two mean vectors are parallel up to 1e-6: the norm against the same vectors in fifty digits."""
    given = inputs()
    given["state"] = pg.ClassState(given["state"].mean_direction, torch.linspace(1e5, 1.001e5, CLASSES, dtype=torch.float64))
    field = update_field(**given)
    with mpmath.workdps(50):
        for v, w, got in zip(field.mean_consistent.tolist(), field._mean_defect.tolist(), field.antisymmetry_norm.tolist(), strict=True):
            v, w = mpmath.matrix(v), mpmath.matrix(w)
            dot = lambda a, b: mpmath.fsum(x * y for x, y in zip(a, b, strict=True))  # noqa: E731
            vv, ww, vw = dot(v, v), dot(w, w), dot(v, w)
            wanted = mpmath.sqrt(2 * (vv * ww - vw * vw))
            sine = mpmath.sqrt(1 - vw * vw / (vv * ww))
            assert sine < 1e-2
            # the projection rounds coordinates to u of w, whose part across v is the fraction `sine`
            assert abs(got / wanted - 1) <= 16 * UNIT / sine


def test_strength() -> None:
    given = inputs()
    field = update_field(**given)
    consistent = field.with_strength(0)
    assert torch.equal(consistent.supplied, field.consistent)
    assert not consistent.gap.any()
    assert not consistent.antisymmetry_norm.any()
    size = torch.linalg.vector_norm(field.consistent, dim=1, keepdim=True)
    for strength in (-1.0, 0.25, 1.0, 2.0):
        other = field.with_strength(strength)
        assert other.strength == strength
        assert torch.equal(update_field(**given, strength=strength).supplied, other.supplied)
        assert torch.equal(other.loss, field.loss)
        # computed with the slope F' + lambda (g - F'), not from the gap
        direct = other.supplied_at(given["features"])
        assert ((direct - (field.consistent + strength * field.gap)).abs() <= FIELD_ROUTES[torch.float64] * size).all()
        assert ((other.radial_defect - strength * field.radial_defect).abs() <= UNIT).all()
    assert torch.equal(field.with_strength(2).with_strength(1).supplied, field.supplied)


def test_supplied_at_other_features() -> None:
    given = inputs()
    field = update_field(**given)
    moved = given["features"] + 0.3
    assert apart(field.supplied_at(moved), backward({**given, "features": moved}, "original")[1]) <= FIELD_ROUTES[torch.float64]


def test_comparison_of_the_two_gradients_in_fifty_digits() -> None:
    field = update_field(**inputs())
    with mpmath.workdps(50):
        for i in range(5):
            a, gap = mpmath.matrix(field.consistent[i].tolist()), mpmath.matrix(field.gap[i].tolist())
            b = a + gap
            dot = lambda x, y: mpmath.fsum(p * q for p, q in zip(x, y, strict=True))  # noqa: E731
            scaling = dot(a, b) / dot(a, a)
            residual = mpmath.norm(b - scaling * a) / mpmath.norm(b)
            cosine = dot(a, b) / mpmath.norm(a) / mpmath.norm(b)
            for got, wanted, roundings in (
                (field.relative_gap, mpmath.norm(gap) / mpmath.norm(a), 32),
                (field.scaling, scaling, 32),
                (field.residual, residual, 32 * mpmath.norm(gap) / mpmath.norm(b) / residual),
                (field.cosine, cosine, 32),
                (field.one_minus_cosine, 1 - cosine, 64 * mpmath.norm(gap) / mpmath.norm(b) / residual),
            ):
                assert abs(got[i].item() - wanted) <= roundings * UNIT * abs(wanted), (i, got[i].item(), wanted)


def test_tiny_gradients_in_float32() -> None:
    """Their squares underflow; the comparison does not."""
    given = inputs(batch=1)
    state = given["state"]
    given["features"] = 130 * torch.nn.functional.normalize(state.mean_direction[:1], dim=1)
    wanted = update_field(**given)
    single = {**given, "features": given["features"].float(), "log_prior": given["log_prior"].float()}
    got = update_field(**{**single, "state": pg.ClassState(state.mean_direction.float(), state.concentration.float())})
    assert 0 < got.consistent.abs().max() < 1e-20
    for key in ("relative_gap", "scaling", "residual", "cosine"):
        assert getattr(got, key).item() == pytest.approx(getattr(wanted, key).item(), rel=1e-3), key
    assert wanted.residual > 1e-6


def test_opposite_gradients() -> None:
    """A strength that turns the gradient around: the cosine is negative and 1 - cosine near 2."""
    field = update_field(**inputs())
    turned = field.with_strength(-2 / field.relative_gap.min().item())
    assert (turned.scaling < 0).any()
    cosine = torch.nn.functional.cosine_similarity(turned.supplied, turned.consistent)
    assert (turned.cosine - cosine).abs().max() <= 1e-12  # of vectors that are rounded once more
    assert (turned.one_minus_cosine - (1 - cosine)).abs().max() <= 1e-12


def test_one_class_has_no_gradient_and_no_nan() -> None:
    state = pg.ClassState(torch.eye(1, 128), torch.tensor([4032.0]))
    field = update_field(torch.randn(3, 128), torch.zeros(3, dtype=torch.long), state, realization="original")
    for zero in (field.loss, field.supplied, field.gap, field.relative_gap, field.residual, field.one_minus_cosine):
        assert not zero.any()
    assert torch.equal(field.scaling, torch.ones(3))
    assert torch.equal(field.cosine, torch.ones(3))
    assert field.radial_defect.min() > 0.01


@pytest.mark.parametrize("name", ["original", "consistent", "log-bessel", "paired"])
def test_a_radius_of_zero_is_the_limit(name: str) -> None:
    """f = -tau kappa mu: the first class has r = 0, where r has no gradient; its part of the field goes to 0 with the slope."""
    state = pg.ClassState(torch.eye(3, 8, dtype=torch.float64), torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64))
    features = torch.zeros(1, 8, dtype=torch.float64)
    features[0, 0] = -1.0
    field = update_field(features, torch.tensor([0]), state, 0.5, realization=name)
    assert field.radius[0, 0] == 0
    assert field.slope[0, 0] == field.derivative[0, 0] == 0
    step = 3e-5  # nearer, the derivative of the source's log(x + 1e-20) is seen
    beside = update_field(features + step * torch.eye(8, dtype=torch.float64)[3], torch.tensor([0]), state, 0.5, realization=name)
    for key in ("supplied", "consistent", "mean_supplied", "mean_consistent"):
        assert torch.isfinite(getattr(field, key)).all()
        assert (getattr(field, key) - getattr(beside, key)).abs().max() <= 8 * step  # 1 / tau^2 = 4, and slopes that change by less than 1
    assert torch.isfinite(field.jacobian()).all()
    assert (field.jacobian() - beside.jacobian()).abs().max() <= 8 * step


def test_a_class_that_cannot_occur() -> None:
    given = inputs()
    given["log_prior"][6] = -math.inf
    field = update_field(**given)
    assert not field.probabilities[:, 6].any()
    assert apart(field.supplied, backward(given, "original")[1]) <= FIELD_ROUTES[torch.float64]
    given["labels"] = torch.full((5,), 6)
    impossible = update_field(**given)
    assert torch.isposinf(impossible.loss).all()
    assert torch.isfinite(impossible.supplied).all()


def test_no_features() -> None:
    given = inputs()
    field = update_field(**{**given, "features": given["features"][:0], "labels": given["labels"][:0]})
    assert field.supplied.shape == (0, DIM)
    assert field.antisymmetry_norm.shape == (0,)
    assert "0 features" in str(field)


def test_str() -> None:
    eye = torch.eye(2, 128, dtype=torch.float64)
    features, labels = torch.zeros(1, 128, dtype=torch.float64), torch.tensor([0])

    def text(concentrations: tuple[float, float], realization: str = "original") -> str:
        state = pg.ClassState(eye, torch.tensor(concentrations, dtype=torch.float64))
        return str(update_field(features, labels, state, 1.0, realization=realization))

    unequal = text((4032.0, 8064.0))
    assert "update field of 'original': 1 feature, 2 classes, dimension 128, strength of the mismatch 1" in unequal
    assert "0.00793 to 0.0157" in unequal
    assert "0.693" in unequal
    assert "the gradient of no function" in unequal
    equal = text((4032.0, 4032.0))
    assert "zero to rounding" in equal
    assert "no function" not in equal
    assert repr(update_field(**inputs(), strength=0.5)) == "UpdateField('original', batch=5, num_classes=7, dim=64, strength=0.5)"
    assert "rounding alone" in text((4032.0, 8064.0), "log-bessel")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"features": torch.randn(5, 9)}, ValueError, r"features must have shape \(batch, dim=64\)"),
        ({"features": torch.randn(2, 5, 64)}, ValueError, r"features must have shape \(batch, dim=64\)"),
        ({"features": torch.full((5, 64), math.nan)}, ValueError, "features must be finite"),
        ({"labels": torch.tensor([0, 1, 2, 3, 7])}, ValueError, r"labels must lie in \[0, 6\]"),
        ({"labels": torch.tensor([0, 1, 2, 3, -100])}, ValueError, r"labels must lie in \[0, 6\]"),
        ({"labels": torch.rand(5, 7)}, TypeError, "labels must be an integer torch tensor"),
        ({"state": "state"}, TypeError, "state must be a pairgrad.ClassBank or a pairgrad.ClassState"),
        ({"temperature": 0.0}, ValueError, "temperature must be a positive finite number"),
        ({"log_prior": torch.zeros(3)}, ValueError, r"log_prior must have shape \(7,\)"),
        ({"realization": "nothing"}, ValueError, "nothing"),
        ({"realization": pg.potential(8, "original")}, ValueError, "dim=64"),
        ({"strength": math.nan}, ValueError, "strength must be a finite number"),
        ({"strength": "1"}, ValueError, "strength must be a finite number"),
        ({"geometry_dtype": torch.float16}, TypeError, "geometry_dtype must be torch.float32 or torch.float64"),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        update_field(**{**inputs(torch.float32), **change})


def test_errors_of_a_field() -> None:
    field = update_field(**inputs())
    assert isinstance(field, UpdateField)
    with pytest.raises(ValueError, match=r"second must be a direction, a tensor of shape \(64,\) or \(5, 64\)"):
        field.antisymmetry_along(torch.zeros(64), torch.zeros(5))
    with pytest.raises(ValueError, match="first must be a direction"):
        field.differentiated_along([0.0] * 64, torch.zeros(64))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="strength must be a finite number"):
        field.with_strength(math.inf)
    with pytest.raises(ValueError, match=r"features must have shape \(5, 64\), one row per label"):
        field.supplied_at(torch.zeros(2, 64, dtype=torch.float64))
