"""A table as files: CSV with whole numbers, Markdown for a reader."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from pairgrad.ground import printable, write_atomically
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.paper_items import item_of
from pairgrad_paper.tables.table import Cell, Table

# Where a page shows what a command makes: between two comments that name it. On a code host as in a built site the page is then whole.
PLACE = re.compile(r"^<!-- begin (?P<name>[a-z0-9-]+) -->\n.*?^<!-- end (?P=name) -->$", re.DOTALL | re.MULTILINE)


def _stored(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return cell if isinstance(cell, str) else repr(cell)


def to_csv(table: Table) -> str:
    """A header of column keys, then the rows; floats with all their digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(column.key for column in table.columns)
    writer.writerows([_stored(row[column.key]) for column in table.columns] for row in table.rows)
    return buffer.getvalue()


def to_markdown(table: Table) -> str:
    """Title, caption, parts, the shown columns, checks and notes."""
    lines = [f"# {table.title}", "", f"{table.caption} {_in_the_paper(table)}".strip(), ""]
    for part in table.parts:
        lines += [f"## {part.title}", "", *_grid(part), ""]
    if table.parts:
        lines += ["## All rows", ""]
    return "\n".join([*lines, *_grid(table), *_remarks(table)]) + "\n"


def _grid(table: Table) -> list[str]:
    """The shown columns."""
    lines = [_line([column.heading for column in table.shown]), _line([_rule(table, column.key) for column in table.shown])]
    return lines + [_line([column.of(row) for column in table.shown]) for row in table.rows]


def to_caption(table: Table) -> str:
    """The page of a figure drawn from the table: the picture, what it shows, and where its data are."""
    picture = f"![{table.title}]({table.name}.png)"
    caption = f"**{table.title}.** {table.caption} {_in_the_paper(table)} Data: [{table.name}.csv]({table.name}.csv)."
    return "\n".join([picture, "", caption, *_remarks(table)]) + "\n"


def _in_the_paper(table: Table) -> str:
    """Where it stands there, and what is shown there."""
    if not table.label:
        return ""
    item = item_of(table.name)
    return f"In the paper: `{table.label}`." + (
        f" What it shows there: {item.shows[0].lower()}{item.shows[1:]}" if item is not None else ""
    )


def _remarks(table: Table) -> list[str]:
    lines = ["", *(f"- {check}" for check in table.checks)] if table.checks else []
    for note in table.notes:
        lines += ["", note]
    return lines


def write(table: Table, directory: Path) -> list[Path]:
    """`name`.csv and `name`.md in `directory`, and the pages there that show it."""
    stored = write_atomically((directory / table.name).with_suffix(".csv"), to_csv(table))
    return [stored, *write_page(table.name, to_markdown(table), directory)]


def write_not_run(missing: NotRun, name: str, directory: Path) -> list[Path]:
    """`name`.md in `directory`, which says how to run it, and the pages there that show it."""
    return write_page(name, missing.to_markdown(), directory)


def write_page(name: str, text: str, directory: Path) -> list[Path]:
    """`name`.md in `directory`, and every page there that has a place for it, with the text put in between its two comments."""
    text = printable(text, lines=True)
    paths = [write_atomically(directory / f"{name}.md", text)]
    for page in sorted(directory.glob("*.md")):
        before = page.read_text()
        after = with_shown(before, name, text)
        if after != before:
            paths.append(write_atomically(page, after))
    return paths


def with_shown(page: str, name: str, text: str) -> str:
    r"""A page with the text of an item, without its title, in the place that is named after it; the page itself if it has none.

    Examples:
        >>> print(with_shown("<!-- begin some -->\n<!-- end some -->", "some", "# Title\n\nWords."))
        <!-- begin some -->
        <BLANKLINE>
        Words.
        <BLANKLINE>
        <!-- end some -->
    """
    body = re.sub(r"\A# [^\n]*\n", "", text).strip("\n")
    shown = f"<!-- begin {name} -->\n\n{body}\n\n<!-- end {name} -->"
    return PLACE.sub(lambda place: shown if place["name"] == name else place[0], page)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _rule(table: Table, key: str) -> str:
    return "---" if is_words(table, key) else "---:"


def is_words(table: Table, key: str) -> bool:
    """Whether a column holds words, which stand left, and not numbers, ours or printed."""
    return any(isinstance(cell, str) and not _numeric(cell) for cell in table.column(key))


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
