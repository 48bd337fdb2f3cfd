"""Banks that are shared out, through `torch.distributed.checkpoint`, onto other numbers of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh

import pairgrad as pg
from pairgrad.distributed import distribute
from tests.distributed.ranks import Failed, run

pytestmark = pytest.mark.distributed

CLASSES, DIM = 11, 6
NAMES = ("sums", "compensation", "counts", "next_sums", "next_compensation", "next_counts")


def made(seed: int) -> pg.ProCoLoss:
    return pg.ProCoLoss(CLASSES, DIM, memory="two-epochs", class_counts=[1.0] * CLASSES, generator=torch.Generator().manual_seed(seed))


def trained(loss: pg.ProCoLoss, steps: int = 3) -> pg.ProCoLoss:
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        features, labels = torch.randn(2, 8, DIM, generator=generator), torch.randint(CLASSES, (8,), generator=generator)
        layout = getattr(loss.bank, "layout", None)
        if layout is not None and layout.data.size == 2:  # a replica brings its half
            half = slice(4 * layout.data.rank, 4 * layout.data.rank + 4)
            features, labels = features[:, half], labels[half]
        loss(features, labels)
    return loss


def shared_out(loss: pg.ProCoLoss, mesh: bool = False) -> pg.ProCoLoss:
    if mesh:
        both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "classes"))
        return distribute(loss, data=both["data"], classes=both["classes"], inputs="replicated")
    if not dist.is_initialized():
        return loss
    return distribute(loss, data=None, classes=dist.group.WORLD, inputs="replicated")


def save(folder: str, mesh: bool = False) -> None:
    dcp.save({"loss": trained(shared_out(made(1), mesh)).state_dict()}, checkpoint_id=folder)


def load(folder: str) -> dict[str, Any]:
    loss = shared_out(made(2))
    state = {"loss": loss.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    loss.load_state_dict(state["loss"])
    values = torch.stack([loss(torch.ones(1, 2, DIM), torch.tensor([0, CLASSES - 1])).detach()])
    trained(loss, 1)
    layout = getattr(loss.bank, "layout", None)
    return {"first": layout.first if layout else 0, "value": values, **{name: getattr(loss.bank, name) for name in NAMES}}


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 2), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_rows_find_the_ranks_that_hold_them(tmp_path: Path, before: int, after: int) -> None:
    folder = str(tmp_path / "checkpoint")
    if before == 1:
        with pytest.warns(UserWarning, match="single process"):
            dcp.save({"loss": trained(made(1)).state_dict()}, checkpoint_id=folder, no_dist=True)
    else:
        run(before, save, folder, before == 4)
    one = trained(made(1))
    wanted = one(torch.ones(1, 2, DIM), torch.tensor([0, CLASSES - 1]))
    trained(one, 1)
    parts = run(after, load, folder)
    for name in NAMES:
        found = torch.cat([part[name] for part in parts])
        assert torch.allclose(found, getattr(one.bank, name), rtol=1e-6, atol=1e-6), name
        if "counts" in name:
            assert torch.equal(found, getattr(one.bank, name))
    assert all(part["value"].item() == pytest.approx(wanted.item(), rel=1e-6) for part in parts)


def test_every_row_is_saved_exactly(tmp_path: Path) -> None:
    """Written by three ranks and read by two: the same bits."""
    folder = str(tmp_path / "checkpoint")
    held = run(3, saved_rows, folder)
    found = run(2, loaded_rows, folder)
    for name in NAMES:
        assert torch.equal(torch.cat([part[name] for part in held]), torch.cat([part[name] for part in found])), name


def saved_rows(folder: str) -> dict[str, torch.Tensor]:
    loss = trained(shared_out(made(1)))
    dcp.save({"loss": loss.state_dict()}, checkpoint_id=folder)
    return {name: getattr(loss.bank, name).clone() for name in NAMES}


def loaded_rows(folder: str) -> dict[str, torch.Tensor]:
    loss = shared_out(made(2))
    state = {"loss": loss.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    loss.load_state_dict(state["loss"])
    return {name: getattr(loss.bank, name).clone() for name in NAMES}


def plain_file(path: str) -> torch.Tensor:
    loss = shared_out(made(2))
    loss.load_state_dict(torch.load(path, weights_only=True))
    return loss.bank.sums.clone()


def test_the_file_of_one_process_is_sliced(tmp_path: Path) -> None:
    one = trained(made(1))
    torch.save(one.state_dict(), tmp_path / "one.pt")
    assert torch.equal(torch.cat(run(2, plain_file, str(tmp_path / "one.pt"))), one.bank.sums)


def wrong_file(path: str) -> None:
    torch.save(pg.ProCoLoss(CLASSES + 1, DIM, memory="two-epochs").state_dict(), path + str(dist.get_rank()))
    shared_out(made(2)).load_state_dict(torch.load(path + str(dist.get_rank()), weights_only=True), strict=False)


def test_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"bank.sums must have a row for each of the 11 classes, got a float32 tensor of shape \(12, 6\)"):
        run(2, wrong_file, str(tmp_path / "wrong"))
