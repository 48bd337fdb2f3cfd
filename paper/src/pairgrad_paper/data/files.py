"""The folder with the data: where it is, what is in it, and the facts about every file read from it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from pairgrad.ground import read_bytes

VARIABLE = "PAIRGRAD_DATA"


class DataError(ValueError):
    """A problem with data: which file, what was expected, what came, where to get it."""


@dataclass(frozen=True)
class FileFact:
    """One file that was read, for the record of a run.

    Attributes:
        path: relative to the root. A folder of pictures ends in "/": its size and md5 are those of the sorted list of its file names, one per line.
        size: in bytes.
        md5: in hexadecimal.
    """

    path: str
    size: int
    md5: str


class DataRoot:
    """A folder with data. What is read through it is written down in `facts`.

    Args:
        path: the folder; None takes the environment variable PAIRGRAD_DATA.

    Raises:
        DataError: no folder is named, or what is named is not a folder.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        origin = "root"
        if path is None:
            path, origin = os.environ.get(VARIABLE) or None, f"the environment variable {VARIABLE}"
        if path is None:
            raise DataError(
                f"no folder with data is named: give root (--data-root on the command line), or set the environment variable {VARIABLE}; "
                "'digits-lt' needs none"
            )
        self.path = Path(path).expanduser().absolute()
        if not self.path.is_dir():
            found = "a file" if self.path.exists() else "nothing there"
            raise DataError(f"{origin} must be the folder that holds the data, got {str(path)!r}: {found}")
        self._facts: dict[str, FileFact] = {}

    @property
    def facts(self) -> tuple[FileFact, ...]:
        return tuple(self._facts.values())

    def find(self, *candidates: str) -> Path | None:
        """The first of `candidates` (relative paths of files) that exists."""
        return next((self.path / name for name in candidates if (self.path / name).is_file()), None)

    def relative(self, path: Path) -> str:
        """`path` as it is written in records: relative to the root if it lies in it."""
        return path.relative_to(self.path).as_posix() if path.is_relative_to(self.path) else path.as_posix()

    def read(self, path: Path, origin: str) -> bytes:
        """The bytes of a file, whose fact is kept; a DataError that names `origin`, the place to get it, if that fails."""
        try:
            data = read_bytes(path)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): {origin}") from error
        self._keep(path, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
        return data

    def digest(self, path: Path, origin: str) -> None:
        """Keep the fact about a file that is too large to hold."""
        try:
            with path.open("rb") as file:
                md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
            self._keep(path, path.stat().st_size, md5)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror or error}): {origin}") from error

    def listing(self, folder: Path, names: tuple[str, ...]) -> None:
        """Keep the fact about a folder of pictures."""
        data = "".join(f"{name}\n" for name in names).encode(errors="surrogateescape")
        fact = FileFact(f"{self.relative(folder)}/", len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
        self._facts[fact.path] = fact

    def fact(self, path: Path) -> FileFact:
        """What was kept about a file that was read."""
        return self._facts[self.relative(path)]

    def _keep(self, path: Path, size: int, md5: str) -> None:
        name = self.relative(path)
        self._facts[name] = FileFact(name, size, md5)
