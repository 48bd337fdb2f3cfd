"""Operations on grey levels: float32 tensors (B, C, H, W) that hold whole numbers from 0 to 255, in and out.

The results are those that Pillow gives for 8-bit images (`ImageOps`, `ImageEnhance`), except for `hue` and, by one level, `autocontrast`. Everything is
an elementwise operation or a sum of whole numbers small enough to be exact, so no result depends on the size of the batch.
"""

from __future__ import annotations

import torch


def grey(images: torch.Tensor) -> torch.Tensor:
    """Luma, (B, 1, H, W): 0.299 R + 0.587 G + 0.114 B with 16-bit weights, rounded to the nearest level; one channel is its own luma."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return (red * 19595 + green * 38470 + blue * 7471 + 32768).mul_(2.0**-16).floor_().unsqueeze(1)  # all below 2**24: exact


def blend(plain: torch.Tensor | float, images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """plain + factor (images - plain), kept in 0..255 and rounded down; factor 1 gives the images, and `factor` has one entry per image."""
    factor = factor.view(-1, 1, 1, 1)
    mixed = images * factor if isinstance(plain, float) and plain == 0 else (images - plain).mul_(factor).add_(plain)
    return mixed.clamp_(0, 255).floor_()


def brightness(images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Away from black."""
    return blend(0.0, images, factor)


def contrast(images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Away from the mean luma, rounded to a level."""
    luma = grey(images)
    pixels = luma[0].numel()
    total = luma.to(torch.int32).sum((1, 2, 3), dtype=torch.int64)
    mean = torch.div(2 * total + pixels, 2 * pixels, rounding_mode="floor").float()
    return blend(mean.view(-1, 1, 1, 1), images, factor)


def saturation(images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Away from the luma; nothing changes in an image of one channel."""
    return blend(grey(images), images, factor)


def sharpness(images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Away from the image smoothed with the weights 1 (8 neighbours) and 5 (itself), over 13; the border is not smoothed."""
    height, width = images.shape[2:]
    smooth = images.clone()
    if height > 2 and width > 2:
        line = images[:, :, :-2] + images[:, :, 1:-1] + images[:, :, 2:]
        total = line[..., :-2] + line[..., 1:-1] + line[..., 2:] + 4 * images[:, :, 1:-1, 1:-1]
        smooth[:, :, 1:-1, 1:-1] = (total * 2 + 13).div_(26).floor_()
    return blend(smooth, images, factor)


def hue(images: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Turn the hue by `turn` (1 is a full circle), keeping value and saturation of the HSV hexcone, rounded to the nearest level.

    Pillow goes through an 8-bit HSV image, whose own rounding moves colours by several levels even for a turn of 0; this does not.
    """
    red, green, blue = images.unbind(1)
    top = images.amax(1)
    chroma = top - images.amin(1)
    safe = chroma.clamp(min=1)  # levels are whole: 0, where there is no hue, or at least 1
    sixths = torch.where(
        red == top, (green - blue) / safe, torch.where(green == top, (blue - red) / safe + 2, (red - green) / safe + 4)
    )  # in [-1, 5]
    sixths = sixths + turn.view(-1, 1, 1) * 6
    channels = []
    for offset in (5, 3, 1):
        k = sixths + offset
        k = k - (k * (1 / 6)).floor_().mul_(6)
        channels.append(top - torch.minimum(k, 4 - k).clamp_(0, 1).mul_(chroma))
    return torch.stack(channels, 1).add_(0.5).floor_().clamp_(0, 255)


def invert(images: torch.Tensor) -> torch.Tensor:
    """Every level from the other end."""
    return 255 - images


def solarize(images: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """Invert the levels from the threshold on."""
    return torch.where(images < threshold.view(-1, 1, 1, 1), images, 255 - images)


def solarize_add(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Add to the levels below 128."""
    return torch.where(images < 128, (images + amount.view(-1, 1, 1, 1)).clamp_(max=255), images)


def posterize(images: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Keep the highest bits of a level, 0 to 8 of them: int64."""
    step = (torch.ones_like(bits) << (8 - bits)).float().view(-1, 1, 1, 1)
    return (images / step).floor_().mul_(step)


def autocontrast(images: torch.Tensor) -> torch.Tensor:
    """Stretch each channel to 0..255, rounding down; a channel of one level stays as it is.

    Exact; Pillow's table is made in floating point and is one level lower at some levels that should be whole.
    """
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    stretched = ((images - low) * 255).div_((high - low).clamp(min=1)).floor_()
    return torch.where(high > low, stretched, images)


def equalize(images: torch.Tensor) -> torch.Tensor:
    """Flatten the histogram of each channel, by Pillow's rule: level i becomes (step // 2 + pixels below i) // step.

    step is (pixels - pixels of the highest level) // 255; where it is 0, the channel stays as it is.
    """
    batch, channels, height, width = images.shape
    levels = images.long().view(batch * channels, height * width)
    places = levels + torch.arange(batch * channels, device=images.device).unsqueeze(1) * 256
    counts = torch.zeros(batch * channels * 256, dtype=torch.int32, device=images.device)
    counts = counts.scatter_add_(0, places.view(-1), torch.ones_like(places.view(-1), dtype=torch.int32)).view(-1, 256)
    highest = counts.gather(1, levels.amax(1, keepdim=True))
    step = torch.div(height * width - highest, 255, rounding_mode="floor")
    below = counts.cumsum(1, dtype=torch.int32) - counts
    table = torch.div(torch.div(step, 2, rounding_mode="floor") + below, step.clamp(min=1), rounding_mode="floor").clamp_(max=255)
    table = torch.where(step > 0, table, torch.arange(256, dtype=torch.int32, device=images.device))
    return table.gather(1, levels).float().view_as(images)
