"""Errors of these commands, said in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

import pairgrad
from pairgrad import cli


@contextmanager
def explained(command: str, output: Path | None = None, file: str | None = None) -> Iterator[None]:
    """What goes wrong with names, data, runs, records and settings: the sentence that says what to do, and exit code 2."""
    from pairgrad_paper.data import DataError
    from pairgrad_paper.recipes import UnknownName
    from pairgrad_paper.recipes.settings import SettingError
    from pairgrad_paper.records import RecordError
    from pairgrad_paper.runs import RunError
    from pairgrad_paper.training.process import ProcessError

    with cli.explained(command, output, file=file, also=(UnknownName, RecordError, DataError, RunError, SettingError, ProcessError)):
        yield


def known_realizations(given: list[str] | None, option: str = "--realization") -> None:
    """Refuse an unknown realization."""
    known = [r.name for r in pairgrad.realizations() if r.name != "reference"]
    for name in given or ():
        if name not in known:
            raise typer.BadParameter(f"{option} must be one of {', '.join(known)}, got {name!r}")
