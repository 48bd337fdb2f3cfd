"""`pairgrad report`."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pairgrad.cli.output import prepare, records_in
from pairgrad.cli.show import progress
from pairgrad.experiments.catalogue import FIGURES, TABLES
from pairgrad.experiments.figures.style import pyplot
from pairgrad.experiments.report import collected, render, templates
from pairgrad.ground.files import write_atomically


def run(output: Path, records: Path | None = None, show: bool = False) -> None:
    """Make every table and figure and write them as one page, index.html in `output`."""
    pyplot()  # what is missing is said before anything is computed
    templates()
    known = records_in(records)
    prepare(output)
    console = Console(highlight=False)
    items = collected(TABLES, FIGURES, known, lambda name, steps: progress(console, name, steps))
    path = write_atomically(output / "index.html", render(items))
    absent = sum(item.made == "not run" for item in items)
    console.print(Text(f"Written to {path}: {len(items)} tables and figures, of which {absent} are not run"), soft_wrap=True)
    for item in items:
        for check in item.checks:
            if not check.held:
                console.print(Text(f"  {item.name}: {check}", style="yellow"), soft_wrap=True)
    if show:
        webbrowser.open(path.resolve().as_uri())
