"""The file that torch.save writes, read without torch.load: a zip archive with a pickle and the bytes of every tensor.

The archive is opened with Python's own zipfile and the pickle is read by `read_pickle`, so no path leads to the unpickler of
Python or to the loaders of torch, whatever the file contains. A tensor is read when it is asked for, and only then: the model
and the optimiser that lie in the same file cost nothing. The device it was saved from is ignored; what comes back is on the CPU.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import torch

from pairgrad.ground.reading import open_plain, open_zip, read_entry, room

from .pickles import Construction, Persistent, Symbol, kind, read_pickle

# The storages that class statistics come in, and what their elements are for numpy, without the byte order.
STORAGES = {"FloatStorage": "f4", "DoubleStorage": "f8", "HalfStorage": "f2", "LongStorage": "i8", "IntStorage": "i4"}
_OTHERS = {"BFloat16Storage": "i2", "BoolStorage": "?", "ByteStorage": "u1", "CharStorage": "i1", "ShortStorage": "i2"}
_OTHERS |= {"ComplexFloatStorage": "c8", "ComplexDoubleStorage": "c16"}
_KEPT = 1 << 26  # bytes of records that are kept, beside the last one
_STATISTICS, _ANY = 2, 64  # dimensions, at most
_LARGEST = 2**63 - 1
_DEEPEST, _MOST = 64, 100_000  # containers inside one another, and all values of a file

_ZIP_START = b"PK\x03\x04"
_LEGACY_START = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"  # the magic number of torch's format before 1.6, pickled
_TAR_MARK = slice(257, 262)
_AGAIN = "if you trust it, load it once with torch.load(..., weights_only=False), which runs the code in it, and torch.save the result"


class Archive:
    """The records of one open file."""

    def __init__(self, file: BinaryIO) -> None:
        self._size = os.fstat(file.fileno()).st_size
        self._left = room(self._size, repeated=True)  # bytes that may still be read and made into tensors
        self._kept: dict[str, bytes] = {}  # records that other tensors may share
        self._zip = open_zip(file)
        pickles = [name for name in self._zip.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"it is a zip archive but not one that torch.save wrote: it has {len(pickles)} records data.pkl, expected one")
        self._prefix = pickles[0].removesuffix("data.pkl")
        if self._prefix + "constants.pkl" in self._zip.NameToInfo:
            raise ValueError("it is a TorchScript program, not a checkpoint: pass the file that torch.save wrote")
        self._order = self._byte_order()

    def contents(self) -> Any:
        """What was saved, as `read_pickle` describes it."""
        return read_pickle(self._record("data.pkl"))

    def tensor(self, value: Any, dimensions: int = _STATISTICS) -> torch.Tensor:
        """The tensor or parameter that `value` describes: on the CPU, in the dtype it was saved in, in memory of its own.

        Args:
            value: from `contents`.
            dimensions: that it may have. Up to two, a tensor must have elements, of a type that class statistics have.
        """
        match value:
            case Construction(Symbol("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state"), (data, *_)):
                value = data
        match value:
            case Construction(
                Symbol("torch._utils", "_rebuild_tensor_v2"),
                (
                    Persistent(("storage", Symbol("torch", storage), str(key), _, int(numel))),
                    int(offset),
                    tuple(shape),
                    tuple(strides),
                    *rest,
                ),
            ) if not any(rest[2:]):  # requires_grad and hooks mean nothing here; what comes after them would change the values
                return self._strided(storage, key, numel, offset, shape, strides, dimensions)
            case _:
                raise ValueError(f"expected a dense tensor, got {kind(value)}")

    def _strided(
        self, storage: str, key: str, numel: int, offset: int, shape: tuple[Any, ...], strides: tuple[Any, ...], dimensions: int
    ) -> torch.Tensor:
        known = STORAGES if dimensions == _STATISTICS else {**STORAGES, **_OTHERS}
        if storage not in known:
            raise ValueError(f"expected elements of one of the types {', '.join(known)}, got {storage[:40]!r}")
        whole = all(type(n) is int and n >= 0 for n in (numel, offset, *shape, *strides))
        if not whole or len(shape) != len(strides) or max(shape, default=0) > _LARGEST:
            raise ValueError("the shape and strides of a tensor are not whole numbers that belong together: the file is damaged")
        if len(shape) > dimensions or (0 in shape and dimensions == _STATISTICS):
            raise ValueError(f"expected a tensor with elements and at most {dimensions} dimensions, got shape {shape[:8]}")
        last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        # A view that repeats elements could be any size in memory; what is saved for us never is one.
        if 0 not in shape and (last >= numel or math.prod(shape) > numel):
            raise ValueError(
                f"a tensor of shape {shape} does not fit into the {numel} elements that were saved for it: the file is damaged"
            )
        dtype = np.dtype(self._order + known[storage])
        data = self._shared(f"data/{key}", numel * dtype.itemsize)
        self._take(math.prod(shape) * dtype.itemsize)
        steps = [stride * dtype.itemsize if n > 1 else 0 for n, stride in zip(shape, strides, strict=True)]
        view = np.zeros(shape, dtype) if 0 in shape else np.ndarray(shape, dtype, data, offset * dtype.itemsize, steps)
        tensor = torch.from_numpy(np.array(view, dtype.newbyteorder("="), order="C"))
        return tensor.view(torch.bfloat16) if storage == "BFloat16Storage" else tensor

    def _take(self, size: int) -> None:
        """Count what is read or made: tensors that share memory are made apart, and the same bytes may be in the file under many names."""
        self._left -= size
        if self._left < 0:
            most = room(self._size, repeated=True)
            raise ValueError(
                f"its tensors share memory, and take more than {most} bytes when each has its own: save copies of them (.clone())"
            )

    def _shared(self, name: str, size: int) -> bytes:
        """A record that is kept for the next tensor in it, unless it is large."""
        if len(found := self._kept.get(name, b"")) != size or not found:
            if sum(map(len, self._kept.values())) + size > _KEPT:
                self._kept.clear()
            self._kept[name] = found = self._record(name, expected=size)
        return found

    def _record(self, name: str, expected: int | None = None) -> bytes:
        shown = name[:60]
        info = self._zip.NameToInfo.get(self._prefix + name)
        if info is None:
            raise ValueError(f"its record {shown!r} is missing: the file is damaged")
        # torch.save never compresses. Nothing larger than the file is read, so a small file cannot ask for much memory.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.file_size > self._size:
            raise ValueError(f"its record {shown!r} is compressed or larger than the file: torch.save wrote no such record")
        if expected is not None and info.file_size != expected:
            raise ValueError(f"its record {shown!r} should have {expected} bytes and has {info.file_size}: the file is damaged")
        self._take(info.file_size)
        try:
            return read_entry(self._zip, info, self._size)
        except ValueError as error:
            raise ValueError(
                f"its record {shown!r} cannot be read ({error}): the file is damaged, or was saved without checksums "
                "(torch.serialization.set_crc32_options(False)); save it again with them"
            ) from None

    def _byte_order(self) -> str:
        if self._prefix + "byteorder" not in self._zip.NameToInfo:
            return "<"  # torch before 2.1 wrote no such record; torch.load takes these files for little-endian too
        order = self._record("byteorder")
        if order not in (b"little", b"big"):
            raise ValueError(f"its byte order is {order[:20]!r}, expected b'little' or b'big': the file is damaged")
        return "<" if order == b"little" else ">"


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """The archive at `path`, closed at the end of the block. ValueError if the file is not in the zip format of torch.save."""
    with open_plain(path) as file:
        start = file.read(512)
        if start.startswith(_LEGACY_START):
            raise ValueError(f"it is in the format of torch.save before 1.6, which is a bare pickle: {_AGAIN}")
        if start[_TAR_MARK] == b"ustar":
            raise ValueError(f"it is a tar archive, the oldest format of torch.save, which is read by running pickles: {_AGAIN}")
        if not start.startswith(_ZIP_START):
            raise ValueError("it is not a file that torch.save wrote in its zip format, the default since torch 1.6")
        yield Archive(file)


def read_tensors(path: str | os.PathLike[str]) -> Any:
    """What torch.save wrote: tensors, numbers, texts and None, in dicts, lists and tuples. Nothing in the file is executed, and nothing larger than it is read.

    Raises:
        ValueError: the file is damaged, is not in the zip format of torch.save, or holds something else.
    """
    with open_archive(path) as archive:
        return _plain(archive, archive.contents(), [0])


def _plain(archive: Archive, value: Any, seen: list[int], depth: int = 0) -> Any:
    seen[0] += 1
    if depth > _DEEPEST or seen[0] > _MOST:
        raise ValueError(f"it holds more than {_MOST} values, or containers more than {_DEEPEST} deep")
    match value:
        case None | bool() | int() | float() | complex() | str():
            return value
        case list() | tuple():
            return type(value)(_plain(archive, item, seen, depth + 1) for item in value)
        case Construction(Symbol("collections", "OrderedDict"), ()):
            value = value.entries
        case Construction(Symbol("torch._utils")):
            return archive.tensor(value, _ANY)
    if not isinstance(value, dict) or not all(isinstance(key, (str, int, float)) for key in value):
        raise ValueError(
            f"it holds {kind(value)}, and only tensors, numbers, texts, lists, tuples and dicts are read: nothing in it is executed"
        )
    return {key: _plain(archive, item, seen, depth + 1) for key, item in value.items()}
