"""Ranks that die, hang, disagree or get bad input: every other rank stops, names the rank and the call, and nothing has changed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import pairgrad as pg
from pairgrad.distributed import RankError, distribute
from tests.distributed.ranks import LIMIT, all_are_here, run, shorten_timeout

pytestmark = pytest.mark.distributed

CLASSES, DIM = 7, 4
TIMEOUT = 1.5  # seconds, of collectives that nobody answers


def batch(seed: int, views: int = 2, size: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(views, size, DIM, generator=generator), torch.randint(CLASSES, (size,), generator=generator)


def loss_of(layout: str = "data", classes: int = CLASSES, **options: Any) -> pg.ProCoLoss:
    groups = {"data": None, "classes": dist.group.WORLD} if layout == "classes" else {}
    return distribute(pg.ProCoLoss(classes, DIM, **options), **groups)


def state(loss: pg.ProCoLoss) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in loss.bank.buffers()]


def unchanged(loss: pg.ProCoLoss, before: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(before, loss.bank.buffers(), strict=True))


def caught(function: Callable[[], Any]) -> dict[str, Any]:
    """The error of a rank."""
    try:
        function()
    except (RankError, ValueError) as error:
        return {
            "error": type(error).__name__,
            "text": str(error),
            "ranks": getattr(error, "ranks", None),
            "call": getattr(error, "call", None),
        }
    return {"error": None}


def loses_a_rank(how: str, layout: str) -> dict[str, Any]:
    rank, loss = dist.get_rank(), loss_of(layout)
    loss(*batch(rank))
    before = state(loss)
    all_are_here("before it happens")
    if how in ("stopped", "late"):
        shorten_timeout(TIMEOUT)
    if rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "late":
            time.sleep(LIMIT)  # until it is killed, when the others have answered
    found = caught(lambda: loss(*batch(10 + rank)))
    return {**found, "unchanged": unchanged(loss, before)}


@pytest.mark.parametrize(
    ("how", "layout", "world", "words"),
    [
        ("killed", "data", 4, "rank 1 gave no sign of life"),
        pytest.param("killed", "classes", 2, "rank 1 gave no sign of life", marks=pytest.mark.slow),
        ("stopped", "data", 3, "it died, or hangs"),
        ("late", "data", 2, "rank 1 did not arrive; last seen after 'data: statistics'"),
    ],
)
def test_every_rank_names_the_one_that_is_missing(how: str, layout: str, world: int, words: str) -> None:
    others = tuple(rank for rank in range(world) if rank != 1)
    found = run(world, loses_a_rank, how, layout, expect=others)
    for rank in others:
        one = found[rank]
        assert one["error"] == "RankError", one
        assert one["ranks"] == (1,), one
        assert words in one["text"]
        assert one["text"].startswith(f"rank {rank} of {world}, in '{layout}: ")
        assert one["call"].startswith(f"{layout}: ")
        assert "\n" not in one["text"]
        assert one["unchanged"]


def disagrees() -> dict[str, Any]:
    """Settings and batches of rank 1 that are not those of the others, one after the other in one group."""
    odd = dist.get_rank() == 1
    found = {
        "num_classes": caught(lambda: loss_of(classes=CLASSES + odd)),
        "decay": caught(lambda: loss_of(decay=0.5 if odd else None)),
    }
    for layout in ("data", "classes"):
        loss = loss_of(layout)
        before = state(loss)
        found[f"views, {layout}"] = caught(lambda loss=loss: loss(*batch(1, views=1 + odd)))
        found[f"views, {layout}"]["unchanged"] = unchanged(loss, before)
        loss(*batch(2))  # nobody is left waiting
    return found


def test_every_rank_names_the_one_that_disagrees_and_the_argument() -> None:
    for found in run(3, disagrees):
        for name in ("num_classes", "decay"):
            assert found[name]["error"] == "RankError"
            assert found[name]["ranks"] == (1,)
            assert found[name]["text"].startswith(f"{name} must be the same on all ranks")
            assert "rank 1 has" in found[name]["text"]
        for name in ("views, data", "views, classes"):
            assert found[name]["error"] == "RankError"
            assert found[name]["text"].startswith("the number of views must be the same on all ranks")
            assert "rank 1 has 2, rank 0 has 1" in found[name]["text"]
            assert found[name]["unchanged"]


def gets_bad_input(layout: str) -> dict[str, Any]:
    rank, loss = dist.get_rank(), loss_of(layout)
    loss(*batch(rank))
    found: dict[str, Any] = {}
    for what in ("labels", "features", "shape"):
        features, labels = batch(10 + rank)
        if rank == 1:
            if what == "labels":
                labels[0] = CLASSES
            elif what == "features":
                features[0, 0, 0] = torch.nan
            else:
                features = features[:, :, :-1]
        before = state(loss)
        found[what] = caught(lambda features=features, labels=labels: loss(features, labels))
        found[what]["unchanged"] = unchanged(loss, before)
    features, labels = batch(20 + rank)
    found["later"] = loss(features, labels).item()
    return found


@pytest.mark.parametrize("layout", ["data", "classes"])
def test_bad_input_stops_all_ranks_and_changes_nothing(layout: str) -> None:
    parts = run(3, gets_bad_input, layout)
    for rank, found in enumerate(parts):
        for what in ("labels", "features", "shape"):
            assert found[what]["unchanged"], (rank, what)
            if rank == 1:
                assert found[what]["error"] == "ValueError"
            else:
                assert found[what]["error"] == "RankError"
                assert found[what]["ranks"] == (1,)
                assert found[what]["text"].startswith("rank 1 refused its batch")
        assert found["later"] > 0
