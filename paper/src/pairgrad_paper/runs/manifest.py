"""The two files of a checkpoint: `state.json`, which describes, and `state.safetensors`, which has the tensors; reading and checking them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open

from pairgrad_paper.runs.errors import CheckpointError, RunError

FORMAT = 1
JSON = "state.json"
SAFETENSORS = "state.safetensors"
_ADVICE = "it was changed, cut or removed after it was written. Use another checkpoint of the run; running the same command again does so by itself"


@dataclass(frozen=True)
class Manifest:
    """The content of `state.json`."""

    step: int
    bytes: int  # of state.safetensors
    sha256: str  # of state.safetensors
    skeleton: Any
    extra: Any  # a skeleton too

    def text(self) -> str:
        content = {"step": self.step, "bytes": self.bytes, "sha256": self.sha256, "extra": self.extra, "skeleton": self.skeleton}
        return json.dumps({"format": FORMAT, "content_sha256": _content_digest(content), "content": content}, allow_nan=False) + "\n"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        document = json.loads(path.read_bytes(), parse_constant=_no_constant)
        written, content = document["format"], document["content"]
        if written != FORMAT:
            raise CheckpointError(
                f"{path} has format {written!r}, this version reads {FORMAT}: use the version of pairgrad that wrote it (run.json names it)"
            )
        same = document["content_sha256"] == _content_digest(content)
        manifest = Manifest(**content)
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {error}): {_ADVICE}") from error
    if not same:
        raise CheckpointError(f"{path} is damaged (its SHA-256 is not the one it gives): {_ADVICE}")
    numbers = folder / SAFETENSORS
    if (size := _size(numbers)) != manifest.bytes:
        raise CheckpointError(f"{numbers} is damaged ({size} bytes, {manifest.bytes} were written): {_ADVICE}")
    return manifest


def verified(folder: Path, manifest: Manifest) -> None:
    """A CheckpointError if a bit of the tensors' file differs from what was written."""
    path = folder / SAFETENSORS
    try:
        found = digest(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if found != manifest.sha256:
        raise CheckpointError(f"{path} is damaged (SHA-256 {found[:12]}..., {manifest.sha256[:12]}... was written): {_ADVICE}")


def read_tensors(folder: Path, device: str | torch.device) -> dict[str, torch.Tensor]:
    """The tensors, in memory of their own: the file may be removed or cut while they live."""
    path = folder / SAFETENSORS
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name).to(device, copy=True) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is not a safetensors file ({error}): {_ADVICE}") from error


def _content_digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def _size(path: Path) -> int:
    try:
        facts = path.lstat()
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(facts.st_mode):
        raise CheckpointError(f"{path} is a link, a directory or a device, and a plain file was written: {_ADVICE}")
    return facts.st_size


def _unreadable(path: Path, error: OSError) -> RunError:
    """A file that is missing or that the disk cannot give is damage. One that may not be read can be whole: not a CheckpointError."""
    if isinstance(error, PermissionError):
        return RunError(f"{path} cannot be read ({error.strerror}): make it readable for this user")
    return CheckpointError(f"{path} cannot be read ({error.strerror}): {_ADVICE}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
