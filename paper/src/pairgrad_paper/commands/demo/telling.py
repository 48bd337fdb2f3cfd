"""What a chapter consists of, and how it is told on a terminal: sentences, and rows that appear as soon as they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from pairgrad_paper.report import Item


@dataclass
class Grid:
    """A small table. Its columns are as wide as declared from the start, so that rows can be shown one by one."""

    headings: Sequence[str]
    widths: Sequence[int]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    words: int = 1  # the first so many columns are words, which stand to the left


@dataclass(frozen=True)
class Picture:
    """A picture as a `data:` address, what stands for it where it cannot be seen, and what it shows."""

    address: str
    alternative: str
    caption: str


@dataclass
class Told:
    """A chapter: what was said and shown, in this order."""

    key: str
    title: str
    parts: list[str | Grid | Picture | Item] = field(default_factory=list)


class Teller:
    """Says and shows on a console what is kept for the page."""

    def __init__(self, console: Console, told: Told) -> None:
        self.console, self.told = console, told

    def say(self, sentence: str) -> None:
        """A paragraph. What stands between backticks is code on the page."""
        self.told.parts.append(sentence)
        self.console.print(Text(sentence.replace("`", "")))
        self.console.print()

    def begin(self, grid: Grid) -> None:
        """Show the head of a table; `row` shows the rest of it."""
        self.told.parts.append(grid)
        self.console.print(_line(grid, grid.headings, "bold"))
        self.console.print(Text("  ".join("-" * width for width in grid.widths), style="dim"))

    def row(self, *cells: str, style: str = "") -> None:
        """Add a row to the table that was begun last."""
        grid = self.told.parts[-1]
        assert isinstance(grid, Grid)
        grid.rows.append(cells)
        self.console.print(_line(grid, cells, style))

    def end(self) -> None:
        """An empty line."""
        self.console.print()

    def keep(self, part: Picture | Item) -> None:
        """For the page alone."""
        self.told.parts.append(part)


def _line(grid: Grid, cells: Sequence[str], style: str) -> Text:
    shown = (
        cell.ljust(width) if place < grid.words else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, grid.widths, strict=True))
    )
    return Text("  ".join(shown).rstrip(), style=style, no_wrap=True, overflow="ignore")
