"""ImageNet-LT and iNaturalist 2018: long-tailed as published, given by lists of picture files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pairgrad_paper.data.benchmark import Benchmark, OODSource
from pairgrad_paper.data.files import DataError, DataRoot
from pairgrad_paper.data.images import FileImages
from pairgrad_paper.data.manifests import read_folder, read_manifest
from pairgrad_paper.data.sources import available_sources, load_sources, read_images, source_notes


@dataclass(frozen=True)
class Lists:
    """Where the lists and the pictures of a data set may be, and how large it is as published."""

    name: str
    title: str
    folders: tuple[str, ...]  # of lists; "" is the root
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    pictures: tuple[str, ...]  # folders that the lists may be relative to
    num_classes: int
    sizes: dict[str, int]
    origin: str
    outliers: str = ""  # stem of the list of training outliers, or a folder of that name
    ood: str = ""  # likewise for the test


IMAGENET_LT = Lists(
    name="imagenet-lt",
    title="ImageNet-LT",
    folders=("", "ImageNet_LT/", "imagenet-lt/"),
    train=("ImageNet_LT_train.txt", "imagenet_lt_train.txt"),
    validation=("ImageNet_LT_val.txt", "imagenet_lt_val.txt"),
    test=("ImageNet_LT_test.txt", "imagenet_lt_test.txt"),
    pictures=("", "imagenet/", "ImageNet/", "ILSVRC2012/", "ImageNet_LT/", "imagenet-lt/"),
    num_classes=1000,
    sizes={"train": 115_846, "validation": 20_000, "test": 50_000},
    origin="the lists come from https://liuziwei7.github.io/projects/LongTail.html, the pictures (ILSVRC 2012) from https://image-net.org",
    outliers="imagenet_extra_1k",
    ood="imagenet_ood_test_1k",
)
INAT18 = Lists(
    name="inat18",
    title="iNaturalist 2018",
    folders=("", "iNaturalist18/", "inat18/"),
    train=("iNaturalist18_train.txt",),
    validation=(),
    test=("iNaturalist18_val.txt",),
    pictures=("", "iNaturalist18/", "inat18/"),
    num_classes=8142,
    sizes={"train": 437_513, "test": 24_426},
    origin="the pictures come from https://github.com/visipedia/inat_comp/tree/master/2018, the lists from "
    "https://github.com/facebookresearch/classifier-balancing",
)
_OOD_PICTURES = ("imagenet10k/", "ImageNet10k_eccv2010/imagenet10k/", "")
_OOD_ORIGIN = (
    "the pictures come from https://image-net.org (ImageNet10k_eccv2010), the lists by the rule of "
    "https://github.com/amazon-science/long-tailed-ood-detection"
)


def listed_lt(root: DataRoot, which: Lists, outliers: str | None, ood: Sequence[str] | None) -> Benchmark:
    """The benchmark that `which` describes."""
    train = _part(root, which, "train", which.train)
    if train is None:
        places = " or ".join(f"{folder}{which.train[0]}" for folder in which.folders)
        raise DataError(f"{root.path} has no training list of {which.title}: expected {places}; {which.origin}")
    validation = _part(root, which, "validation", which.validation)
    test = _part(root, which, "test", which.test)
    notes = []
    if test is None:
        if validation is None:
            raise DataError(
                f"{root.path} has no test list of {which.title}: expected {which.test[0]} beside the training list; {which.origin}"
            )
        notes.append(f"{which.test[0]} is missing: {which.validation[0]} is the test part")
        test, validation = validation, None
    counts = _counts(which, train)
    for part in (test, validation):
        if part is not None and int(_labels(part).max()) >= len(counts):
            raise DataError(
                f"{part.name} has label {int(_labels(part).max())}, but the training list has only the labels 0 to {len(counts) - 1}; {which.origin}"
            )
    if len(counts) != which.num_classes:
        notes.append(f"{which.title} has {len(counts)} classes here, {which.num_classes} as published")
    notes += [part.note for part in (train, test, validation) if part is not None and part.note]

    available = available_sources(root, which.name)
    if (place := _place(root, which.ood)) is not None:
        available = {which.ood: lambda: OODSource(which.ood, _unlabelled(root, place, which.ood)), **available}
    surrogate_place = _place(root, which.outliers)
    if outliers is not None:
        surrogate = read_images(root, root.path / outliers)
    else:
        surrogate = None if surrogate_place is None else _unlabelled(root, surrogate_place, which.outliers)
    sources = load_sources(root, available, ood)
    return Benchmark(
        name=which.name,
        train=train,
        test=test,
        outliers=surrogate,
        ood=sources,
        class_names=_class_names(train, len(counts)),
        class_counts=counts,
        notes=(*notes, *source_notes(sources, surrogate)),
        files=root.facts,
        validation=validation,
    )


def _part(root: DataRoot, which: Lists, part: str, names: Sequence[str]) -> FileImages | None:
    path = root.find(*(folder + name for folder in which.folders for name in names))
    if path is None:
        return None
    folders = [root.path / folder for folder in which.pictures]
    images = read_manifest(root, path, folders, name=f"{which.title} {part}", origin=which.origin)
    published = which.sizes[part]
    if len(images) == published:
        return images
    return replace(images, note=f"{path.name} has {len(images)} pictures, {published} as published")


def _place(root: DataRoot, stem: str) -> Path | None:
    """The list of out-of-distribution pictures, or the folder of that name."""
    if not stem:
        return None
    found = root.find(*(f"{folder}{stem}{ending}" for folder in IMAGENET_LT.folders for ending in ("_wnid_list_picture.txt", ".txt")))
    return found if found is not None or not (root.path / stem).is_dir() else root.path / stem


def _unlabelled(root: DataRoot, place: Path, name: str) -> FileImages:
    if place.is_dir():
        return read_folder(root, place, name=name)
    folders = [root.path / folder for folder in _OOD_PICTURES]
    return read_manifest(root, place, folders, name=name, origin=_OOD_ORIGIN, labelled=False)


def _labels(images: FileImages) -> torch.Tensor:
    assert images.labels is not None
    return images.labels


def _counts(which: Lists, train: FileImages) -> tuple[int, ...]:
    labels = _labels(train)
    present = torch.unique(labels)  # sorted
    gaps = (present != torch.arange(len(present))).nonzero()
    if len(gaps):
        last, absent = int(present[-1]), int(gaps[0])
        raise DataError(f"{train.name}: expected pictures of every class from 0 to {last}, found none of class {absent}; {which.origin}")
    return tuple(torch.bincount(labels).tolist())


def _class_names(train: FileImages, num_classes: int) -> tuple[str, ...]:
    """The folder of the first picture of each class, such as n01440764; the label itself where two classes share a folder."""
    names: dict[int, str] = {}
    for path, label in zip(train.paths, _labels(train).tolist(), strict=True):
        names.setdefault(label, Path(path).parent.name)
    folders = [names[label] for label in range(num_classes)]
    return tuple(folders) if len(set(folders)) == num_classes and all(folders) else tuple(map(str, range(num_classes)))
