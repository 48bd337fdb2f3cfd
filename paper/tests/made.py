"""Tables and figures of the catalogue, each made once in a process, whichever test asks first."""

from __future__ import annotations

from functools import cache

from pairgrad_paper.catalogue import FIGURES, TABLES
from pairgrad_paper.records import Records
from pairgrad_paper.tables import Table


@cache
def made(name: str) -> tuple[Table, int]:
    """The table of that name, or what the figure of that name draws, and how many ticks it made."""
    ticks: list[None] = []
    table = {**TABLES, **FIGURES}[name].table(lambda: ticks.append(None), Records())
    return table, len(ticks)


def read(name: str, records: Records) -> Table:
    """The table of that name, or what the figure of that name draws, from these records."""
    return {**TABLES, **FIGURES}[name].table(lambda: None, records)


def counted(name: str) -> Table:
    """The same, made with as many ticks as announced."""
    table, ticks = made(name)
    assert ticks == {**TABLES, **FIGURES}[name].steps
    assert table.name == name
    return table
