"""`pairgrad states`."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from pairgrad.cli.frozen import Reading
from pairgrad.experiments.frozen.record import states_record


def run(reading: Reading, every: int, quiet: bool, console: Console) -> None:
    """Measure, say what was found and write it."""
    say = (lambda _: None) if quiet else (lambda sentence: console.print(Text(sentence), soft_wrap=True))
    record = states_record(reading.source(), every, reading.output.stem if reading.output else None, say)
    reading.write(record, console)
