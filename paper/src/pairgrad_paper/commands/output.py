"""The records that a command reads, and the files that it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pairgrad.ground import printable
from pairgrad_paper.records import Records


def records_in(directory: Path | None) -> Records:
    """The records there, those of the package without a directory. A user's are read here, so that a broken one is reported before anything is computed."""
    records = Records(directory)
    if directory is not None:
        len(records)
    return records


def report(console: Console, paths: Sequence[Path]) -> None:
    """Say which files there are now."""
    console.print(Text(printable(f"Written to {paths[0].parent}: {', '.join(path.name for path in paths)}")))
