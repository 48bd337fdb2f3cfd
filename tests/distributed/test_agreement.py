"""Ranks that begin with different settings, or refuse to begin, in every layout: all of them raise, and none waits: `run` fails where one does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import pairgrad as pg
from pairgrad.distributed import Layout, distribute
from tests.distributed.ranks import error_of, run

pytestmark = pytest.mark.distributed
CLASSES, DIM = 8, 4


def begins() -> dict[str, Any]:
    """Rank 1 of a mesh of 2 x 2 differs from the others in one thing after the other."""
    odd = dist.get_rank() == 1
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "classes"))

    def made(classes: int = CLASSES, exchange: str = "auto", sample: Any = None, seed: int | None = None, **options: Any) -> Any:
        loss = pg.ProCoLoss(classes, DIM, **{"dtype": torch.float64, **options})
        return distribute(loss, data=mesh["data"], classes=mesh["classes"], exchange=exchange, sample=sample, seed=seed)

    found = {
        "temperature": error_of(lambda: made(temperature=0.1 + 0.1 * odd)),
        "cap": error_of(lambda: made(cap=1e3 + odd)),
        "num_classes": error_of(lambda: made(classes=CLASSES + 2 * odd)),
        "exchange": error_of(lambda: made(exchange="gather" if odd else "reduce")),
        "unseen": error_of(lambda: made(unseen="uniform" if odd else "random")),
        "seed": error_of(lambda: made(seed=int(odd), device="meta")),
        "meta": error_of(lambda: made(device="meta" if odd else "cpu")),
        "refused sample": error_of(lambda: made(sample=-1 if odd else None)),
        "refused exchange": error_of(lambda: made(exchange="pigeon" if odd else "auto")),
    }
    loss = made()
    found["prior"] = error_of(lambda: loss.set_prior([1.0 + odd, *[1.0] * (CLASSES - 1)]))
    found["afterwards"] = made()(torch.randn(3, DIM, dtype=torch.float64), torch.arange(3)).item()
    return found


def test_all_ranks_of_a_mesh_name_the_rank_and_the_setting() -> None:
    for rank, found in enumerate(run(4, begins)):
        for name, words in {
            "temperature": "temperature must be the same on all ranks: rank 1 has 0.2, rank 0 has 0.1",
            "cap": "cap must be the same on all ranks: rank 1 has 1001.0, rank 0 has 1000.0",
            "num_classes": "num_classes must be the same on all ranks: rank 1 has 10, rank 0 has 8",
            "exchange": "exchange must be the same on all ranks: rank 1 has 'gather', rank 0 has 'reduce'",
            "unseen": "unseen must be the same on all ranks: rank 1 has 'uniform', rank 0 has 'random'",
            "seed": "seed must be the same on all ranks: rank 1 has 1, rank 0 has 0",
            "meta": "whether the loss is on the device 'meta' must be the same on all ranks",
            "prior": "class_counts (by a checksum of the log prior) must be the same on all ranks",
        }.items():
            assert found[name][0] == "RankError", (rank, name, found[name])
            assert words in found[name][1], (rank, name, found[name])
        for name, words in (("refused sample", "sample must be a number of classes"), ("refused exchange", "exchange must be one of")):
            assert found[name][0] == ("ValueError" if rank == 1 else "RankError")
            assert words in found[name][1]
            assert rank == 1 or found[name][1].startswith("rank 1 could not begin, and says why")
        assert found["afterwards"] > 0


def steps() -> dict[str, Any]:
    odd, rank = dist.get_rank() == 1, dist.get_rank()
    features, labels = torch.randn(2, 3, DIM), torch.arange(3)
    logits = torch.zeros(3, CLASSES)
    found: dict[str, Any] = {}
    for layout in ("data", "classes"):
        groups = {"data": None, "classes": dist.group.WORLD} if layout == "classes" else {}
        loss = distribute(pg.PATTLoss(CLASSES, DIM, class_counts=[1.0] * CLASSES), **groups)
        outliers = [None if odd else torch.zeros(2, CLASSES), torch.zeros(0, CLASSES) if odd else None]
        for number, given in enumerate(outliers):
            found[f"outliers {number}, {layout}"] = error_of(lambda given=given, loss=loss: loss(features, labels, logits, given))
        found[f"sparse, {layout}"] = error_of(lambda loss=loss: loss(features.to_sparse() if odd else features, labels, logits))
        found[f"counted, {layout}"] = float(loss.bank.counts.sum())
        own = torch.randn(rank + 1, CLASSES, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
        terms = loss.terms(features, labels, logits, own.float())
        found[f"mean, {layout}"] = terms.outliers.item()
    return found


def test_outliers_on_some_ranks_alone_and_what_torch_refuses() -> None:
    parts = run(2, steps)
    every = torch.cat(
        [torch.randn(rank + 1, CLASSES, generator=torch.Generator().manual_seed(rank), dtype=torch.float64) for rank in range(2)]
    )
    wanted = pg.OutlierExposure()(every).item()
    for layout in ("data", "classes"):
        for rank, found in enumerate(parts):
            for number in range(2):
                kind, text = found[f"outliers {number}, {layout}"]
                assert kind == "RankError"
                assert "whether there are outliers must be the same on all ranks" in text
            assert found[f"sparse, {layout}"][0] == ("TypeError" if rank == 1 else "RankError")
            assert rank == 1 or found[f"sparse, {layout}"][1].startswith("rank 1 refused its batch")
            assert found[f"counted, {layout}"] == 0
        mean = sum(found[f"mean, {layout}"] for found in parts) / 2
        assert mean == pytest.approx(wanted, rel=1e-6)  # float32, of all rows of both ranks


def test_one_rank_refuses_without_asking_anyone() -> None:
    with pytest.raises(ValueError, match="exchange must be one of"):
        distribute(pg.ProCoLoss(CLASSES, DIM), exchange="pigeon")
    Layout(4).agree("settings", {"x": 1}, torch.device("cpu"))
