"""Where a record comes from, without what belongs to one machine alone: paths, times, names of users."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

_PATHS = {
    "--data-root": "DATA",
    "--output": None,
    "-o": None,
    "--records": None,
}  # options whose values are paths, and what stands for them


def origin(environment: Mapping[str, Any], command: Sequence[str] | None = None) -> dict[str, Any]:
    """Versions, device, CPU and commit of a run's environment, and the command as it would be typed elsewhere."""
    given = list(sys.argv) if command is None else list(command)
    kept = {key: environment[key] for key in ("versions", "device", "cpu", "source") if environment.get(key) is not None}
    return {**kept, "command": typed(given)}


def typed(command: Sequence[str]) -> str:
    """A command line with the program's name alone and without absolute paths.

    Examples:
        >>> typed(["/home/me/.venv/bin/pairgrad", "train", "digits-lt", "--data-root", "/data", "--output", "/tmp/a/runs"])
        'pairgrad train digits-lt --data-root DATA --output runs'
    """
    words = [_program(command[0])] if command else []
    before = ""
    for word in command[1:]:
        if _PATHS.get(before):
            words.append(str(_PATHS[before]))
        elif before in _PATHS or PurePath(word).is_absolute():
            words.append(PurePath(word).name)
        else:
            words.append(_setting(word))
        before = word
    return shlex.join(words)


def _setting(word: str) -> str:
    option, equals, value = word.partition("=")
    if equals and (option in _PATHS or PurePath(value).is_absolute()):
        return f"{option}={_PATHS.get(option) or PurePath(value).name}"
    return word


def _program(path: str) -> str:
    name = PurePath(path).name
    return "pairgrad" if name in ("__main__.py", "pairgrad.exe") else name


def portable(value: Any) -> Any:
    """JSON of every machine: numbers that are not finite become null, and of absolute paths the last part stays."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return " ".join(_without_folder(word) for word in value.split(" "))
    if isinstance(value, (list, tuple)):
        return [portable(item) for item in value]
    if isinstance(value, Mapping):
        return {key: portable(item) for key, item in value.items()}
    return value


def _without_folder(word: str) -> str:
    before, equals, path = word.rpartition("=")
    return f"{before}{equals}{PurePath(path).name}" if len(path) > 1 and PurePath(path).is_absolute() else word
