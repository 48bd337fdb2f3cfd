"""Random changes of files: of their bytes, and, with lengths and checksums made right again, of what is inside of them."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

Files = dict[str, bytes]
"""The files that are opened together, by name."""
Inside = Callable[[random.Random, Files, str], None]
"""Changes the file of this name, and whatever must agree with it."""

VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**30,
    10**400,
    0.5,
    1e308,
    float("nan"),
    "",
    "x",
    "\ud800",
    [],
    {},
    [[1], 2],
    {"x": {}},
]
VALUES += [json.loads("[" * 80 + "]" * 80), "9" * 5000]
NUMBERS = [
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"2147483648",
    b"9223372036854775808",
    b"9" * 400,
    b"9" * 5000,
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"(" * 99,
]
CALLS = [
    b"cos\nmkdir\n(Vx\ntR",
    b"cbuiltins\nexec\n(Vimport pairgrad_canary\ntR",
    b"cpairgrad_canary\nx\n",
    b"(Vx\nios\nsystem\n",
    b"cos\nsystem\n\x8c\x01x\x85R",
]
JOINTS = [
    b"0",
    b"(",
    b"2",
    b"b",
    b"s",
    b"a",
    b"u",
    b"t",
    b"R",
    b"Q",
    b"h\x00",
    b"q\x00",
    b"\x94",
    b"\x85",
    b"\x81",
    b"\x8a\x09" + b"\xff" * 9,
    b"N",
    b"}",
]


def changed(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Some bytes changed in one of many ways; `other` is a file to take parts of."""
    new = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(new) + 1)
        match rng.choice(["bit", "bytes", "cut", "drop", "splice", "extreme", "number", "pickle"]):
            case "bit" if at < len(new):
                new[at] ^= 1 << rng.randrange(8)
            case "bytes":
                new[at : at + rng.choice([0, 1, 4])] = rng.randbytes(rng.choice([1, 1, 4, 16]))
            case "cut" if rng.random() < 0.3:
                del new[at:]
            case "drop":
                del new[at : at + rng.choice([1, 2, 8, 64])]
            case "splice":
                start = rng.randrange(len(other) + 1)
                new[at : at + rng.choice([0, 16])] = other[start : start + rng.choice([4, 16, 256])]
            case "extreme":
                size = rng.choice([1, 2, 4, 8])
                value = rng.choice([0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1, 1 << rng.randrange(8 * size)])
                new[at : at + size] = value.to_bytes(size, rng.choice(["little", "big"]))
            case "number" if places := list(re.finditer(rb"[0-9]+", new)):
                place = rng.choice(places)
                new[place.start() : place.end()] = rng.choice(NUMBERS)
            case "pickle":
                new[at:at] = rng.choice(CALLS) if rng.random() < 0.5 else rng.choice(JOINTS)
            case _:
                pass
    return bytes(new)


def plain(rng: random.Random, files: Files, name: str) -> None:
    files[name] = changed(rng, files[name], rng.choice(list(files.values())))


def in_zip(rng: random.Random, files: Files, name: str) -> None:
    """An entry is changed, lost, doubled or renamed, and the archive written again with right checksums."""
    with zipfile.ZipFile(io.BytesIO(files[name])) as archive:
        parts = [(each, archive.read(each)) for each in archive.namelist()]
    which = rng.choice([rng.randrange(len(parts)), max(range(len(parts)), key=lambda each: parts[each][0].endswith((".pkl", ".npy")))])
    entry, data = parts[which]
    match rng.random():
        case chance if chance < 0.9:
            parts[which] = entry, changed(rng, data, rng.choice(parts)[1])
        case chance if chance < 0.94:
            parts[which] = entry, rng.choice(parts)[1]
        case chance if chance < 0.97:
            parts[which] = rng.choice(parts)[0], data
        case _:
            del parts[which]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice([zipfile.ZIP_STORED] * 6 + [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])) as archive:
        for each, content in parts:
            if each not in archive.NameToInfo:
                archive.writestr(each, content)
    files[name] = packed.getvalue()


def in_json(rng: random.Random, files: Files, name: str) -> None:
    """A value in one of the lines of JSON is replaced; the checksum of a checkpoint is made right."""
    lines = files[name].splitlines()
    if files[name].startswith(b"{\n"):
        lines = [files[name]]
    which = rng.randrange(len(lines))
    document = json.loads(lines[which])
    lines[which] = _dumped(_replaced(rng, document))
    files[name] = b"\n".join(lines) + b"\n"


def in_checkpoint(rng: random.Random, files: Files, name: str) -> None:
    """Either file of a checkpoint, with every length and checksum made right."""
    tensors, manifest = (next(each for each in files if each.endswith(f"state.{kind}")) for kind in ("safetensors", "json"))
    document = json.loads(files[manifest])
    if name == tensors:
        rng.choice([plain, in_header])(rng, files, name)
        content = document["content"]
        content["bytes"], content["sha256"] = len(files[name]), hashlib.sha256(files[name]).hexdigest()
        content["blocks"] = [zlib.crc32(files[name])]
    else:
        place = rng.choice(["content", "content", "skeleton", "extra"])
        inside = document if place == "content" else document["content"]
        inside[place] = _replaced(rng, inside[place])
    try:
        text = json.dumps(document["content"], sort_keys=True, separators=(",", ":"))
        document["content_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        pass
    files[manifest] = _dumped(document)


def in_header(rng: random.Random, files: Files, name: str) -> None:
    """A value of the header of a safetensors file, whose length is made right."""
    data = files[name]
    (length,) = struct.unpack("<Q", data[:8])
    header = _dumped(_replaced(rng, json.loads(data[8 : 8 + length])))
    files[name] = struct.pack("<Q", len(header)) + header + data[8 + length :]


def in_png(rng: random.Random, files: Files, name: str) -> None:
    """A chunk of a PNG file, whose checksum is made right; other pictures have no checksums."""
    data, place = files[name], 8
    if not data.startswith(b"\x89PNG"):
        plain(rng, files, name)
        return
    chunks = []
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + length]))
        place += 12 + length
    which = rng.randrange(len(chunks))
    chunks[which] = chunks[which][0], changed(rng, chunks[which][1], chunks[0][1])
    files[name] = data[:8] + b"".join(png_chunk(*chunk) for chunk in chunks)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _replaced(rng: random.Random, value: Any) -> Any:
    """A copy with a value somewhere in it replaced, lost or doubled."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.1:
        return rng.choice(VALUES)
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    copy = value.copy()
    match rng.random():
        case chance if chance < 0.9:
            copy[key] = _replaced(rng, value[key])
        case chance if chance < 0.95:
            del copy[key]
        case _ if isinstance(copy, dict):
            copy[rng.choice(list(value))] = value[key]
        case _:
            copy.insert(rng.randrange(len(value)), value[key])
    return copy


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()
