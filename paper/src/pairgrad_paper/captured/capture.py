"""What the next update of a run would see: features, labels, and the class state that each view is scored against."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pairgrad.certificates import SavedState, save_state
from pairgrad.sphere import ClassBank
from pairgrad_paper.captured.view import View
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.recipes.settings import SettingError
from pairgrad_paper.training import Batches, Trainer
from pairgrad_paper.training.batches import Batch

FIRST_VIEW = 2  # the paper counts the classifier's view as the first, so that the two of the vMF term are 2 and 3


@dataclass(frozen=True, eq=False)
class Captured:
    """A batch of a run as its vMF term sees it.

    Attributes:
        step: updates made before.
        epoch: the epoch of the next update, from 0: as many are over.
        features: (V, B, p), as they are scored.
        labels: (B,).
        banks: for each view a copy of the class bank that has seen it, which it is scored against.
        temperature: of the scores.
        log_prior: (K,), added to the scores.
        class_counts: training images per class.
    """

    step: int
    epoch: int
    features: torch.Tensor
    labels: torch.Tensor
    banks: tuple[ClassBank, ...]
    temperature: float
    log_prior: torch.Tensor | None
    class_counts: tuple[int, ...]

    @property
    def views(self) -> dict[int, View]:
        """By their number in the paper, 2 and 3."""
        return {
            number: View(features, self.labels, bank, self.temperature, self.log_prior)
            for number, (features, bank) in enumerate(zip(self.features, self.banks, strict=True), FIRST_VIEW)
        }

    def of_first_view(self) -> Captured:
        """Without the second."""
        return replace(self, features=self.features[:1], banks=self.banks[:1])

    def save(self, directory: Path, name: str) -> list[Path]:
        """Each view as a learning state for `pairgrad certify`."""
        counts = torch.tensor(self.class_counts)
        return [
            save_state(
                directory / f"{name}-step{self.step:08}-view{number}.safetensors",
                SavedState(view.features, view.labels, view.state, self.temperature, self.log_prior, counts),
            )
            for number, view in self.views.items()
        ]


def capture(trainer: Trainer, batch_size: int | None = None) -> Captured:
    """The next batch of a trainer, which is left as it is in every bit.

    The network runs in training mode, with the statistics of the batch. With another `batch_size` than the recipe's the batch begins at the same place of
    the epoch's order, and has as many outliers for each image.
    """
    batch = next_batch(trainer, batch_size)
    network, objective = deepcopy(trainer.network).train(), deepcopy(trainer.objective).train()
    bank = objective.bank
    if trainer.step % trainer.batches.per_epoch == 0:
        objective.start_epoch(trainer.epoch)
    images = torch.cat(batch.views if batch.outliers is None else (*batch.views, batch.outliers))
    size = len(batch.labels)
    seen = network(images).features.detach()[size : 3 * size]
    step = objective.vmf.step(seen.reshape(2, size, -1), batch.labels)
    features = step.unit(step.views)
    banks = tuple(_after(bank, view, batch.labels) for view in features)
    return Captured(
        trainer.step,
        trainer.epoch,
        features,
        batch.labels,
        banks,
        objective.vmf.temperature,
        objective.vmf.log_prior,
        tuple(trainer.benchmark.class_counts),
    )


def next_batch(trainer: Trainer, batch_size: int | None = None) -> Batch:
    """That of the next update, or one of another size that begins where it begins, or as shortly before as whole batches allow."""
    recipe = trainer.recipe
    if batch_size is None or batch_size == recipe.batch_size:
        return trainer.batches.batch(trainer.step)
    batches = Batches(trainer.benchmark, _resized(recipe, batch_size, len(trainer.benchmark.train)), trainer.seed, trainer.device)
    epoch, position = trainer.batches.place(trainer.step)
    number = min(position * recipe.batch_size // batch_size, batches.per_epoch - 1)
    return batches.batch(epoch * batches.per_epoch + number)


def check_batch_size(batch_size: int, images: int) -> None:
    """A SettingError unless a batch of the training images can have this size."""
    if not 2 <= batch_size <= images:
        raise SettingError(f"--batch-size must be from 2 to {images}, the number of training images, got {batch_size}")


def _resized(recipe: Recipe, batch_size: int, images: int) -> Recipe:
    check_batch_size(batch_size, images)
    return replace(recipe, batch_size=batch_size, outlier_batch_size=round(recipe.outlier_batch_size * batch_size / recipe.batch_size))


def _after(bank: ClassBank, view: torch.Tensor, labels: torch.Tensor) -> ClassBank:
    """The bank learns the view; a copy of what it then is."""
    bank.update(view, labels)
    return deepcopy(bank)
