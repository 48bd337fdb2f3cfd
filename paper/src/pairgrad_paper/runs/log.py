"""The log of a run: one line of JSON per event, appended, and cut back to a step when a run is resumed."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pairgrad.ground import followed, integer_at_least, read_bytes, read_json, sync_directory, write_atomically
from pairgrad_paper.runs.errors import RunLogError, RunLogWriteError

LARGEST = 1 << 30  # bytes of a record: a million updates have a third of that

IMPORTANT = frozenset({"epoch", "checkpoint", "resume", "stop", "evaluation"})  # kinds that are on the disk when `write` returns
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RunLog:
    """Appends events to the file at `path`.

    A line is one write of the operating system: a killed process leaves whole lines, save perhaps the last, which the next one cuts off.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with RunLog(folder + "/record.jsonl") as log:
        ...         log.write("step", 1, loss=0.25)
        ...     read_log(folder + "/record.jsonl")
        [{'kind': 'step', 'step': 1, 'loss': 0.25}]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._handle = -1
        try:
            self._handle = os.open(followed(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            os.ftruncate(self._handle, read_bytes(self.path, LARGEST).rfind(b"\n") + 1)
            sync_directory(self.path.parent)
        except OSError as error:
            self.close()
            raise RunLogError(f"{self.path} cannot be opened for writing ({error.strerror}): make it writable") from error
        except ValueError as error:
            self.close()
            raise RunLogError(f"{self.path} cannot be read ({error}): is this the record of a run?") from error

    def write(self, kind: str, step: int, **facts: Any) -> None:
        """Append `{"kind": kind, "step": step, **facts}`.

        Facts are numbers, strings, booleans, None, and lists and str-keyed dicts of them. Floats are written with all their digits. What is
        not finite is written as "nan", "inf" or "-inf" and read back as a float; these three strings are refused.

        Raises:
            TypeError, ValueError: a fact that JSON does not have; the message names it.
            RunLogWriteError: the disk is full or cannot be written; the file is as before.
        """
        if type(kind) is not str:
            raise TypeError(f"kind must be a string, got {kind!r}")
        if self._handle < 0:
            raise RunLogError(f"{self.path} was closed: open another RunLog to write to it")
        event = {"kind": kind, "step": integer_at_least("step", step, 0)}
        event |= {name: _plain(value, name) for name, value in facts.items()}
        line = (json.dumps(event, allow_nan=False) + "\n").encode()
        size = os.fstat(self._handle).st_size
        try:
            while line:  # once, unless the disk is full: then the second write says so
                line = line[os.write(self._handle, line) :]
            if kind in IMPORTANT:
                os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, size)
            raise self._failure(error) from error

    def sync(self) -> None:
        """Return when every line is on the disk; a RunLogWriteError if that cannot be."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> RunLogWriteError:
        return RunLogWriteError(f"{self.path} cannot be written ({error.strerror}): free space on its disk and run the same command again")

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_log(path: str | os.PathLike[str], on_torn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """The events of a log, in order.

    Args:
        path: of the file.
        on_torn: is called with a sentence if the last line is incomplete, which is what a killed process leaves; None: a warning.

    Raises:
        RunLogError: another line is damaged; the message has its number.
    """
    lines, torn = _lines(Path(path))
    if torn:
        sentence = f"{path}: the last line ({len(torn)} bytes) is incomplete and is left out"
        (on_torn or (lambda text: warnings.warn(text, RuntimeWarning, stacklevel=3)))(sentence)
    return [_event(line, path, number) for number, line in enumerate(lines, 1)]


def rewind(path: str | os.PathLike[str], step: int) -> int:
    """Remove the events after `step`, which will come again, and whatever is damaged behind the last event up to it; -1 removes all.

    The file is replaced atomically, so a `RunLog` must be opened afterwards.

    Returns:
        How many lines were removed, an incomplete last one included.

    Raises:
        RunLogError: a line before an event that stays is damaged; the message has its number.
    """
    step = integer_at_least("step", step, -1)
    if not Path(path).exists():
        return 0
    lines, torn = _lines(Path(path))
    kept: list[bytes] = []
    damaged: RunLogError | None = None
    for number, line in enumerate(lines, 1):
        try:
            stays = _event(line, path, number)["step"] <= step
        except RunLogError as error:
            damaged = damaged or error
            continue
        if stays:
            if damaged is not None:
                raise damaged
            kept.append(line)
    removed = len(lines) - len(kept) + bool(torn)
    if removed:
        write_atomically(path, b"".join(line + b"\n" for line in kept))
    return removed


def _lines(path: Path) -> tuple[list[bytes], bytes]:
    """The complete lines, and what follows the last of them."""
    try:
        *lines, rest = read_bytes(path, LARGEST).split(b"\n")
    except OSError as error:
        raise RunLogError(f"{path} cannot be read ({error.strerror}): is this the directory of a run?") from error
    except ValueError as error:
        raise RunLogError(f"{path} cannot be read ({error}): is this the record of a run?") from error
    return lines, rest


def _event(line: bytes, path: str | os.PathLike[str], number: int) -> dict[str, Any]:
    try:
        event = read_json(line, strict=True)
        if not isinstance(event, dict) or type(event.get("kind")) is not str or type(event.get("step")) is not int:
            raise ValueError('no object with a string "kind" and an integer "step"')
    except ValueError as error:
        raise RunLogError(
            f"{path}, line {number} is damaged ({error}; {len(line)} bytes, beginning {line[:40]!r}): restore the file from a copy; or keep a "
            "copy of it, take that line out, and do without its event"
        ) from error
    return {key: value if key == "kind" else _restored(value) for key, value in event.items()}


def _plain(value: Any, name: str) -> Any:
    """`value` as strict JSON."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        if value in _NOT_FINITE:
            raise ValueError(f"{name} must not be the string {value!r}, which is how a float is written: give float({value!r})")
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{name} must have strings as keys, got {key!r}")
        return {key: _plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    raise TypeError(
        f"{name} must be a number, a string, a boolean, None, or a list or dict of these, got {type(value).__name__}: use .item() or .tolist()"
    )


def _restored(value: Any) -> Any:
    if isinstance(value, str):
        return _NOT_FINITE.get(value, value)
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    return value
