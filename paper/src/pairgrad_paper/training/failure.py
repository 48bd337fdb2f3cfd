"""What is kept of an update that went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pairgrad_paper.runs import RunDirectory, save_checkpoint
from pairgrad_paper.training.batches import Batches
from pairgrad_paper.training.trainer import NonFinite, Trainer


def save_failure(run: RunDirectory, trainer: Trainer, state: dict[str, Any], error: NonFinite) -> Path:
    """Write the batch of the update, made once more, of all processes, and the state of the run, as a checkpoint under `failures`."""
    batch = Batches(trainer.benchmark, trainer.recipe, trainer.seed, trainer.device).batch(error.step)
    content = {
        "batch": {"indices": batch.indices, "labels": batch.labels, "views": list(batch.views), "outliers": batch.outliers},
        "state": state,
    }
    extra = {"update": error.step, "what": error.what, "state_is_from_before_the_update": error.before}
    return save_checkpoint(run.path / "failures", error.step, content, keep=3, extra=extra)
