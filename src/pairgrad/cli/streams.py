"""Standard output and standard error of a command whose exit code means something: trouble with them must not change it by accident."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import rich.console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from pairgrad.ground.text import printable


class Console(rich.console.Console):
    """A console of rich that prints text as it is: no markup, no colours of its own, and nothing in it that the terminal would obey.

    Text is escaped before it is laid out, because escapes are longer, and once more after that, because lines begin elsewhere then.
    """

    def __init__(self, **options: Any) -> None:
        given: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False} | options
        super().__init__(**given)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, lines=True), **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        _escape(renderable)
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text, lines=True))

    def on_broken_pipe(self) -> None:
        """The reader is gone. Rich would end the program here, with code 1."""
        silence(self)


def _escape(renderable: Any) -> None:
    """Make text, also in the cells of a table, printable where it is; a style that reached its end still does."""
    if isinstance(renderable, Table):
        for column in renderable.columns:
            for cell in (column.header, *column.cells):
                _escape(cell)
    elif isinstance(renderable, Text):
        before, renderable.plain = len(renderable), printable(renderable.plain, lines=True)
        renderable.spans = [span._replace(end=len(renderable)) if span.end == before else span for span in renderable.spans]


class Streams:
    """Where a command writes. Output whose reader is gone is dropped; any other trouble with standard output is told once.

    Attributes:
        out, err: consoles.
        lost: whether something could not be written to standard output that a reader might have seen.
    """

    def __init__(self, command: str) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # an old locale knows few characters
        self._command = command
        self.out, self.err = Console(), Console(stderr=True)
        self.lost = False

    def show(self, text: Any, *, err: bool = False) -> None:
        """Something for rich to print, in lines of any length."""
        with self._writing(err) as console:
            console.print(text, soft_wrap=True)

    def line(self, text: str, *, err: bool = False) -> None:
        """A line as it is, for programs to read."""
        with self._writing(err) as console:
            if not console.quiet:
                console.file.write(f"{text}\n")
                console.file.flush()

    @contextlib.contextmanager
    def _writing(self, err: bool) -> Iterator[Console]:
        console = self.err if err else self.out
        try:
            yield console
        except OSError as error:
            silence(console)
            if not err and not isinstance(error, BrokenPipeError):
                self.lost = True
                self.line(f"{self._command}: cannot write to standard output: {error.strerror or error}", err=True)


def silence(console: rich.console.Console) -> None:
    """Nothing more is written there, not even what is still in a buffer when the program ends."""
    console.quiet = True
    with contextlib.suppress(OSError, ValueError):  # a stream without a file behind it
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, console.file.fileno())
        os.close(nothing)
