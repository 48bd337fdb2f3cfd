"""A small catalogue, a record, and HTML read strictly."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pairgrad_paper import records as store
from pairgrad_paper.catalogue import FigureRecipe, RecordedFigure, RecordedTable, TableRecipe
from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables import Check, Column, NotRun, Table, Tick

NASTY = "<script>alert('&')</script>\"><img src=x>"
COMMAND = "pairgrad some --option <value>"


def computed(tick: Tick = lambda: None) -> Table:
    tick()
    return Table(
        name="parity",
        title="A table",
        caption=f"Caption with `code` and {NASTY}.",
        label="tab:parity-counterfactual",
        columns=(Column("what", f"heading {NASTY}"), Column("value", "value", ".2e"), Column("hidden", "hidden", shown=False)),
        rows=({"what": NASTY, "value": 1 / 3, "hidden": "unseen"}, {"what": "b", "value": 2.0, "hidden": None}),
        checks=(Check("it holds", True), Check(f"it does not {NASTY}", False)),
        notes=(f"A note. {NASTY}",),
    )


def read(records: Records) -> Table:
    (record,) = records.of("fake")
    rows = tuple({"x": line["x"], "y": line["y"]} for line in record.of("point"))
    checks = (Check("two points", len(rows) == 2),)
    return Table("cubic-decay", "A figure", "What is drawn.", "fig:dimension-error", (Column("x", "x"), Column("y", "y")), rows, checks)


def draw(plt: Any, table: Table) -> Any:
    figure, axes = plt.subplots(figsize=(3, 2))
    axes.plot(table.numbers("x"), table.numbers("y"))
    return figure


def absent(records: Records) -> Table:
    raise NotRun("Never run <b>", "tab:task-summary", [COMMAND, "pairgrad collect runs/*"], "Seven GPUs & days")


TABLES = {"parity": TableRecipe(1, computed), "task-summary": RecordedTable(absent)}
FIGURES: dict[str, FigureRecipe | RecordedFigure] = {"cubic-decay": RecordedFigure(read, draw)}


def records(directory: Path) -> Records:
    """A directory with one record that is used and one that is not."""
    environment = {"versions": {"torch": "9.9"}, "device": {"name": "A <machine>"}, "command": "pairgrad fake --it"}
    lines = tuple({"kind": "point", "x": x, "y": y} for x, y in ((0.0, 1.0), (1.0, 3.0)))
    store.write(directory / "fake-one.jsonl", Record("fake-one", "fake", f"A record. {NASTY}", {}, environment, lines))
    store.write(directory / "unused.jsonl", Record("unused", "other", "Another.", {}, environment, ()))
    return Records(directory)


_EMPTY = {"meta", "link", "img", "br", "hr", "input"}
_ONLY_IN = {"tr": {"thead", "tbody"}, "td": {"tr"}, "th": {"tr"}, "li": {"ul", "ol"}, "figcaption": {"figure"}, "summary": {"details"}}
_NOT_IN_P = {"p", "div", "ul", "ol", "table", "pre", "figure", "section", "article", "h1", "h2", "h3", "details"}


class Page(HTMLParser):
    """Elements with their attributes; a ValueError where they are not nested as they must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        if self.open:
            raise ValueError(f"never closed: {self.open}")
        ids = self.all("id")
        if len(ids) != len(set(ids)):
            raise ValueError(f"twice: {sorted({each for each in ids if ids.count(each) > 1})}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        parent = self.open[-1] if self.open else ""
        if tag in _ONLY_IN and parent not in _ONLY_IN[tag]:
            raise ValueError(f"<{tag}> in <{parent}>, line {self.getpos()[0]}")
        if tag in _NOT_IN_P and "p" in self.open:
            raise ValueError(f"<{tag}> in <p>, line {self.getpos()[0]}")
        if len(attrs) != len(dict(attrs)):
            raise ValueError(f"<{tag}> has an attribute twice, line {self.getpos()[0]}")
        self.elements.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"</{tag}> closes nothing, line {self.getpos()[0]}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.text.append(data)

    def all(self, attribute: str, tag: str | None = None) -> list[str]:
        return [str(given[attribute]) for name, given in self.elements if attribute in given and tag in (None, name)]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())
