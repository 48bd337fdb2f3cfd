"""What the page shows: every item of the catalogue, made, with what it was made from."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from pairgrad_paper.catalogue import FigureRecipe, RecordedFigure, RecordedTable, SummaryTable, TableRecipe
from pairgrad_paper.records import Record, Records
from pairgrad_paper.tables.not_run import NotRun
from pairgrad_paper.tables.paper_items import PAPER, SECTIONS, PaperItem, item_of, section_of
from pairgrad_paper.tables.table import Check, Table, Tick
from pairgrad_paper.tables.writers import to_csv

LARGEST_SVG = 300_000  # bytes; a larger picture is shown as PNG
Recipe = TableRecipe | RecordedTable | SummaryTable | FigureRecipe | RecordedFigure
Progress = Callable[[str, int], AbstractContextManager[Tick]]


@dataclass(frozen=True)
class Item:
    """One table or figure, or that it was not run.

    Attributes:
        name: in the catalogue.
        kind: `"table"` or `"figure"`.
        table: what is shown or drawn; None if it was not run.
        missing: what there is no record of; None if there is.
        records: that it was made from; none if it was computed.
        picture: of a figure, as a `data:` address.
        recorded: whether it is made from records, if there are any.
    """

    name: str
    kind: str
    table: Table | None
    missing: NotRun | None = None
    records: tuple[Record, ...] = ()
    picture: str = ""
    recorded: bool = False

    @property
    def title(self) -> str:
        return self.table.title if self.table else self.missing.title if self.missing else self.name

    @property
    def label(self) -> str:
        return self.table.label if self.table else self.missing.label if self.missing else ""

    @property
    def made(self) -> str:
        """How: `"not run"`, `"record"` or `"computed"`. A table that would be made from records and found none shows published numbers alone."""
        if self.table is None or (self.recorded and not self.records):
            return "not run"
        return "record" if self.records else "computed"

    @property
    def section(self) -> str:
        return section_of(self.name, self.label)

    @property
    def beside(self) -> PaperItem | None:
        """The table or figure of the paper."""
        return item_of(self.name)

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.table.checks if self.table else ()

    @property
    def held(self) -> int:
        return sum(check.held for check in self.checks)

    @property
    def alternative(self) -> str:
        """What stands for the picture where it cannot be seen; the caption follows it."""
        return f"{self.title}. {self.beside.shows if self.beside else ''}".strip()

    @property
    def csv(self) -> str:
        """The data as a `data:` address."""
        return address("text/csv;charset=utf-8", to_csv(self.table).encode()) if self.table else ""


def collected(
    tables: Mapping[str, TableRecipe | RecordedTable | SummaryTable],
    figures: Mapping[str, FigureRecipe | RecordedFigure],
    records: Records,
    progress: Progress = lambda name, steps: nullcontext(lambda: None),
) -> list[Item]:
    """Every item, computed or read, in the order of the paper; `progress` is told how far it is."""
    made = [_made(name, recipe, records, progress) for name, recipe in (*figures.items(), *tables.items())]
    sections, paper = list(SECTIONS), [name for item in PAPER.values() for name in item.names]
    return sorted(made, key=lambda item: (sections.index(item.section), paper.index(item.name) if item.name in paper else len(paper)))


def _made(name: str, recipe: Recipe, records: Records, progress: Progress) -> Item:
    watched = _Watched(records)
    kind = "figure" if isinstance(recipe, FigureRecipe | RecordedFigure) else "table"
    with progress(name, recipe.steps) as tick:
        try:
            table = recipe.table(tick, watched)
        except NotRun as missing:
            return Item(name, kind, None, missing)
        picture = _picture(recipe, table) if isinstance(recipe, FigureRecipe | RecordedFigure) else ""
    recorded = isinstance(recipe, RecordedTable | RecordedFigure)
    return Item(name, kind, table, None, tuple(watched.used.values()), picture, recorded)


def _picture(recipe: FigureRecipe | RecordedFigure, table: Table) -> str:
    drawn = recipe.picture(table, "svg")
    if len(drawn) <= LARGEST_SVG:
        return address("image/svg+xml", drawn)
    return address("image/png", recipe.picture(table, "png"))


def address(media: str, content: bytes) -> str:
    """A file as a `data:` address."""
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


class _Watched(Records):
    """Records that remember which of them were asked for."""

    def __init__(self, records: Records) -> None:
        super().__init__(None if records.own else records.directory)
        self._records = records
        self.used: dict[str, Record] = {}

    def of(self, record: str, matching: Callable[[Record], bool] = lambda _: True) -> list[Record]:
        return [self._noted(each) for each in self._records.of(record, matching)]

    def __iter__(self) -> Iterator[Record]:
        return (self._noted(each) for each in self._records)

    def __len__(self) -> int:
        return len(self._records)

    def _noted(self, record: Record) -> Record:
        self.used[record.name] = record
        return record
