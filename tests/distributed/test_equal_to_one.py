"""Losses, gradients and banks of several ranks against those of one process with all their samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import pairgrad as pg
from pairgrad.distributed import distribute
from tests.distributed.ranks import run

pytestmark = pytest.mark.distributed

DIM = 16
TEMPERATURE = 0.3
# relative to the largest entry; sums of products in another order: a few roundings of float32, times the tens of samples and classes that are added up
GRADIENT = {torch.float32: 1e-6, torch.float64: 1e-12}


def batches(
    world: int, steps: int, classes: int, views: int, dtype: torch.dtype, even: bool = False
) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Of every step and rank: views (V, B, p) and labels; batches of different sizes, some empty."""
    generator = torch.Generator().manual_seed(7)
    directions = torch.randn(classes, DIM, generator=generator, dtype=dtype)
    found = []
    for step in range(steps):
        sizes = [6] * world if even else [(5 * rank + 3 * step) % 9 for rank in range(world)]
        row = []
        for size in sizes:
            labels = torch.randint(classes, (size,), generator=generator)
            noise = torch.randn(views, size, DIM, generator=generator, dtype=dtype)
            row.append((directions[labels] + noise, labels))
        found.append(row)
    return found


def loss_of(kind: dict[str, Any], classes: int, dtype: torch.dtype) -> pg.ProCoLoss:
    options = {key: value for key, value in kind.items() if key not in ("layout", "inputs", "exchange", "static", "classes")}
    counts = [1 + 7 * k % 5 for k in range(classes)]
    generator = torch.Generator().manual_seed(3)
    return pg.ProCoLoss(classes, DIM, temperature=TEMPERATURE, class_counts=counts, dtype=dtype, generator=generator, **options)


def groups(layout: str) -> dict[str, Any]:
    if layout == "data":
        return {}
    if layout == "classes":
        return {"data": None, "classes": dist.group.WORLD}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "classes"))
    return {"data": mesh["data"], "classes": mesh["classes"]}


def on_ranks(kind: dict[str, Any], steps: int, classes: int, views: int, dtype: torch.dtype, even: bool) -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    loss = loss_of(kind, classes, dtype)
    if rank >= {"data": 1, "classes": world, "mesh": 2}[kind["layout"]]:  # what later replicas drew does not matter
        loss.bank.reset()
    distribute(
        loss,
        **groups(kind["layout"]),
        exchange=kind.get("exchange", "auto"),
        static=kind.get("static", False),
        inputs=kind.get("inputs", "sharded"),
    )
    values, gradients = [], []
    for row in batches(world, steps, classes, views, dtype, even):
        if kind.get("inputs") == "replicated":
            pairs = row if kind["layout"] == "classes" else row[2 * (rank // 2) : 2 * (rank // 2) + 2]
            features, labels = torch.cat([pair[0] for pair in pairs], 1), torch.cat([pair[1] for pair in pairs])
        else:
            features, labels = row[rank]
        features = features.clone().requires_grad_()
        value = loss(features, labels)
        value.backward()
        values.append(value.item())
        gradients.append(features.grad)
    bank = loss.bank
    loss.eval()
    features, labels = (
        batches(world, 1, classes, views, dtype, even)[0][rank] if kind.get("inputs") != "replicated" else (features.detach(), labels)
    )
    with torch.no_grad():
        rows = loss.rows(features, labels)
    return {
        "values": values,
        "gradients": gradients,
        "first": bank.layout.first,
        **{name: getattr(bank, name) for name in ("sums", "compensation", "counts", "concentration")},
        "rows": rows,
    }


def in_one_process(
    kind: dict[str, Any], world: int, steps: int, classes: int, views: int, dtype: torch.dtype, even: bool
) -> dict[str, Any]:
    loss = loss_of(kind, classes, dtype)
    values, gradients = [], []
    for row in batches(world, steps, classes, views, dtype, even):
        features = torch.cat([pair[0] for pair in row], 1).requires_grad_()
        value = loss(features, torch.cat([pair[1] for pair in row]))
        value.backward()
        values.append(value.item())
        gradients.append(features.grad)
    loss.eval()
    last = batches(world, 1, classes, views, dtype, even)[0]
    rows = loss.rows(torch.cat([pair[0] for pair in last], 1), torch.cat([pair[1] for pair in last]))
    features = [torch.cat([pair[0] for pair in row], 1) for row in batches(world, steps, classes, views, dtype, even)]
    return {"values": values, "gradients": gradients, "rows": rows, "bank": loss.bank, "features": features}


KINDS: dict[str, dict[str, Any]] = {
    "data, gather": {"layout": "data", "exchange": "gather"},
    "data, reduce": {"layout": "data", "exchange": "reduce"},
    "data, static": {"layout": "data", "exchange": "gather", "static": True},
    "data, decay, two epochs": {"layout": "data", "decay": 0.75, "memory": "two-epochs"},
    "data, many classes": {"layout": "data", "classes": 300},
    "data, float64 scalars": {"layout": "data", "scalar_dtype": torch.float64},
    "data, before": {"layout": "data", "score": "before-update"},
    "classes": {"layout": "classes"},
    "classes, many": {"layout": "classes", "classes": 300},
    "classes, raw features": {"layout": "classes", "normalize": False},
    "classes, replicated": {"layout": "classes", "inputs": "replicated"},
    "classes, static": {"layout": "classes", "static": True},
    "classes, plain": {"layout": "classes", "scalar_dtype": torch.float64, "realization": "arfr"},
    "classes, before, two epochs": {"layout": "classes", "score": "before-update", "memory": "two-epochs"},
}
MESHES = {
    "mesh": {"layout": "mesh"},
    "mesh, many classes": {"layout": "mesh", "classes": 300},
    "mesh, gather": {"layout": "mesh", "exchange": "gather", "classes": 50},
    "mesh, replicated": {"layout": "mesh", "inputs": "replicated", "exchange": "reduce"},
    "mesh, decay": {"layout": "mesh", "decay": 0.75, "on_resultant_above_one": "normalize", "normalize": False},
}


def compare(kind: dict[str, Any], world: int, dtype: torch.dtype, *, views: int = 2, steps: int = 6) -> None:
    classes, even = kind.get("classes", 11), kind.get("static", False)
    parts = run(world, on_ranks, kind, steps, classes, views, dtype, even)
    whole = in_one_process(kind, world, steps, classes, views, dtype, even)
    tolerance = GRADIENT[dtype]
    if not kind.get("normalize", True):  # logits of this size are rounded, and the gradient is that of their exponentials
        tolerance += torch.finfo(dtype).eps * max(step.norm(dim=-1).max().item() for step in whole["features"]) / TEMPERATURE
    for step in range(steps):
        mean = sum(part["values"][step] for part in parts) / world
        assert mean == pytest.approx(whole["values"][step], rel=10 * tolerance, abs=1e-30)
        wanted = whole["gradients"][step]
        if kind.get("inputs") == "replicated":
            # every rank of a class group has the gradient of its replica, which averaging over all ranks leaves as it is
            halves = 1 if kind["layout"] == "classes" else 2
            got = torch.cat([parts[2 * half]["gradients"][step] for half in range(halves)], 1) / halves
        else:
            got = torch.cat([part["gradients"][step] for part in parts], 1) / world
        assert (got - wanted).abs().max() <= tolerance * wanted.abs().max(), step
    bank = whole["bank"]
    for part in parts:
        held = slice(part["first"], part["first"] + len(part["counts"]))
        assert torch.equal(part["counts"], bank.counts[held])
        sums, wanted = part["sums"] + part["compensation"].double(), bank.sums[held] + bank.compensation[held].double()
        assert (sums - wanted).abs().max() <= tolerance * wanted.abs().max()
        for other in parts:
            if other["first"] == part["first"]:
                for name in ("sums", "compensation", "counts", "concentration"):
                    assert torch.equal(part[name], other[name]), name
    if kind.get("inputs") != "replicated":
        got = torch.cat([part["rows"] for part in parts], 1)
        assert (got - whole["rows"]).abs().max() <= 10 * tolerance * whole["rows"].abs().max()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_two_and_three_ranks(name: str, world: int) -> None:
    compare(KINDS[name], world, torch.float64 if world == 3 else torch.float32)


@pytest.mark.parametrize("name", MESHES)
def test_two_by_two_ranks(name: str) -> None:
    compare(MESHES[name], 4, torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["data, gather", "data, reduce", "data, many classes", "classes", "classes, many", "mesh", "mesh, many classes"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_two_hundred_steps(name: str, world: int, dtype: torch.dtype) -> None:
    kind = {**KINDS, **MESHES}[name]
    if kind["layout"] == "mesh" and world != 4:
        pytest.skip("a mesh of two by two has four ranks")
    compare(kind, world, dtype, steps=200)
