"""Odd but valid input: strides, storage, subclasses, scales and empty batches change neither the numbers nor the shape of a gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import normalize

import pairgrad as pg
from tests.hostile.calls.given import COUNTS, FEATURES, LABELS, LENGTHS, LOG_PRIOR, LOGITS, SHARES, STATE, UNIT, B, K, P, draw
from tests.hostile.values import Subclass

ROUNDING = 2e-6  # of gradients in float32, which other strides add up in another order: 16 units

Call = Callable[[torch.Tensor], torch.Tensor]


def _proco(**options: object) -> Call:
    def call(features: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return pg.ProCoLoss(K, P, class_counts=COUNTS, **options)(features, LABELS)

    return call


POTENTIAL = pg.potential(dim=P)
CALLS: dict[str, tuple[Call, torch.Tensor]] = {
    "potential.value": (POTENTIAL.value, FEATURES.abs()),
    "potential.slope": (POTENTIAL.slope, FEATURES.abs()),
    "potential.difference": (lambda x: POTENTIAL.difference(x, x + 1), FEATURES.abs()),
    "potential.concentration": (POTENTIAL.concentration, LENGTHS.float()[:, :2]),
    "vmf_scores": (lambda x: pg.vmf_scores(x, STATE), FEATURES),
    "vmf_cross_entropy": (lambda x: pg.vmf_cross_entropy(x, LABELS, STATE, log_prior=LOG_PRIOR), FEATURES),
    "vmf_cross_entropy, soft": (lambda x: pg.vmf_cross_entropy(x, SHARES, STATE), FEATURES),
    "vmf_cross_entropy, directions": (
        lambda x: pg.vmf_cross_entropy(FEATURES, LABELS, pg.ClassState(x, STATE.concentration)),
        STATE.mean_direction,
    ),
    "vmf_cross_entropy, expanded": (lambda x: pg.vmf_cross_entropy(x, LABELS, STATE, geometry="expanded"), FEATURES),
    "ProCoLoss": (_proco(), FEATURES),
    "ProCoLoss, plain": (_proco(normalize=False), FEATURES),
    "LogitAdjust": (lambda x: pg.LogitAdjust(COUNTS)(x, LABELS), LOGITS),
    "OutlierExposure": (pg.OutlierExposure(), LOGITS),
    "VMFRegressionLoss": (lambda x: pg.VMFRegressionLoss(P)(x, UNIT), FEATURES),
    "VonMisesFisher.log_prob": (lambda x: pg.VonMisesFisher(UNIT, 3.0).log_prob(x), normalize(draw(B, P, seed=9), dim=-1)),
    "VonMisesFisher": (lambda x: pg.VonMisesFisher(x, 3.0).log_prob(UNIT), normalize(draw(B, P, seed=9), dim=-1)),
    "ood.energy": (pg.ood.energy, LOGITS),
    "ood.msp": (pg.ood.msp, LOGITS),
}
# from a leaf to a tensor of shape (n, m)
VIEWS: dict[str, Callable[[int, int], tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]]] = {
    "every other column": lambda n, m: ((n, 2 * m), lambda base: base[:, ::2]),
    "every other row": lambda n, m: ((2 * n, m), lambda base: base[1::2]),
    "transposed": lambda n, m: ((m, n), lambda base: base.t()),
    "one row for all": lambda n, m: ((m,), lambda base: base.expand(n, m)),
    "permuted": lambda n, m: ((m, 1, n), lambda base: base.permute(2, 1, 0)[:, 0]),
    "with an offset": lambda n, m: ((n * m + 3,), lambda base: base[3:].view(n, m)),
    "of a subclass": lambda n, m: ((n, m), lambda base: base.as_subclass(Subclass)),
}


QUICK = ("every other column", "one row for all", "of a subclass")


@pytest.mark.parametrize("view", [view if view in QUICK else pytest.param(view, marks=pytest.mark.slow) for view in VIEWS])
@pytest.mark.parametrize("name", CALLS)
def test_views_have_the_values_and_gradients_of_a_copy(name: str, view: str) -> None:
    call, valid = CALLS[name]
    shape, look = VIEWS[view](*valid.shape)
    base = torch.zeros(shape).requires_grad_()
    with torch.no_grad():
        look(base).copy_(valid[:1].expand_as(valid) if view == "one row for all" else valid) if view != "one row for all" else base.copy_(
            valid[0]
        )
    seen = look(base)
    plain = seen.detach().as_subclass(torch.Tensor).clone(memory_format=torch.contiguous_format).requires_grad_()
    torch.testing.assert_close(seen.detach().as_subclass(torch.Tensor), plain.detach(), rtol=0, atol=0)
    got, wanted = call(seen), call(plain)
    torch.testing.assert_close(got.detach().as_subclass(torch.Tensor), wanted.detach(), rtol=ROUNDING, atol=ROUNDING)
    (gradient,) = torch.autograd.grad(wanted.sum(), plain)
    (expected,) = torch.autograd.grad(look(base), base, gradient)
    (found,) = torch.autograd.grad(got.sum(), base)
    assert found.shape == base.shape
    torch.testing.assert_close(
        found.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor), rtol=ROUNDING, atol=ROUNDING * float(expected.abs().max())
    )


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith(("potential", "ood", "vmf_scores", "VMFReg", "OutlierE"))])
def test_an_empty_batch(name: str) -> None:
    call, valid = CALLS[name]
    if name == "VMFRegressionLoss":
        call = lambda x: pg.VMFRegressionLoss(P)(x, UNIT[:0])  # noqa: E731
    empty = valid[:0].clone().requires_grad_()
    result = call(empty)
    assert not result.isnan().any()
    result.sum().backward()
    assert empty.grad is not None
    assert empty.grad.shape == empty.shape


@pytest.mark.parametrize("method", ["value", "slope", "curvature", "complement", "deficit", "legendre", "derivative"])
def test_a_potential_of_a_number(method: str) -> None:
    """0-d tensors, tensors of one element and of several give the same."""
    x = torch.tensor([[0.3, 2.0, 50.0]], dtype=torch.float64)
    whole = getattr(POTENTIAL, method)(x)
    for i in range(3):
        single = getattr(POTENTIAL, method)(x[0, i])
        assert single.shape == ()
        torch.testing.assert_close(single, whole[0, i], rtol=1e-15, atol=0)


POWERS = {torch.float32: (-40, -20, 20, 40, 57), torch.float64: (-400, -40, 40, 400, 490)}
BEYOND = {torch.float32: (-149, -70, 62, 100, 120), torch.float64: (-1070, -600, 510, 900, 1000)}


@pytest.mark.parametrize("dtype", POWERS)
def test_directions_of_any_length(dtype: torch.dtype) -> None:
    """Only the direction of a row counts: a power of 2 changes nothing, and a length that cannot be squared is refused instead of forgotten."""
    directions, concentration = STATE.mean_direction.to(dtype), STATE.concentration.to(dtype)
    plain = pg.vmf_scores(UNIT.to(dtype), pg.ClassState(directions, concentration))
    for power in POWERS[dtype]:
        scaled = pg.ClassState(directions * 2.0**power, concentration)
        torch.testing.assert_close(pg.vmf_scores(UNIT.to(dtype), scaled), plain, rtol=4 * torch.finfo(dtype).eps, atol=0)
    for power in BEYOND[dtype]:
        with pytest.raises(ValueError, match="mean_direction must have"):
            pg.ClassState((directions.double() * 2.0**power).to(dtype), concentration)


@pytest.mark.parametrize("dtype", POWERS)
@pytest.mark.parametrize("geometry", ["factorised", "expanded"])
def test_normalised_features_of_any_length(dtype: torch.dtype, geometry: str) -> None:
    """A loss that normalises does not see a power of 2, down to the length below which it says it does; too long a feature is refused."""

    def losses(features: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        loss = pg.ProCoLoss(K, P, class_counts=COUNTS, geometry=geometry, dtype=dtype)
        return torch.stack(
            [loss(features, LABELS), loss.scores(features).sum(), loss.soft(features, SHARES.to(dtype)), loss.bank.concentration.sum()]
        )

    features = FEATURES.to(dtype)
    plain = losses(features)
    for power in (-30, -10, *(p for p in POWERS[dtype] if p > 0)):
        torch.testing.assert_close(losses(features * 2.0**power), plain, rtol=16 * torch.finfo(dtype).eps, atol=0)
    for power in (p for p in BEYOND[dtype] if p > 0):
        with pytest.raises(ValueError, match="features must"):
            losses(features * 2.0**power)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e3, 1e12])
def test_half_precision_is_normalised_in_single(scale: float) -> None:
    """Scores of a loss that normalises are those of the same numbers in float32: no length is rounded to eleven bits, or overflows."""
    torch.manual_seed(0)
    loss = pg.ProCoLoss(K, P)
    half = (FEATURES * scale).to(torch.bfloat16)
    torch.testing.assert_close(loss.scores(half), loss.scores(half.float()), rtol=0, atol=0)
    torch.testing.assert_close(loss.soft(half, SHARES), loss.soft(half.float(), SHARES), rtol=0, atol=0)
