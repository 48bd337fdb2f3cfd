"""`pairgrad demo`: the whole story in five chapters, told on the terminal while it happens, and then as one HTML report.

- `chapters`: what is told. `telling`: sentences and rows, on the terminal and kept for the page.
- `miniature`: two descents of one loss. `bars`: three runs under one another. `pictures`: what the page shows of both.
- `page`: the report.
"""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path

from rich.text import Text

from pairgrad.cli import Streams, prepare
from pairgrad.ground import printable, write_atomically
from pairgrad_paper.commands.demo.chapters import CHAPTERS, Setting
from pairgrad_paper.commands.demo.page import render
from pairgrad_paper.commands.demo.telling import Teller, Told


def run(output: Path, epochs: int | None = None, show: bool = False) -> Path:
    """Tell the story, and write its runs, tables, pictures and report.html into `output`; the path of the report."""
    setting = Setting.of(output, epochs)
    prepare(output)
    started, console, told = time.monotonic(), Streams("pairgrad demo").out, []
    for number, (title, tell) in enumerate(CHAPTERS.items(), start=1):
        console.print(Text(f"{number} of {len(CHAPTERS)}: {title}", style="bold cyan"))
        told.append(Told(tell.__name__.replace("_", "-"), title))
        tell(Teller(console, told[-1]), setting)
    seconds = time.monotonic() - started
    report = write_atomically(output / "report.html", render(told, seconds))
    console.print(Text(f"Done in {seconds:.0f} s. All of it on one page:", style="bold"))
    console.print(Text(printable(f"  {report.resolve()}")), soft_wrap=True)
    console.print(Text("Next: pairgrad audit --help, pairgrad train, pairgrad report, pairgrad doctor."))
    if show:
        webbrowser.open(report.resolve().as_uri())
    return report
