"""A record as a file: JSON lines, the first of which says what the others are of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairgrad.ground import read_bytes, read_json, write_atomically
from pairgrad_paper.records.origin import portable

FORMAT = 1
Line = Mapping[str, Any]


class RecordError(ValueError):
    """A file is not a record, or a record has not what is asked of it."""


@dataclass(frozen=True)
class Record:
    """What was measured in one go.

    Attributes:
        name: that of the file, without its ending.
        record: what kind of record it is: `"run"`, `"fork"`, ...
        title: one sentence.
        facts: what was run; equal facts give equal measurements, up to rounding.
        environment: versions, machine, command.
        lines: what was measured, in order; each has a `kind`.
    """

    name: str
    record: str
    title: str
    facts: Mapping[str, Any]
    environment: Mapping[str, Any]
    lines: tuple[Line, ...]

    def of(self, kind: str) -> list[Line]:
        """The lines of a kind; a RecordError where there are none."""
        found = [line for line in self.lines if line["kind"] == kind]
        if not found:
            raise RecordError(
                f"record {self.name} has no lines of kind {kind!r}; it has {', '.join(sorted({line['kind'] for line in self.lines}))}"
            )
        return found

    def one(self, kind: str) -> Line:
        """The line of a kind that occurs once."""
        found = self.of(kind)
        if len(found) > 1:
            raise RecordError(f"record {self.name} must have one line of kind {kind!r}, got {len(found)}")
        return found[0]

    @property
    def command(self) -> str:
        """What was typed."""
        return str(self.environment.get("command", ""))


def read(path: str | os.PathLike[str]) -> Record:
    """The record in a file.

    Raises:
        RecordError: the file cannot be read or is none; the message says which line is not as it should be.
    """
    path = Path(path)
    try:
        text = read_bytes(path).decode()
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read as a record ({error})") from error
    lines = [_line(path, number, content) for number, content in enumerate(text.splitlines(), 1) if content.strip()]
    match lines[0] if lines else None:
        case {
            "kind": "record",
            "format": 1,
            "record": str(record),
            "title": str(title),
            "facts": dict(facts),
            "environment": dict(environment),
        }:
            return Record(path.stem, record, title, facts, environment, tuple(lines[1:]))
        case {"kind": "record", "format": int(found)} if found != FORMAT:
            raise RecordError(f"{path} has format {found}, and this version of pairgrad reads format {FORMAT}")
        case _:
            raise RecordError(f"{path} is not a record: its first line must have kind, format, record, title, facts and environment")


@contextmanager
def written_by(command: str, path: Path) -> Iterator[None]:
    """What the command does not write is a RecordError that names the file or directory."""
    try:
        yield
    except RecordError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else repr(error)
        raise RecordError(f"{path} has something that is not as {command} writes it ({reason:.300})") from error


def write(path: str | os.PathLike[str], record: Record) -> Path:
    """Write a record, atomically; of absolute paths in its facts the last part. Numbers that are not finite are refused: JSON has none."""
    head = {
        "kind": "record",
        "format": FORMAT,
        "record": record.record,
        "title": record.title,
        "facts": portable(record.facts),
        "environment": record.environment,
    }
    return write_atomically(Path(path), "".join(_dumped(line) for line in (head, *record.lines)))


def to_lines(kind: str, rows: Iterable[Mapping[str, Any]]) -> tuple[Line, ...]:
    """Rows as lines of a kind."""
    return tuple({"kind": kind, **row} for row in rows)


def _line(path: Path, number: int, content: str) -> Line:
    try:
        line = read_json(content)
    except ValueError as error:
        raise RecordError(f"{path}, line {number}, is not JSON ({error})") from error
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        raise RecordError(f"{path}, line {number}, must be an object with a kind")
    return line


def _dumped(line: Line) -> str:
    return json.dumps(line, allow_nan=False) + "\n"
