"""Small, full and read-only file systems."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A file system of its own at `folder`; the test is skipped where this user may not mount one."""
    folder.mkdir()
    refused = _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    if refused:
        pytest.skip(f"needs a file system of {size}, and this user may not mount one ({refused})")
    try:
        yield folder
    finally:
        failed = _run("umount", str(folder))
        assert not failed, failed


@contextlib.contextmanager
def limited_files(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes: what a full disk looks like to any user."""
    import resource  # not on Windows

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def directory_to_lock(folder: Path) -> Iterator[Path]:
    """A directory that `read_only` can make read-only. Permissions do not bind root, for whom it must be a file system of its own."""
    if os.geteuid() == 0:
        with small_disk(folder):
            yield folder
    else:
        folder.mkdir()
        yield folder


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing can be written in `folder` and the directories in it."""
    if os.geteuid() == 0:
        failed = _run("mount", "-o", "remount,ro", str(folder))
        assert not failed, failed
        yield
        return
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path in folders:
            path.chmod(0o755)


def _run(*command: str) -> str:
    """What went wrong, "" if nothing did."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""
