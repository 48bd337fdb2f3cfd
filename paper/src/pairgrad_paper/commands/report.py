"""`pairgrad report`."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from rich.text import Text

from pairgrad.cli import Console, prepare, progress
from pairgrad.ground import printable, write_atomically
from pairgrad_paper import catalogue
from pairgrad_paper.commands.output import records_in
from pairgrad_paper.report import collected, render


def run(output: Path, records: Path | None = None, show: bool = False) -> None:
    """Make every table and figure and write them as one page, index.html in `output`."""
    known = records_in(records)
    prepare(output)
    console = Console()
    items = collected(catalogue.TABLES, catalogue.FIGURES, known, lambda name, steps: progress(console, name, steps))
    path = write_atomically(output / "index.html", render(items))
    absent = sum(item.made == "not run" for item in items)
    console.print(Text(printable(f"Written to {path}: {len(items)} tables and figures, of which {absent} are not run")), soft_wrap=True)
    for item in items:
        for check in item.checks:
            if not check.held:
                console.print(Text(f"  {item.name}: {check}", style="yellow"), soft_wrap=True)
    if show:
        webbrowser.open(path.resolve().as_uri())
