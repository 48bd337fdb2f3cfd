"""What is minimised: the outputs for a batch and its views, to the terms of the host system's loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from pairgrad.experiments.models import Outputs
from pairgrad.experiments.recipes import Loss
from pairgrad.experiments.training.process import Process
from pairgrad.experiments.training.seeds import generator
from pairgrad.losses import PATTLoss, ProCoLoss
from pairgrad.losses.bank_loss import BankLoss
from pairgrad.sphere import ClassBank

NAMES = ("total", "vmf", "classifier", "outliers")


class Terms(NamedTuple):
    """The loss, and its terms before their weights: of the vMF scores, of the classifier, of outliers."""

    total: torch.Tensor
    vmf: torch.Tensor
    classifier: torch.Tensor
    outliers: torch.Tensor


class Objective(nn.Module):
    """PATT's or ProCo's loss of one forward pass over the three views and the outliers of a batch, one behind the other.

    With several processes the class bank sees the batches of all, in the order of the processes, as one process would, and each process differentiates
    with respect to its own features; averaging the gradients over the processes then gives those of the mean over the whole batch.
    """

    def __init__(
        self,
        settings: Loss,
        num_classes: int,
        dim: int,
        class_counts: Sequence[int],
        realization: str,
        seed: int,
        process: Process | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.seed = settings, seed
        self.process = Process() if process is None else process
        options: dict[str, Any] = {
            "class_counts": class_counts,
            "temperature": settings.temperature,
            "realization": realization,
            "geometry": settings.geometry,
            "scalar_dtype": getattr(torch, settings.scalars),
            "memory": settings.memory,
            "cap": settings.cap,
            "generator": generator(seed, "bank"),
            "validate": False,  # the trainer looks at the values before the bank sees them
        }
        if settings.method == "patt":
            self.loss: PATTLoss | ProCoLoss = PATTLoss(
                num_classes,
                dim,
                preset=settings.preset,
                benchmark=settings.benchmark,
                adjustment_weight=settings.adjustment_weight,
                outlier_weight=settings.outlier_weight,
                logit_temperature=settings.logit_temperature,
                **options,
            )
        else:
            self.loss = ProCoLoss(num_classes, dim, weight=settings.contrast_weight, normalize=False, **options)

    @property
    def bank(self) -> ClassBank:
        return self.loss.bank

    @property
    def vmf(self) -> BankLoss:
        """The term that has the Bessel function in it."""
        return self.loss.augmentation if isinstance(self.loss, PATTLoss) else self.loss

    def start_epoch(self, epoch: int) -> None:
        if self.bank.memory == "two-epochs":
            self.bank.start_epoch(generator=generator(self.seed, "bank", epoch))

    def forward(self, outputs: Outputs, labels: torch.Tensor) -> Terms:
        size = len(labels)
        logits, outlier_logits = outputs.logits[:size], outputs.logits[3 * size :]
        views = torch.stack((outputs.features[size : 2 * size], outputs.features[2 * size : 3 * size]))
        if isinstance(self.loss, PATTLoss):
            classifier = self.loss.adjustment(logits, labels)
            outliers = self.loss.outliers(outlier_logits) if len(outlier_logits) else classifier.new_zeros(())
            vmf = self._vmf(views, labels)
            total = vmf + self.loss.weights.adjustment * classifier + self.loss.weights.outliers * outliers
        else:
            classifier, outliers = self.loss.classifier(logits, labels), logits.new_zeros(())
            vmf = self._vmf(views, labels)
            total = classifier + self.loss.weight * vmf
        return Terms(total, vmf, classifier, outliers)

    def _vmf(self, views: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        world = self.process.world
        if world == 1:
            return BankLoss.forward(self.vmf, views, labels)
        loss = BankLoss.forward(self.vmf, self.process.gathered(views, 1), self.process.gathered(labels))
        return loss.detach() + world * (loss - loss.detach())  # the same value; the mean over processes divides the derivative again
