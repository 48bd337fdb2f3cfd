"""Networks that two cores train in minutes."""

from __future__ import annotations

from torch import nn

from pairgrad_paper.models.residual import BasicBlock, ResidualNetwork


def _wide_end(network: ResidualNetwork, width: int) -> ResidualNetwork:
    """A last 1x1 convolution to `width` non-negative channels, so that features have the dimension of the full-size system."""
    network.stages.append(nn.Sequential(nn.Conv2d(network.width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()))
    network.width = width
    return network


def small32(channels: int = 3) -> ResidualNetwork:
    """For 32x32 images on a CPU: a strided stem, three stages of one block, and 512 features like ResNet18's, for about a thirtieth of its time."""
    stem = nn.Sequential(nn.Conv2d(channels, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU())
    return _wide_end(ResidualNetwork(stem, 24, BasicBlock, (1, 1, 1), (24, 48, 96)), 512)


def tiny8(channels: int = 1) -> ResidualNetwork:
    """For 8x8 images: two stages of one block, 128 features."""
    stem = nn.Sequential(nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return _wide_end(ResidualNetwork(stem, 16, BasicBlock, (1, 1), (16, 32)), 128)
