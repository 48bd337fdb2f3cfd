"""float16 and bfloat16 features, with and without autocast: losses and gradients have the errors of the inputs' rounding, and no others.

The truth is float64 at the rounded inputs. What is computed from them is float32, and a gradient is rounded once, to the dtype of its input.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch.nn.functional import normalize

import pairgrad as pg

CLASSES, DIM, BATCH = 10, 64, 16
COUNTS = [50 - 4 * k for k in range(CLASSES)]
# float32 at these sizes: sums of 64 products, scores that are right to 5e-6 (docs/learning-accuracy.md), relative to losses and gradients of order 1.
FLOAT32 = 1e-5
Leaves = dict[str, torch.Tensor]


def _leaves() -> Leaves:
    generator = torch.Generator().manual_seed(0)
    views = normalize(torch.randn(2, BATCH, DIM, generator=generator), dim=-1)
    return {
        "views": views,
        "features": views[0],
        "long": 8 * views[1],
        "logits": torch.randn(BATCH, CLASSES, generator=generator),
        "outliers": torch.randn(5, CLASSES, generator=generator),
    }


def _labels() -> torch.Tensor:
    return torch.arange(BATCH) % CLASSES


def _state(dtype: torch.dtype) -> pg.ClassState:
    directions = normalize(torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(1)), dim=1)
    return pg.ClassState(directions.to(dtype), torch.logspace(0, 4, CLASSES).to(dtype))


def _targets(dtype: torch.dtype) -> torch.Tensor:
    return normalize(torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64), dim=1).to(dtype)


def _proco(**options) -> Callable[[Leaves, torch.dtype], torch.Tensor]:
    def loss(leaves: Leaves, dtype: torch.dtype) -> torch.Tensor:
        module = pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS, dtype=dtype, **options)
        module.bank.update(_targets(torch.float32).to(dtype), _labels())  # every class: those that were not seen begin at random
        return module(leaves["views"], _labels())

    return loss


def _patt(leaves: Leaves, dtype: torch.dtype) -> torch.Tensor:
    return pg.PATTLoss(CLASSES, DIM, class_counts=COUNTS, dtype=dtype)(leaves["views"], _labels(), leaves["logits"], leaves["outliers"])


def _classifier(leaves: Leaves, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(3)
    module = pg.VMFClassifier(CLASSES, DIM)
    return torch.nn.functional.cross_entropy(module.to(dtype)(leaves["features"]), _labels())


LOSSES: dict[str, Callable[[Leaves, torch.dtype], torch.Tensor]] = {
    "ProCoLoss": _proco(),
    "ProCoLoss, arfr": _proco(realization="arfr"),
    "ProCoLoss, mle": _proco(estimator="mle"),
    "ProCoLoss, two epochs": _proco(memory="two-epochs"),
    "ProCoLoss, before the update": _proco(score="before-update"),
    "PATTLoss": _patt,
    "vmf_cross_entropy": lambda leaves, dtype: pg.vmf_cross_entropy(leaves["features"], _labels(), _state(dtype)),
    "vmf_cross_entropy, raw features": lambda leaves, dtype: pg.vmf_cross_entropy(leaves["long"], _labels(), _state(dtype)),
    "vmf_scores": lambda leaves, dtype: pg.vmf_scores(leaves["features"], _state(dtype)).square().mean().sqrt(),
    "VMFClassifier": _classifier,
    "VMFRegressionLoss": lambda leaves, dtype: pg.VMFRegressionLoss(DIM)(leaves["long"], _targets(dtype)),
    "LogitAdjust": lambda leaves, dtype: pg.LogitAdjust(COUNTS, dtype=dtype)(leaves["logits"], _labels()),
    "TemperatureLogitAdjust": lambda leaves, dtype: pg.TemperatureLogitAdjust(COUNTS, dtype=dtype)(leaves["logits"], _labels()),
    "OutlierExposure": lambda leaves, dtype: pg.OutlierExposure()(leaves["outliers"]),
}


def _run(
    loss: Callable[[Leaves, torch.dtype], torch.Tensor], given: Leaves, dtype: torch.dtype, autocast: torch.dtype | None
) -> tuple[torch.Tensor, Leaves]:
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}
    with nullcontext() if autocast is None else torch.autocast("cpu", dtype=autocast):
        value = loss(leaves, dtype)
    value.backward()
    return value.detach(), {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def _spacing(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What rounding once to `dtype` costs at most: half a unit in the last place."""
    info = torch.finfo(dtype)
    return exact.abs() * (info.eps / 2) + info.smallest_normal * info.eps


@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_errors_are_those_of_the_rounding_of_the_inputs(name: str, dtype: torch.dtype, autocast: bool) -> None:
    rounded = {leaf: tensor.to(dtype) for leaf, tensor in _leaves().items()}
    value, gradients = _run(LOSSES[name], rounded, torch.float32, dtype if autocast else None)
    truth, exact = _run(LOSSES[name], {leaf: tensor.double() for leaf, tensor in rounded.items()}, torch.float64, None)
    assert value.dtype == torch.float32
    assert abs(value.item() - truth.item()) <= FLOAT32 * abs(truth.item()), (value, truth)
    assert gradients.keys() == exact.keys() != set()
    for leaf, gradient in gradients.items():
        assert gradient.dtype == dtype
        allowed = _spacing(exact[leaf], dtype) + FLOAT32 * exact[leaf].abs().amax(dim=-1, keepdim=True)
        error = (gradient.double() - exact[leaf]).abs()
        assert bool((error <= allowed).all()), f"{leaf}: {(error / allowed).max().item():.1f} times what rounding allows"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
def test_a_bank_adds_up_in_float32(dtype: torch.dtype, autocast: bool) -> None:
    """Long runs of half-precision features: sums of 3000 would stop growing at 2048 in float16 and at 256 in bfloat16."""
    features, labels = torch.eye(4, DIM)[:1].expand(8, -1).to(dtype), torch.zeros(8, dtype=torch.long)
    bank = pg.ClassBank(4, DIM).to(dtype)
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        for _ in range(375):
            bank.update(features, labels)
    assert bank.sums[0, 0].item() == bank.counts[0].item() == 3000


QUANTITIES: dict[str, Callable[[pg.VonMisesFisher, pg.VonMisesFisher, torch.Tensor], torch.Tensor]] = {
    "log_prob": lambda law, _, value: law.log_prob(value),
    "entropy": lambda law, _other, _value: law.entropy(),
    "kl_divergence": lambda law, other, _: torch.distributions.kl_divergence(law, other),
    "cross_entropy": lambda law, other, _: law.cross_entropy(other),
}


@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", QUANTITIES)
def test_densities_are_rounded_once(name: str, dtype: torch.dtype, autocast: bool) -> None:
    """In float32, then to the dtype of the parameters; under autocast they stay in float32."""
    given = [normalize(torch.randn(BATCH, DIM), dim=1).to(dtype) for _ in range(3)] + [torch.linspace(1, 200, BATCH).to(dtype)]

    def evaluated(first: torch.Tensor, second: torch.Tensor, value: torch.Tensor, kappa: torch.Tensor) -> torch.Tensor:
        laws = [pg.VonMisesFisher(mean, times * kappa, validate_args=False) for mean, times in ((first, 1), (second, 0.5))]
        return QUANTITIES[name](*laws, value)

    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        found = evaluated(*given)
    exact = evaluated(*(tensor.double() for tensor in given))
    assert found.dtype == (torch.float32 if autocast else dtype)
    assert bool(((found.double() - exact).abs() <= _spacing(exact, found.dtype) + FLOAT32 * exact.abs().max()).all()), (found, exact)
