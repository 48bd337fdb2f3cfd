"""Tables and progress on a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable
from rich.text import Text

from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.table import Column, Table, Tick
from pairgrad_paper.tables.writers import is_words

_WORDS_WIDTH = 36  # of a column of words, which may be folded; numbers never are


def say_not_run(console: Console, missing: NotRun) -> None:
    """What there is no record of, and how to get one."""
    console.print(Text(missing.title, style="bold"))
    console.print(Text(f"Not run. {missing.needs + '. ' if missing.needs else ''}In the paper: {missing.label}. To run it:"))
    for command in missing.commands:
        console.print(Text(f"  {command}"), soft_wrap=True)
    console.print()


def show(console: Console, table: Table) -> None:
    """Caption, the parts or else the shown columns, checks and notes."""
    console.print(Text(table.title, style="bold"))
    console.print(Text(f"{table.caption} In the paper: {table.label}." if table.label else table.caption))
    console.print()
    for part in table.parts:
        console.print(Text(part.title, style="bold"))
        _grid(console, part)
    if not table.parts:
        _grid(console, table)
    for check in table.checks:
        console.print(Text(f"  {check}", style="" if check.held else "yellow"))
    for note in table.notes:
        console.print(Text(note, style="dim"))
    console.print()


def _grid(console: Console, table: Table) -> None:
    """The shown columns, in as many blocks as the width of the console asks for, each beginning with the first column."""
    first, *others = table.shown
    for block in _blocks(table, first, others, console.width):
        shown = RichTable(box=box.SIMPLE_HEAD, padding=0, show_edge=False, pad_edge=False)
        for column in (first, *block):
            words = is_words(table, column.key)
            width = _width(table, column)
            heading = "\n".join(textwrap.wrap(column.heading, width))
            shown.add_column(Text(heading), justify="left" if words else "right", vertical="bottom", width=width, no_wrap=not words)
        for row in table.rows:
            shown.add_row(*(Text(column.of(row)) for column in (first, *block)))
        console.print(shown)
        console.print()


def _blocks(table: Table, first: Column, others: list[Column], width: int) -> Iterator[list[Column]]:
    block: list[Column] = []
    start = used = _width(table, first)
    for column in others:
        needed = _width(table, column) + 1
        if block and used + needed > width:
            yield block
            block, used = [], start
        block.append(column)
        used += needed
    yield block


def _width(table: Table, column: Column) -> int:
    """Wide enough for every number and for every word of the heading."""
    cells = [column.of(row) for row in table.rows]
    longest = max((len(cell) for cell in cells), default=0)
    if is_words(table, column.key):
        longest = min(longest, _WORDS_WIDTH)
    return max(longest, *(len(word) for word in column.heading.split()))


@contextmanager
def progress(console: Console, name: str, steps: int) -> Iterator[Tick]:
    """A bar that disappears when it is done; on a terminal only."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=steps)
        yield lambda: bar.advance(task)
