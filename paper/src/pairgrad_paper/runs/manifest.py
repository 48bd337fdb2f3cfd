"""The two files of a checkpoint: `state.json`, which describes, and `state.safetensors`, which has the tensors; reading and checking them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import torch

from pairgrad.ground import read_bytes, read_json, read_safetensors
from pairgrad_paper.runs.errors import CheckpointError, RunError

FORMAT = 2
_READ = (1, FORMAT)  # 1 has no checksums of blocks
JSON = "state.json"
SAFETENSORS = "state.safetensors"
_DEEPEST = 400  # of the JSON of a state as deep as `tree` saves it
BLOCK = 1 << 16  # bytes that share a checksum
ADVICE = "Nothing was removed: `pairgrad check RUN` examines every checkpoint of the run, and `pairgrad train ... --from` resumes from one you choose"


@dataclass(frozen=True)
class Manifest:
    """The content of `state.json`."""

    step: int
    bytes: int  # of state.safetensors
    sha256: str  # of state.safetensors
    skeleton: Any
    extra: Any  # a skeleton too
    blocks: tuple[int, ...] | list[int] = ()  # CRC-32 of each block of state.safetensors: where it differs, if it does

    def text(self) -> str:
        """As it is written; a ValueError if it has more than is read."""
        content = asdict(self)
        text = json.dumps({"format": FORMAT, "content_sha256": _content_digest(content), "content": content}, allow_nan=False) + "\n"
        read_json(text, strict=True, deepest=_DEEPEST)
        return text


def digest(file: BinaryIO) -> tuple[str, tuple[int, ...]]:
    """SHA-256 of a file, in hexadecimal, and CRC-32 of each of its blocks."""
    whole, blocks = hashlib.sha256(), list[int]()
    while block := file.read(BLOCK):
        whole.update(block)
        blocks.append(zlib.crc32(block))
    return whole.hexdigest(), tuple(blocks)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the checkpoint in `folder`, if it is as it was written and the other file has the size it says; else a CheckpointError."""
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a link: name the directory it leads to, {os.path.realpath(folder)}")
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is not a checkpoint: there is no such directory. A checkpoint is a directory such as step-00000120"
        )
    path = folder / JSON
    _size(path)
    try:
        document = read_json(read_bytes(path), strict=True, deepest=_DEEPEST)
        written, content = document["format"], document["content"]
        if written not in _READ:
            raise CheckpointError(
                f"{path} has format {written!r}, this version reads {FORMAT}: use the version of pairgrad that wrote it (run.json names it)"
            )
        same = document["content_sha256"] == _content_digest(content)
        manifest = Manifest(**content)
        _check_types(manifest)
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({path.stat().st_size} bytes; {type(error).__name__}: {error}). {ADVICE}") from error
    if not same:
        found = _content_digest(content)[:12]
        raise CheckpointError(
            f"{path} is damaged (SHA-256 of its content is {found}..., {str(document['content_sha256'])[:12]}... was written). {ADVICE}"
        )
    numbers = folder / SAFETENSORS
    if (size := _size(numbers)) != manifest.bytes:
        raise CheckpointError(f"{numbers} is damaged ({size} bytes, {manifest.bytes} were written). {ADVICE}")
    return manifest


def verified(folder: Path, manifest: Manifest) -> None:
    """A CheckpointError if a bit of the tensors' file differs from what was written; it says where."""
    path = folder / SAFETENSORS
    try:
        with path.open("rb") as file:
            _compare(path, file, manifest)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_tensors(folder: Path, manifest: Manifest, device: str | torch.device) -> dict[str, torch.Tensor]:
    """The tensors, from the very bytes that were compared with the manifest; the file may be removed or cut while they live.

    Raises:
        CheckpointError: a bit of the file differs from what was written.
        RunError: the file is as it was written, and safetensors cannot read it.
    """
    path = folder / SAFETENSORS
    try:
        content = path.read_bytes()  # not through safetensors, which opens no path whose name is not UTF-8
    except OSError as error:
        raise _unreadable(path, error) from error
    _compare(path, io.BytesIO(content), manifest)
    try:
        return {name: tensor.to(device) for name, tensor in read_safetensors(content)[0].items()}
    except ValueError as error:
        raise RunError(
            f"{path} is as it was written (SHA-256 {manifest.sha256[:12]}...), and safetensors {safetensors.__version__} cannot read it "
            f"({error}): use the versions that wrote it (run.json names them)"
        ) from error


def _compare(path: Path, file: BinaryIO, manifest: Manifest) -> None:
    found, blocks = digest(file)
    if found == manifest.sha256:
        return
    first = next((number for number, pair in enumerate(zip(blocks, manifest.blocks, strict=False)) if pair[0] != pair[1]), None)
    where = "" if first is None else f", first between bytes {first * BLOCK} and {min((first + 1) * BLOCK, manifest.bytes)}"
    raise CheckpointError(
        f"{path} is damaged ({manifest.bytes} bytes, as many as were written; SHA-256 is {found[:12]}..., {manifest.sha256[:12]}... was "
        f"written; they differ{where}). {ADVICE}"
    )


def _check_types(manifest: Manifest) -> None:
    numbers = [manifest.step, manifest.bytes, *manifest.blocks]
    if not all(type(number) is int and number >= 0 for number in numbers) or type(manifest.sha256) is not str:
        raise TypeError("step, bytes and blocks must be whole numbers, and sha256 a text")


def _content_digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def _size(path: Path) -> int:
    try:
        facts = path.lstat()
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(facts.st_mode):
        raise CheckpointError(f"{path} is a link, a directory or a device, and a plain file was written. {ADVICE}")
    return facts.st_size


def _unreadable(path: Path, error: OSError) -> RunError:
    """A file that is missing or that the disk cannot give is damage. One that may not be read can be whole: not a CheckpointError."""
    if isinstance(error, PermissionError):
        return RunError(f"{path} cannot be read ({error.strerror}): make it readable for this user")
    return CheckpointError(f"{path} cannot be read ({error.strerror}). {ADVICE}")
