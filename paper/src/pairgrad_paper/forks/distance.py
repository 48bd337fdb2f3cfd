"""How far branches are from each other after their own updates."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from pairgrad.coherence import relative_gap
from pairgrad_paper.augment import pipeline
from pairgrad_paper.evaluation import held_out
from pairgrad_paper.evaluation.predict import predict
from pairgrad_paper.training import Trainer

IMAGES = 512  # at most, the first of those that accuracy is measured on


class Place(NamedTuple):
    """Where a branch is: its parameters, and its features of fixed images in evaluation mode."""

    parameters: tuple[torch.Tensor, ...]
    features: torch.Tensor

    @classmethod
    def of(cls, trainer: Trainer) -> Place:
        images = held_out(trainer.benchmark, trainer.recipe)
        chosen = torch.arange(min(IMAGES, len(images)))
        seen = predict(trainer.network, images, pipeline(trainer.recipe.views.test), indices=chosen)
        return cls(tuple(parameter.detach() for parameter in trainer.network.parameters()), seen.features)

    def distance(self, reference: Place) -> dict[str, float]:
        """Relative to the norms of the reference; and one minus the cosine of the angle between two features of an image, on average."""
        cosine = functional.cosine_similarity(self.features.double(), reference.features.double(), dim=1)
        return {
            "parameter": relative_gap(self.parameters, reference.parameters),
            "feature": relative_gap([self.features], [reference.features]),
            "feature_cosine": max(0.0, (1 - cosine).mean().item()),
        }
