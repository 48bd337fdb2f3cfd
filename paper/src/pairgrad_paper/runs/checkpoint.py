"""Checkpoints: directories `step-00000120` that are there whole or not at all, and say if a byte of them has changed since.

A checkpoint is written in a directory with a hidden name, brought to the disk and renamed; so a process may be killed or the power cut at any
moment. `state.safetensors` has the tensors, `state.json` the rest: the step, the skeleton of the state (see `tree`), and the size and
SHA-256 of both. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from pairgrad.ground import integer_at_least, sync_directory, temporary_name, write_atomically
from pairgrad_paper.runs.errors import CheckpointError, CheckpointWriteError, RunError
from pairgrad_paper.runs.listing import NAME, checkpoints, directory_name, leftovers, replaced_name, step_of
from pairgrad_paper.runs.manifest import JSON, SAFETENSORS, Manifest, digest, read_manifest, read_tensors, verified
from pairgrad_paper.runs.space import free_space, in_words, required_space
from pairgrad_paper.runs.tree import flatten, survey, unflatten


class Checkpoint(NamedTuple):
    """What was saved."""

    step: int
    state: Any
    extra: dict[str, Any]


def save_checkpoint(
    directory: str | os.PathLike[str], step: int, state: Any, *, keep: int = 2, extra: dict[str, Any] | None = None
) -> Path:
    """Write `directory/step-<step>` and return its path once it is on the disk.

    Before that, what killed processes left behind is removed; afterwards, checkpoints of earlier steps beyond the newest `keep` whole ones,
    this one included. Checkpoints of later steps stay. One of the same step is replaced. Only one process may write at a time (`RunLock`).

    Args:
        directory: is made if it is not there.
        step: >= 0.
        state: tensors, numbers, strings and bytes in dicts, lists and tuples; see `tree.flatten`.
        keep: >= 1.
        extra: a dict of the same kind without tensors.

    Raises:
        TypeError: the state has something that cannot be saved; the message says where.
        CheckpointWriteError: the disk is full or cannot be written. Nothing half-written stays, and the older checkpoints do.
    """
    folder, step, keep = Path(directory), integer_at_least("step", step, 0), integer_at_least("keep", keep, 1)
    tensors, skeleton = flatten(state)
    in_extra, extra_skeleton = survey(extra or {}, "extra")
    if in_extra:
        raise TypeError(f"{min(in_extra)} is a tensor: tensors belong in state")
    remove_leftovers(folder)
    try:
        path = _written(folder, step, tensors, skeleton, extra_skeleton)
        sync_directory(folder)
    except (OSError, SafetensorError) as error:  # safetensors wraps the errors of the system
        raise CheckpointWriteError(_write_failure(folder, step, state, error)) from error
    _tidy(folder, step, keep)
    return path


def load_checkpoint(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Checkpoint:
    """Read a checkpoint and check every byte of it.

    Args:
        path: of the checkpoint's directory.
        device: where its tensors go. Generators want their state on the CPU, and `load_state_dict` moves what it is given by itself.

    Raises:
        CheckpointError: it is not there, not whole or not a checkpoint; the message says which file, what is wrong and what to do.
        RunError: its files are as they were written, and may not or cannot be read here.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    named = step_of(folder)
    if named is not None and named != manifest.step:
        raise CheckpointError(
            f"{folder / JSON} is of step {manifest.step}, its directory's name says {named}: give the directory its name back"
        )
    tensors = read_tensors(folder, manifest, device)
    try:
        return Checkpoint(manifest.step, unflatten(tensors, manifest.skeleton), unflatten({}, manifest.extra))
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{folder} is as it was written, and {JSON} does not describe {SAFETENSORS} beside it ({error}): "
            "use the version of pairgrad that wrote it (run.json names it)"
        ) from error


def check_checkpoint(path: str | os.PathLike[str]) -> int:
    """The bytes of a checkpoint's tensors, once every one of them was compared with what was written; else as `load_checkpoint`. Nothing is kept in memory."""
    manifest = read_manifest(Path(path))
    verified(Path(path), manifest)
    return manifest.bytes


def latest_checkpoint(
    directory: str | os.PathLike[str], on_damage: Callable[[CheckpointError], None], device: str | torch.device = "cpu"
) -> Checkpoint | None:
    """The newest checkpoint in `directory` that is whole, or None; `on_damage` hears of each newer one that is not. Nothing is deleted."""
    for path in reversed(checkpoints(directory)):
        try:
            return load_checkpoint(path, device)
        except CheckpointError as error:
            on_damage(error)
    return None


def remove_leftovers(directory: str | os.PathLike[str]) -> None:
    """Remove what killed processes left of checkpoints that they wrote or removed. A failure is a warning."""
    _clear(leftovers(directory))


def _written(folder: Path, step: int, tensors: dict[str, torch.Tensor], skeleton: Any, extra: Any) -> Path:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_directory(folder.parent)
    temporary = temporary_name(folder / directory_name(step), ".partial")
    os.mkdir(temporary)
    try:
        numbers = temporary / SAFETENSORS
        save_file(tensors, numbers)  # readable for this user alone
        os.chmod(numbers, stat.S_IMODE(temporary.stat().st_mode) & 0o666)  # what the umask leaves
        _sync(numbers)
        with numbers.open("rb") as file:
            sha256, blocks = digest(file)
        manifest = Manifest(step, numbers.stat().st_size, sha256, skeleton, extra, blocks)
        write_atomically(temporary / JSON, manifest.text())  # brings the directory to the disk too
        return _put(temporary, folder / directory_name(step))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    """Return when the file's bytes are on the disk."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put(temporary: Path, target: Path) -> Path:
    """Rename `temporary` to `target`. One that is there is set aside under a name that counts as a checkpoint until the new one is in place."""
    aside = replaced_name(target)
    if os.path.lexists(target):
        _remove(aside)
        os.rename(target, aside)
    os.rename(temporary, target)
    return target


def _tidy(folder: Path, step: int, keep: int) -> None:
    """After the checkpoint of `step` is in place. A failure is a warning: what was to be saved is saved."""
    whole = 0
    superfluous: list[Path] = []
    for path in reversed(checkpoints(folder)):
        saved = step_of(path)
        if saved is None or saved > step:
            continue
        if NAME.fullmatch(path.name) is None and path.with_name(directory_name(saved)).exists():
            superfluous.append(path)  # it was set aside, and its successor is in place
        else:
            if whole >= keep:
                superfluous.append(path)
            whole += _looks_whole(path)
    _clear(superfluous)


def _clear(paths: list[Path]) -> None:
    for path in paths:
        try:
            _remove(path)
        except OSError as error:
            warnings.warn(f"cannot remove {path}, which is no longer needed ({error}): remove it by hand", RuntimeWarning, stacklevel=4)


def _remove(path: Path) -> None:
    """Delete a directory so that no half of it is seen under its name."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    hidden = path
    if not path.name.startswith("."):
        hidden = path.with_name(f".{path.name}-removed-{os.getpid()}.partial")
        shutil.rmtree(hidden, ignore_errors=True)
        os.rename(path, hidden)
    shutil.rmtree(hidden)


def _looks_whole(path: Path) -> bool:
    """A glance, without reading the tensors."""
    try:
        read_manifest(path)
    except RunError:
        return False
    return True


def _write_failure(folder: Path, step: int, state: Any, error: Exception) -> str:
    good = None
    for path in reversed(checkpoints(folder)):
        with contextlib.suppress(RunError):
            check_checkpoint(path)
            good = path
            break
    if good is None:
        kept, again = "There is no earlier checkpoint", "starts again"
    else:
        kept, again = f"{good} is intact and stays", f"resumes from step {step_of(good)}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (
        f"cannot write the checkpoint of step {step} in {folder}: {reason}. It needs {in_words(required_space(state))}, "
        f"{in_words(free_space(folder))} are free. {kept}. Free space, or make the directory writable, and run the same command again: it {again}"
    )
