"""Images for the tests: noisy, smooth, flat and two-level ones, made of whole numbers so that they are the same everywhere."""

from __future__ import annotations

import torch


def images(count: int, channels: int = 3, height: int = 32, width: int = 32) -> torch.Tensor:
    """uint8 (count, channels, height, width): noise and smooth ramps in turn, except that the second is flat and the next two have few levels."""
    shape = (count, channels, height, width)
    places = torch.arange(count * channels * height * width)
    noise = ((places * 2654435761 + 12345) % 2**32 * 2246822519 % 2**32 >> 24).view(shape)
    plane, y, x = torch.arange(count * channels).view(count, channels, 1, 1), torch.arange(height).view(-1, 1), torch.arange(width)
    ramps = 128 + (((plane * 37 + 11) % 23 - 11) * (2 * y - height) + ((plane * 53 + 7) % 19 - 9) * (2 * x - width)) * 8 // (height + width)
    result = torch.where(torch.arange(count).view(-1, 1, 1, 1) % 2 == 0, noise, ramps.clamp(0, 255))
    result[1:2] = 77
    result[2:3] = torch.where(noise[2:3] < 100, 30, 200)
    result[3:4] = noise[3:4] // 16 + 90
    return result.to(torch.uint8)
