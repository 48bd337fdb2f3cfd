"""Every recipe: what is trained, on what, and how. The host systems' numbers are those of their public code; presets say which, where it has two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


class UnknownName(LookupError):
    """There is no recipe, table or figure of that name."""


@dataclass(frozen=True)
class Data:
    """Attributes:

    benchmark: a name that `pairgrad_paper.data.load_benchmark` knows.
    imbalance: largest class over smallest; None: the data as they are.
    rule: how the long tail is cut: `"first"` n_k in file order (PATT), or `"shuffled"` per class with seed 0 (ProCo).
    outliers: file of outlier-exposure images, instead of the first that is found.
    """

    benchmark: str
    imbalance: float | None = 100.0
    rule: str = "first"
    outliers: str | None = None


@dataclass(frozen=True)
class Model:
    """Attributes:

    backbone: a name in `pairgrad_paper.models.BACKBONES`.
    head: hidden width and dimension of the projection; None: the vMF term sees the features of the backbone.
    classifier: `"linear"` or `"cosine"`.
    normalize: features of the vMF term to unit length.
    """

    backbone: str
    head: tuple[int, int] | None = None
    classifier: str = "linear"
    normalize: bool = False


@dataclass(frozen=True)
class Loss:
    """Attributes:

    method: `"patt"` or `"proco"`.
    temperature: tau of the vMF term.
    preset: of PATT's weights, see `PATTLoss`.
    adjustment_weight: of PATT's logit adjustment, instead of the preset's.
    outlier_weight: of PATT's outlier exposure, instead of the preset's.
    logit_temperature: of PATT's logit adjustment, instead of the preset's.
    contrast_weight: of ProCo's vMF term beside the classifier's loss.
    memory: of the class bank: `"cumulative"` or `"two-epochs"`.
    cap: the largest concentration.
    geometry: `"expanded"`, through (B, K, p) tensors as the public code and the paper, or `"factorised"`.
    scalars: dtype of the potential: `"float64"`, as the paper in all arms, or `"float32"`, that of the geometry.
    """

    method: str
    temperature: float = 0.1
    preset: str = "cifar"
    adjustment_weight: float | None = None
    outlier_weight: float | None = None
    logit_temperature: float | None = None
    contrast_weight: float = 1.0
    memory: str = "cumulative"
    cap: float = 1e5
    geometry: str = "expanded"
    scalars: str = "float64"


@dataclass(frozen=True)
class Views:
    """Names of pipelines in `pairgrad_paper.augment`: of the classifier's view, of the two views of the vMF term, of outliers, and without chance."""

    regular: str
    contrast: str
    outliers: str | None
    calibration: str
    test: str


@dataclass(frozen=True)
class Optimizer:
    """Attributes:

    name: `"adam"` or `"sgd"`.
    lr: learning rate before the schedule.
    weight_decay: added to the gradient as weight_decay * parameter.
    momentum: of SGD.
    nesterov: of SGD.
    """

    name: str
    lr: float
    weight_decay: float = 0.0
    momentum: float = 0.9
    nesterov: bool = False


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every epoch.

    Attributes:
        kind: `"cosine"`: (1 + cos(pi e / E)) / 2; `"late-cosine"`: (1 + cos(pi (e + 1) / (E + 1))) / 2; `"steps"`: times `factor` at each milestone;
            `"constant"`.
        milestones: epochs of `"steps"`.
        factor: of `"steps"`.
        warmup: epochs of a linear rise, (e + 1) / warmup, before everything else.
    """

    kind: str
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    warmup: int = 0


@dataclass(frozen=True)
class Recipe:
    """A system of the paper and how it is trained. `batch_size` and `outlier_batch_size` are of all processes together."""

    name: str
    summary: str
    data: Data
    model: Model
    loss: Loss
    views: Views
    optimizer: Optimizer
    schedule: Schedule
    epochs: int
    batch_size: int
    outlier_batch_size: int = 0
    seed: int = 3407
    notes: tuple[str, ...] = field(default=())


_PATT_CIFAR_VIEWS = Views("patt-cifar-regular", "patt-cifar-contrast", "patt-cifar-outliers", "patt-cifar-calibration", "cifar-test")
_PROCO_CIFAR_VIEWS = Views("proco-cifar-regular", "proco-cifar-contrast", None, "patt-cifar-calibration", "cifar-test")
_ONE_SEED = "the seed is that of the public code; the paper reports three runs and does not name theirs"


def _patt_cifar(classes: int, imbalance: int) -> Recipe:
    return Recipe(
        name=f"patt-cifar{classes}-lt-if{imbalance}",
        summary=f"PATT on CIFAR-{classes}-LT, imbalance factor {imbalance}: ResNet18, 100 epochs; for a GPU.",
        data=Data(f"cifar{classes}-lt", float(imbalance), "first"),
        model=Model("resnet18"),
        loss=Loss("patt"),
        views=_PATT_CIFAR_VIEWS,
        optimizer=Optimizer("adam", 1e-3, 5e-4),
        schedule=Schedule("cosine"),
        epochs=100,
        batch_size=128,
        outlier_batch_size=256,
        notes=(_ONE_SEED,),
    )


def _patt_cifar_cpu(classes: int, imbalance: int) -> Recipe:
    full = _patt_cifar(classes, imbalance)
    return replace(
        full,
        name=f"{full.name}-cpu",
        summary=f"The same with a network of a thirtieth of the work, p = 512, and 30 epochs of smaller batches: CIFAR-{classes}-LT on a CPU.",
        model=Model("small32"),
        epochs=30,
        batch_size=64,
        outlier_batch_size=64,
        notes=("scaled down from the paper's system: backbone, batches and epochs",),
    )


def _proco_cifar(classes: int, imbalance: int) -> Recipe:
    return Recipe(
        name=f"proco-cifar{classes}-lt-if{imbalance}",
        summary=f"ProCo on CIFAR-{classes}-LT, imbalance factor {imbalance}: ResNet32, 200 epochs.",
        data=Data(f"cifar{classes}-lt", float(imbalance), "shuffled"),
        model=Model("resnet32", (512, 128), normalize=True),
        loss=Loss("proco", memory="two-epochs"),
        views=_PROCO_CIFAR_VIEWS,
        optimizer=Optimizer("sgd", 0.3, 2e-4),
        schedule=Schedule("steps", (160, 180), warmup=5),
        epochs=200,
        batch_size=256,
    )


def _proco_cifar_cpu(classes: int, imbalance: int) -> Recipe:
    full = _proco_cifar(classes, imbalance)
    return replace(
        full,
        name=f"{full.name}-cpu",
        summary=f"The same with a small network, p = 128, and 30 epochs of smaller batches: CIFAR-{classes}-LT on a CPU.",
        model=Model("small32", (512, 128), normalize=True),
        optimizer=Optimizer("sgd", 0.1, 2e-4),
        schedule=Schedule("steps", (24, 27), warmup=2),
        epochs=30,
        batch_size=128,
        notes=("scaled down from ProCo's system: backbone, batches, learning rate and epochs",),
    )


_IMAGENET_VIEWS = ("imagenet-test", "imagenet-test")

_ALL = (
    Recipe(
        name="digits-lt",
        summary="PATT on scikit-learn's bundled digits with a long tail: no download, small enough for a CPU.",
        data=Data("digits-lt", 20.0, "first"),
        model=Model("tiny8"),
        loss=Loss("patt"),
        views=Views("digits-regular", "digits-contrast", "digits-outliers", "digits-test", "digits-test"),
        optimizer=Optimizer("adam", 5e-3, 5e-4),
        schedule=Schedule("cosine"),
        epochs=80,
        batch_size=64,
        outlier_batch_size=64,
    ),
    *(_patt_cifar(classes, imbalance) for classes in (10, 100) for imbalance in (10, 50, 100)),
    *(_patt_cifar_cpu(classes, imbalance) for classes in (10, 100) for imbalance in (10, 50, 100)),
    Recipe(
        name="patt-imagenet-lt",
        summary="PATT on ImageNet-LT: ResNet50, 100 epochs; for GPUs.",
        data=Data("imagenet-lt", None),
        model=Model("resnet50", (2048, 1024)),
        loss=Loss("patt", preset="imagenet"),
        views=Views("patt-imagenet-regular", "patt-imagenet-contrast", "patt-imagenet-outliers", *_IMAGENET_VIEWS),
        optimizer=Optimizer("sgd", 0.1, 5e-5, nesterov=True),
        schedule=Schedule("steps", (60, 80)),
        epochs=100,
        batch_size=32,
        outlier_batch_size=64,
    ),
    *(_proco_cifar(classes, imbalance) for classes in (10, 100) for imbalance in (10, 50, 100)),
    *(_proco_cifar_cpu(classes, 100) for classes in (10, 100)),
    Recipe(
        name="proco-imagenet-lt",
        summary="ProCo on ImageNet-LT: ResNet50, 180 epochs, 32 images on each of 8 GPUs.",
        data=Data("imagenet-lt", None, "shuffled"),
        model=Model("resnet50", (2048, 1024), "cosine", normalize=True),
        loss=Loss("proco", temperature=0.07, memory="two-epochs"),
        views=Views("proco-imagenet-regular", "proco-imagenet-contrast", None, *_IMAGENET_VIEWS),
        optimizer=Optimizer("sgd", 0.1, 5e-4),
        schedule=Schedule("late-cosine"),
        epochs=180,
        batch_size=256,
    ),
    Recipe(
        name="proco-inat18",
        summary="ProCo on iNaturalist 2018: ResNet50, 8142 classes, 90 epochs, 32 images on each of 8 GPUs.",
        data=Data("inat18", None, "shuffled"),
        model=Model("resnet50", (2048, 1024), "cosine", normalize=True),
        loss=Loss("proco", temperature=0.07, memory="two-epochs"),
        views=Views("inat-regular", "inat-contrast", None, "inat-test", "inat-test"),
        optimizer=Optimizer("sgd", 0.2, 1e-4),
        schedule=Schedule("late-cosine"),
        epochs=90,
        batch_size=256,
    ),
)

RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
LONGER: Mapping[str, Mapping[int, Schedule]] = {
    f"proco-cifar{classes}-lt-if{imbalance}": {400: Schedule("steps", (360, 380), warmup=10)}
    for classes in (10, 100)
    for imbalance in (10, 50, 100)
}
"""The schedule that the public code has for another number of epochs, by recipe."""
