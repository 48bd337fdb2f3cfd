"""What each setting of a recipe can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pairgrad.losses import PRESETS
from pairgrad.sphere import GEOMETRIES, MEMORIES
from pairgrad_paper.augment import PIPELINES
from pairgrad_paper.data import BENCHMARKS
from pairgrad_paper.data.load import DEFAULT_IMBALANCE
from pairgrad_paper.data.long_tail import RULES
from pairgrad_paper.models import BACKBONES, CLASSIFIERS
from pairgrad_paper.recipes import Recipe

SCALARS = ("float32", "float64")
METHODS = ("patt", "proco")
OPTIMIZERS = ("adam", "sgd")
SCHEDULES = ("cosine", "late-cosine", "steps", "constant")
VIEWS = ("regular", "contrast", "outliers", "calibration", "test")


def _pipelines() -> tuple[str, ...]:
    return tuple(PIPELINES)


CHOICES: Mapping[str, Callable[[], tuple[str, ...]]] = {
    "data.benchmark": lambda: BENCHMARKS,
    "data.rule": lambda: RULES,
    "model.backbone": lambda: tuple(BACKBONES),
    "model.classifier": lambda: CLASSIFIERS,
    "loss.method": lambda: METHODS,
    "loss.preset": lambda: tuple(PRESETS),
    "loss.memory": lambda: MEMORIES,
    "loss.geometry": lambda: GEOMETRIES,
    "loss.scalars": lambda: SCALARS,
    "optimizer.name": lambda: OPTIMIZERS,
    "schedule.kind": lambda: SCHEDULES,
    **{f"views.{view}": _pipelines for view in VIEWS},
}

_MOST = 1e18  # its square is finite in float32, and so is that of its inverse
_SCALE: tuple[str, Callable[[Any], bool]] = (f"from {1 / _MOST:g} to {_MOST:g}", lambda value: 1 / _MOST <= value <= _MOST)
_POSITIVE: tuple[str, Callable[[Any], bool]] = (f"above 0, up to {_MOST:g}", lambda value: 0 < value <= _MOST)
_NOT_NEGATIVE: tuple[str, Callable[[Any], bool]] = (f"from 0 to {_MOST:g}", lambda value: 0 <= value <= _MOST)

LIMITS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "data.imbalance": ("at least 1", lambda value: value >= 1),
    "model.head": (
        "two numbers, the hidden width (at least 1) and the dimension (at least 2)",
        lambda value: value[0] >= 1 and value[1] >= 2,
    ),
    "loss.temperature": _SCALE,
    "loss.logit_temperature": _SCALE,
    "loss.adjustment_weight": _NOT_NEGATIVE,
    "loss.outlier_weight": _NOT_NEGATIVE,
    "loss.contrast_weight": _NOT_NEGATIVE,
    "loss.cap": _POSITIVE,
    "optimizer.lr": _POSITIVE,
    "optimizer.weight_decay": _NOT_NEGATIVE,
    "optimizer.momentum": ("from 0 up to, not including, 1", lambda value: 0 <= value < 1),
    "schedule.factor": _POSITIVE,
    "schedule.warmup": _NOT_NEGATIVE,
    "schedule.milestones": ("epochs in rising order", lambda value: list(value) == sorted(set(value)) and all(e > 0 for e in value)),
    "epochs": ("at least 1", lambda value: value >= 1),
    "batch_size": ("at least 2, because batch normalisation needs two samples", lambda value: value >= 2),
    "outlier_batch_size": _NOT_NEGATIVE,
    "seed": ("from 0 to 2**63 - 1", lambda value: 0 <= value < 2**63),
}


def contradiction(recipe: Recipe) -> str:
    """Why the settings of a recipe cannot go together, each of which could be; empty if they can."""
    data, optimizer = recipe.data, recipe.optimizer
    if data.imbalance is not None and DEFAULT_IMBALANCE[data.benchmark] is None:
        return f"data.imbalance must be none for {data.benchmark}, which is long-tailed as published, got {data.imbalance:g}"
    channels = 1 if data.benchmark == "digits-lt" else 3
    for view in VIEWS:
        name = getattr(recipe.views, view)
        if name is not None and PIPELINES[name].channels != channels:
            return f"views.{view} must be a pipeline for images of {channels} channel{'s' if channels > 1 else ''}, which {data.benchmark} has, got {name!r}"
    if optimizer.name == "sgd" and optimizer.nesterov and not optimizer.momentum:
        return "optimizer.nesterov must be false where optimizer.momentum is 0"
    schedule = recipe.schedule
    if schedule.kind == "steps" and math.log10(optimizer.lr) + len(schedule.milestones) * math.log10(schedule.factor) > math.log10(_MOST):
        return f"schedule.factor must leave the learning rate below {_MOST:g} after all milestones, got {schedule.factor:g}"
    if recipe.outlier_batch_size and recipe.loss.method == "proco":
        return f"outlier_batch_size must be 0 for ProCo, whose loss has no term for outliers, got {recipe.outlier_batch_size}"
    if recipe.outlier_batch_size and recipe.views.outliers is None:
        return (
            f"outlier_batch_size must be 0 while views.outliers is none, got {recipe.outlier_batch_size}: name the pipeline of outliers too"
        )
    return ""
