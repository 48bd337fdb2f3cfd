"""What a user can get wrong, said in a sentence: exit code 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def explained(command: str, output: Path | None = None, reads: Path | None = None) -> Iterator[None]:
    """Missing extras, unknown names, and files that cannot be read or written: a sentence and exit code 2 instead of a traceback."""
    from pairgrad.experiments.catalogue import UnknownName
    from pairgrad.experiments.records import RecordError

    try:
        yield
    except (ImportError, UnknownName, RecordError) as error:
        typer.echo(f"pairgrad {command}: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        reason = error.strerror or error
        message = f"cannot read {reads}: {reason}" if reads else str(error)
        if output is not None:
            message = f"cannot write to {output}: {reason}; choose another directory with --output"
        typer.echo(f"pairgrad {command}: {message}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def reported(command: str) -> Iterator[None]:
    """What goes wrong with data, runs and settings: the sentence that says what to do, and exit code 2."""
    from pairgrad.cli.train import EXPLAINED

    try:
        yield
    except EXPLAINED as error:
        typer.echo(f"pairgrad {command}: {error}", err=True)
        raise typer.Exit(2) from None


def known_realizations(given: list[str] | None, option: str = "--realization") -> None:
    import pairgrad

    known = [r.name for r in pairgrad.realizations() if r.name != "reference"]
    for name in given or ():
        if name not in known:
            raise typer.BadParameter(f"{option} must be one of {', '.join(known)}, got {name!r}")
