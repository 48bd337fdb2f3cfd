"""One process at a time in a run's directory."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pairgrad.ground import read_json
from pairgrad_paper.runs.errors import RunError, RunLocked, RunLockLost

LOCK = ".lock"
_HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
_REFUSED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_BYTE = 1 << 30  # the byte that is locked on Windows, where others cannot read what is locked: far behind the text

_locks: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """Holds `.lock` in `directory` while the `with` block runs, and tells others the pid, the host and since when.

    The operating system keeps the lock and lets go of it when the process ends, however it ends: the file alone means nothing, and stays.
    Children made by fork do not hold it. Where the file system has no locks, the block runs without one and `warning` says so.
    A lock is on a file, not on its name: where the file is removed, a second process makes and locks another one. So `check` compares the two.

    Raises:
        RunLocked: another process holds it.
        RunError: the file cannot be opened.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory) / LOCK
        self.warning: str | None = None
        self._handle: int | None = None

    def __enter__(self) -> Self:
        handle = self._locked()
        while not _is_at(handle, self.path):  # removed between opening and locking
            os.close(handle)
            handle = self._locked()
        with contextlib.suppress(OSError):  # a full disk: others are told less
            os.ftruncate(handle, 0)
            os.write(handle, _self_description().encode())
        self._handle = handle
        _locks.add(self)
        return self

    def check(self) -> None:
        """A RunLockLost if the file that is locked no longer has its name."""
        if self._handle is None or not _is_at(self._handle, self.path):
            raise RunLockLost(
                f"{self.path} was removed or replaced while this process worked in {self.path.parent}: another process may have entered, so "
                "nothing more is written here. When no other process works there, run the same command again: it resumes from the newest checkpoint"
            )

    def _locked(self) -> int:
        """The file, open and locked."""
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            raise RunError(f"{self.path} cannot be opened ({error.strerror}): make the directory writable, or choose another") from error
        try:
            _lock(handle)
        except OSError as error:
            if error.errno in _HELD:
                holder = _holder(handle)
                os.close(handle)
                raise RunLocked(
                    f"{self.path.parent} is in use by {holder}. Wait for it, stop it, or choose another output directory; {LOCK} needs no removing"
                ) from None
            if error.errno not in _REFUSED:
                os.close(handle)
                raise
            self.warning = f"the file system of {self.path.parent} has no locks ({error.strerror}): make sure that no other process works in this directory"
        return handle

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            self._close()

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)  # lets go of the lock
            self._handle = None
            _locks.discard(self)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file is the one that has the name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False


def _self_description() -> str:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")})


def _holder(handle: int) -> str:
    try:
        facts: Any = read_json(os.read(handle, 4096))
        return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has the lock and has not yet written who it is
        return "another process"


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        os.lseek(handle, _BYTE, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _let_go_in_child() -> None:
        """A forked child, such as a data loader's, would keep the lock of a parent that was killed."""
        for lock in list(_locks):
            lock._close()

    os.register_at_fork(after_in_child=_let_go_in_child)
