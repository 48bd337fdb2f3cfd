"""What a user can get wrong, said in a sentence: exit code 2, no traceback unless --debug asks for it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn

import typer

from pairgrad.cli.exit_codes import MISTAKE
from pairgrad.ground.text import printable

THREADS = 4096  # more than that are a slip of the finger
IN_FULL = ContextVar("IN_FULL", default=False)  # whether --debug was given: mistakes come with their tracebacks


def fail(command: str, message: object) -> NoReturn:
    """Say what is wrong, in one line, and end with exit code 2. Called where an exception is handled, --debug shows it."""
    if IN_FULL.get() and sys.exc_info()[0] is not None:
        typer.echo(laid_out(traceback.format_exc()), err=True)
    typer.echo(printable(f"pairgrad {command}: {message}"), err=True)
    raise typer.Exit(MISTAKE) from None


def laid_out(way: str) -> str:
    """A traceback, indented below its first line: no line of a name or message in it can pass for one of ours."""
    return printable(way.strip(), lines=True).replace("\n", "\n  ")


def check_file(command: str, option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is computed and without writing anything."""
    if path is None:
        return
    if path.is_dir():
        fail(command, f"{option} must be a file, got the directory {path}")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        fail(command, f"{option}: cannot write {path}: {above} is not a directory; choose another file")
    if not os.access(above, os.W_OK) and not path.exists():
        fail(command, f"{option}: cannot write {path}: no permission to write in {above}; choose another file")


def _too_large(error: Exception) -> bool:
    """Whether torch or Python could not get the memory that was asked for."""
    words = ("allocate memory", "out of memory", "size calculation overflowed", "integer multiplication overflow")
    return isinstance(error, MemoryError) or any(each in str(error) for each in words)


@contextmanager
def explained(
    command: str,
    output: Path | None = None,
    reads: Path | None = None,
    file: str | None = None,
    also: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Missing extras, too little memory, and files that cannot be read or written: a sentence and exit code 2 instead of a traceback.

    Args:
        command: its name.
        output: the directory that it writes to, or the file if `file` is given.
        reads: the file that it reads.
        file: the option that names the file `output`, which is checked first.
        also: exceptions whose message is all that a user needs.
    """
    if file is not None:
        check_file(command, file, output)
    try:
        yield
    except (ImportError, *also) as error:
        fail(command, error)
    except OSError as error:
        reason = error.strerror or error
        message = f"cannot read {reads}: {reason}" if reads else str(error)
        if output is not None:
            message = f"cannot write to {output}: {reason}; choose another {f'file with {file}' if file else 'directory with --output'}"
        fail(command, message)
    except (MemoryError, RuntimeError) as error:
        if not _too_large(error):
            raise
        reason = next(iter(str(error).splitlines()), "") or "out of memory"
        fail(command, f"not enough memory {f'to read {reads}' if reads else 'for what was asked'}: {reason}; choose smaller numbers")
