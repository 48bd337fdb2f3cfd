"""The cross-entropy of classes that ranks share out, with its options, against that of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import pairgrad as pg
from pairgrad.distributed import Layout, ShardedClassState, top_classes, vmf_cross_entropy
from tests.distributed.ranks import Failed, run

pytestmark = pytest.mark.distributed

CLASSES, DIM, SIZES = 23, 8, (5, 0, 9, 3)
BOUND = 1e-12  # relative to the largest entry, in float64

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prior": {"log_prior": True},
    "smoothing": {"label_smoothing": 0.2, "log_prior": True},
    "weight": {"weight": True, "label_smoothing": 0.1},
    "ignored": {"ignored": True, "label_smoothing": 0.1, "weight": True},
    "far apart": {"scale": 300.0},
    "sum": {"reduction": "sum"},
    "arfr, small tiles": {"realization": "arfr", "tile": 3},
}


def everything(name: str, world: int) -> dict[str, Any]:
    option = OPTIONS[name]
    generator = torch.Generator().manual_seed(11)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    size = sum(SIZES[:world])
    labels = torch.randint(CLASSES, (size,), generator=generator)
    if option.get("ignored"):
        labels[::4] = -100
    prior = torch.log_softmax(draw(CLASSES), 0)
    prior[4] = -torch.inf
    labels[labels == 4] = 5
    return {
        "features": draw(size, DIM) * option.get("scale", 1.0),
        "labels": labels,
        "directions": draw(CLASSES, DIM),
        "concentration": 20 * draw(CLASSES).abs(),
        "log_prior": prior if option.get("log_prior") else None,
        "weight": draw(CLASSES).abs() + 0.1 if option.get("weight") else None,
        "rest": {key: option[key] for key in ("label_smoothing", "reduction", "realization", "tile") if key in option},
        "upstream": draw(size),
    }


def on_ranks(names: list[str], mesh: bool) -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    if mesh:
        both = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "classes"))
        layout = Layout(CLASSES, data=both["data"], classes=both["classes"])
    else:
        layout = Layout(CLASSES, classes=dist.group.WORLD)
    found = {}
    first = sum(SIZES[:rank])
    for name in names:
        case = everything(name, world)
        mine, held = slice(first, first + SIZES[rank]), slice(layout.first, layout.last)
        features = case["features"][mine].clone().requires_grad_()
        directions, concentration = case["directions"][held].clone().requires_grad_(), case["concentration"][held].clone().requires_grad_()
        state = ShardedClassState(directions, concentration, layout)
        loss = vmf_cross_entropy(
            features, case["labels"][mine], state, 0.2, case["log_prior"], weight=case["weight"], averaged=False, **case["rest"]
        )
        loss.backward()
        rows = vmf_cross_entropy(features, case["labels"][mine], state, 0.2, case["log_prior"], "none", weight=case["weight"])
        one = torch.autograd.grad(rows, [features, directions], case["upstream"][mine])
        best = top_classes(case["features"][mine], state, 5, 0.2, case["log_prior"])
        found[name] = (loss.item(), features.grad, directions.grad, concentration.grad, rows.detach(), one, best, layout.first)
    return found


def check(name: str, parts: list[Any], world: int) -> None:
    case = everything(name, world)
    features = case["features"].requires_grad_()
    directions, concentration = case["directions"].requires_grad_(), case["concentration"].requires_grad_()
    state = pg.ClassState(directions, concentration)
    wanted = pg.vmf_cross_entropy(features, case["labels"], state, 0.2, case["log_prior"], weight=case["weight"], **case["rest"])
    wanted.backward()
    rows = pg.vmf_cross_entropy(features, case["labels"], state, 0.2, case["log_prior"], "none", weight=case["weight"])
    one = torch.autograd.grad(rows, [features, directions], case["upstream"])
    held = {part[-1]: part for part in parts}  # one of each shard
    firsts = sorted(held)

    def over_replicas(place: int) -> torch.Tensor:
        return torch.cat([sum(part[place] for part in parts if part[-1] == first) for first in firsts])

    assert sum(part[0] for part in parts) == pytest.approx(wanted.item(), rel=1e-12)
    close(torch.cat([part[1] for part in parts]), features.grad, "features")
    close(over_replicas(2), directions.grad, "directions")
    close(over_replicas(3), concentration.grad, "concentration")
    close(torch.cat([part[4] for part in parts]), rows.detach(), "rows")
    close(torch.cat([part[5][0] for part in parts]), one[0], "features of weighted rows")
    close(torch.cat([sum(part[5][1] for part in parts if part[-1] == first) for first in firsts]), one[1], "directions of weighted rows")
    scores = pg.vmf_scores(features.detach(), state, 0.2).detach()
    scores = scores if case["log_prior"] is None else scores + case["log_prior"]
    values, classes = scores.topk(5)
    assert torch.equal(torch.cat([part[6][0] for part in parts]), classes)
    close(torch.cat([part[6][1] for part in parts]), values, "scores")


def close(got: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    assert got.shape == wanted.shape, what
    assert (got - wanted).abs().max() <= BOUND * wanted.abs().max(), what


@pytest.mark.parametrize(("world", "mesh"), [(2, False), (3, False), (4, True)])
def test_options(world: int, mesh: bool) -> None:
    parts = run(world, on_ranks, list(OPTIONS), mesh)
    for name in OPTIONS:
        check(name, [part[name] for part in parts], world)


def without_a_group() -> float:
    case = everything("smoothing", 1)
    state = ShardedClassState(case["directions"], case["concentration"], Layout(CLASSES))
    value = vmf_cross_entropy(case["features"], case["labels"], state, 0.2, case["log_prior"], label_smoothing=0.2)
    plain = pg.ClassState(case["directions"], case["concentration"])
    assert value.item() == pytest.approx(
        pg.vmf_cross_entropy(case["features"], case["labels"], plain, 0.2, case["log_prior"], label_smoothing=0.2).item(), rel=1e-13
    )
    return value.item()


def test_one_process_needs_no_group() -> None:
    assert without_a_group() > 0


def second_derivative() -> None:
    case = everything("plain", 2)
    layout = Layout(CLASSES, classes=dist.group.WORLD)
    held = slice(layout.first, layout.last)
    features = case["features"][:3].clone().requires_grad_()
    state = ShardedClassState(case["directions"][held], case["concentration"][held], layout)
    (gradient,) = torch.autograd.grad(vmf_cross_entropy(features, case["labels"][:3], state), features, create_graph=True)
    gradient.sum().backward()


def test_second_derivatives_are_refused() -> None:
    with pytest.raises(Failed, match=r"a second derivative .* is not available where ranks hold different classes"):
        run(2, second_derivative)
