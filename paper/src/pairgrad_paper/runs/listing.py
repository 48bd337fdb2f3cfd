"""The names of checkpoints, and which directories have one."""

from __future__ import annotations

import os
import re
from pathlib import Path

NAME = re.compile(r"step-(\d{8,})")
_REPLACED = ".replaced"  # set aside while another of the same step takes its place; counts as one until then
_LISTED = re.compile(rf"step-(\d{{8,}})({re.escape(_REPLACED)})?")
_LEFTOVER = re.compile(r"\.step-\d{8,}.*\.partial")


def directory_name(step: int) -> str:
    """The name of the directory of a checkpoint.

    Examples:
        >>> directory_name(120)
        'step-00000120'
    """
    return f"step-{step:08d}"


def replaced_name(path: Path) -> Path:
    """Where a checkpoint waits that is being replaced."""
    return path.with_name(path.name + _REPLACED)


def step_of(path: Path) -> int | None:
    """The step in the name of a checkpoint's directory, None if it has another kind of name."""
    found = _LISTED.fullmatch(path.name)
    return int(found[1]) if found else None


def checkpoints(directory: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints in `directory`, whole or damaged, oldest step first. Links, files and directories being written are none."""
    return [path for _, _, path in sorted(_entries(directory))]


def leftovers(directory: str | os.PathLike[str]) -> list[Path]:
    """What killed processes left of checkpoints they wrote or removed."""
    folder = Path(directory)
    return sorted(path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name)) if folder.is_dir() else []


def _entries(directory: str | os.PathLike[str]) -> list[tuple[int, bool, Path]]:
    folder = Path(directory)
    if not folder.is_dir():
        return []
    found = [(step_of(path), path) for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    return [(step, NAME.fullmatch(path.name) is not None, path) for step, path in found if step is not None]
