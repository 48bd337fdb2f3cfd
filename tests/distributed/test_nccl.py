"""Collectives as NCCL has them: everything that crosses ranks is recorded with gloo, and must be on the list of what NCCL can do.

NCCL itself was never run. The dtypes are those of `ncclDataType` in NCCLUtils.hpp, a header that torch installs; the reductions are those of `ncclOp` in
ProcessGroupNCCL.cpp, in sources of torch before 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

import pairgrad as pg
from pairgrad.distributed import (
    DistributedClassBank,
    Layout,
    ShardedClassState,
    distribute,
    top_classes,
    until_all_are_done,
    vmf_cross_entropy,
)
from tests.distributed.ranks import run

pytestmark = pytest.mark.distributed

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
CLASSES, DIM, BATCH = 12, 16, 8
# Neither int16 nor the unsigned types above uint8 have a name in NCCL; bool is sent as uint8, and a sum of it is a maximum: not on our list.
DTYPES = {torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64}
OPS = {0: "SUM", 1: "AVG", 2: "PRODUCT", 3: "MIN", 4: "MAX"}  # BAND, BOR and BXOR do not exist there
# Of one tensor per rank, contiguous and of one shape; lists of tensors, objects, points to points and barriers are not used, so they are not on the list.
COLLECTIVES = {"c10d.allreduce_.default", "c10d._allgather_base_.default", "c10d._reduce_scatter_base_.default", "c10d.broadcast_.default"}


class Recorded(TorchDispatchMode):
    """Every collective: its name, the dtype, the shape and the contiguity of what it is given, and how it reduces."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, tuple[int, ...], bool, str]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            given = args[0] if isinstance(args[0], list) else args[:2]
            tensors = [tensor for tensor in torch.utils._pytree.tree_leaves(given) if isinstance(tensor, torch.Tensor)]
            objects = [arg for arg in args if isinstance(arg, torch.ScriptObject) and str(arg._type()).endswith("ReduceOp")]
            reduced = OPS.get(objects[0].op(), "none of NCCL's") if objects else ""
            contiguous = all(tensor.is_contiguous() for tensor in tensors)
            self.calls.append((str(func), str(tensors[-1].dtype), tuple(tensors[-1].shape), contiguous, reduced))
        return func(*args, **(kwargs or {}))


def _batch(step: int = 0, dtype: torch.dtype = torch.float32, views: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
    size = BATCH if step % 2 else BATCH - dist.get_rank()
    features = torch.randn(views, size, DIM, generator=generator).to(dtype).requires_grad_()
    return features, torch.randint(CLASSES, (size,), generator=generator)


def _whole() -> dict[str, Any]:
    return {"data": None, "classes": dist.group.WORLD}


def _trained(
    layout: dict[str, Any], *, dtype: torch.dtype = torch.float32, steps: int = 2, even: bool = False, **options: Any
) -> pg.ProCoLoss:
    loss = distribute(pg.ProCoLoss(CLASSES, DIM, class_counts=[5] * CLASSES, dtype=dtype, **options), seed=1, **layout)
    for step in range(steps):
        features, labels = _batch(1 if even else step, dtype)
        loss(features, labels).backward()
    return loss


def _patt() -> None:
    loss = distribute(pg.PATTLoss(CLASSES, DIM, class_counts=[5] * CLASSES), seed=1)
    features, labels = _batch(1)
    loss(features, labels, torch.zeros(BATCH, CLASSES)).backward()


def _epochs() -> None:
    loss = _trained({}, memory="two-epochs", unseen="random")
    loss.bank.start_epoch()
    loss.bank.compare_replicas()
    loss.bank.reset()


def _bank() -> None:
    bank = DistributedClassBank(Layout(CLASSES, data=dist.group.WORLD), pg.ClassBank(CLASSES, DIM, on_resultant_above_one="error"))
    features, labels = _batch(1, views=1)
    bank.update(torch.nn.functional.normalize(features[0].detach(), dim=1), labels)


def _scored() -> None:
    loss = _trained(_whole())
    loss.eval()
    features, labels = _batch(1, views=1)
    loss(features, labels)
    top_classes(features[0].detach(), loss.bank, k=3)
    vmf_cross_entropy(features[0], labels, loss.bank).backward()


def _parameters() -> None:
    layout = Layout(CLASSES, data=None, classes=dist.group.WORLD)
    rows = slice(layout.first, layout.last)
    directions = torch.eye(CLASSES, DIM)[rows].requires_grad_()
    state = ShardedClassState(directions, torch.full((len(directions),), 20.0).requires_grad_(), layout)
    features, labels = _batch(1, views=1)
    vmf_cross_entropy(features[0], labels, state).backward()


def _replicated() -> None:
    loss = distribute(pg.ProCoLoss(CLASSES, DIM), inputs="replicated", seed=1, **_whole())
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, BATCH, DIM, generator=generator).requires_grad_()
    loss(features, torch.randint(CLASSES, (BATCH,), generator=generator)).backward()


def _saved() -> None:
    for layout in ({}, _whole()):
        loss = _trained(layout)
        loss.load_state_dict(loss.state_dict())


CASES: dict[str, Callable[[], Any]] = {
    "data, gather": lambda: _trained({"exchange": "gather"}),
    "data, reduce": lambda: _trained({"exchange": "reduce"}),
    "data, float64": lambda: _trained({}, dtype=torch.float64),
    "data, static": lambda: _trained({"static": True}, even=True),
    "data, mle": lambda: _trained({}, estimator="mle"),
    "data, raw features": lambda: _trained({}, normalize=False),
    "data, two epochs": _epochs,
    "data, a bank alone": _bank,
    "data, PATT": _patt,
    "classes": lambda: _trained(_whole()),
    "classes, float64": lambda: _trained(_whole(), dtype=torch.float64),
    "classes, raw features": lambda: _trained(_whole(), normalize=False),
    "classes, sampled": lambda: _trained({**_whole(), "sample": 0.5}),
    "classes, static": lambda: _trained({**_whole(), "static": True}, even=True),
    "classes, replicated inputs": _replicated,
    "classes, scored": _scored,
    "classes, parameters": _parameters,
    "ranks that run out": lambda: list(until_all_are_done([torch.ones(2)] * (1 + dist.get_rank()))),
    "checkpoints": _saved,
}


def recorded() -> dict[str, list[tuple[str, str, tuple[int, ...], bool, str]]]:
    found = {}
    for name, case in CASES.items():
        with Recorded() as mode:
            case()
        found[name] = mode.calls
    return found


@pytest.fixture(scope="module")
def calls() -> list[dict[str, list[tuple[str, str, tuple[int, ...], bool, str]]]]:
    """What two ranks have sent, by case."""
    return run(2, recorded)


@pytest.mark.parametrize("case", CASES)
def test_nccl_has_the_collective(calls: list[dict[str, Any]], case: str) -> None:
    assert calls[0][case], "nothing was recorded"
    for name, dtype, shape, contiguous, reduced in calls[0][case] + calls[1][case]:
        what = f"{name} of {dtype} {shape} {reduced}"
        assert name in COLLECTIVES, f"{what}: not a collective on the list"
        assert dtype in {str(each) for each in DTYPES}, f"{what}: NCCL has no such dtype"
        assert reduced in {"", *OPS.values()}, f"{what}: NCCL cannot reduce so"
        assert contiguous, f"{what}: NCCL needs contiguous tensors"


@pytest.mark.parametrize("case", CASES)
def test_ranks_send_the_same_shapes(calls: list[dict[str, Any]], case: str) -> None:
    """Gloo may forgive what makes NCCL hang: another collective, dtype or number of elements on another rank."""
    assert calls[0][case] == calls[1][case]


def test_the_page_has_what_is_used(calls: list[dict[str, Any]]) -> None:
    """The table on docs/distributed.md: collectives by name and reduction, with their dtypes."""
    names = dict(zip(sorted(COLLECTIVES), ("all-gather", "reduce-scatter", "all-reduce", "broadcast"), strict=True))
    used: dict[str, set[str]] = {}
    for case in calls[0].values():
        for name, dtype, _, _, reduced in case:
            used.setdefault(f"{names[name]} {reduced}".strip(), set()).add(dtype.removeprefix("torch."))
    section = PAGE.read_text().partition("## NCCL")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z-]+(?: [A-Z]+)?) \| ([a-z0-9, ]+) \|", section, re.MULTILINE)
    assert {name: set(dtypes.split(", ")) for name, dtypes in rows if name != "collective"} == used
