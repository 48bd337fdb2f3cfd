"""Progress on a terminal, and the directory that a command writes into."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

Tick = Callable[[], None]


def prepare(directory: Path) -> None:
    """Make it, and find out before anything is computed whether it can be written."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


@contextmanager
def progress(console: Console, name: str, steps: int) -> Iterator[Tick]:
    """A bar that disappears when it is done; on a terminal only."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=steps)
        yield lambda: bar.advance(task)
