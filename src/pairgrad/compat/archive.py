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
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from .pickles import Construction, Persistent, Symbol, kind, read_pickle

# The storages that class statistics come in, and what their elements are for numpy, without the byte order.
STORAGES = {"FloatStorage": "f4", "DoubleStorage": "f8", "HalfStorage": "f2", "LongStorage": "i8", "IntStorage": "i4"}
_MOST_DIMENSIONS = 2

_ZIP_START = b"PK\x03\x04"
_LEGACY_START = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"  # the magic number of torch's format before 1.6, pickled
_TAR_MARK = slice(257, 262)
_AGAIN = "if you trust it, load it once with torch.load(..., weights_only=False), which runs the code in it, and torch.save the result"


class Archive:
    """The records of one open file."""

    def __init__(self, file: BinaryIO) -> None:
        self._size = os.fstat(file.fileno()).st_size
        try:
            self._zip = zipfile.ZipFile(file)
        except Exception as error:  # zipfile lets errors of struct, of codecs and of its own through
            raise ValueError(f"it is cut off or damaged, its table of contents cannot be read ({error})") from None
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

    def tensor(self, value: Any) -> torch.Tensor:
        """The tensor or parameter that `value` describes: on the CPU, in the dtype it was saved in, in memory of its own."""
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
                return self._strided(storage, key, numel, offset, shape, strides)
            case _:
                raise ValueError(f"expected a dense tensor, got {kind(value)}")

    def _strided(self, storage: str, key: str, numel: int, offset: int, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> torch.Tensor:
        if storage not in STORAGES:
            raise ValueError(f"expected elements of one of the types {', '.join(STORAGES)}, got {storage[:40]!r}")
        if not all(type(n) is int and n >= 0 for n in (numel, offset, *shape, *strides)) or len(shape) != len(strides):
            raise ValueError("the shape and strides of a tensor are not whole numbers that belong together: the file is damaged")
        if len(shape) > _MOST_DIMENSIONS or 0 in shape:
            raise ValueError(f"expected a tensor with elements and at most {_MOST_DIMENSIONS} dimensions, got shape {shape[:8]}")
        last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        # A view that repeats elements could be any size in memory; class statistics are never one.
        if last >= numel or math.prod(shape) > numel:
            raise ValueError(
                f"a tensor of shape {shape} does not fit into the {numel} elements that were saved for it: the file is damaged"
            )
        dtype = np.dtype(self._order + STORAGES[storage])
        data = self._record(f"data/{key}", expected=numel * dtype.itemsize)
        steps = [stride * dtype.itemsize if n > 1 else 0 for n, stride in zip(shape, strides, strict=True)]
        view = np.ndarray(shape, dtype, data, offset * dtype.itemsize, steps)
        return torch.from_numpy(np.array(view, dtype.newbyteorder("="), order="C"))

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
        try:
            return self._zip.read(info)
        except Exception as error:  # as above
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
    with Path(path).open("rb") as file:
        start = file.read(512)
        if start.startswith(_LEGACY_START):
            raise ValueError(f"it is in the format of torch.save before 1.6, which is a bare pickle: {_AGAIN}")
        if start[_TAR_MARK] == b"ustar":
            raise ValueError(f"it is a tar archive, the oldest format of torch.save, which is read by running pickles: {_AGAIN}")
        if not start.startswith(_ZIP_START):
            raise ValueError("it is not a file that torch.save wrote in its zip format, the default since torch 1.6")
        yield Archive(file)
