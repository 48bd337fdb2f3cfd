"""Small files in CIFAR's format."""

import pickle
from pathlib import Path

import numpy as np

from pairgrad_paper.data.cifar import CIFAR10, CIFAR100

PUBLISHED = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def pixels(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size=(count, 3072), dtype=np.uint8)


def write(path, content):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
    return path


def write_cifar(root, name="cifar10", per_class=4, parts=("train", "test", "meta")):
    """Files with `per_class` images per class and file; the label of image i is i modulo the number of classes."""
    which = PUBLISHED[name]
    labels = [i % which.num_classes for i in range(per_class * which.num_classes)]
    files = [file for part in ("train", "test") if part in parts for file in getattr(which, part)]
    for seed, file in enumerate(files):
        write(root / which.folder / file, {"data": pixels(len(labels), seed), which.labels_key: labels})
    if "meta" in parts:
        (file,) = which.meta
        write(root / which.folder / file, {which.names_key: [f"class {k}" for k in range(which.num_classes)]})
    return root
