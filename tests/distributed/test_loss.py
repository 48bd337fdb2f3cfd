"""Losses on several ranks: training with DistributedDataParallel and FSDP, accumulation, uneven inputs, sampled classes, what is communicated."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pairgrad as pg
from pairgrad.distributed import DistributedClassBank, RankError, distribute, step_calls, until_all_are_done
from tests.distributed.ranks import Failed, run

pytestmark = pytest.mark.distributed

CLASSES, DIM = 40, 16
FLOAT32 = 1e-6  # relative, of sums in another order
FLOAT64 = 1e-12


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, DIM)).to(dtype)


def loss_of(dtype: torch.dtype = torch.float32, **options: Any) -> pg.ProCoLoss:
    return pg.ProCoLoss(CLASSES, DIM, temperature=0.2, dtype=dtype, generator=torch.Generator().manual_seed(3), **options)


def batch(step: int, dtype: torch.dtype, size: int = 13) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(size, 10, generator=generator, dtype=dtype), torch.randint(CLASSES, (size,), generator=generator)


def part_of(step: int, size: int, rank: int, world: int) -> slice:
    """An uneven cut of a batch, another at every step; the first rank has none at every fifth."""
    cuts = [0, *sorted((7 * step + 5 * place) % (size + 1) for place in range(1, world)), size]
    if step % 5 == 0:
        cuts[1] = 0
    return slice(cuts[rank], cuts[rank + 1])


def groups(layout: str) -> dict[str, Any]:
    return {} if layout == "data" else {"data": None, "classes": dist.group.WORLD}


def trained(layout: str, steps: int, dtype: torch.dtype, wrap: str = "ddp") -> dict[str, Any]:
    """A network behind a distributed loss, with uneven batches."""
    world, rank = dist.get_world_size(), dist.get_rank()
    model: Any = network(dtype)
    if wrap == "fsdp":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    loss = distribute(loss_of(dtype), **groups(layout))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    values = []
    for step in range(steps):
        images, labels = batch(step, dtype)
        mine = part_of(step, len(labels), rank, world)
        features = model(images[mine])
        value = loss(torch.stack([features, features.flip(-1)]), labels[mine])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    weights = [w.full_tensor() if hasattr(w, "full_tensor") else w.detach() for w in model.parameters()]
    bank = loss.bank
    return {"values": values, "weights": weights, "sums": bank.sums, "counts": bank.counts, "first": bank.layout.first}


def alone(steps: int, dtype: torch.dtype) -> dict[str, Any]:
    model, loss = network(dtype), loss_of(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    values = []
    for step in range(steps):
        images, labels = batch(step, dtype)
        features = model(images)
        value = loss(torch.stack([features, features.flip(-1)]), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    return {"values": values, "weights": [w.detach() for w in model.parameters()], "bank": loss.bank}


@pytest.mark.parametrize(
    ("world", "layout", "wrap", "dtype", "steps"),
    [
        (3, "classes", "ddp", torch.float64, 20),
        (4, "data", "ddp", torch.float32, 20),
        (2, "classes", "fsdp", torch.float64, 20),
        pytest.param(2, "data", "ddp", torch.float64, 200, marks=pytest.mark.slow),
        pytest.param(4, "classes", "ddp", torch.float64, 200, marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_one_process(world: int, layout: str, wrap: str, dtype: torch.dtype, steps: int) -> None:
    parts, one = run(world, trained, layout, steps, dtype, wrap), alone(steps, dtype)
    # a training amplifies what differs: in float64 it stays far below this, in float32 it is looked at for 20 steps
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    for step in range(steps):
        mean = sum(part["values"][step] for part in parts) / world
        assert mean == pytest.approx(one["values"][step], rel=tolerance), step
    for part in parts:
        for got, wanted in zip(part["weights"], one["weights"], strict=True):
            assert torch.allclose(got, wanted, rtol=tolerance, atol=tolerance)
        held = slice(part["first"], part["first"] + len(part["counts"]))
        assert torch.equal(part["counts"], one["bank"].counts[held])
        for other in parts:
            if other["first"] == part["first"]:
                assert torch.equal(part["sums"], other["sums"])


def objectives(method: str, layout: str) -> dict[str, Any]:
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    dtype, found = torch.float64, {}
    counts = [1.0 + k % 4 for k in range(CLASSES)]
    options = {"class_counts": counts, "dtype": dtype, "generator": torch.Generator().manual_seed(3)}
    loss: Any = pg.ProCoLoss(CLASSES, DIM, weight=0.5, **options) if method == "proco" else pg.PATTLoss(CLASSES, DIM, **options)
    if world > 1:
        distribute(loss, **groups(layout))
    values, gradients = [], []
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype)  # noqa: B023, E731
        features, logits, outliers = draw(2, 13, DIM), draw(13, CLASSES), draw(7, CLASSES)
        labels = torch.randint(CLASSES, (13,), generator=generator)
        mine = part_of(step, 13, rank, world) if world > 1 else slice(None)
        out = part_of(step + 1, 7, rank, world) if world > 1 else slice(None)
        inputs = [tensor.clone().requires_grad_() for tensor in (features[:, mine], logits[mine], outliers[out])]
        value = loss(inputs[0], labels[mine], inputs[1]) if method == "proco" else loss(inputs[0], labels[mine], inputs[1], inputs[2])
        value.backward()
        values.append(value.item())
        gradients.append([torch.zeros_like(x) if x.grad is None else x.grad for x in inputs])
    found["values"], found["gradients"] = values, gradients
    return found


@pytest.mark.parametrize(("method", "layout", "world"), [("proco", "data", 2), ("patt", "classes", 3)])
def test_the_terms_of_the_classifier_and_of_outliers_are_means_over_all_ranks_too(method: str, layout: str, world: int) -> None:
    parts, one = run(world, objectives, method, layout), objectives(method, layout)
    for step in range(5):
        assert sum(part["values"][step] for part in parts) / world == pytest.approx(one["values"][step], rel=FLOAT64)
        for place, dim in enumerate((1, 0, 0)):
            got, wanted = torch.cat([part["gradients"][step][place] for part in parts], dim) / world, one["gradients"][step][place]
            assert (got - wanted).abs().max() <= FLOAT64 * wanted.abs().max() + 1e-300


def test_soft_targets_need_all_classes() -> None:
    with pytest.raises(Failed, match="soft needs all classes in one process"):
        run(2, soft)


def soft() -> None:
    distribute(loss_of(), **groups("classes")).soft(torch.randn(2, DIM), torch.full((2, CLASSES), 1 / CLASSES))


def accumulated() -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    dtype = torch.float64
    model = DistributedDataParallel(network(dtype))
    loss = distribute(loss_of(dtype))
    found: dict[str, Any] = {}
    with model.no_sync():
        images, labels = batch(0, dtype)
        mine = part_of(3, len(labels), rank, world)
        loss(model(images[mine]), labels[mine]).backward()
    images, labels = batch(1, dtype)
    mine = part_of(4, len(labels), rank, world)
    loss(model(images[mine]), labels[mine]).backward()
    found["gradient"] = [w.grad.clone() for w in model.parameters()]
    found["synchronised"] = loss.bank.sums.clone()

    # now the bank itself holds back
    before = loss.bank.sums.clone()
    with loss.bank.no_sync():
        for step in (2, 3):
            images, labels = batch(step, dtype)
            mine = part_of(step + 3, len(labels), rank, world)
            loss(model(images[mine]).detach(), labels[mine])
        assert torch.equal(loss.bank.sums, before)
        with pytest.raises(RuntimeError, match="holds back"):
            loss.bank.update(torch.zeros(1, DIM, dtype=dtype), torch.zeros(1, dtype=torch.int64))
    with loss.bank.layout.data.recorded() as calls:
        images, labels = batch(4, dtype)
        mine = part_of(7, len(labels), rank, world)
        loss(model(images[mine]).detach(), labels[mine])
    found["calls"] = [call.name for call in calls]
    found["sums"], found["counts"] = loss.bank.sums, loss.bank.counts
    return found


def test_accumulation() -> None:
    parts = run(2, accumulated)
    dtype = torch.float64
    model, loss = network(dtype), loss_of(dtype)
    for step in (0, 1):
        images, labels = batch(step, dtype)
        loss(model(images), labels).backward()
    gradients = [w.grad.clone() for w in model.parameters()]
    synchronised = loss.bank.sums.clone()
    for step in (2, 3, 4):
        images, labels = batch(step, dtype)
        loss(model(images).detach(), labels)
    for part in parts:
        for got, wanted in zip(part["gradient"], gradients, strict=True):
            assert (got - wanted).abs().max() <= FLOAT64 * wanted.abs().max()
        assert torch.allclose(part["synchronised"], synchronised, rtol=FLOAT64, atol=FLOAT64)
        assert torch.allclose(part["sums"], loss.bank.sums, rtol=FLOAT64, atol=FLOAT64)
        assert torch.equal(part["counts"], loss.bank.counts)
        assert part["calls"] == ["data: header", "data: statistics"] * 2
    assert torch.equal(parts[0]["sums"], parts[1]["sums"])


def apart() -> list[str]:
    loss, found = distribute(loss_of()), []
    for step in range(3):
        _, labels = batch(step, torch.float32)
        loss(torch.randn(len(labels), DIM), labels)
    loss.bank.compare_replicas()
    for name, place in (("sums", (5, 3)), ("counts", (7,)), ("compensation", (0, 0))):
        if dist.get_rank() == 1:
            tensor = getattr(loss.bank, name)
            before = tensor[place].clone()
            tensor[place] = torch.nextafter(before, before + 1)
        with pytest.raises(RankError) as error:
            loss.bank.compare_replicas()
        found.append(str(error.value))
        if dist.get_rank() == 1:
            tensor[place] = before
    loss.bank.compare_replicas()
    return found


def test_replicas_that_differ_in_one_bit_are_found() -> None:
    for found in run(2, apart):
        for name, text in zip(("sums", "counts", "compensation"), found, strict=True):
            assert f"{name} of rank 1 is not that of rank 0" in text


def different_lengths() -> dict[str, Any]:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, DIM)))
    loss = distribute(loss_of())
    images, labels = torch.randn(12, 1, 8, 8), torch.arange(12)
    sizes = [[2, 2, 2], [3, 1, 1, 1]][rank]  # three batches here, four there
    first, loader = 6 * rank, []
    for size in sizes:
        batch = {"images": images[first : first + size], "labels": labels[first : first + size]}
        loader.append({**batch, "scale": torch.tensor(2.0), "name": "train"})  # which have no samples
        first += size
    steps, values = 0, []
    for found in until_all_are_done(loader):
        assert (found["scale"].item(), found["name"]) == (2.0, "train")
        value = loss(model(found["images"]), found["labels"])
        value.backward()
        values.append(value.item())
        steps += 1
    return {"steps": steps, "counts": loss.bank.counts, "values": values}


def test_a_rank_that_runs_out_goes_on_with_nothing() -> None:
    parts = run(2, different_lengths)
    assert [part["steps"] for part in parts] == [4, 4]
    assert parts[0]["values"][3] == 0
    for part in parts:
        assert part["counts"].tolist() == [1.0] * 12 + [0.0] * (CLASSES - 12)


def nothing_at_all() -> list[int]:
    return [len(found) for found in until_all_are_done([torch.ones(2)] if dist.get_rank() else [])]


def test_a_rank_without_any_batch_is_named() -> None:
    with pytest.raises(Failed, match="rank 0 has no batch at all") as failed:
        run(2, nothing_at_all)
    assert set(failed.value.errors) == {0, 1}


def test_one_process_needs_nobody() -> None:
    assert [len(found) for found in until_all_are_done([torch.ones(3), torch.ones(1)])] == [3, 1]


def counted(kind: dict[str, Any]) -> list[dict[str, Any]]:
    from torch.distributed.device_mesh import init_device_mesh

    world, rank = dist.get_world_size(), dist.get_rank()
    shape = kind["shape"]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "classes"))
    options = {key: kind[key] for key in ("exchange", "static", "inputs") if key in kind}
    loss = distribute(
        loss_of(normalize=kind.get("normalize", True)),
        data=mesh["data"] if shape[0] > 1 else None,
        classes=mesh["classes"] if shape[1] > 1 else None,
        **options,
    )
    layout, found = loss.bank.layout, []
    for step in range(3):
        _, labels = batch(step, torch.float32, size=12)
        if kind.get("inputs") == "replicated":
            each = 12 // shape[0]
            mine = slice(each * layout.data.rank, each * (layout.data.rank + 1))
            group = labels[mine]
        else:
            mine = slice(12 // world * rank, 12 // world * (rank + 1)) if kind.get("static") else part_of(step, 12, rank, world)
            parts = [
                slice(12 // world * r, 12 // world * (r + 1)) if kind.get("static") else part_of(step, 12, r, world) for r in range(world)
            ]
            mates = range(layout.data.rank * shape[1], (layout.data.rank + 1) * shape[1])
            group = torch.cat([labels[parts[r]] for r in mates])
        features = torch.randn(2, mine.stop - mine.start, DIM) * (1.0 if kind.get("normalize", True) else 300.0)
        with layout.data.recorded() as data, layout.classes.recorded() as classes:
            loss(features.requires_grad_(), labels[mine]).backward()
        # what the plan needs to know of the step, from all ranks
        held = group[(group >= layout.first) & (group < layout.last)]
        distinct = torch.tensor([len(held.unique())])
        if layout.data.size > 1:
            dist.all_reduce(distinct, op=dist.ReduceOp.MAX, group=layout.data.group)
        largest = torch.tensor([mine.stop - mine.start])
        if layout.classes.size > 1:
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=layout.classes.group)
        planned = step_calls(
            data=shape[0],
            classes=shape[1],
            class_rows=layout.rows,
            dim=DIM,
            itemsize=4,
            views=2,
            local_rows=int(largest),
            scored_rows=len(group),
            distinct=int(distinct),
            exchange=kind.get("exchange", "auto"),
            inputs=kind.get("inputs", "sharded"),
            static=kind.get("static", False) and step > 0,
            bounded=kind.get("normalize", True),
        )
        found.append({"data": data, "classes": classes, "planned": planned, "step": step})
    return found


@pytest.mark.parametrize(
    "kind",
    [
        {"shape": (2, 1)},
        {"shape": (2, 1), "exchange": "reduce"},
        {"shape": (1, 2)},
        {"shape": (1, 2), "normalize": False},
        {"shape": (1, 3), "inputs": "replicated"},
        {"shape": (2, 2), "exchange": "gather"},
        {"shape": (2, 2), "static": True},
    ],
    ids=str,
)
def test_communication_is_what_the_plan_says(kind: dict[str, Any]) -> None:
    for part in run(math.prod(kind["shape"]), counted, kind):
        for found in part:
            if kind.get("static") and found["step"] == 0:
                continue  # the first step compares sizes
            assert found["data"] == [call for call in found["planned"] if call.name.startswith("data")]
            assert found["classes"] == [call for call in found["planned"] if call.name.startswith("classes")]
            assert found["planned"]


def sampled(layout: str, draws: int) -> dict[str, Any]:
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(100 + rank)
    prior = [1.0 + k % 3 for k in range(CLASSES)]
    loss = distribute(loss_of(torch.float64, class_counts=prior), **groups(layout), sample=0.3)
    full = distribute(loss_of(torch.float64, class_counts=prior), **groups(layout))
    generator = torch.Generator().manual_seed(9)
    images = torch.randn(2, 6, DIM, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (6,), generator=generator)
    mine = slice(3 * rank, 3 * rank + 3)
    states = copy.deepcopy(loss.state_dict())
    normalisers, gradients, rows = [], [], []
    for _ in range(draws):
        loss.load_state_dict(states)
        features = images[:, mine].clone().requires_grad_()
        value = loss.rows(features, labels[mine])
        rows.append(value.detach())
        normalisers.append(value.detach().exp())  # sum over classes of exp(z_j - z_y)
        value.sum().backward()
        gradients.append(features.grad)
    features = images[:, mine].clone().requires_grad_()
    exact = full.rows(features, labels[mine])
    exact.sum().backward()
    return {
        "normalisers": torch.stack(normalisers),
        "rows": torch.stack(rows),
        "exact": exact.detach(),
        "gradient": torch.stack(gradients).mean(0),
        "exact gradient": features.grad,
        "same bank": torch.equal(loss.bank.sums, full.bank.sums),
    }


@pytest.mark.parametrize("layout", ["data", "classes"])
def test_sampled_classes_estimate_the_normaliser_without_bias(layout: str) -> None:
    draws = 150
    for part in run(2, sampled, layout, draws):
        assert part["same bank"]
        drawn, exact = part["normalisers"], part["exact"].exp()
        error = (drawn.mean(0) - exact) / (drawn.std(0) / math.sqrt(draws))
        assert error.abs().max() < 4.5  # 12 numbers, two-sided: a false alarm in 1e4 runs
        assert part["rows"].std(0).min() > 0  # it is a sample
        # the logarithm is too small on average, by half the squared relative deviation of what it is taken of
        bias = -0.5 * (drawn.std(0) / exact).square()
        error = (part["rows"].mean(0) - part["exact"] - bias) / (part["rows"].std(0) / math.sqrt(draws))
        assert error.abs().max() < 4.5
        assert (part["gradient"] - part["exact gradient"]).norm() < 0.2 * part["exact gradient"].norm()


def made_on_meta(layout: str) -> dict[str, Any]:
    loss = distribute(pg.ProCoLoss(CLASSES, DIM, device="meta"), **groups(layout), seed=4)
    first = loss.bank.sums.clone()
    loss.set_prior([1.0 + k for k in range(CLASSES)])
    other = copy.deepcopy(loss)
    assert isinstance(other.bank, DistributedClassBank)
    features, labels = torch.ones(2, DIM), torch.tensor([0, CLASSES - 1])
    value = loss(features, labels)
    assert not torch.equal(loss.bank.sums, other.bank.sums)  # a copy has a bank of its own
    assert other(features, labels).item() == value.item()
    seedless = distribute(pg.ProCoLoss(CLASSES, DIM, device="meta"), **groups(layout)).bank.sums
    return {"sums": first, "prior": loss.log_prior, "seedless": seedless, "value": value.item(), "scores": repr(loss.bank)}


def test_a_bank_is_made_where_it_is_held() -> None:
    whole = run(1, made_alone)[0]
    both = run(2, made_on_meta, "classes")
    assert torch.equal(torch.cat([part["sums"] for part in both]), whole["sums"])
    assert torch.equal(torch.cat([part["prior"] for part in both]), whole["prior"])
    assert "holds 20 to 39" in both[1]["scores"]
    replicas = run(2, made_on_meta, "data")
    for part in replicas:
        assert torch.equal(part["sums"], whole["sums"])
        assert torch.equal(part["seedless"], replicas[0]["seedless"])  # agreed on, though the ranks draw differently


def made_alone() -> dict[str, Any]:
    loss = pg.ProCoLoss(CLASSES, DIM, generator=torch.Generator().manual_seed(4))
    loss.set_prior([1.0 + k for k in range(CLASSES)])
    return {"sums": loss.bank.sums, "prior": loss.log_prior}


def test_nothing_changes_in_one_process() -> None:
    """The same bits as without `distribute`, second derivatives included."""
    plain, other = loss_of(torch.float64), distribute(loss_of(torch.float64))
    for step in range(3):
        images, labels = batch(step, torch.float64)
        one, two = images[:, [*range(10), *range(6)]].clone().requires_grad_(), images[:, [*range(10), *range(6)]].clone().requires_grad_()
        values = [loss(torch.stack([x, x.flip(-1)]), labels) for loss, x in ((plain, one), (other, two))]
        assert values[0].item() == pytest.approx(values[1].item(), rel=1e-14)
        gradients = [torch.autograd.grad(v, x, create_graph=True)[0] for v, x in zip(values, (one, two), strict=True)]
        assert torch.allclose(*gradients, rtol=1e-12, atol=1e-15)
        curved = [torch.autograd.grad(g.square().sum(), x)[0] for g, x in zip(gradients, (one, two), strict=True)]
        assert torch.allclose(*curved, rtol=1e-10, atol=1e-15)
    assert torch.equal(plain.bank.sums, other.bank.sums)


def test_a_compiled_region_ends_before_the_loss() -> None:
    plain, other = loss_of(torch.float64).eval(), distribute(loss_of(torch.float64), sample=1).eval()  # as on several ranks
    images, labels = torch.randn(6, DIM, dtype=torch.float64), torch.arange(6)
    compiled = torch.compile(lambda x: other(2 * x, labels) + 1, backend="eager")
    assert compiled(images).item() == pytest.approx(plain(2 * images, labels).item() + 1, rel=1e-14)


def test_what_is_refused_at_the_door() -> None:
    with pytest.raises(TypeError, match="module must be a loss with a class bank"):
        distribute(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="distributed already"):
        distribute(distribute(loss_of()))
    with pytest.raises(ValueError, match=r"sample must be a number of classes per rank .* got 1\.5"):
        distribute(loss_of(), sample=1.5)
    with pytest.raises(ValueError, match="exchange must be one of"):
        distribute(loss_of(), exchange="broadcast")
    with pytest.raises(ValueError, match="has no process group"):
        distribute(loss_of(), classes=object())
    assert issubclass(RankError, RuntimeError)
