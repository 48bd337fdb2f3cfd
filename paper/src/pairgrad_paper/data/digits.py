"""digits-lt: a long-tailed benchmark out of scikit-learn's bundled digits and photographs, for trying things out without a download."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from pairgrad_paper.data.benchmark import Benchmark, OODSource
from pairgrad_paper.data.files import DataError, FileFact
from pairgrad_paper.data.images import ArrayImages
from pairgrad_paper.data.long_tail import long_tail

CLASSES = 7  # digits 0 to 6 are in-distribution; 7, 8 and 9 are held out
TEST_PER_CLASS = 60
SCALES = (1, 2, 4, 8)  # pixels of a photograph per pixel of a patch
PATCHES_PER_SCALE = 1000  # of each photograph
OOD_NAME = "held-out-digits"
OUTLIERS_NAME = "photo-patches"
_SEED = 0
_SIDE = 8
_NOTE = "digits-lt is made of scikit-learn's 8x8 digits and two photographs: no published results exist for it"


def digits_lt(
    imbalance: float | None = 20, rule: str = "first", outliers: str | None = None, ood: Sequence[str] | None = None
) -> Benchmark:
    """The benchmark; images are uint8 (1, 8, 8).

    Digits 0 to 6 are the classes, in that order from most to fewest images. Sixty images of each, drawn with a fixed seed, are the test part; the
    rest is subsampled for training. All images of 7, 8 and 9 are the out-of-distribution source, grey patches of two photographs the outliers.
    """
    if outliers not in (None, OUTLIERS_NAME):
        raise DataError(f"outliers must be None or {OUTLIERS_NAME!r} for digits-lt, got {outliers!r}")
    if unknown := set(ood or ()) - {OOD_NAME}:
        raise DataError(f"ood must be None or a list of {OOD_NAME!r} for digits-lt, got {sorted(unknown)}")
    from sklearn import datasets  # a second to import, and other benchmarks do without

    pixels, digits = datasets.load_digits(return_X_y=True)
    pixels, digits = np.asarray(pixels), np.asarray(digits)
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, _SIDE, _SIDE)
    pool, test = _split(digits)
    train, counts = long_tail(_images("digits train", images, digits, pool), CLASSES, imbalance, rule)
    photographs = [np.asarray(each) for each in datasets.load_sample_images().images]
    held_out = np.flatnonzero(digits >= CLASSES)
    return Benchmark(
        name="digits-lt",
        train=train,
        test=_images("digits test", images, digits, test),
        outliers=ArrayImages(OUTLIERS_NAME, torch.from_numpy(_patches(photographs))),
        ood=(OODSource(OOD_NAME, _images(OOD_NAME, images, digits, held_out)),) if ood is None or ood else (),
        class_names=tuple(map(str, range(CLASSES))),
        class_counts=counts,
        notes=(_NOTE,),
        files=(_fact("digits", [images]), _fact("sample_images", photographs)),
    )


def _split(digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions for training and for the test, both in file order, without the held-out digits."""
    generator = np.random.RandomState(_SEED)  # its stream is frozen, unlike that of numpy's newer generators
    test = [generator.permutation(np.flatnonzero(digits == label))[:TEST_PER_CLASS] for label in range(CLASSES)]
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.flatnonzero(digits < CLASSES), chosen), chosen


def _images(name: str, images: np.ndarray, digits: np.ndarray, positions: np.ndarray) -> ArrayImages:
    return ArrayImages(name, torch.from_numpy(images[positions]), torch.from_numpy(digits[positions].astype(np.int64)))


def _patches(photographs: Sequence[np.ndarray]) -> np.ndarray:
    """Grey patches, uint8 (N, 1, 8, 8), from every photograph at every scale, at positions drawn with a fixed seed."""
    generator = np.random.RandomState(_SEED)
    patches = []
    for photograph in photographs:
        grey = photograph.astype(np.float64) @ (0.299, 0.587, 0.114)  # the luma of ITU-R BT.601
        for scale in SCALES:
            height, width = grey.shape[0] // scale, grey.shape[1] // scale
            small = grey[: height * scale, : width * scale].reshape(height, scale, width, scale).mean(axis=(1, 3))
            windows = np.lib.stride_tricks.sliding_window_view(small, (_SIDE, _SIDE))
            rows = generator.randint(windows.shape[0], size=PATCHES_PER_SCALE)
            columns = generator.randint(windows.shape[1], size=PATCHES_PER_SCALE)
            patches.append(windows[rows, columns])
    return np.rint(np.concatenate(patches)).astype(np.uint8)[:, None]


def _fact(name: str, arrays: Sequence[np.ndarray]) -> FileFact:
    """The fact about arrays that come with scikit-learn, in place of a file's."""
    data = b"".join(each.tobytes() for each in arrays)
    return FileFact(f"scikit-learn:{name}", len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
