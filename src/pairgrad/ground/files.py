"""Writing files so that a reader never meets half of one, not even after a power loss.

Every step is a function of `os`, so that the drills can stop a write between any two of them.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

_NOT_FOR_DIRECTORIES = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)  # from file systems that cannot sync them
_LINKS = 40  # that one path may lead through, as on Linux
_BINARY = getattr(os, "O_BINARY", 0)  # on Windows


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write `content` to `path` through a temporary file in the same directory; parents are made. On return it is on the disk.

    What a symbolic link leads to is replaced, not the link. A device or a pipe, such as /dev/stdout, is written to and never replaced.

    Raises:
        PermissionError: a symbolic link that another user left in a shared directory such as /tmp; it could lead anywhere.
    """
    given = Path(path)
    data = content.encode() if isinstance(content, str) else content
    target = followed(given)
    if given.exists() and not given.is_file() and not given.is_dir():
        given.write_bytes(data)
        return given
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(target)
    try:
        # The system takes from the mode what the umask forbids. To ask for the umask is to set it, for every thread of the process.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        try:
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))  # a private file stays private
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)  # before the rename: else a power loss can leave the new name with an empty file
        finally:
            os.close(handle)
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(given)  # not the temporary file, or none, as from a write to a full disk
        raise
    sync_directory(target.parent)
    return given


def temporary_name(target: Path, suffix: str = "") -> Path:
    """A hidden name beside `target` that no other writer uses."""
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}{suffix}")


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
            error.filename = os.fspath(path)
            raise
    finally:
        os.close(handle)


def followed(path: Path) -> Path:
    """Where `path` leads if it is a symbolic link, link by link; Linux can have the same rule for opening (fs.protected_symlinks), not for renaming.

    Raises:
        PermissionError: a link that another user left in a shared directory.
    """
    for _ in range(_LINKS):
        if not path.is_symlink():
            return path
        folder, link = path.parent.stat(), path.lstat()
        shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
        if shared and hasattr(os, "geteuid") and link.st_uid not in (os.geteuid(), folder.st_uid):
            raise PermissionError(
                errno.EACCES,
                "is a symbolic link of another user in a directory that all users may write to: choose another file",
                str(path),
            )
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
