"""Where losses on several ranks could go wrong without a word: sizes that are remembered, ranks that ask for different things, shards of different sizes."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import pairgrad as pg
from pairgrad.distributed import Layout, RankError, ShardedClassState, distribute, top_classes, vmf_cross_entropy
from tests.distributed.ranks import all_are_here, error_of, run

pytestmark = pytest.mark.distributed

CLASSES, DIM, WORLD = 10, 4, 3
FLOAT64 = 1e-12  # relative, of sums in another order


def batch(seed: int, size: int = 4, views: int = 2, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(views, size, DIM, generator=generator, dtype=dtype), torch.randint(CLASSES, (size,), generator=generator)


def loss_of(layout: str = "data", classes: int = CLASSES, static: bool = False, sample: int | None = None, **options: Any) -> Any:
    groups = {"data": None, "classes": dist.group.WORLD} if layout == "classes" else {}
    loss = pg.ProCoLoss(classes, DIM, **{"dtype": torch.float64, "unseen": "uniform", "temperature": 0.2, **options})
    return distribute(loss, **groups, static=static, sample=sample)


def counted(loss: Any) -> float:
    """Samples in the banks of all ranks."""
    total = loss.bank.counts.sum()
    if loss.bank.layout.classes.size > 1:
        dist.all_reduce(total)
    return total.item()


def edges() -> dict[str, Any]:
    rank, found = dist.get_rank(), {}
    odd, (features, labels) = rank == 1, batch(rank)
    groups = {"data": None, "classes": dist.group.WORLD}

    # batch sizes that are remembered
    loss = loss_of("classes", static=True).eval()
    with torch.no_grad():
        loss(features, labels)
    found["gradient after evaluation"] = loss.train()(features.clone().requires_grad_(), labels).requires_grad
    loss(*batch(rank, size=2))
    found["a smaller batch"] = counted(loss)
    loss = loss_of(static=True)
    loss(features[:1], labels)
    with loss.bank.no_sync():
        loss(features[:1], labels)
        loss(features[:1], labels)
    loss(features[:1], labels)
    found["held back"] = counted(loss)

    # ranks that ask for different things
    loss = loss_of("classes")
    loss.train(not odd)
    found["train"] = error_of(lambda: loss(features, labels))
    loss.train()
    found["temperature"] = error_of(lambda: loss_of(temperature=0.1 + 0.1 * odd))
    found["class_counts"] = error_of(lambda: loss_of("classes", class_counts=[1.0 + odd, *[1.0] * (CLASSES - 1)]))
    layout = Layout(CLASSES, **groups)
    rows = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(2))
    state = ShardedClassState(rows[layout.first : layout.last], torch.full((layout.rows,), 9.0), layout)
    found["dtype"] = error_of(lambda: vmf_cross_entropy(features[0].to(torch.float64 if odd else torch.float32), labels, state))
    found["tau"] = error_of(lambda: vmf_cross_entropy(features[0], labels, state, 0.1 + 0.1 * odd))
    found["k"] = error_of(lambda: top_classes(features[0], state, 2 + odd))
    found["log_prior"] = error_of(lambda: top_classes(features[0], state, 2, log_prior=torch.zeros(CLASSES - odd)))
    patt = distribute(pg.PATTLoss(CLASSES, DIM, class_counts=[1.0] * CLASSES, dtype=torch.float64))
    logits = torch.zeros(4, CLASSES, dtype=torch.float64)
    found["logits"] = error_of(lambda: loss(features, labels + CLASSES * odd, logits))
    found["adjustment"] = error_of(lambda: patt(features, labels, logits[:, odd:], logits))
    for name, option, value in (("before", "score", "before-update"), ("plain views", "geometry", "expanded")):
        options: dict[str, Any] = {option: value}
        other = loss_of(**options)
        found[name] = error_of(lambda other=other: other(features[: 1 + odd], labels))
        found[f"{name}, counted"] = counted(other)
    found["pickle"] = error_of(lambda: pickle.dumps(loss))

    # what was held back stays so where the next batch is refused
    loss = loss_of()
    with loss.bank.no_sync():
        loss(features, labels)
    found["refused"] = error_of(lambda: loss(features, labels + CLASSES * odd))
    loss(features, labels)
    found["after a refusal"] = counted(loss)

    # batches and shards of odd shapes
    found["strided"] = loss_of("classes")(features, torch.stack([labels, labels], 1)[:, 0] if odd else labels).item()
    found["plain"] = loss_of("classes")(features, labels).item()
    for layout_name in ("data", "classes"):
        loss = loss_of(layout_name, normalize=False)
        for empty in (rank == 0, True):
            given = features[:, : 0 if empty else 4].clone().requires_grad_()
            loss(given, labels[: 0 if empty else 4]).backward()
        found[f"empty, {layout_name}"] = counted(loss)
    loss = loss_of("classes", normalize=False, on_resultant_above_one="error")
    found["class"] = error_of(lambda: loss(features * 9, torch.full((4,), 6)))
    # 2, 2 and 1 classes, of which 1, 1 and all are scored; all are alike, so that it does not matter which
    alike = loss_of("classes", classes=5, sample=1, score="before-update")
    found["drawn"] = alike.rows(features[:1, :2], torch.full((2,), 4))

    prior = torch.zeros(CLASSES).index_fill_(0, torch.tensor([0, 9]), -torch.inf)
    found["top"] = top_classes(features[0].float(), state, CLASSES, log_prior=prior)
    found["state"] = state_gradient(layout, rows)
    return found


def state_gradient(layout: Layout, rows: torch.Tensor) -> torch.Tensor:
    """In all rows, of the mean over the samples of all ranks."""
    held = rows[layout.first : layout.last].double().requires_grad_()
    state = ShardedClassState(held, torch.full((layout.rows,), 9.0, dtype=torch.float64), layout)
    features, labels = batch(7, size=9)
    mine = slice(3 * layout.classes.rank, 3 * layout.classes.rank + 3) if layout.classes.size > 1 else slice(None)
    vmf_cross_entropy(features[0, mine], labels[mine], state).backward()
    assert held.grad is not None
    return held.grad


def test_edges() -> None:
    parts = run(WORLD, edges)
    rows = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(2))
    wanted = state_gradient(Layout(CLASSES), rows)
    got = torch.cat([part["state"] for part in parts])
    assert (got - wanted).abs().max() <= FLOAT64 * wanted.abs().max()
    for rank, found in enumerate(parts):
        assert found["gradient after evaluation"]
        assert found["a smaller batch"] == 2 * WORLD * (4 + 2)
        assert found["held back"] == WORLD * 4 * 4
        for name, words in {
            "train": "what is asked for (which function, training or evaluation",
            "temperature": "temperature must be the same on all ranks",
            "class_counts": "class_counts (by a checksum",
            "dtype": "the dtype must be the same on all ranks of the group 'classes': rank 1 has torch.float64, rank 0 has torch.float32",
            "tau": "what is asked for (which function",
            "before": "the number of views must be the same on all ranks",
            "plain views": "the number of views must be the same on all ranks",
            "k": "what is asked for (which function",
        }.items():
            assert found[name][0] == "RankError"
            assert words in found[name][1], name
        for name in ("log_prior", "logits", "adjustment", "refused"):
            assert found[name][0] == ("ValueError" if rank == 1 else "RankError"), (name, found[name])
            assert rank == 1 or found[name][1].startswith("rank 1 refused its batch")
        assert found["before, counted"] == found["plain views, counted"] == 0
        assert found["pickle"][0] == "TypeError"
        assert "save state_dict()" in found["pickle"][1]
        assert found["after a refusal"] == 2 * 2 * WORLD * 4
        assert found["strided"] == found["plain"]
        assert found["empty, data"] == found["empty, classes"] == 2 * 2 * 4
        assert found["class"][0] == ("ValueError" if rank == 1 else "RankError")
        assert rank != 1 or "class 6 would get" in found["class"][1]
        assert torch.allclose(found["drawn"], torch.full((1, 2), math.log(5), dtype=torch.float64), rtol=FLOAT64)
        classes, scores = found["top"]
        assert torch.equal(classes.sort(1).values, torch.arange(CLASSES).expand(4, -1))
        assert set(classes[:, -2:].flatten().tolist()) == {0, 9}
        assert bool((scores[:, -2:] == -torch.inf).all())
        assert bool(scores[:, :-2].isfinite().all())


def refused_in_a_mesh() -> tuple[str, str]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "classes"))
    loss = distribute(pg.ProCoLoss(CLASSES, DIM, dtype=torch.float64), data=mesh["data"], classes=mesh["classes"])
    features, labels = batch(1)
    return error_of(lambda: loss(features, labels + CLASSES * (dist.get_rank() == 3)))


def test_all_ranks_of_a_mesh_name_the_one_that_refused() -> None:
    found = run(4, refused_in_a_mesh)
    assert found[3][0] == "ValueError"
    for name, text in found[:3]:
        assert name == "RankError"
        assert text.startswith("rank 3 refused its batch")


def test_a_loss_stays_on_its_device() -> None:
    loss = pg.ProCoLoss(CLASSES, DIM)
    with torch.device("meta"):  # what is made without a device is made there
        distribute(loss)
    assert loss.bank.sums.device.type == "cpu"


def test_an_empty_batch_that_is_not_normalised() -> None:
    features = torch.zeros(2, 0, DIM, requires_grad=True)
    pg.ProCoLoss(CLASSES, DIM, normalize=False)(features, torch.zeros(0, dtype=torch.int64)).backward()
    assert features.grad is not None


@pytest.mark.parametrize("score", ["after-update", "before-update"])
def test_second_derivatives_of_the_plain_path_see_the_bank_of_each_view(score: str) -> None:
    features, labels = batch(1)
    gradients = []
    for change in (lambda loss: loss, distribute):
        loss = change(pg.ProCoLoss(CLASSES, DIM, geometry="expanded", score=score, unseen="uniform", dtype=torch.float64))
        x = features.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(x, labels), x, create_graph=True)
        gradients.append((first.detach(), *torch.autograd.grad(first.square().sum(), x)))
    for plain, other in zip(*gradients, strict=True):
        assert (plain - other).abs().max() <= FLOAT64 * plain.abs().max()


def test_a_converted_loss_takes_features_of_its_dtype() -> None:
    features, labels = batch(1)
    generators = (torch.Generator().manual_seed(1) for _ in range(2))
    plain, other = (pg.ProCoLoss(CLASSES, DIM, generator=generator) for generator in generators)
    value = distribute(other).double()(features, labels)
    assert value.dtype == torch.float64
    assert value.item() == pytest.approx(plain.double()(features, labels).item(), rel=FLOAT64)


def listening() -> int:
    """Sockets of this process that wait for connections: the stores of torch that it serves."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
            found += each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return found


def twice() -> tuple[list[int], list[int]]:
    """Two process groups in turn, each with a store that rank 0 serves: watching threads while a group is there, and stores that outlive it."""
    first = dist.get_rank() == 0
    stores = [dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False) for _ in range(2)] if first else []
    ports = [store.port for store in stores] or [0, 0]
    dist.broadcast_object_list(ports)
    stores = stores or [dist.TCPStore("127.0.0.1", port, 2, is_master=False) for port in ports]
    all_are_here("with two stores")
    dist.destroy_process_group()
    watches, served = [], []
    while stores:
        dist.init_process_group("gloo", store=stores.pop(), rank=0 if first else 1, world_size=2)
        loss = distribute(pg.ProCoLoss(4, 3))
        loss(torch.ones(2, 3), torch.tensor([0, 1]))
        del loss
        watches.append(sum("pairgrad" in thread.name for thread in threading.enumerate()))
        all_are_here("to leave together")
        dist.destroy_process_group()
        served.append(listening())
    return watches, served


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_the_store_of_a_group_ends_with_it() -> None:
    """A second group can listen on the same port, and no rank finds what the first has left there."""
    assert run(2, twice, expect=(0, 1)) == [([1, 1], [1, 0]), ([1, 1], [0, 0])]


class Together(nn.Module):
    """A network and a loss whose classes are shared out, in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Linear(3, 3)
        self.loss = distribute(pg.ProCoLoss(4, 3, generator=torch.Generator().manual_seed(1)), data=None, classes=dist.group.WORLD)

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.loss(self.network(features), labels)


def overwritten() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for broadcast in (False, True):
        torch.manual_seed(0)
        module = DistributedDataParallel(Together(), broadcast_buffers=broadcast)
        try:
            for _ in range(2):
                module(torch.eye(3), torch.tensor([0, 1, 3])).backward()
        except (ValueError, RankError) as error:
            found["error"] = str(error)
        if not broadcast:
            found["counts"] = module.module.loss.bank.counts.clone()
    return found


def test_buffers_that_ddp_copies_over_a_shard_are_noticed() -> None:
    parts = run(2, overwritten)
    assert torch.cat([part["counts"] for part in parts]).tolist() == [4.0, 4.0, 0.0, 4.0]  # two steps of two ranks
    assert any(
        "DistributedDataParallel around a module that contains a loss whose classes are sharded does" in part["error"] for part in parts
    )
    assert all("error" in part for part in parts)


def with_another_backend() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "get_backend", lambda group=None: "nccl")
        with pytest.raises(ValueError, match="backend nccl") as error:
            distribute(pg.ProCoLoss(4, 3))
    return str(error.value)


def test_a_bank_on_the_cpu_cannot_use_nccl() -> None:
    assert all("the class bank is on cpu, and the group 'data' has the backend nccl" in text for text in run(2, with_another_backend))


def different_priors() -> str:
    loss = distribute(pg.ProCoLoss(4, 3), data=None, classes=dist.group.WORLD)
    with pytest.raises(RankError) as error:
        loss.set_prior([1.0, 2.0, 3.0, 4.0 + dist.get_rank()])
    return str(error.value)


def test_priors_are_compared_when_they_are_set() -> None:
    assert all("class_counts" in text and "rank 1" in text for text in run(2, different_priors))
