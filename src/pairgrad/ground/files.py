"""Writing files so that a reader never meets half of one, not even after a power loss."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

_NOT_FOR_DIRECTORIES = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)  # from file systems that cannot sync them


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write `content` to `path` through a temporary file in the same directory; parents are made. On return it is on the disk.

    What a symbolic link leads to is replaced, not the link. A device or a pipe, such as /dev/stdout, is written to and never replaced.
    """
    given = Path(path)
    data = content.encode() if isinstance(content, str) else content
    if given.exists() and not given.is_file() and not given.is_dir():
        given.write_bytes(data)
        return given
    target = Path(os.path.realpath(given))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # before the rename: else a power loss can leave the new name with an empty file
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(target.parent)
    return given


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Return when the directory's names are on the disk, where the file system can tell."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # a directory that may be written and not read; on Windows, any directory
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_FOR_DIRECTORIES:
            raise
    finally:
        os.close(handle)


def umask() -> int:
    """The permissions that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
