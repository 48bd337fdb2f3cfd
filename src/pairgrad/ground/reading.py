"""Reading files that anyone may have made: the limits on depth, count and inflated size that all our readers share.

Every function here raises a ValueError that says what is wrong with the content. The caller adds the name of the file. The limits are far beyond what
programs write, and low enough that a refusal takes less than two seconds.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import zipfile
from typing import Any, BinaryIO, NoReturn

import numpy as np
import torch

from pairgrad.ground.devices import HOST

OPERATIONS = 500_000  # of a pickle; a file of CIFAR-10 has 30,000
DIGITS = 300  # of an integer: it still is a float
BITS = 1 << 15  # of an integer in a pickle
DEEPEST = 64  # containers inside one another in JSON
LARGEST = 1 << 28  # bytes of a file that is read whole
_CONTAINERS, _VALUES = 1_000_000, 5_000_000  # of a JSON text
_TABLE = 1 << 24  # bytes of the table of contents of a zip archive or a safetensors file
_ROOM = 1 << 26  # bytes that any file may take in memory
_INFLATED = 64  # times the size of a compressed file, beyond that
_REPEATED = 8  # times the size of a file whose tensors share memory, beyond that
_NPY_HEAD = 1 << 14  # bytes in which the header of a .npy file must end; numpy allows 10,000
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def room(size: int, *, repeated: bool = False) -> int:
    """The bytes that the content of a file of `size` bytes may take in memory."""
    return _ROOM + (_REPEATED if repeated else _INFLATED) * size


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A plain file, open for reading; a pipe could keep the reader waiting, and a device has no end.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is not a plain file.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is a directory, a pipe or a device, and only plain files are read")
    return os.fdopen(handle, "rb")


def read_bytes(path: str | os.PathLike[str], most: int = LARGEST) -> bytes:
    """The content of a plain file of at most `most` bytes.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is larger, or not a plain file.
    """
    with open_plain(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise ValueError(f"it has {size} bytes, and at most {most} are read")
        return file.read(most + 1)


def read_json(text: str | bytes, *, strict: bool = False, deepest: int = DEEPEST) -> Any:
    """What a JSON text says.

    Args:
        text: in UTF-8, UTF-16 or UTF-32 if it is bytes.
        strict: whether NaN and Infinity, which are not JSON, are refused.
        deepest: how many containers may be inside one another.

    Raises:
        ValueError: it is not JSON, or has too many values, too deep ones, or an integer of more than `DIGITS` digits.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    containers = text.count("[") + text.count("{")  # at most: some may be in strings
    if containers > _CONTAINERS or containers + text.count(",") > _VALUES:
        raise ValueError(f"it has more than {_CONTAINERS} lists and objects, or more than {_VALUES} values")
    try:
        content = (_STRICT if strict else _DECODER).decode(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {deepest} deep") from None
    level, depth = [content], 0
    while containers > deepest and (level := [item for each in level for item in _inside(each) if isinstance(item, (dict, list))]):
        depth += 1
        if depth >= deepest:
            raise ValueError(f"it is nested more than {deepest} deep")
    return content


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _integer(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"it has an integer of {len(digits)} digits, and at most {DIGITS} are read")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_int=_integer)
_STRICT = json.JSONDecoder(parse_int=_integer, parse_constant=_no_constant)


class _Opening:
    """A file while zipfile opens it: zipfile reads the table of contents at once, and an entry takes it about as long as a thousand bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.limited, self._file = True, file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if self.limited and size > _TABLE:
            raise ValueError(f"a table of {size} bytes, more than {_TABLE}")
        return self._file.read(size)


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    """The archive in an open file, with a table of contents of a sensible size."""
    opening: Any = _Opening(file)
    try:
        archive = zipfile.ZipFile(opening)
    except Exception as error:  # zipfile lets errors of struct, of codecs and of its own through
        raise ValueError(f"it is cut off or damaged, its table of contents cannot be read ({error})") from None
    opening.limited = False
    return archive


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """The bytes of an entry, at most `most` of them. Its checksum is compared."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # zipfile inflates the others without a limit
        raise ValueError("it is compressed by another method than deflate")
    if entry.file_size > most:
        raise ValueError(f"it has {entry.file_size} bytes once it is inflated, more than the {max(most, 0)} that are read from such a file")
    try:
        with archive.open(entry) as file:
            data = file.read(entry.file_size + 1)  # no more than this is inflated, whatever the entry holds
    except Exception as error:  # as above
        raise ValueError(str(error) or type(error).__name__) from None
    if len(data) != entry.file_size:
        raise ValueError(f"it should have {entry.file_size} bytes and has {len(data)}")
    return data


def npy_layout(file: BinaryIO, size: int) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Dtype, shape, whether the order is Fortran's, and offset of the array in an open .npy file of `size` bytes; it has all of the array."""
    head = io.BytesIO(file.read(_NPY_HEAD))
    try:
        version = np.lib.format.read_magic(head)
        if version not in _NPY_HEADERS:
            raise ValueError(f"version {version[0]}.{version[1]} of the format is not one of plain arrays")
        shape, fortran, dtype = _NPY_HEADERS[version](head)
    except Exception as error:  # numpy lets errors of Python's parser, of its tokenizer and of dtypes through
        raise ValueError(f"its header cannot be read: {' '.join(str(error).split())[:200]}") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    promised, found = math.prod(shape) * dtype.itemsize, size - head.tell()
    if min(shape, default=0) < 0 or promised > found:
        raise ValueError(
            f"its header promises an array of shape {shape[:8]} and {dtype.itemsize} bytes for each element, and {found} bytes follow"
        )
    return dtype, shape, fortran, head.tell()


def read_safetensors(source: str | os.PathLike[str] | bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a safetensors file, or of its bytes, on the CPU, and its metadata.

    Raises:
        ImportError: the package safetensors is missing.
        OSError: the file cannot be read.
        ValueError: it is not a safetensors file.
    """
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise ImportError("safetensors files need the package safetensors: pip install 'pairgrad[cli]'") from error
    with io.BytesIO(source) if isinstance(source, bytes) else open_plain(source) as file:
        length = int.from_bytes(file.read(8), "little")
    if length > _TABLE:
        raise ValueError(f"its header has {length} bytes, and at most {_TABLE} are read")
    try:
        if isinstance(source, bytes):
            return safetensors.torch.load(source), {}
        with safetensors.safe_open(source, framework="pt", device=str(HOST)) as file:
            return {name: file.get_tensor(name) for name in sorted(file.keys())}, dict(file.metadata() or {})
    except OSError:
        raise
    except Exception as error:  # safetensors lets errors of torch through, and dtypes that it does not know are a KeyError or its own
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
