"""One update from a checkpoint, with both backward rules: gradients of all parameters, and what the optimizer makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pairgrad.coherence import best_scaling, relative_gap
from pairgrad_paper.captured.capture import capture
from pairgrad_paper.captured.source import Source
from pairgrad_paper.captured.view import RULES, TRAINING, changed
from pairgrad_paper.training import Trainer
from pairgrad_paper.training.optimizer import make_optimizer


@dataclass(frozen=True, eq=False)
class Step:
    """Loss, gradients of all parameters, and their change by one step of the optimizer."""

    total: torch.Tensor
    gradients: list[torch.Tensor]
    update: list[torch.Tensor]

    @staticmethod
    def of(trainer: Trainer) -> Step:
        """What the next update of a trainer would be; it must not be used afterwards.

        The optimizer steps in float64 copies of its parameters and of its state: in float32 a parameter takes up a small change only in part. After the
        last epoch of a run the learning rate is that of the last epoch.
        """
        batch = trainer.batches.batch(trainer.step)
        if trainer.step % trainer.batches.per_epoch == 0:
            trainer.objective.start_epoch(trainer.epoch)
        trainer.network.train()
        trainer.objective.train()
        total = trainer.objective(trainer.outputs(batch), batch.labels).total
        parameters = [parameter for parameter in trainer.network.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        moved = [torch.nn.Parameter(parameter.detach().double()) for parameter in parameters]
        optimizer = make_optimizer(trainer.recipe.optimizer, moved)
        optimizer.load_state_dict(trainer.optimizer.state_dict())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(trainer)
        for parameter, gradient in zip(moved, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.double()
        optimizer.step()
        found = [
            torch.zeros_like(parameter) if gradient is None else gradient for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
        update = [(new - old.double()).detach() for new, old in zip(moved, parameters, strict=True)]
        return Step(total.detach(), found, update)


def learning_rate(trainer: Trainer) -> float:
    """Of the next update; after the end of the run that of its last epoch."""
    return trainer.lr if trainer.step < trainer.steps else float(trainer.optimizer.param_groups[0]["lr"])


def replayed(source: Source, step: int) -> dict[str, Any]:
    """Gaps between `"original"` and `"consistent"` from the same state, over all parameters, and what the best common scaling leaves."""
    supplied, own = (Step.of(source.trainer(step, rule)) for rule in RULES)
    trainer = source.trainer(step)
    gradient, update = best_scaling(supplied.gradients, own.gradients), best_scaling(supplied.update, own.update)
    return {
        "step": step,
        "loss_equal": torch.equal(supplied.total, own.total),
        "scores_equal": all(changed(view, **TRAINING)["score"] == 0 for view in capture(trainer).views.values()),
        "total_loss": own.total.item(),
        "gradient_gap": relative_gap(supplied.gradients, own.gradients),
        "gradient_scaling": gradient.factor,
        "gradient_residual": gradient.residual,
        "update_gap": relative_gap(supplied.update, own.update),
        "update_scaling": update.factor,
        "update_residual": update.residual,
        "parameters": sum(tensor.numel() for tensor in own.gradients),
        "optimizer": f"{type(trainer.optimizer).__name__}(lr={learning_rate(trainer):.6g})",
    }
