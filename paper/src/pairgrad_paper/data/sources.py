"""Outliers and out-of-distribution test sources: what is under a root, and what of SC-OOD is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pairgrad_paper.data import cifar
from pairgrad_paper.data.arrays import TINY_IMAGES, read_npy, read_npz
from pairgrad_paper.data.benchmark import OODSource
from pairgrad_paper.data.files import DataError, DataRoot
from pairgrad_paper.data.images import ArrayImages, Images
from pairgrad_paper.data.manifests import read_folder, read_scood

SCOOD_SOURCES = ("cifar", "lsun", "places365", "svhn", "texture", "tin")
SCOOD_ORIGIN = "SC-OOD (scood_benchmark.zip) comes from https://jingkang50.github.io/projects/scood; to continue without a source, name the others in ood"
FOLDER = "ood"
_TINY_IMAGES_PLACES = (f"Tiny_Images_Dataset/{TINY_IMAGES}", TINY_IMAGES)

Loader = Callable[[], OODSource]


def find_outliers(root: DataRoot) -> Images | None:
    """Images for outlier exposure on CIFAR: 300K_random_images.npy, or else the only `ood/outliers*.npy`, or else None."""
    if (tiny := root.find(*_TINY_IMAGES_PLACES)) is not None:
        return read_npy(root, tiny)
    others = sorted((root.path / FOLDER).glob("outliers*.npy"))
    if len(others) > 1:
        raise DataError(
            f"{root.path / FOLDER} holds several files of outliers: say which with outliers={root.relative(others[0])!r} or another one"
        )
    return read_npy(root, others[0]) if others else None


def read_images(root: DataRoot, path: Path) -> Images:
    """The images of a `.npy`, a `.npz` or a folder of pictures, in three channels."""
    if path.is_dir():
        return read_folder(root, path, name=path.name)
    if not path.is_file():
        raise DataError(f"{path} is missing: expected a .npy, a .npz or a folder of pictures, relative to {root.path}")
    if path.suffix == ".npy":
        return read_npy(root, path)
    if path.suffix == ".npz":
        return _coloured(read_npz(root, path))
    raise DataError(f"{path}: expected a .npy, a .npz or a folder of pictures, got a file that ends in {path.suffix!r}")


def available_sources(root: DataRoot, identity: str, verify: bool = True) -> dict[str, Loader]:
    """Every test source under a root by name, as what loads it. `identity` is "cifar10", "cifar100", or another name without SC-OOD lists."""
    sources: dict[str, Loader] = {}

    def add(name: str, path: Path, loader: Loader) -> None:
        if name in sources:
            raise DataError(f"{path}: another out-of-distribution source is called {name!r} too: rename this one")
        sources[name] = loader

    for name, path in scood_lists(root, identity).items():
        add(name, path, lambda name=name, path=path: _scood(root, name, path))
    for other, which in (("cifar10", cifar.CIFAR10), ("cifar100", cifar.CIFAR100)):
        if identity in ("cifar10", "cifar100") and identity != other and cifar.has_test(root, which):
            add(other, root.path / which.folder, lambda which=which, other=other: OODSource(other, cifar.read_test(root, which, verify)))
    folder = root.path / FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix == ".npz" or (path.is_dir() and not path.name.startswith(".")):
            name = path.stem if path.suffix == ".npz" else path.name
            add(name, path, lambda name=name, path=path: OODSource(name, read_images(root, path)))
    return sources


def load_sources(root: DataRoot, available: Mapping[str, Loader], wanted: Sequence[str] | None) -> tuple[OODSource, ...]:
    """The sources that are wanted, or all. The other CIFAR as a whole is not among all if it is there as SC-OOD's source, with the same images."""
    for name in wanted or ():
        if name not in available:
            found = ", ".join(available) or "none"
            raise DataError(f"{root.path} has no out-of-distribution source {name!r}: expected one of those found, {found}")
    if wanted is None:
        wanted = [name for name in available if not ("cifar" in available and name in ("cifar10", "cifar100"))]
    return tuple(available[name]() for name in dict.fromkeys(wanted))


def scood_lists(root: DataRoot, identity: str) -> dict[str, Path]:
    """The SC-OOD lists that are there, by source."""
    other = {"cifar10": "cifar100", "cifar100": "cifar10"}.get(identity)
    if other is None:
        return {}
    found = {}
    for source in SCOOD_SOURCES:
        names = (source, other) if source == "cifar" else (source,)
        places = [f"{base}imglist/benchmark_{identity}/test_{name}.txt" for base in ("data/", "") for name in names]
        if (path := root.find(*places)) is not None:
            found[source] = path
    return found


def scood_notes(root: DataRoot, identity: str, sources: Sequence[OODSource]) -> list[str]:
    """A sentence for each source of SC-OOD that is not used, and for each that is used and not of SC-OOD."""
    lists, used = scood_lists(root, identity), {source.name for source in sources}
    absent = {name: "left out" if name in lists else "missing" for name in SCOOD_SOURCES if name not in lists or name not in used}
    return [
        *(f"the SC-OOD source {name} is {why}" for name, why in absent.items()),
        *(
            f"the source {source.name} ({len(source.images)} images) is not SC-OOD's: all of its images count as out of distribution"
            for source in sources
            if source.name not in lists
        ),
    ]


def source_notes(sources: Sequence[OODSource], outliers: Images | None) -> list[str]:
    """What the sources and the outliers have to say, and what of them should not be combined."""
    notes = [f"the source {source.name}: {source.images.note}" for source in sources if source.images.note]
    if outliers is None:
        return [*notes, "there are no outliers"]
    if outliers.note:
        notes.append(f"outliers: {outliers.note}")
    if "tinyimagenet" in outliers.name.lower():
        notes += [
            f"outliers and the source {source.name} both come from Tiny ImageNet: no result should rest on the two together"
            for source in sources
            if source.name == "tin" or "tinyimagenet" in source.name.lower()
        ]
    return notes


def _scood(root: DataRoot, name: str, path: Path) -> OODSource:
    images = read_scood(root, path, path.parents[2] / "images", name=name, origin=SCOOD_ORIGIN)
    assert images.labels is not None
    return OODSource(name, images, images.labels >= 0)


def _coloured(images: ArrayImages) -> ArrayImages:
    if images.images.shape[1] == 3:
        return images
    return replace(images, images=images.images.expand(-1, 3, -1, -1), note="grey, repeated in three channels")
