"""Where a fork begins."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from pairgrad_paper.data import Benchmark
from pairgrad_paper.recipes import Recipe
from pairgrad_paper.runs import RunError
from pairgrad_paper.training import Trainer
from pairgrad_paper.training.chance import seed_all
from pairgrad_paper.training.seeds import stream_seed


@dataclass(frozen=True)
class Start:
    """A state that all branches share: of a trainer that has made `step` updates.

    Attributes:
        kind: `"random"` or `"trained"`.
        step: updates made before the fork.
        state: of a `Trainer`.
    """

    kind: str
    step: int
    state: dict[str, Any]

    def fingerprint(self) -> str:
        """A hash of the weights: a fork that was interrupted goes on from its own start alone."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state["network"].items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]


def random_start(recipe: Recipe, benchmark: Benchmark, seed: int) -> Start:
    """The untrained network and the bank of no samples."""
    seed_all(stream_seed(seed, "global"))
    return Start("random", 0, Trainer(recipe, benchmark, "original", seed).state())


def trained_start(state: dict[str, Any]) -> Start:
    """The state of a checkpoint of a run, or of a branch of another fork."""
    match state:
        case {"step": int(step), "network": dict(), "optimizer": dict()}:
            return Start("trained", step, state)
        case _:
            raise RunError("a fork must start from the state of a training run, and this checkpoint has none")
