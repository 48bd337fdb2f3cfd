"""Limits of what is read: small files that ask for much are refused, and large ordinary ones are not."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from pairgrad.ground import npy_layout, open_zip, read_bytes, read_entry, read_json, read_safetensors, room


def zipped(data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("x", data)
    return packed.getvalue()


def entry(data: bytes, most: int) -> bytes:
    with open_zip(io.BytesIO(data)) as archive:
        return read_entry(archive, archive.infolist()[0], most)


def npy(shape: str, descr: str = "|u1") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + b"x" * 96


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 65 + "]" * 65, "nested more than 64 deep"),
        ('{"x":' * 65 + "1" + "}" * 65, "nested more than 64 deep"),
        ("[" * 10**6, "nested more than 64 deep"),
        ("[" + "[]," * 10**6 + "[]]", "more than 1000000 lists and objects"),
        ("[" + "0," * 5 * 10**6 + "0]", "more than 5000000 values"),
        ("[" + "1" * 301 + "]", "integer of 301 digits"),
        ("-" + "1" * 5000, "integer of 5001 digits"),
        ('{"x": ', "Expecting"),
        (b"\xff[]", "can't decode"),
    ],
    ids=lambda value: f"{value[:9]!r}",
)
def test_json_that_asks_for_much(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_json(text)


def test_ordinary_json_is_read() -> None:
    deep: object = 1
    for _ in range(64):
        deep = [deep]
    assert read_json("[" * 64 + "1" + "]" * 64) == deep
    assert read_json("[" * 200 + "1" + "]" * 200, deepest=200)[0]
    assert read_json('{"a": "[[[", "b": [1' + "0" * 299 + ", 2.5, null]}") == {"a": "[[[", "b": [10**299, 2.5, None]}
    assert read_json('["é"]'.encode("utf-16")) == ["é"]
    assert np.isnan(read_json("[NaN]")[0])
    with pytest.raises(ValueError, match="NaN is not JSON"):
        read_json("[NaN]", strict=True)


def test_only_plain_files_of_a_sensible_size_are_read(tmp_path: Path) -> None:
    """A pipe would keep the reader waiting, a device has no end, and a sparse file takes no disk and much memory."""
    (tmp_path / "small").write_bytes(b"12345")
    assert read_bytes(tmp_path / "small") == read_bytes(tmp_path / "small", most=5) == b"12345"
    with pytest.raises(ValueError, match="it has 5 bytes, and at most 4 are read"):
        read_bytes(tmp_path / "small", most=4)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=f"it has {1 << 40} bytes, and at most "):
        read_bytes(tmp_path / "sparse")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device", "."):
        for reader in (read_bytes, read_safetensors):
            with pytest.raises(ValueError, match="it is a directory, a pipe or a device, and only plain files are read"):
                reader(tmp_path / name)


def test_an_entry_takes_no_more_memory_than_it_may() -> None:
    data = bytes(10**6)
    assert entry(zipped(data, zipfile.ZIP_DEFLATED), 10**6) == data
    with pytest.raises(ValueError, match="1000000 bytes once it is inflated, more than the 999999"):
        entry(zipped(data, zipfile.ZIP_DEFLATED), 10**6 - 1)
    with pytest.raises(ValueError, match="by another method than deflate"):
        entry(zipped(data, zipfile.ZIP_BZIP2), 10**6)


def test_an_entry_that_inflates_to_more_than_it_says_is_refused() -> None:
    packed = zipped(bytes(10**6), zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match=r"CRC-32"):
        entry(packed.replace(struct.pack("<I", 10**6), struct.pack("<I", 5000)), 10**6)


def test_a_crowded_table_of_contents_is_refused() -> None:
    packed = zipped(b"x")
    at, end = packed.index(b"PK\x01\x02"), packed.index(b"PK\x05\x06")
    table = packed[at:end] * (2**24 // (end - at) + 1)
    tail = struct.pack("<HHIIH", 65535, 65535, len(table), at, 0)
    with pytest.raises(ValueError, match=r"table of contents cannot be read \(a table of \d+ bytes, more than 16777216"):
        open_zip(io.BytesIO(packed[:at] + table + packed[end : end + 8] + tail))


def test_compressed_images_have_room() -> None:
    """Those of ordinary data sets take about ten times the size of their file."""
    assert room(10**6) > 6 * 10**7
    assert room(10**9, repeated=True) > 2 * 10**9


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy("(1000000000000, 3)"), "promises an array"),
        (npy(f"({2**62}, 4, 4, 3)"), "promises an array"),
        (npy(f"({10**30}, 3)"), "promises an array"),
        (npy("(-1, 3)"), "promises an array"),
        (npy("(2, 3)", "|V2147483647"), "promises an array"),
        (npy("(" * 4000 + ")" * 4000), "header cannot be read"),
        (npy("(2, 3)", "|O"), "Python objects"),
        (b"\x93NUMPY\x02\x00" + b"\xff" * 4 + b" " * 10**5, "header cannot be read"),
        (b"\x93NUMPY\x09\x00" + b" " * 100, "version 9.0"),
        (b"", "header cannot be read"),
    ],
    ids=range(10),
)
def test_headers_of_npy_that_promise_too_much(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        npy_layout(io.BytesIO(data), len(data))


def test_ordinary_npy_is_laid_out() -> None:
    packed = io.BytesIO()
    np.save(packed, np.asfortranarray(np.ones((3, 2), np.float32)))
    data = packed.getvalue()
    assert npy_layout(io.BytesIO(data), len(data)) == (np.float32, (3, 2), True, len(data) - 24)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff" * 8, "header has 18446744073709551615 bytes"),
        (struct.pack("<Q", 2**24 + 1) + b" " * 10, "header has 16777217 bytes"),
        (struct.pack("<Q", 10**5) + b"[" * 10**5, "."),
        (b"", "."),
    ],
    ids=range(4),
)
def test_safetensors_that_are_none(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    for source in (tmp_path / "x", data):
        with pytest.raises(ValueError, match=message):
            read_safetensors(source)


def test_safetensors_come_back() -> None:
    tensors, metadata = read_safetensors(save({"x": torch.arange(3)}))
    assert tensors["x"].tolist() == [0, 1, 2]
    assert metadata == {}
