"""A backbone, a classifier, and the features that the vMF term sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from pairgrad.ground import integer_at_least, one_of
from pairgrad_paper.models.residual import ResidualNetwork, resnet18, resnet32, resnet50, resnext50
from pairgrad_paper.models.small import small32, tiny8

BACKBONES: Mapping[str, Callable[[int], ResidualNetwork]] = {
    "resnet18": resnet18,
    "resnet32": resnet32,
    "resnet50": resnet50,
    "resnext50": resnext50,
    "small32": small32,
    "tiny8": tiny8,
}
CLASSIFIERS = ("linear", "cosine")
COSINE_SCALE = 30.0


class Outputs(NamedTuple):
    """Of a batch: logits (B, K), the features of the vMF term (B, p), and those of the backbone (B, width)."""

    logits: torch.Tensor
    features: torch.Tensor
    backbone: torch.Tensor


class CosineClassifier(nn.Module):
    """Logits scale * cos(feature, weight), without bias."""

    def __init__(self, width: int, num_classes: int, scale: float = COSINE_SCALE) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(functional.normalize(torch.randn(num_classes, width), dim=1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.scale * functional.linear(functional.normalize(features, dim=1), functional.normalize(self.weight, dim=1))


class Network(nn.Module):
    """Images (B, C, H, W) to `Outputs`.

    Args:
        backbone: images to features (B, width).
        num_classes: K.
        head: (hidden, dim) of the projection, linear - batch norm - ReLU - linear, whose result the vMF term sees; None: it sees the backbone's features.
        normalize: bring the features of the vMF term to unit length.
        classifier: `"linear"`, with bias, or `"cosine"`; on the features of the backbone.
    """

    def __init__(self, backbone: ResidualNetwork, num_classes: int, head: tuple[int, int] | None, normalize: bool, classifier: str) -> None:
        super().__init__()
        self.backbone = backbone
        if head is None:
            self.head: nn.Module = nn.Identity()
        else:
            hidden, dim = head
            self.head = nn.Sequential(nn.Linear(backbone.width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.dim = backbone.width if head is None else head[1]
        self.normalize = normalize
        make = nn.Linear if classifier == "linear" else CosineClassifier
        self.classifier = make(backbone.width, num_classes)

    def forward(self, images: torch.Tensor) -> Outputs:
        backbone = self.backbone(images)
        features = self.head(backbone)
        if self.normalize:
            features = functional.normalize(features, dim=1)
        return Outputs(self.classifier(backbone), features, backbone)


def build(
    backbone: str,
    num_classes: int,
    *,
    channels: int = 3,
    head: tuple[int, int] | None = None,
    normalize: bool = False,
    classifier: str = "linear",
    seed: int | None = None,
) -> Network:
    """A network by the name of its backbone. With a seed its parameters depend on that alone, and the random numbers of others are left as they were."""
    one_of("backbone", backbone, tuple(BACKBONES))
    one_of("classifier", classifier, CLASSIFIERS)
    integer_at_least("num_classes", num_classes, 2)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs too
        return Network(BACKBONES[backbone](channels), num_classes, head, normalize, classifier)
