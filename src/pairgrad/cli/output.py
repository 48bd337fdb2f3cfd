"""Progress and tables on a terminal, and the files and directories that a command writes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from pairgrad.ground.files import write_atomically
from pairgrad.ground.text import printable

Tick = Callable[[], None]


def prepare(directory: Path) -> None:
    """Make it, and find out before anything is computed whether it can be written."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def write_json(file: Path, data: Any) -> None:
    """Write data as a JSON file that any program can read."""
    write_atomically(file, json.dumps(data, indent=2, allow_nan=False) + "\n")


def save_json(console: Console, file: Path | None, data: Any) -> None:
    """Write the file of --json, if one was asked for, and say so."""
    if file is not None:
        write_json(file, data)
        console.print(Text(printable(f"Written to {file}")), soft_wrap=True)


def print_table(console: Console, headings: Iterable[str], rows: Iterable[Iterable[str | Text]], left: tuple[str, ...] = ("",)) -> None:
    """A table of numbers, flush right but for the columns under the headings of `left`."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def progress(console: Console, name: str, steps: int) -> Iterator[Tick]:
    """A bar that disappears when it is done; on a terminal only."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=steps)
        yield lambda: bar.advance(task)
