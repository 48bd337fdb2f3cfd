"""How much room a checkpoint takes, and whether the disk has it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from pairgrad.ground import integer_at_least
from pairgrad_paper.runs.errors import SpaceError
from pairgrad_paper.runs.manifest import BLOCK
from pairgrad_paper.runs.tree import survey

_PER_TENSOR = 96  # of the header of the safetensors file, beside the name: dtype, shape and offsets as text
_PER_BLOCK = 12  # of state.json: a checksum
_FIXED = 16 * 1024  # the directory, the rest of state.json, and what rounding up to blocks adds


def required_space(state: Any) -> int:
    """Bytes on disk of a checkpoint of `state`, rounded up by some kilobytes.

    Optimizers make their buffers in the first step; measured before it, the state of an Adam run looks a third of its size.
    """
    tensors, skeleton = survey(state)
    numbers = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    header = sum(len(name.encode()) + _PER_TENSOR for name in tensors)
    return numbers + header + len(json.dumps(skeleton)) + _PER_BLOCK * (numbers // BLOCK + 1) + _FIXED


def free_space(directory: str | os.PathLike[str]) -> int:
    """Bytes free for this user where `directory` is, or will be."""
    place = Path(directory).absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def check_space(directory: str | os.PathLike[str], bytes_needed: int, what: str) -> None:
    """A SpaceError if fewer than `bytes_needed` bytes are free at `directory`; `what` says what for, e.g. "3 checkpoints"."""
    needed, free = integer_at_least("bytes_needed", bytes_needed, 0), free_space(directory)
    if free < needed:
        raise SpaceError(
            f"{directory} has too little free space for {what}: {in_words(needed)} are needed, {in_words(free)} are free. "
            "Free some, or choose a directory on another disk"
        )


def in_words(count: int) -> str:
    """Bytes for people.

    >>> in_words(512), in_words(3 * 1024**2 + 1)
    ('512 bytes', '3.0 MiB')
    """
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
