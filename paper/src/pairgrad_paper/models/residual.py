"""Residual networks [he2016deep] in the forms that the host systems train, as backbones: images (B, C, H, W) to features (B, width)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

from pairgrad.ground import one_of

Block = Callable[[int, int, int], "nn.Module"]
INITIALIZATIONS = ("fan-out", "fan-in", "torch")


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The shortcut: nothing where the shape stays, else a 1x1 convolution with its normalisation."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class PaddedShortcut(nn.Module):
    """A shortcut without parameters: every stride-th pixel, and zeros for the channels that are new."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.new = stride, outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, :, :: self.stride, :: self.stride]
        return functional.pad(x, (0, 0, 0, 0, self.new // 2, self.new - self.new // 2)) if self.new else x


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.first = nn.Sequential(_convolution(inputs, width, 3, stride), nn.BatchNorm2d(width))
        self.second = nn.Sequential(_convolution(width, width, 3), nn.BatchNorm2d(width))
        self.shortcut = _projection(inputs, width, stride) if shortcut is None else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.first(x))
        return functional.relu(self.second(inner) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride, in `groups`), 1x1 to four times the width, beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, groups: int = 1, group_width: int = 64) -> None:
        super().__init__()
        outputs, inside = width * self.expansion, width * group_width // 64 * groups
        self.first = nn.Sequential(_convolution(inputs, inside, 1), nn.BatchNorm2d(inside))
        self.second = nn.Sequential(_convolution(inside, inside, 3, stride, groups), nn.BatchNorm2d(inside))
        self.third = nn.Sequential(_convolution(inside, outputs, 1), nn.BatchNorm2d(outputs))
        self.shortcut = _projection(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.second(functional.relu(self.first(x))))
        return functional.relu(self.third(inner) + self.shortcut(x))


class ResidualNetwork(nn.Module):
    """A stem, stages of blocks, and the mean over the pixels that are left.

    Args:
        stem: image to `stem_width` channels.
        block: makes a block from inputs, width and stride.
        depths: blocks of each stage. widths: channels of each stage (before the expansion).
        expansion: channels that leave a block, over its width.
        initialization: of the convolutions: normal with variance 2 / fan-out or 2 / fan-in, or torch's own, uniform with variance 1 / (3 fan-in). After
            batch normalisation the outputs hardly depend on it, but how fast weights turn at a given learning rate does.
    """

    def __init__(
        self,
        stem: nn.Module,
        stem_width: int,
        block: Block,
        depths: Sequence[int],
        widths: Sequence[int],
        expansion: int = 1,
        initialization: str = "fan-out",
    ) -> None:
        super().__init__()
        self.stem = stem
        stages, inputs = [], stem_width
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            strides = [1 if stage == 0 else 2] + [1] * (depth - 1)
            blocks = []
            for stride in strides:
                blocks.append(block(inputs, width, stride))
                inputs = width * expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.width = inputs
        if one_of("initialization", initialization, INITIALIZATIONS) != "torch":
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_in" if initialization == "fan-in" else "fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.stages(self.stem(images)).mean((2, 3))


def _small_stem(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(_convolution(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU())


def _large_stem(channels: int) -> nn.Sequential:
    return nn.Sequential(_convolution(channels, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def resnet18(channels: int = 3) -> ResidualNetwork:
    """For 32x32 images: a 3x3 stem without pooling, four stages; features of 512 non-negative numbers. Initialised as PATT's, by torch."""
    return ResidualNetwork(_small_stem(channels, 64), 64, BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512), initialization="torch")


def resnet32(channels: int = 3) -> ResidualNetwork:
    """For 32x32 images: three stages of five blocks, shortcuts without parameters; 64 features. Initialised as ProCo's, by fan-in."""

    def block(inputs: int, width: int, stride: int) -> nn.Module:
        return BasicBlock(inputs, width, stride, PaddedShortcut(inputs, width, stride))

    return ResidualNetwork(_small_stem(channels, 16), 16, block, (5, 5, 5), (16, 32, 64), initialization="fan-in")


def resnet50(channels: int = 3) -> ResidualNetwork:
    """For 224x224 images: 2048 features."""
    return ResidualNetwork(_large_stem(channels), 64, Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), Bottleneck.expansion)


def resnext50(channels: int = 3) -> ResidualNetwork:
    """ResNeXt-50 (32 groups of width 4): 2048 features."""

    def block(inputs: int, width: int, stride: int) -> nn.Module:
        return Bottleneck(inputs, width, stride, groups=32, group_width=4)

    return ResidualNetwork(_large_stem(channels), 64, block, (3, 4, 6, 3), (64, 128, 256, 512), Bottleneck.expansion)
