"""Images in numpy files: one large `.npy` that stays on disk, and `.npz` with an array `X`. Nothing in them is unpickled."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch

from pairgrad.ground import npy_layout, open_zip, read_entry, room
from pairgrad_paper.data.files import DataError, DataRoot
from pairgrad_paper.data.images import ArrayImages

TINY_IMAGES = "300K_random_images.npy"
TINY_IMAGES_COUNT = 300_000
TINY_IMAGES_ORIGIN = f"{TINY_IMAGES} (0.9 GB) comes from https://people.eecs.berkeley.edu/~hendrycks/{TINY_IMAGES}"
_LAYOUT = "save X as uint8 with height and width before the channels, as the page on data says"


def read_npy(root: DataRoot, path: Path) -> ArrayImages:
    """Images (N, H, W, 3) of a `.npy` file, at most the first 300000, mapped instead of read.

    The mapping is private: a write to the tensor changes no file.
    """
    root.digest(path, TINY_IMAGES_ORIGIN)
    expected = f"{path}: expected a .npy file with uint8 of shape (N, H, W, 3)"
    try:
        with path.open("rb") as file:
            dtype, shape, fortran, offset = npy_layout(file, path.stat().st_size)
    except (ValueError, OSError) as error:
        raise DataError(f"{expected}, got one that cannot be mapped ({error}); {TINY_IMAGES_ORIGIN}") from error
    if dtype != np.uint8 or len(shape) != 4 or shape[-1] != 3 or 0 in shape:
        raise DataError(f"{expected}, got {dtype} of shape {shape}; {TINY_IMAGES_ORIGIN}")
    array = np.memmap(path, dtype, "c", offset, shape, "F" if fortran else "C")
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
        with open_zip(io.BytesIO(data)) as archive:
            entries = {name.removesuffix(".npy"): archive.getinfo(name) for name in archive.namelist()}
            arrays, most = dict[str, np.ndarray](), room(len(data))
            for key in ("X", "y"):
                if key in entries:
                    content = read_entry(archive, entries[key], most)
                    arrays[key], most = _array(content), most - len(content)
    except ValueError as error:
        raise DataError(
            f"{path}: expected a .npz file with X, got one that is damaged or holds Python objects, which are not read ({error}): fetch it again, or {_LAYOUT}"
        ) from error
    if "X" not in arrays:
        raise DataError(f"{path}: expected an array X with the images, found {', '.join(entries)[:200] or 'no arrays'}; {_LAYOUT}")
    pixels = arrays["X"][..., None] if arrays["X"].ndim == 3 else arrays["X"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
        raise DataError(
            f"{path}: expected X as uint8 (N, H, W, 3) or (N, H, W), got {arrays['X'].dtype} of shape {arrays['X'].shape}; {_LAYOUT}"
        )
    images = torch.from_numpy(np.array(pixels.transpose(0, 3, 1, 2), order="C"))
    return ArrayImages(path.stem, images, _npz_labels(path, arrays.get("y"), len(images)))


def _array(content: bytes) -> np.ndarray:
    """The array in the bytes of a `.npy` file."""
    dtype, shape, fortran, offset = npy_layout(io.BytesIO(content), len(content))
    return np.ndarray(shape, dtype, content, offset, order="F" if fortran else "C")


def _npz_labels(path: Path, values: np.ndarray | None, count: int) -> torch.Tensor | None:
    if values is None:
        return None
    if values.dtype.kind not in "iu" or values.shape != (count,):
        raise DataError(f"{path}: expected y as integers of shape ({count},), got {values.dtype} of shape {values.shape}; {_LAYOUT}")
    return torch.from_numpy(values.astype(np.int64))
