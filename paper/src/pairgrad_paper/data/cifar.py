"""CIFAR-10 and CIFAR-100 in their "python version": pickles, read as data without executing anything in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairgrad.compat import Construction, Symbol, kind, read_pickle
from pairgrad_paper.data.files import DataError, DataRoot
from pairgrad_paper.data.images import ArrayImages

_PIXELS = 3 * 32 * 32
_ARRAY_MAKERS = (Symbol("numpy.core.multiarray", "_reconstruct"), Symbol("numpy._core.multiarray", "_reconstruct"))


@dataclass(frozen=True)
class Distribution:
    """One of the two data sets as published: its files with their md5, and what is in them."""

    title: str
    folder: str
    archive: str
    train: Mapping[str, str]
    test: Mapping[str, str]
    meta: Mapping[str, str]
    labels_key: str
    names_key: str
    num_classes: int
    per_class: int  # training images

    @property
    def origin(self) -> str:
        return f"unpack {self.archive} from https://www.cs.toronto.edu/~kriz/cifar.html in the root"


CIFAR10 = Distribution(
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
    meta={"batches.meta": "5ff9c542aee3614f3951f8cda6e48888"},
    labels_key="labels",
    names_key="label_names",
    num_classes=10,
    per_class=5000,
)
CIFAR100 = Distribution(
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    meta={"meta": "7973b15100ade9c7d40fb424638fde48"},
    labels_key="fine_labels",
    names_key="fine_label_names",
    num_classes=100,
    per_class=500,
)


def read_train(root: DataRoot, which: Distribution, verify: bool = True) -> ArrayImages:
    """The training images, (N, 3, 32, 32) in file order, of the training files that are there; the note names those that are not."""
    files = {name: md5 for name, md5 in which.train.items() if (root.path / which.folder / name).is_file()}
    if not files:
        first, *more = which.train
        expected = f"{which.folder}/{first}" + (f" to {more[-1]}" if more else "")
        raise DataError(f"{root.path} has no training images of {which.title}: expected {expected}; {_nearby(root, which) or which.origin}")
    missing = [name for name in which.train if name not in files]
    note = f"{which.title} is trained on {', '.join(files)} only; {', '.join(missing)} not found" if missing else ""
    return _images(root, which, f"{which.title} train", files, verify, note)


def _nearby(root: DataRoot, which: Distribution) -> str:
    """What to do about a folder or an archive that lies near its place; empty if there is none."""
    first = next(iter(which.train))
    if (root.path / first).is_file() and root.path.name == which.folder:
        return f"this is {which.folder} itself: give the folder that holds it, {root.path.parent}"
    deeper = next((each for each in sorted(root.path.glob(f"*/{which.folder}")) if (each / first).is_file()), None)
    if deeper is not None:
        return f"they are in {deeper}: give {deeper.parent} as the root"
    if (root.path / which.archive).is_file():
        return f"the archive is there and has not been unpacked: tar xzf {root.path / which.archive} -C {root.path}"
    return ""


def read_test(root: DataRoot, which: Distribution, verify: bool = True) -> ArrayImages:
    """The test images, (N, 3, 32, 32) in file order."""
    return _images(root, which, f"{which.title} test", which.test, verify, "")


def read_class_names(root: DataRoot, which: Distribution, verify: bool = True) -> tuple[str, ...]:
    """The names of the classes, in the order of the labels."""
    ((name, md5),) = which.meta.items()
    path = root.path / which.folder / name
    content = _content(root, which, path, md5, verify)
    names = content.get(which.names_key)
    if not isinstance(names, list) or len(names) != which.num_classes or not all(isinstance(each, str) for each in names):
        raise _wrong(which, path, f"a list of {which.num_classes} names under {which.names_key!r}", _found(names))
    return tuple(names)


def has_test(root: DataRoot, which: Distribution) -> bool:
    """Whether the test images are there."""
    return all((root.path / which.folder / name).is_file() for name in which.test)


def departures(root: DataRoot, which: Distribution) -> tuple[str, ...]:
    """A sentence for each file that was read and is not the published one."""
    published = {f"{which.folder}/{name}": md5 for part in (which.train, which.test, which.meta) for name, md5 in part.items()}
    return tuple(
        f"{fact.path} is not the published file: md5 {fact.md5}, published {published[fact.path]}"
        for fact in root.facts
        if fact.path in published and fact.md5 != published[fact.path]
    )


def _images(root: DataRoot, which: Distribution, name: str, files: Mapping[str, str], verify: bool, note: str) -> ArrayImages:
    pixels, labels = [], []
    for file, md5 in files.items():
        path = root.path / which.folder / file
        content = _content(root, which, path, md5, verify)
        pixels.append(_pixels(which, path, content.get("data")))
        labels.extend(_labels(which, path, content.get(which.labels_key), len(pixels[-1])))
    images = torch.from_numpy(np.concatenate(pixels)).view(-1, 3, 32, 32)
    return ArrayImages(name, images, torch.tensor(labels, dtype=torch.int64), note)


def _content(root: DataRoot, which: Distribution, path: Path, md5: str, verify: bool) -> dict[Any, Any]:
    """The dict in one file, checked against the published md5 before anything in it is looked at."""
    data = root.read(path, which.origin)
    found = root.fact(path).md5
    if verify and found != md5:
        raise DataError(
            f"{path} is not the published file: expected md5 {md5}, found {found}, size {len(data)} bytes; it is damaged or was changed: "
            f"{which.origin}, or pass verify=False (--no-verify on the command line) if that is meant"
        )
    try:
        content = read_pickle(data)
    except ValueError as error:
        raise _wrong(
            which, path, "a pickle of a dict", f"{len(data)} bytes that are a damaged or cut-off pickle, or none ({error})"
        ) from None
    if not isinstance(content, dict):
        raise _wrong(which, path, "a pickle of a dict", kind(content))
    return content


def _pixels(which: Distribution, path: Path, value: Any) -> np.ndarray:
    """uint8 (N, 3072) from the record of how a numpy array would have been rebuilt."""
    expected = f"a uint8 array (N, {_PIXELS}) under 'data'"
    match value:
        case Construction(
            maker,
            states=[
                (_, (int() as rows, int() as columns), Construction(Symbol("numpy", "dtype"), (str() as code, *_)), bool() as fortran, raw)
            ],
        ):
            data = _raw(raw)
        case _:
            raise _wrong(which, path, expected, _found(value))
    if (
        maker not in _ARRAY_MAKERS
        or code.lstrip("|") != "u1"
        or data is None
        or rows < 1
        or columns != _PIXELS
        or len(data) != rows * columns
    ):
        size = "no" if data is None else str(len(data))
        raise _wrong(
            which,
            path,
            expected,
            f"an array of dtype {_shown(code)} and shape ({_shown(rows)}, {_shown(columns)}) with {size} bytes, {kind(value)}",
        )
    return np.frombuffer(data, dtype=np.uint8).reshape((rows, columns), order="F" if fortran else "C")


def _raw(value: Any) -> bytes | None:
    """The bytes of an array: Python 2 wrote a string, Python 3 (protocol 2) the call that encodes one."""
    match value:
        case bytes():
            return value
        case str() | Construction(Symbol("_codecs", "encode"), (str(), "latin1")):
            text = value if isinstance(value, str) else value.arguments[0]
            try:
                return text.encode("latin-1")
            except UnicodeEncodeError:
                return None
    return None


def _labels(which: Distribution, path: Path, value: Any, count: int) -> list[int]:
    expected = f"a list of {count} integers from 0 to {which.num_classes - 1} under {which.labels_key!r}"
    if not isinstance(value, list) or len(value) != count:
        raise _wrong(which, path, expected, _found(value))
    for position, label in enumerate(value):
        if type(label) is not int or not 0 <= label < which.num_classes:
            raise _wrong(which, path, expected, f"{_shown(label)} at position {position}")
    return value


def _found(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else kind(value)


def _shown(value: Any) -> str:
    """A value from a file, unless it is long; Python refuses to write very long integers."""
    short = isinstance(value, str) or (isinstance(value, int) and abs(value) < 10**12)
    return repr(value)[:40] if short else kind(value)


def _wrong(which: Distribution, path: Path, expected: str, found: str) -> DataError:
    return DataError(f"{path}: expected {expected}, found {found}; {which.origin}")
