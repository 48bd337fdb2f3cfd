"""The state of a training run and one update of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pairgrad_paper.data import Benchmark
from pairgrad_paper.models import Network, Outputs, build
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.training.batches import Batch, Batches
from pairgrad_paper.training.chance import random_state, restore_random_state
from pairgrad_paper.training.objective import NAMES, Objective, Terms
from pairgrad_paper.training.optimizer import make_optimizer, rate
from pairgrad_paper.training.process import Process
from pairgrad_paper.training.wrapping import like, whole, wrapped

MEASURES = (*NAMES, "accuracy", "gradient_norm")


class NonFinite(ArithmeticError):
    """An output, a loss or a gradient is not finite.

    Attributes:
        step: the update at which it was first seen.
        what: `"outputs"`, `"loss"` or `"gradient"`.
        before: whether the weights are those from before this update.
        together: whether all processes raise it.
        kept: where the batch and the state were written, or None.
    """

    def __init__(self, step: int, what: str, before: bool, *, why: str = "", together: bool = True) -> None:
        super().__init__(f"the {what} of update {step} {'are' if what == 'outputs' else 'is'} not finite{f': {why}' if why else ''}")
        self.step, self.what, self.before, self.together = step, what, before, together
        self.kept: Path | None = None


class Update(NamedTuple):
    """What an update was, on the device: reading a number waits for it."""

    step: int
    measures: torch.Tensor  # (len(MEASURES),), float64, in the order of MEASURES; means over the processes

    def read(self) -> dict[str, float]:
        return dict(zip(MEASURES, self.measures.tolist(), strict=True))


class Trainer:
    """Network, loss with its class bank, optimizer and batches of one run; `step` counts the updates made.

    Everything follows from recipe, realization and seed. `state` holds all that an update reads, so that `load` and the updates that follow give the
    same bits as the updates without it.

    Args:
        recipe: what to train.
        benchmark: its data.
        realization: of the potential, the arm of the paper.
        seed: of the initial weights, of the order of the batches and of the augmentation; equal seeds match across realizations.
        device: where. process: which of several. workers: processes that read image files ahead.
    """

    def __init__(
        self,
        recipe: Recipe,
        benchmark: Benchmark,
        realization: str = "paired",
        seed: int | None = None,
        device: torch.device | str = "cpu",
        process: Process | None = None,
        workers: int = 0,
    ) -> None:
        self.recipe, self.benchmark, self.realization = recipe, benchmark, realization
        self.seed = recipe.seed if seed is None else seed
        self.device = torch.device(device)
        self.process = Process() if process is None else process
        self.batches = Batches(benchmark, recipe, self.seed, self.device, self.process, workers)
        classes = len(benchmark.class_names)
        self.network = network_of(recipe, benchmark, self.seed).to(self.device)
        self._running = wrapped(self.network, self.process, self.device)
        self.objective = Objective(
            recipe.loss, classes, self.network.dim, benchmark.class_counts, realization, self.seed, self.process, self.device
        )
        self.optimizer = make_optimizer(recipe.optimizer, self.network.parameters())
        self.step = 0
        self.totals = torch.zeros(len(MEASURES), dtype=torch.float64, device=self.device)  # of the epoch so far
        self._first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.recipe.epochs * self.batches.per_epoch

    @property
    def epoch(self) -> int:
        return self.batches.place(self.step)[0]

    @property
    def lr(self) -> float:
        """Of the epoch of the next update."""
        return rate(self.recipe.schedule, self.recipe.optimizer.lr, self.epoch, self.recipe.epochs)

    def update(self, batch: Batch) -> Update:
        """One step of the optimizer. On the CPU a number that is not finite is found before anything changes; elsewhere `look` finds it later."""
        if batch.step != self.step:
            raise ValueError(f"batch must be that of update {self.step}, got that of {batch.step}")
        if self.step % self.batches.per_epoch == 0:
            self._start_epoch()
        self._running.train()
        self.objective.train()
        outputs = self.outputs(batch)
        self._refuse(torch.isfinite(outputs.logits).all() & torch.isfinite(outputs.features).all(), "outputs")
        try:
            terms: Terms = self.objective(outputs, batch.labels)
        except ValueError as error:  # of finite outputs a loss refuses those for which it would not be finite
            raise NonFinite(self.step, "loss", before=True, why=str(error), together=self.process.world == 1) from error
        self._refuse(torch.isfinite(terms.total), "loss")
        self.optimizer.zero_grad(set_to_none=True)
        with self.process.watched("gradients"):
            terms.total.backward()
            gradients = [parameter.grad for parameter in self.network.parameters() if parameter.grad is not None]
            norm = whole(torch.nn.utils.get_total_norm(gradients))
        self._refuse(torch.isfinite(norm), "gradient")
        self.optimizer.step()
        right = (outputs.logits[: len(batch.labels)].argmax(1) == batch.labels).double().mean()
        measures = torch.stack([*(term.detach().double() for term in terms), right, norm.double()])
        measures = self.process.mean(measures, "measures")
        self.totals += measures
        self.step += 1
        return Update(batch.step, measures)

    def outputs(self, batch: Batch) -> Outputs:
        """One forward pass over the views and the outliers, which share the statistics of batch normalisation."""
        images = torch.cat(batch.views if batch.outliers is None else (*batch.views, batch.outliers))
        with self.process.watched("outputs"):
            return self._running(images)

    def _start_epoch(self) -> None:
        self.totals.zero_()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.objective.start_epoch(self.epoch)

    def _refuse(self, good: torch.Tensor, what: str) -> None:
        if self.device.type == "cpu":
            if self.process.any(not bool(good), f"looking at the {what}"):
                raise NonFinite(self.step, what, before=True)
            return
        bad = (~good) & (self._first_bad < 0)
        self._first_bad = torch.where(bad, self.step, self._first_bad)

    def look(self) -> None:
        """Wait for the device, and raise `NonFinite` if anything since the last look was not finite."""
        first = int(self._first_bad)
        if self.process.any(first >= 0, "looking back"):
            raise NonFinite(first if first >= 0 else self.step - 1, "loss", before=False)

    def means(self) -> dict[str, float]:
        """Of the measures over the updates of this epoch so far; call it before the first update of the next."""
        done = (self.step - 1) % self.batches.per_epoch + 1 if self.step else 0
        return {name: value / max(done, 1) for name, value in zip(MEASURES, self.totals.tolist(), strict=True)}

    def state(self) -> dict[str, Any]:
        """Model, class banks, optimizer, schedule, random numbers, place in the data: all that the next update reads, as one process would have it.

        With several processes all must ask for it; the first gets it whole.
        """
        epoch, position = self.batches.place(self.step)
        with self.process.watched("weights of all processes"):
            network, optimizer = whole(self.network.state_dict()), whole(self.optimizer.state_dict())
        return {
            "step": self.step,
            "loader": {"epoch": epoch, "position": position, "per_epoch": self.batches.per_epoch, "seed": self.seed},
            "schedule": {"lr": self.optimizer.param_groups[0]["lr"]},
            "network": network,
            "objective": self.objective.whole_state(),
            "derived": self.objective.whole_derived(),
            "optimizer": optimizer,
            "totals": self.totals,
            "random": random_state(),
        }

    def still_to_come(self) -> list[torch.Tensor]:
        """What the first update adds to the state: as many tensors of each parameter's size as the optimizer keeps."""
        if self.optimizer.state:
            return []
        copies = 2 if self.recipe.optimizer.name == "adam" else int(self.recipe.optimizer.momentum > 0)
        return [each for parameter in self.network.parameters() for each in copies * [whole(parameter.detach())]]

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a `state` of the same run."""
        loader = state["loader"]
        if (loader["per_epoch"], loader["seed"]) != (self.batches.per_epoch, self.seed):
            raise ValueError(
                f"this state was reached with {loader['per_epoch']} updates per epoch and seed {loader['seed']}, "
                f"not {self.batches.per_epoch} and {self.seed}: the data or the options are others"
            )
        own = self.network.state_dict()
        with self.process.watched("weights of all processes"):
            self.network.load_state_dict(
                {name: like(tensor, own[name]) if name in own else tensor for name, tensor in state["network"].items()}
            )
            self.optimizer.load_state_dict(self._own_optimizer(state["optimizer"]))
        self.objective.load_whole_state(state["objective"], state["derived"])
        self.totals.copy_(state["totals"])
        restore_random_state(state["random"])
        self.step = state["step"]
        self._first_bad.fill_(-1)

    def _own_optimizer(self, state: dict[str, Any]) -> dict[str, Any]:
        """A copy: the optimizer would keep these very tensors, and a state may be loaded twice. Moments are sharded as their parameters are."""
        state = copy.deepcopy(state)
        for number, parameter in enumerate(self.network.parameters()):
            moments = state["state"].get(number, {})
            for name, value in moments.items():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    moments[name] = like(value, parameter)
        return state


def network_of(recipe: Recipe, benchmark: Benchmark, seed: int) -> Network:
    """The untrained network of a recipe."""
    model = recipe.model
    channels = benchmark.train.image(0).shape[0]
    return build(
        model.backbone,
        len(benchmark.class_names),
        channels=channels,
        head=model.head,
        normalize=model.normalize,
        classifier=model.classifier,
        seed=seed,
    )
