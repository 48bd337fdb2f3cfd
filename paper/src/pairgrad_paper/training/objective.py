"""What is minimised: the outputs for a batch and its views, to the terms of the host system's loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from pairgrad.distributed import DistributedClassBank, distribute
from pairgrad.losses import BankLoss, PATTLoss, ProCoLoss
from pairgrad.sphere import ClassBank
from pairgrad_paper.models import Outputs
from pairgrad_paper.recipes import Loss
from pairgrad_paper.training.process import Process
from pairgrad_paper.training.seeds import generator

NAMES = ("total", "vmf", "classifier", "outliers")


class Terms(NamedTuple):
    """The loss, and its terms before their weights: of the vMF scores, of the classifier, of outliers."""

    total: torch.Tensor
    vmf: torch.Tensor
    classifier: torch.Tensor
    outliers: torch.Tensor


class Objective(nn.Module):
    """PATT's or ProCo's loss of one forward pass over the three views and the outliers of a batch, one behind the other.

    With several processes each scores its own samples against a bank that has seen those of all (`pairgrad.distributed`): the mean over the processes of
    the loss is that of the whole batch, and so is the mean of the gradients. Every forward is then a collective, and so are `whole_state` and
    `whole_derived`, which give the first process what a single one would have.
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
        device: torch.device | str = "cpu",
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
                adjustment_weight=settings.adjustment_weight,
                outlier_weight=settings.outlier_weight,
                logit_temperature=settings.logit_temperature,
                **options,
            )
        else:
            self.loss = ProCoLoss(num_classes, dim, weight=settings.contrast_weight, normalize=False, **options)
        self.to(device)
        if self.process.world > 1:
            self.process.check_classes(num_classes)
            data, classes = self.process.groups
            # batches have one size, and on a GPU nothing should wait for the device to hear it again
            static = torch.device(device).type != "cpu"
            distribute(self.loss, data=data, classes=classes, exchange=self.process.sharing.exchange, static=static)

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
            vmf = BankLoss.forward(self.vmf, views, labels)
            total = vmf + self.loss.weights.adjustment * classifier + self.loss.weights.outliers * outliers
        else:
            classifier, outliers = self.loss.classifier(logits, labels), logits.new_zeros(())
            vmf = BankLoss.forward(self.vmf, views, labels)
            total = classifier + self.loss.weight * vmf
        return Terms(total, vmf, classifier, outliers)

    def whole_state(self) -> dict[str, torch.Tensor]:
        """`state_dict` with the classes of all processes; what others than the first get may lack some.

        Without the options of loss and bank: a run has its recipe, and branches of a fork begin at one state with different options.
        """
        own = self._bank_buffers()
        state = {name: tensor for name, tensor in self.state_dict().items() if not name.endswith("_extra_state")}
        return {name: self._whole(own[name]) if name in own else tensor for name, tensor in state.items()}

    def whole_derived(self) -> dict[str, torch.Tensor]:
        """What the bank derived from its sums, row by row as they changed: deriving all at once could round differently."""
        with self.bank.updating() as bank:
            return {name: self._whole(rows) for name, rows in bank.derived().items()}

    def load_whole_state(self, state: Mapping[str, torch.Tensor], derived: Mapping[str, torch.Tensor]) -> None:
        """Take up what `whole_state` and `whole_derived` gave, on any number of processes."""
        own, held = self._bank_buffers(), self._held()
        self.load_state_dict({**self.state_dict(), **{name: tensor for name, tensor in state.items() if name not in own}})
        with torch.no_grad(), self.bank.updating() as bank:
            for name, buffer in own.items():
                buffer.copy_(state[name][held])
            for name, rows in bank.derived().items():
                rows.copy_(derived[name][held])

    def _bank_buffers(self) -> dict[str, torch.Tensor]:
        """What the bank keeps, by its name in `state_dict`: the rows that are here, however `state_dict` shows them."""
        prefix = next(f"{name}." for name, module in self.named_modules() if module is self.bank)
        kept = self.state_dict().keys()
        return {prefix + name: buffer for name, buffer in self.bank.named_buffers() if prefix + name in kept}

    def _held(self) -> slice:
        """The classes of the bank that are here."""
        if self.process.world == 1:
            return slice(None)
        layout = cast(DistributedClassBank, self.bank).layout
        return slice(layout.first, layout.last)

    def _whole(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows (k, ...) of all shards of the classes behind one another, in the class group of the first process."""
        if self.process.world == 1:
            return rows
        layout = cast(DistributedClassBank, self.bank).layout
        if layout.classes.size == 1 or layout.data.rank > 0:
            return rows
        each = -(-layout.num_classes // layout.classes.size)
        padded = rows.new_zeros(each, *rows.shape[1:])
        padded[: len(rows)] = rows
        return layout.classes.gather("checkpoint", padded)[: layout.num_classes]
