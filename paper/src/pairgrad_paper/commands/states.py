"""`pairgrad states`."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from pairgrad.ground import printable
from pairgrad_paper.captured.record import states_record
from pairgrad_paper.commands.frozen import opened, written
from pairgrad_paper.commands.run_commands import StatesOptions


def run(options: StatesOptions, console: Console) -> None:
    """Measure, say what was found and write it."""
    say = (lambda _: None) if options.quiet else (lambda sentence: console.print(Text(printable(sentence)), soft_wrap=True))
    record = states_record(opened(options), options.every, options.output.stem if options.output else None, say)
    written(record, options.output, console)
