"""Local probes: one state, one batch, several backward rules."""

import copy

import pytest
import torch

import pairgrad as pg
from pairgrad_paper.forks import probe
from pairgrad_paper.forks.probing import with_realization
from pairgrad_paper.training import Batch
from paper.tests.training.small import advanced, different, trainer


@pytest.fixture(scope="module")
def subject():
    return advanced(trainer("patt", "original"), 3)


@pytest.fixture(scope="module")
def found(subject):
    return probe(subject, subject.batches.batch(3))


def test_a_probe_leaves_everything_as_it_was(subject):
    before = copy.deepcopy(subject.state())
    probe(subject, subject.batches.batch(3))
    assert different(before, subject.state()) == []


def test_forwards_are_equal_and_gradients_are_not(found):
    assert found["scores_equal"]
    assert found["loss_equal"]
    assert 1e-5 < found["feature_gap"] < 1e-2
    assert 1e-5 < found["parameter_gap"] < 1e-2
    assert 0 < found["feature_residual"] < found["feature_gap"]
    assert 0 < found["parameter_residual"] <= found["parameter_gap"]


def test_the_gap_of_the_features_is_that_of_two_trainers(subject, found):
    """The same batch through two losses of the library, each with its own backward."""
    batch = subject.batches.batch(3)
    gradients = []
    for name in ("original", "consistent"):
        network, objective = copy.deepcopy(subject.network), with_realization(subject.objective, name)
        images = torch.cat((*batch.views, batch.outliers))
        outputs = network(images)
        outputs.features.retain_grad()
        objective(outputs, batch.labels).vmf.backward()
        gradients.append(outputs.features.grad.double())
    gap = torch.linalg.vector_norm(gradients[0] - gradients[1]) / torch.linalg.vector_norm(gradients[1])
    assert found["feature_gap"] == pytest.approx(gap.item(), rel=1e-6)


def test_the_gap_of_the_parameters_is_that_of_the_updates(subject, found):
    batch = subject.batches.batch(3)
    gradients = []
    for name in ("original", "consistent"):
        other = copy.deepcopy(subject)
        other.objective.vmf.potential = pg.potential(other.network.dim, name)
        other.optimizer.step = lambda: None
        other.update(batch)
        gradients.append(torch.cat([p.grad.double().flatten() for p in other.network.parameters()]))
    gap = (torch.linalg.vector_norm(gradients[0] - gradients[1]) / torch.linalg.vector_norm(gradients[1])).item()
    assert found["parameter_gap"] == pytest.approx(gap, rel=1e-4)


def test_the_state_is_described(subject, found):
    """All classes of digits have mean lengths above 1 here: kappa at the cap, and the defect (nu + 3/2) / r, to the first order."""
    nu = subject.network.dim / 2 - 1
    assert found["capped"] == 1.0
    assert found["radius_low"] == pytest.approx(1e5 / nu, rel=1e-2)
    assert found["radius_low"] <= found["radius_high"]
    assert found["defect"] == pytest.approx((nu + 1.5) / 1e5, rel=2e-2)


def test_coherent_realizations_stand_beside(found):
    for name in ("arfr", "paired"):
        assert found[f"{name}_gap"] < 1e-2
        assert found[f"{name}_loss_gap"] < 1e-3


def test_equality_is_of_every_bit(subject, monkeypatch):
    """Scores that are not those of the other rule are seen to be others."""
    from pairgrad_paper.forks import probing as module

    honest = module.vmf_scores
    monkeypatch.setattr(
        module,
        "vmf_scores",
        lambda view, bank, temperature, name, **options: (
            honest(view, bank, temperature, name, **options) + (1e-3 if name == "original" else 0)
        ),
    )
    found = probe(subject, subject.batches.batch(3))
    assert not found["scores_equal"]
    assert found["loss_equal"]


def test_a_batch_of_proco_has_no_outliers():
    subject = advanced(trainer("proco", "original"), 1)
    batch = subject.batches.batch(1)
    assert isinstance(batch, Batch)
    assert batch.outliers is None
    found = probe(subject, batch)
    assert found["scores_equal"]
    assert found["loss_equal"]


def test_a_bank_that_remembers_two_epochs_turns_its_page_before_the_probe():
    """At the first update of the third epoch the bank forgets the first, and the loss of the probe is that of the update."""
    subject = advanced(trainer("proco", "original", 1, "epochs=3"), 16)
    batch = subject.batches.batch(16)
    found = probe(subject, batch)
    assert found["vmf_loss"] == pytest.approx(subject.update(batch).read()["vmf"], rel=1e-6)
