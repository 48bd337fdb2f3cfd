"""A captured batch is what the next update sees, and capturing changes nothing."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch

import pairgrad as pg
from pairgrad.certificates import load_state
from pairgrad_paper.captured import Captured, capture
from pairgrad_paper.models import Outputs
from pairgrad_paper.recipes import SettingError
from paper.tests.training.small import advanced, different, trainer

from .small import PER_EPOCH

PLACES = [("patt", 0), ("patt", 3), ("proco", 0), ("proco", PER_EPOCH + 2), ("proco", 2 * PER_EPOCH)]  # the last: its bank forgets an epoch


# the update scores in float32 and in the expanded geometry; with the bank of another update the loss is another in its second digit
ROUNDING = 1e-3


@pytest.mark.parametrize(("method", "step"), PLACES)
def test_it_is_what_the_next_update_sees(method: str, step: int) -> None:
    subject = advanced(trainer(method, "arfr", 1, "epochs=3"), step)
    before = deepcopy(subject.state())
    captured = capture(subject)
    assert different(before, subject.state()) == []
    seen: list[Outputs] = []
    with subject.network.register_forward_hook(lambda module, given, outputs: seen.append(outputs)):
        loss = subject.update(subject.batches.batch(subject.step)).read()["vmf"]
    (outputs,) = seen  # the regular view, the two of the vMF term, and outliers
    assert torch.equal(captured.features.flatten(0, 1), outputs.features[32:96])
    assert list(captured.views) == [2, 3]
    assert loss == pytest.approx(sum(view.losses("arfr").mean().item() for view in captured.views.values()) / 2, rel=ROUNDING)
    assert (captured.step, captured.epoch) == (step, step // PER_EPOCH)
    assert captured.class_counts == tuple(subject.benchmark.class_counts)
    assert captured.log_prior is not None
    assert captured.log_prior.exp().sum().item() == pytest.approx(1, rel=1e-6)


def test_a_larger_batch_begins_at_the_same_place() -> None:
    subject = advanced(trainer(), 2)
    own, larger = capture(subject), capture(subject, 64)
    assert torch.equal(own.views[2].labels, larger.views[2].labels[:32])
    assert larger.features.shape == (2, 64, 128)
    assert sum(larger.banks[0].counts.tolist()) == 2 * 2 * 32 + 64
    assert sum(larger.banks[1].counts.tolist()) == 2 * 2 * 32 + 128


def test_a_batch_at_the_end_of_an_epoch_stays_in_it() -> None:
    subject = advanced(trainer(), PER_EPOCH - 1)
    images, labels = len(subject.benchmark.train), subject.benchmark.train.labels
    assert labels is not None
    order = labels[torch.cat([subject.batches.indices(step) for step in range(PER_EPOCH)])]
    assert torch.equal(capture(subject, 200).views[2].labels, order[:200])
    assert torch.equal(capture(subject, 100).views[2].labels, order[100:200])
    for size in (1, images + 1):
        with pytest.raises(SettingError, match=f"--batch-size must be from 2 to {images}, .* got {size}"):
            capture(subject, size)


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
