"""A captured batch is what the next update sees, and capturing changes nothing."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

import pairgrad as pg
from pairgrad.certificates.saved import load_state
from pairgrad.losses.bank_loss import BankLoss
from pairgrad_paper.captured.capture import Captured, capture, next_batch
from pairgrad_paper.recipes.settings import SettingError
from pairgrad_paper.training import Trainer
from paper.tests.training.small import advanced, different, trainer

from .small import PER_EPOCH

PLACES = [("patt", 0), ("patt", 3), ("proco", 0), ("proco", PER_EPOCH + 2), ("proco", 2 * PER_EPOCH)]  # the last: its bank forgets an epoch


class Seen:
    """What an update gives to the network's consumer and to the scores."""

    def __init__(self, subject: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.features: list[torch.Tensor] = []
        self.classes: list[Any] = []
        plain = BankLoss._plain_rows

        def watched(loss: BankLoss, view: torch.Tensor, labels: torch.Tensor, classes: Any, dtype: torch.dtype) -> torch.Tensor:
            self.features.append(view.detach().clone())
            self.classes.append(classes)
            return plain(loss, view, labels, classes, dtype)

        monkeypatch.setattr(BankLoss, "_plain_rows", watched)
        subject.update(subject.batches.batch(subject.step))


@pytest.mark.parametrize(("method", "step"), PLACES)
def test_it_is_what_the_next_update_sees(method: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = advanced(trainer(method, "arfr", 1, "epochs=3"), step)
    before = deepcopy(subject.state())
    captured = capture(subject)
    assert different(before, subject.state()) == []
    seen = Seen(subject, monkeypatch)
    assert torch.equal(captured.features, torch.stack(seen.features))
    assert list(captured.views) == [2, 3]
    for number, view in captured.views.items():
        for kept, scored in zip(view.state.classes(), seen.classes[number - 2], strict=True):
            assert torch.equal(kept, scored)
    assert (captured.step, captured.epoch) == (step, step // PER_EPOCH)
    assert captured.class_counts == tuple(subject.benchmark.class_counts)
    assert captured.log_prior is not None
    assert captured.log_prior.exp().sum().item() == pytest.approx(1, rel=1e-6)


def test_a_larger_batch_begins_at_the_same_place() -> None:
    subject = advanced(trainer(), 2)
    own, larger = next_batch(subject), next_batch(subject, 64)
    assert torch.equal(own.indices, larger.indices[:32])
    assert torch.equal(own.views[1], larger.views[1][:32])
    assert larger.outliers is not None
    assert len(larger.outliers) == 32  # as many for each image
    captured = capture(subject, 64)
    assert captured.features.shape == (2, 64, 128)
    assert sum(captured.banks[0].counts.tolist()) == 2 * 2 * 32 + 64
    assert sum(captured.banks[1].counts.tolist()) == 2 * 2 * 32 + 128


def test_a_batch_at_the_end_of_an_epoch_stays_in_it() -> None:
    subject = advanced(trainer(), PER_EPOCH - 1)
    images = len(subject.benchmark.train)
    order = torch.cat([subject.batches.indices(step) for step in range(PER_EPOCH)])
    assert torch.equal(next_batch(subject, 200).indices, order[:200])
    assert torch.equal(next_batch(subject, 100).indices, order[100:200])
    for size in (1, images + 1):
        with pytest.raises(SettingError, match=f"--batch-size must be from 2 to {images}, .* got {size}"):
            next_batch(subject, size)


def test_saved_views_are_learning_states(tmp_path: Path) -> None:
    captured: Captured = capture(advanced(trainer(), 1))
    paths = captured.save(tmp_path, "run")
    assert [path.name for path in paths] == ["run-step00000001-view2.safetensors", "run-step00000001-view3.safetensors"]
    for path, view in zip(paths, captured.views.values(), strict=True):
        saved = load_state(path)
        assert saved.assumed == ()
        assert saved.temperature == view.temperature
        assert saved.class_counts is not None
        assert saved.class_counts.tolist() == list(captured.class_counts)
        assert torch.equal(saved.features, view.features)
        again = pg.vmf_scores(saved.features, saved.state, 0.1)
        torch.testing.assert_close(again, pg.vmf_scores(view.features, view.state, 0.1), rtol=0, atol=1e-4)
