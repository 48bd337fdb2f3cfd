"""ProCo's objective: the contrastive part is the hosts' sequence, the classifier's part logit adjustment; two epochs of memory; nothing half done."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F

import pairgrad as pg
from tests.losses.sequence import sequence

CLASSES, DIM, BATCH, TAU = 20, 64, 4, 0.1
COUNTS = [float(100 // (k + 1) + 1) for k in range(CLASSES)]
# Losses of size 10 from logits of size 10 with 16 roundings each.
TOLERANCE = 16 * 10 * torch.finfo(torch.float64).eps


def batch(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two views, labels and the classifier's logits of a third."""
    views = torch.randn(2, BATCH, DIM, dtype=torch.float64).to(dtype)
    return views, torch.tensor([3, 0, 3, 7]), 3 * torch.randn(BATCH, CLASSES, dtype=torch.float64).to(dtype)


def prior(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    counts = torch.tensor(COUNTS, dtype=torch.float64)
    return torch.log(counts / counts.sum()).to(dtype)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_the_whole_objective(weight: float) -> None:
    """CE(z + log pi) + weight * mean over views of CE(q + log pi), with gradients for features and logits."""
    loss = pg.ProCoLoss(CLASSES, DIM, temperature=TAU, class_counts=COUNTS, weight=weight, dtype=torch.float64)
    bank = copy.deepcopy(loss.bank)
    for _ in range(2):
        views, labels, logits = (t.requires_grad_(t.is_floating_point()) for t in batch())
        total = loss(views, labels, logits=logits)
        rows, gradient = sequence(bank, views.detach(), labels, temperature=TAU, log_prior=prior())
        adjusted = F.cross_entropy(logits + prior(), labels)
        torch.testing.assert_close(total, adjusted + weight * rows.mean(), rtol=TOLERANCE, atol=0)
        d_views, d_logits = torch.autograd.grad(total, (views, logits))
        torch.testing.assert_close(d_views, weight * gradient / rows.numel(), rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(d_logits, torch.autograd.grad(adjusted, logits)[0], rtol=0, atol=1e-15)
        assert torch.equal(loss.bank.counts, bank.counts)


def test_the_contrastive_part_alone() -> None:
    views, labels, _ = batch()
    loss = pg.ProCoLoss(CLASSES, DIM, temperature=TAU, class_counts=COUNTS, weight=7.0, dtype=torch.float64)
    rows, _ = sequence(copy.deepcopy(loss.bank), views, labels, temperature=TAU, log_prior=prior())
    torch.testing.assert_close(loss(list(views), labels), rows.mean(), rtol=TOLERANCE, atol=0)


def test_without_counts_there_is_no_prior() -> None:
    views, labels, logits = batch()
    loss = pg.ProCoLoss(CLASSES, DIM, temperature=TAU, dtype=torch.float64)
    assert loss.log_prior is None
    rows, _ = sequence(copy.deepcopy(loss.bank), views, labels, temperature=TAU)
    torch.testing.assert_close(loss(views, labels, logits), F.cross_entropy(logits, labels) + rows.mean(), rtol=TOLERANCE, atol=1e-14)


def test_the_classifier_has_the_precision_of_the_bank() -> None:
    loss = pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS, dtype=torch.float64)
    torch.testing.assert_close(loss.classifier.log_prior, prior(), rtol=1e-15, atol=0)
    assert loss.classifier.log_prior.dtype == torch.float64
    assert pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS).classifier.log_prior.dtype == torch.float32
    assert pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS, device="meta").classifier.log_prior.device.type == "meta"


def test_two_epochs_of_memory() -> None:
    """Scores see the previous epoch and the current one up to now; the one before is forgotten; a cumulative bank needs no hook."""
    loss = pg.ProCoLoss(CLASSES, DIM, temperature=TAU, memory="two-epochs", dtype=torch.float64)
    every = []
    for epoch in range(3):
        loss.start_epoch(generator=torch.Generator().manual_seed(epoch))
        every.append([batch() for _ in range(2)])
        for views, labels, logits in every[-1]:
            loss(views, labels, logits)
    seen = [views for views, _, _ in every[1] + every[2]]
    want = sum(F.normalize(view, dim=-1)[labels == 3].sum(0) for views, labels, _ in every[1] + every[2] for view in views)
    assert loss.bank.counts[3].item() == 2 * 2 * len(seen)
    torch.testing.assert_close(loss.bank.sums[3], want, rtol=1e-13, atol=1e-13)
    cumulative = pg.ProCoLoss(CLASSES, DIM, temperature=TAU)
    views, labels, _ = batch(torch.float32)
    cumulative(views, labels)
    before = cumulative.bank.counts.clone()
    cumulative.start_epoch()
    assert torch.equal(cumulative.bank.counts, before)


def test_errors_come_before_the_bank_changes() -> None:
    views, labels, logits = batch(torch.float32)
    loss = pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS)
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    for wrong in (logits[:, :-1], logits[:-1], torch.full_like(logits, torch.nan)):
        with pytest.raises(ValueError, match=r"(logits|labels) must"):
            loss(views, labels, wrong)
    with pytest.raises(ValueError, match="features must be finite"):
        loss(torch.full_like(views, torch.inf), labels, logits)
    assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())
    with pytest.raises(ValueError, match="class_counts must have one number for each of the 20 classes, got 3"):
        pg.ProCoLoss(CLASSES, DIM, class_counts=[1, 2, 3])


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_reductions(reduction: str) -> None:
    views, labels, logits = batch()
    loss = pg.ProCoLoss(CLASSES, DIM, temperature=TAU, class_counts=COUNTS, reduction=reduction, dtype=torch.float64)
    rows, _ = sequence(copy.deepcopy(loss.bank), views, labels, temperature=TAU, log_prior=prior())
    classifier = F.cross_entropy(logits + prior(), labels, reduction=reduction)
    want = classifier + (rows.sum() if reduction == "sum" else rows)
    torch.testing.assert_close(loss(views, labels, logits), want, rtol=TOLERANCE, atol=TOLERANCE)


def test_copies() -> None:
    views, labels, logits = batch(torch.float32)
    loss = pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS, memory="two-epochs", realization="arfr")
    loss(views, labels, logits)
    other = pg.ProCoLoss(CLASSES, DIM, class_counts=COUNTS, memory="two-epochs", realization="arfr")
    other.load_state_dict(loss.state_dict())
    copies = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), other]
    want = loss(views, labels, logits)
    for each in copies:
        assert torch.equal(each(views, labels, logits), want)
    assert {"bank.sums", "bank.counts", "bank.next_sums", "bank.next_counts"} <= set(loss.state_dict())


def test_it_trains() -> None:
    """A linear head on labelled clouds: the objective falls by more than half in 30 steps."""
    means = 3 * F.normalize(torch.randn(5, 16), dim=1)
    labels = torch.arange(40) % 5
    head, classifier = torch.nn.Linear(16, 8), torch.nn.Linear(16, 5)
    loss = pg.ProCoLoss(5, 8, class_counts=[8.0] * 5)
    optimizer = torch.optim.SGD([*head.parameters(), *classifier.parameters()], lr=0.05)
    values = []
    for _ in range(30):
        inputs = means[labels] + 0.3 * torch.randn(3, 40, 16)
        value = loss([head(inputs[1]), head(inputs[2])], labels, logits=classifier(inputs[0]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < values[0] / 2


def test_a_new_prior_reaches_both_terms():
    features, labels, logits = torch.randn(2, 6, 16), torch.arange(6) % 4, torch.randn(6, 4)
    late, early = (
        pg.ProCoLoss(4, 16, class_counts=counts, generator=torch.Generator().manual_seed(0)) for counts in ([1, 1, 1, 1], [40, 20, 9, 3])
    )
    late.set_prior([40, 20, 9, 3])
    assert torch.equal(late(features, labels, logits), early(features, labels, logits))
    assert torch.equal(late.classifier(logits, labels), early.classifier(logits, labels))
    with pytest.raises(ValueError, match="one number for each of the 4 classes"):
        late.set_prior([1, 2, 3])
    assert torch.equal(late.classifier(logits, labels), early.classifier(logits, labels))


def test_losses_of_few_classes_round_as_little_as_those_of_many() -> None:
    """The label's score is in every loss: read off a matrix product, its error made losses at 50 classes twice as wrong as at 1,000."""
    batch, classes, dim, squares = 32, 50, 128, []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        directions = F.normalize(torch.randn(classes, dim, generator=generator), dim=1)
        seen = F.normalize(directions + 0.07 * torch.randn(classes, dim, generator=generator), dim=1)
        labels = torch.randint(classes, (batch,), generator=generator)
        views = F.normalize(directions[labels] + 0.07 * torch.randn(2, batch, dim, generator=generator), dim=-1)
        losses = []
        for dtype in (torch.float32, torch.float64):
            loss = pg.ProCoLoss(classes, dim, reduction="none", dtype=dtype)
            for _ in range(2):
                loss.bank.update(seen.to(dtype), torch.arange(classes))
            losses.append(loss(views.to(dtype), labels).double())
        squares.append(((losses[0] - losses[1]) / losses[1]).square().mean())
    assert torch.stack(squares).mean().sqrt() < 8 * torch.finfo(torch.float32).eps
