"""Optimizers and learning rates of recipes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from pairgrad.ground import one_of
from pairgrad_paper.recipes import Optimizer, Schedule
from pairgrad_paper.recipes.values import OPTIMIZERS, SCHEDULES


def make_optimizer(settings: Optimizer, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of a recipe over the parameters."""
    one_of("optimizer.name", settings.name, OPTIMIZERS)
    if settings.name == "adam":
        return torch.optim.Adam(parameters, settings.lr, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        parameters, settings.lr, momentum=settings.momentum, nesterov=settings.nesterov, weight_decay=settings.weight_decay
    )


def rate(schedule: Schedule, base: float, epoch: int, epochs: int) -> float:
    """The learning rate of an epoch (from 0), a function of its number."""
    one_of("schedule.kind", schedule.kind, SCHEDULES)
    if epoch < schedule.warmup:
        return base * (epoch + 1) / schedule.warmup
    match schedule.kind:
        case "cosine":
            return base * (1 + math.cos(math.pi * epoch / epochs)) / 2
        case "late-cosine":
            return base * (1 + math.cos(math.pi * (epoch + 1) / (epochs + 1))) / 2
        case "steps":
            return base * schedule.factor ** sum(epoch >= milestone for milestone in schedule.milestones)
        case _:
            return base
