"""Fixtures for checkpoints: the source they were saved with, and a canary that no reading may touch."""

from __future__ import annotations

import pytest
import torch

from .checkpoints import K, P, Stranger, statistics


@pytest.fixture
def canary(tmp_path):
    """A path at which nothing may appear before the test ends."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "code from the file was run"


@pytest.fixture
def save(tmp_path, canary):
    """save(change) writes a checkpoint and returns its path and the statistics in it. `change` may edit the criterion and return what
    to save instead of the usual dict."""
    strangers = []

    def make(change=lambda criterion, module: None, **options):
        stranger = Stranger(tmp_path, canary)
        strangers.append(stranger)
        with stranger as module:
            criterion = module.ProCoLoss(P, 0.07, K)
            truth = statistics(criterion)
            usual = {"epoch": 3, "arch": "resnet32", "state_dict": torch.nn.Linear(2, 3).state_dict(), "criterion_scl": criterion}
            torch.save(change(criterion, module) or usual, tmp_path / "checkpoint.pth.tar", **options)
        return tmp_path / "checkpoint.pth.tar", truth

    yield make
    for stranger in strangers:
        stranger.remove()
