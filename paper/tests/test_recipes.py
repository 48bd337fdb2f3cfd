"""The recipes: they name what exists, and have the published numbers."""

from __future__ import annotations

import pytest

from pairgrad_paper.augment import PIPELINES
from pairgrad_paper.models import BACKBONES
from pairgrad_paper.recipes import RECIPES, Recipe, changed, keys


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_recipe_names_what_exists(recipe: Recipe) -> None:
    assert changed(recipe, [f"{key}={value}" for key, value in keys(recipe).items() if isinstance(value, str | int | float)]) == recipe
    assert recipe.model.backbone in BACKBONES
    size = {"digits-lt": 8, "imagenet-lt": 224, "inat18": 224}.get(recipe.data.benchmark, 32)
    views = recipe.views
    for view in filter(None, (views.regular, views.contrast, views.outliers, views.calibration, views.test)):
        assert PIPELINES[view].size == size
    assert not PIPELINES[views.test].random
    assert PIPELINES[views.regular].random
    assert PIPELINES[views.contrast].random
    patt = recipe.loss.method == "patt"
    assert bool(recipe.outlier_batch_size) == (views.outliers is not None) == patt
    assert recipe.seed == 3407
    assert RECIPES[recipe.name] is recipe


def test_there_are_the_recipes_of_the_paper() -> None:
    factors = [f"cifar{classes}-lt-if{factor}" for classes in (10, 100) for factor in (10, 50, 100)]
    assert set(RECIPES) == {
        "digits-lt",
        *(f"patt-{name}{end}" for name in factors for end in ("", "-cpu")),
        *(f"proco-{name}" for name in factors),
        "proco-cifar10-lt-if100-cpu",
        "proco-cifar100-lt-if100-cpu",
        "patt-imagenet-lt",
        "proco-imagenet-lt",
        "proco-inat18",
    }


# The numbers of the public code and of the paper's appendix on protocols.
PUBLISHED: dict[str, dict[str, object]] = {
    "patt-cifar": {
        "data.rule": "first",
        "model.backbone": "resnet18",
        "model.head": None,
        "model.classifier": "linear",
        "model.normalize": False,
        "loss.method": "patt",
        "loss.temperature": 0.1,
        "loss.preset": "cifar",
        "loss.memory": "cumulative",
        "loss.cap": 1e5,
        "loss.geometry": "expanded",
        "views.regular": "patt-cifar-regular",
        "views.contrast": "patt-cifar-contrast",
        "views.outliers": "patt-cifar-outliers",
        "views.calibration": "patt-cifar-calibration",
        "views.test": "cifar-test",
        "optimizer.name": "adam",
        "optimizer.lr": 1e-3,
        "optimizer.weight_decay": 5e-4,
        "schedule.kind": "cosine",
        "schedule.warmup": 0,
        "epochs": 100,
        "batch_size": 128,
        "outlier_batch_size": 256,
    },
    "proco-cifar": {
        "data.rule": "shuffled",
        "model.backbone": "resnet32",
        "model.head": (512, 128),
        "model.classifier": "linear",
        "model.normalize": True,
        "loss.method": "proco",
        "loss.temperature": 0.1,
        "loss.contrast_weight": 1.0,
        "loss.memory": "two-epochs",
        "views.regular": "proco-cifar-regular",
        "views.contrast": "proco-cifar-contrast",
        "optimizer.name": "sgd",
        "optimizer.lr": 0.3,
        "optimizer.weight_decay": 2e-4,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": False,
        "schedule.kind": "steps",
        "schedule.milestones": (160, 180),
        "schedule.factor": 0.1,
        "schedule.warmup": 5,
        "epochs": 200,
        "batch_size": 256,
    },
    "patt-imagenet-lt": {
        "data.benchmark": "imagenet-lt",
        "data.imbalance": None,
        "model.backbone": "resnet50",
        "model.head": (2048, 1024),
        "model.classifier": "linear",
        "model.normalize": False,
        "loss.temperature": 0.1,
        "loss.preset": "imagenet",
        "loss.memory": "cumulative",
        "optimizer.name": "sgd",
        "optimizer.lr": 0.1,
        "optimizer.weight_decay": 5e-5,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": True,
        "schedule.kind": "steps",
        "schedule.milestones": (60, 80),
        "schedule.factor": 0.1,
        "epochs": 100,
        "batch_size": 32,
        "outlier_batch_size": 64,
    },
    "proco-imagenet-lt": {
        "model.backbone": "resnet50",
        "model.head": (2048, 1024),
        "model.classifier": "cosine",
        "model.normalize": True,
        "loss.temperature": 0.07,
        "loss.memory": "two-epochs",
        "optimizer.name": "sgd",
        "optimizer.lr": 0.1,
        "optimizer.weight_decay": 5e-4,
        "optimizer.momentum": 0.9,
        "schedule.kind": "late-cosine",
        "schedule.warmup": 0,
        "epochs": 180,
        "batch_size": 256,
    },
    "proco-inat18": {
        "data.benchmark": "inat18",
        "model.classifier": "cosine",
        "optimizer.lr": 0.2,
        "optimizer.weight_decay": 1e-4,
        "views.test": "inat-test",
        "schedule.kind": "late-cosine",
        "epochs": 90,
        "batch_size": 256,
    },
}


@pytest.mark.parametrize("family", PUBLISHED)
def test_published_numbers(family: str) -> None:
    members = [recipe for name, recipe in RECIPES.items() if name.startswith(family) and not name.endswith("-cpu")]
    assert len(members) == (6 if family.endswith("cifar") else 1)
    for recipe in members:
        values = keys(recipe)
        assert {key: values[key] for key in PUBLISHED[family]} == PUBLISHED[family]
        if family.endswith("cifar"):
            assert recipe.name == f"{family.removesuffix('cifar')}{recipe.data.benchmark}-if{recipe.data.imbalance:g}"


def test_small_recipes_differ_in_size_only() -> None:
    """What the vMF term and its dimension depend on is that of the full-size system."""
    same = {
        "patt": ("data.", "loss.", "views.", "optimizer.", "schedule.", "model.head", "model.normalize", "model.classifier"),
        "proco": ("data.", "loss.", "views.", "model.head", "model.normalize", "optimizer.weight_decay", "schedule.kind"),
    }
    small = [name for name in RECIPES if name.endswith("-cpu")]
    assert len(small) == 8
    for name in small:
        full, little = keys(RECIPES[name.removesuffix("-cpu")]), keys(RECIPES[name])
        kept = same[name.split("-")[0]]
        assert {key: value for key, value in little.items() if key.startswith(kept)} == {
            key: value for key, value in full.items() if key.startswith(kept)
        }
        assert RECIPES[name].notes
