"""The directory that a command writes into."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pairgrad.experiments.records import Records


def prepare(directory: Path) -> None:
    """Make it, and find out before anything is computed whether it can be written."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def records_in(directory: Path | None) -> Records:
    """The records there, those of the package without a directory. A user's are read here, so that a broken one is told before anything is computed."""
    records = Records(directory)
    if directory is not None:
        len(records)
    return records


def report(console: Console, paths: Sequence[Path]) -> None:
    """Say which files there are now."""
    console.print(Text(f"Written to {paths[0].parent}: {', '.join(path.name for path in paths)}"))
