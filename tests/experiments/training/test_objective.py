"""The terms of the host systems' losses, on one process and on two."""

import pytest
import torch
from torch import distributed, multiprocessing

import pairgrad as pg
from pairgrad.experiments.models import Outputs
from pairgrad.experiments.recipes import Loss
from pairgrad.experiments.training import Process
from pairgrad.experiments.training.objective import Objective
from pairgrad.experiments.training.seeds import generator

CLASSES, DIM, SIZE, OUTLIERS = 5, 16, 8, 6
COUNTS = (50, 30, 20, 10, 5)


def batch(method):
    """Outputs of three views and outliers, and labels."""
    source = torch.Generator().manual_seed(3)
    rows = 3 * SIZE + (OUTLIERS if method == "patt" else 0)
    features = torch.randn(rows, DIM, generator=source)
    if method == "proco":
        features = torch.nn.functional.normalize(features, dim=1)
    logits = torch.randn(rows, CLASSES, generator=source)
    labels = torch.randint(CLASSES, (SIZE,), generator=source)
    return features, logits, labels


def objective(method, process=None):
    settings = Loss(method, memory="two-epochs" if method == "proco" else "cumulative", contrast_weight=0.7)
    return Objective(settings, CLASSES, DIM, COUNTS, "arfr", 1, process)


def outputs(features, logits):
    return Outputs(logits, features, features)


def test_patt_is_pattloss():
    features, logits, labels = batch("patt")
    subject = objective("patt")
    terms = subject(outputs(features, logits), labels)
    loss = pg.PATTLoss(
        CLASSES,
        DIM,
        class_counts=COUNTS,
        realization="arfr",
        geometry="expanded",
        scalar_dtype=torch.float64,
        generator=generator(1, "bank"),
    )
    views = torch.stack((features[SIZE : 2 * SIZE], features[2 * SIZE : 3 * SIZE]))
    expected = loss.terms(views, labels, logits[:SIZE], logits[3 * SIZE :])
    assert torch.equal(terms.total, expected.total)
    assert torch.equal(terms.vmf, expected.augmentation)
    assert torch.equal(terms.classifier, expected.adjustment)
    assert torch.equal(terms.outliers, expected.outliers)
    assert torch.equal(subject.bank.counts, loss.bank.counts)


def test_proco_is_procoloss_with_two_memories():
    features, logits, labels = batch("proco")
    subject = objective("proco")
    loss = pg.ProCoLoss(
        CLASSES,
        DIM,
        weight=0.7,
        class_counts=COUNTS,
        realization="arfr",
        geometry="expanded",
        scalar_dtype=torch.float64,
        normalize=False,
        memory="two-epochs",
        generator=generator(1, "bank"),
    )
    views = torch.stack((features[SIZE : 2 * SIZE], features[2 * SIZE : 3 * SIZE]))
    for epoch in (0, 1, 2):
        subject.start_epoch(epoch)
        loss.start_epoch(generator=generator(1, "bank", epoch))
        terms = subject(outputs(features, logits), labels)
        assert torch.equal(terms.total, loss(views, labels, logits=logits[:SIZE]))
    assert float(subject.bank.counts.sum()) == 2 * 2 * SIZE  # the epoch before and this one
    assert terms.outliers == 0


def _gradients(method, process):
    features, logits, labels = batch(method)
    parts = [features[i * SIZE : (i + 1) * SIZE].chunk(process.world)[process.rank] for i in range(3)]
    parts.append(features[3 * SIZE :].chunk(process.world)[process.rank])
    mine = torch.cat(parts).requires_grad_()
    logit_parts = [logits[i * SIZE : (i + 1) * SIZE].chunk(process.world)[process.rank] for i in range(3)]
    logit_parts.append(logits[3 * SIZE :].chunk(process.world)[process.rank])
    my_logits = torch.cat(logit_parts).requires_grad_()
    subject = objective(method, process)
    subject.start_epoch(0)
    terms = subject(outputs(mine, my_logits), labels.chunk(process.world)[process.rank])
    terms.total.backward()
    return terms, mine.grad, my_logits.grad, subject


def _in_process(rank, world, method, path):
    distributed.init_process_group("gloo", init_method=f"file://{path}/meet", rank=rank, world_size=world)
    process = Process(rank, world)
    terms, gradient, logit_gradient, subject = _gradients(method, process)
    mean = process.mean(torch.stack([term.detach() for term in terms]))
    saved = {"mean": mean, "gradient": gradient, "logits": logit_gradient, "sums": subject.bank.sums, "counts": subject.bank.counts}
    torch.save(saved, f"{path}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("method", ["patt", "proco"])
def test_two_processes_have_the_gradient_of_one(method, tmp_path):
    multiprocessing.spawn(_in_process, (2, method, str(tmp_path)), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    terms, gradient, logit_gradient, subject = _gradients(method, Process())
    torch.testing.assert_close(first["mean"], torch.stack([term.detach() for term in terms]), rtol=1e-6, atol=1e-6)
    for rank, part in enumerate((first, second)):
        for name, whole in (("gradient", gradient), ("logits", logit_gradient)):
            mine = torch.cat([whole[i * SIZE : (i + 1) * SIZE].chunk(2)[rank] for i in range(3)] + [whole[3 * SIZE :].chunk(2)[rank]])
            torch.testing.assert_close(part[name] / 2, mine, rtol=1e-5, atol=1e-7)  # averaging over two processes halves them
    assert torch.equal(first["counts"], subject.bank.counts)
    assert torch.equal(first["sums"], second["sums"])
    torch.testing.assert_close(first["sums"], subject.bank.sums, rtol=1e-6, atol=1e-6)
