"""Images in numpy files: one large `.npy` that stays on disk, and `.npz` with an array `X`. Nothing in them is unpickled."""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from pairgrad_paper.data.files import DataError, DataRoot
from pairgrad_paper.data.images import ArrayImages

TINY_IMAGES = "300K_random_images.npy"
TINY_IMAGES_COUNT = 300_000
TINY_IMAGES_ORIGIN = f"{TINY_IMAGES} (0.9 GB) comes from https://people.eecs.berkeley.edu/~hendrycks/{TINY_IMAGES}"
_LAYOUT = "save X as uint8 with height and width before the channels, as the page on data says"
# What numpy and zipfile raise for damaged files.
_DAMAGE = (ValueError, OSError, EOFError, KeyError, NotImplementedError, tokenize.TokenError, zipfile.BadZipFile, zlib.error)


def read_npy(root: DataRoot, path: Path) -> ArrayImages:
    """Images (N, H, W, 3) of a `.npy` file, at most the first 300000, mapped instead of read.

    The mapping is private: a write to the tensor changes no file.
    """
    root.digest(path, TINY_IMAGES_ORIGIN)
    expected = f"{path}: expected a .npy file with uint8 of shape (N, H, W, 3)"
    try:
        array = np.lib.format.open_memmap(path, mode="c")
    except _DAMAGE as error:
        raise DataError(f"{expected}, got one that cannot be mapped ({error}); {TINY_IMAGES_ORIGIN}") from error
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[-1] != 3 or 0 in array.shape:
        raise DataError(f"{expected}, got {array.dtype} of shape {array.shape}; {TINY_IMAGES_ORIGIN}")
    images = torch.from_numpy(array[:TINY_IMAGES_COUNT]).permute(0, 3, 1, 2)
    return ArrayImages(root.relative(path), images, note=_npy_note(root.relative(path), path.name, len(images)))


def _npy_note(name: str, file: str, count: int) -> str:
    if file != TINY_IMAGES:
        return f"{name} ({count} images) stands in for {TINY_IMAGES}"
    return "" if count == TINY_IMAGES_COUNT else f"{name} has {count} images instead of {TINY_IMAGES_COUNT}"


def read_npz(root: DataRoot, path: Path) -> ArrayImages:
    """Images of a `.npz` file: `X` uint8 (N, H, W, 3), or (N, H, W) for grey; labels from `y`, if it has that."""
    data = root.read(path, _LAYOUT)
    try:
        with np.lib.npyio.NpzFile(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in ("X", "y") if key in archive.files}
            found = archive.files
            if not all(isinstance(each, np.ndarray) for each in arrays.values()):
                raise ValueError("X or y is not in numpy's format")
    except _DAMAGE as error:
        raise DataError(
            f"{path}: expected a .npz file with X, got one that is damaged or holds Python objects, which are not read ({error}): fetch it again, or {_LAYOUT}"
        ) from error
    if "X" not in arrays:
        raise DataError(f"{path}: expected an array X with the images, found {', '.join(found) or 'no arrays'}; {_LAYOUT}")
    pixels = arrays["X"][..., None] if arrays["X"].ndim == 3 else arrays["X"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
        raise DataError(
            f"{path}: expected X as uint8 (N, H, W, 3) or (N, H, W), got {arrays['X'].dtype} of shape {arrays['X'].shape}; {_LAYOUT}"
        )
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    return ArrayImages(path.stem, images, _npz_labels(path, arrays.get("y"), len(images)))


def _npz_labels(path: Path, values: np.ndarray | None, count: int) -> torch.Tensor | None:
    if values is None:
        return None
    if values.dtype.kind not in "iu" or values.shape != (count,):
        raise DataError(f"{path}: expected y as integers of shape ({count},), got {values.dtype} of shape {values.shape}; {_LAYOUT}")
    return torch.from_numpy(values.astype(np.int64))
