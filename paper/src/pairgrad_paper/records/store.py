"""A directory of records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from pairgrad_paper.records.files import Record, RecordError, read
from pairgrad_paper.records.versions import declared, version

OWN = Path(__file__).with_name("data")


class Records:
    """The records in a directory, those of the package without one.

    Raises:
        RecordError: there is no such directory.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = OWN if directory is None else Path(directory)
        self.own = directory is None
        if not self.directory.is_dir():
            raise RecordError(f"{self.directory} is not a directory of records: pairgrad collect makes one")

    @cached_property
    def _all(self) -> tuple[Record, ...]:
        return tuple(read(path) for path in sorted(self.directory.glob("*.jsonl")))

    @cached_property
    def _equal(self) -> tuple[tuple[str, ...], ...]:
        return declared(self.directory)

    def version(self, record: Record) -> str:
        """The code version of a record, in words that are equal for records which may stand in one mean."""
        return version(record, self._equal)

    def of(self, record: str, matching: Callable[[Record], bool] = lambda _: True) -> list[Record]:
        """The records of one kind, in the order of their names."""
        return [each for each in self._all if each.record == record and matching(each)]

    def __iter__(self) -> Iterator[Record]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)
