"""A distributed loss in one process is the loss it was made from; what no_sync holds back is counted once, or dropped."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist

import pairgrad as pg
from pairgrad.distributed import DistributedClassBank, Layout, RankError, ShardedClassState, distribute, vmf_cross_entropy
from tests.distributed.ranks import error_of, run

CLASSES, DIM = 5, 4


def batch(seed: int, size: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.nn.functional.normalize(torch.randn(size, DIM, generator=generator, dtype=torch.float64), dim=-1)
    return features, torch.randint(CLASSES, (size,), generator=generator)


def loss_of(**options: Any) -> pg.ProCoLoss:
    return pg.ProCoLoss(CLASSES, DIM, **{"dtype": torch.float64, "unseen": "uniform", **options})


def _warnings_of_two_steps(whole: bool) -> list[str]:
    loss = distribute(loss_of()) if whole else loss_of()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for seed in (0, 1):
            loss(*batch(seed))
        loss.eval()(*batch(2))
    return [str(each.message) for each in seen if "class statistics" in str(each.message)]


@pytest.mark.distributed
def test_a_loss_that_was_not_distributed_says_so_once() -> None:
    for found in run(2, _warnings_of_two_steps, False):
        assert len(found) == 1
        assert found[0].startswith(
            "2 processes train, and this loss keeps the class statistics of one: call pairgrad.distributed.distribute(loss)"
        )
    assert run(2, _warnings_of_two_steps, True) == [[], []]


def test_forward_mode_and_torch_func_see_the_derivative() -> None:
    plain = loss_of()
    plain(*batch(0))
    loss = distribute(copy.deepcopy(plain))
    features, labels = batch(1)
    plain.eval(), loss.eval()
    tangent = torch.ones_like(features)
    for transform in (torch.func.jvp, None):
        if transform is None:
            pair = [torch.func.grad(lambda x, one=one: one(x, labels))(features) for one in (plain, loss)]
        else:
            pair = [transform(lambda x, one=one: one(x, labels), (features,), (tangent,))[1] for one in (plain, loss)]
        assert float(pair[0].abs().max()) > 0
        assert torch.equal(*pair)


def test_a_full_graph_is_compiled_as_before() -> None:
    plain, (features, labels) = loss_of(), batch(1)
    loss = distribute(copy.deepcopy(plain))
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    assert compiled(features, labels).item() == plain(features, labels).item()
    assert torch.equal(loss.bank.sums, plain.bank.sums)


def test_the_dtype_of_the_loss_is_that_of_its_geometry() -> None:
    loss = pg.ProCoLoss(CLASSES, DIM, geometry_dtype=torch.float64, realization="arfr")
    features, labels = batch(1)
    dtypes = {
        change(copy.deepcopy(loss))(features.float(), labels).dtype
        for change in (lambda each: each, lambda each: distribute(each, sample=5))
    }
    assert dtypes == {torch.float64}


def test_a_loss_on_the_device_meta_keeps_its_class_counts() -> None:
    counts = [1.0, 2.0, 3.0, 4.0, 5.0]
    features, labels = batch(1)
    logits = torch.randn(3, CLASSES, dtype=torch.float64)
    patt = pg.PATTLoss(CLASSES, DIM, class_counts=counts, unseen="uniform", dtype=torch.float64, device="meta")
    proco = pg.ProCoLoss(CLASSES, DIM, class_counts=counts, unseen="uniform", dtype=torch.float64, device="meta")
    for imagined, real in (
        (patt, pg.PATTLoss(CLASSES, DIM, class_counts=counts, unseen="uniform", dtype=torch.float64)),
        (proco, pg.ProCoLoss(CLASSES, DIM, class_counts=counts, unseen="uniform", dtype=torch.float64)),
    ):
        assert distribute(imagined)(features, labels, logits).item() == pytest.approx(real(features, labels, logits).item(), rel=1e-14)
    patt.set_prior(counts[::-1])
    changed = pg.PATTLoss(CLASSES, DIM, class_counts=counts[::-1], unseen="uniform", dtype=torch.float64)
    patt.bank.reset()
    assert patt(features, labels, logits).item() == pytest.approx(changed(features, labels, logits).item(), rel=1e-14)


def held_back() -> dict[str, Any]:
    found: dict[str, Any] = {}

    def counted(between: Any, **options: Any) -> float:
        loss = distribute(loss_of(**options))
        with loss.bank.no_sync(), loss.bank.no_sync():
            loss(*batch(1))
        between(loss)
        loss(*batch(2))
        return loss.bank.counts.sum().item()

    found["nested"] = counted(lambda loss: None)
    found["reset"] = counted(lambda loss: loss.bank.reset())
    found["loaded"] = counted(lambda loss: loss.load_state_dict(copy.deepcopy(loss.state_dict())))
    long = distribute(loss_of(normalize=False, on_resultant_above_one="error"))
    with long.bank.no_sync():
        features, labels = batch(1)
        long(9 * features, labels)
    found["dropped"] = error_of(lambda: long(*batch(2)))
    long(*batch(2))
    found["after it"] = long.bank.counts.sum().item()
    return found


@pytest.mark.distributed
def test_what_is_held_back_counts_once_or_is_dropped() -> None:
    for found in run(2, held_back):
        assert found["nested"] == 2 * (3 + 3)
        assert found["reset"] == found["loaded"] == found["after it"] == 2 * 3
        kind, text = found["dropped"]
        assert kind == "ValueError"
        assert "would get the resultant length" in text
        assert text.endswith("These samples were held back by no_sync(), and are dropped")


def differences() -> dict[str, Any]:
    rank, found = dist.get_rank(), {}
    groups = {"data": None, "classes": dist.group.WORLD}

    # soft targets of uneven batches
    loss = distribute(loss_of())
    features, _ = batch(rank, 1 + 4 * rank)
    found["soft"] = loss.soft(
        features, torch.softmax(torch.arange(len(features) * CLASSES, dtype=torch.float64).view(-1, CLASSES), 1)
    ).item()
    found["soft, refused"] = error_of(lambda: loss.soft(features, torch.ones(1, 2) if rank == 1 else torch.full((1, CLASSES), 1 / CLASSES)))

    # derivatives that are not there
    found["jvp"] = _jvp(loss, features)

    # a shard is not all classes
    shared = distribute(loss_of(), **groups)
    found["shard"] = error_of(lambda: pg.vmf_cross_entropy(features, torch.zeros(len(features), dtype=torch.int64), shared.bank))
    found["scores"] = error_of(lambda: pg.vmf_scores(features, shared.bank))

    # rows in another order
    bank = loss.bank
    if rank == 1:
        bank.sums[2] = torch.arange(DIM).flip(0)
    else:
        bank.sums[2] = torch.arange(DIM)
    try:
        bank.compare_replicas()
    except RankError as error:
        found["reversed"] = str(error)

    # gradients of a state in all ways to add up
    for inputs in ("sharded", "replicated"):
        for averaged in (True, False):
            layout = Layout(CLASSES, classes=dist.group.WORLD, inputs=inputs)
            rows = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(3), dtype=torch.float64)[layout.first : layout.last]
            rows.requires_grad_()
            state = ShardedClassState(rows, torch.full((layout.rows,), 7.0, dtype=torch.float64), layout)
            x, y = batch(5, 6)
            own = slice(None) if inputs == "replicated" else slice(2 * rank, 2 * rank + 2 + 2 * rank)
            vmf_cross_entropy(x[own], y[own], state, averaged=averaged).backward()
            found[f"{inputs}, {averaged}"] = rows.grad
    return found


def _jvp(loss: Any, features: torch.Tensor) -> tuple[str, str]:
    labels = torch.zeros(len(features), dtype=torch.int64)
    try:
        torch.func.jvp(lambda x: loss(x, labels), (features,), (features,))
    except RuntimeError as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.distributed
def test_what_several_ranks_could_get_wrong_without_a_word() -> None:
    parts = run(2, differences)
    plain = loss_of()
    targets = [torch.softmax(torch.arange(n * CLASSES, dtype=torch.float64).view(-1, CLASSES), 1) for n in (1, 5)]
    wanted = plain.soft(torch.cat([batch(rank, 1 + 4 * rank)[0] for rank in range(2)]), torch.cat(targets)).item()
    assert sum(found["soft"] for found in parts) / 2 == pytest.approx(wanted, rel=1e-14)
    rows = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    pg.vmf_cross_entropy(*batch(5, 6), pg.ClassState(rows, torch.full((CLASSES,), 7.0, dtype=torch.float64))).backward()
    assert rows.grad is not None
    for name in ("sharded, True", "sharded, False", "replicated, True", "replicated, False"):
        got = torch.cat([found[name] for found in parts])
        assert (got - rows.grad).abs().max() <= 1e-12 * rows.grad.abs().max(), name
    for rank, found in enumerate(parts):
        assert found["soft, refused"][0] == ("ValueError" if rank == 1 else "RankError")
        assert found["jvp"][0] in ("RuntimeError", "RankError")
        assert "forward-mode differentiation are not available" in found["jvp"][1]
        for name in ("shard", "scores"):
            assert found[name][0] == "ValueError"
            assert found[name][1].startswith("state must have all classes")
        assert "sums of rank 1 is not that of rank 0" in found["reversed"]


def steep(layout: str) -> float:
    """The largest error of a row of the gradient over that of one process, both in float32 and relative to the row, at logits of size 1e4."""
    groups = {"data": None, "classes": dist.group.WORLD} if layout == "classes" else {}
    torch.manual_seed(1)
    worst = [0.0, 0.0]
    for _ in range(10):
        plain = pg.ProCoLoss(
            60, 8, temperature=0.05, normalize=False, scalar_dtype=torch.float64, realization="scott", cap=1e3, unseen="uniform"
        )
        plain.eval()
        plain.bank.update(torch.randn(200, 8) * 5, torch.randint(60, (200,)))
        exact, loss = copy.deepcopy(plain).double(), distribute(copy.deepcopy(plain), **groups)
        x, y, rank = torch.randn(12, 8) * 5, torch.randint(60, (12,)), dist.get_rank()
        own = slice(6 * rank, 6 * rank + 6)
        one, two, true = x.clone().requires_grad_(), x[own].clone().requires_grad_(), x.double().requires_grad_()
        plain(one, y).backward(), loss(two, y[own]).backward(), exact(true, y).backward()
        assert one.grad is not None
        assert two.grad is not None
        assert true.grad is not None
        size = true.grad.abs().amax(-1).clamp_min(1e-2 / 12)
        worst[0] = max(worst[0], float(((one.grad - true.grad).abs().amax(-1) / size).max()))
        worst[1] = max(worst[1], float(((two.grad / 2 - true.grad[own]).abs().amax(-1) / size[own]).max()))  # a mean over two ranks
    return worst[1] / worst[0]


@pytest.mark.distributed
@pytest.mark.parametrize("layout", ["data", "classes"])
def test_gradients_at_large_logits_are_as_good_as_those_of_one_process(layout: str) -> None:
    """Probabilities must not have the rounding of the logits: that was 30 to 60 times the error of one process."""
    assert max(run(2, steep, layout)) < 4


def test_a_bank_says_whether_it_is_whole() -> None:
    assert DistributedClassBank(Layout(4), pg.ClassBank(4, 3)).whole
