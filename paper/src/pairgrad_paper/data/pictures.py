"""Decoding picture files, with Pillow."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pairgrad_paper.data.files import DataError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # of these suffixes; for another Pillow would run Ghostscript
_PIXELS = 89_478_485  # at which Pillow warns
_EIGHT_BITS = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"})


def decode(path: str | Path) -> torch.Tensor:
    """The picture in a file as uint8 (3, H, W): grey is repeated, transparency dropped, the camera's orientation tag not applied.

    Raises:
        DataError: the file is missing, is not a picture Pillow can decode, or has more than eight bits per channel.
    """
    try:
        with Image.open(path, formats=_FORMATS) as picture:
            if math.prod(picture.size) > _PIXELS:
                raise ValueError(f"it has {picture.width} x {picture.height} pixels, more than {_PIXELS}")
            mode = picture.mode
            # Pillow warns when a palette with transparency is made opaque in one step.
            opaque = picture.convert("RGBA") if "transparency" in picture.info else picture
            pixels = np.array(opaque.convert("RGB")) if mode in _EIGHT_BITS else None
    except Exception as error:  # damaged files make Pillow raise errors of many kinds
        raise DataError(
            f"{path}: expected a picture that Pillow can decode, got {type(error).__name__} ({error}): fetch the file again"
        ) from error
    if pixels is None:
        raise DataError(f"{path}: expected a picture with eight bits per channel, found Pillow's mode {mode!r}: convert it first")
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
