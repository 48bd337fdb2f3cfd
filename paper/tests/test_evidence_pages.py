"""The pages of evidence are what the code makes now.

What is made from records must be equal byte for byte: nothing is computed but sums and ratios of stored numbers. What is computed must give the same page,
which shows few digits, and the same numbers and picture up to rounding, which differs between CPUs.
"""

from __future__ import annotations

import csv
import io
import math
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from tests.looks.pictures import resolution

from pairgrad_paper.catalogue import FIGURES, TABLES, FigureRecipe, RecordedFigure, RecordedTable, TableRecipe
from pairgrad_paper.figures import WIDEST
from pairgrad_paper.tables import NotRun, Table, to_caption, to_csv, to_markdown

from .made import made

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
RECORDED = [name for name, recipe in {**TABLES, **FIGURES}.items() if isinstance(recipe, RecordedTable | RecordedFigure)]
COMPUTED = [name for name, recipe in {**TABLES, **FIGURES}.items() if isinstance(recipe, TableRecipe | FigureRecipe)]
SLOW = {"two-class", "mechanism-controls", "difference-fidelity", "class-count-control"}  # 2 s to 5 s each
AGAIN = "make evidence writes it anew"
RELATIVE = 1e-6
# Sums and differences of numbers of size 1 that are zero in exact arithmetic: 64 units in the last place of 1. A column that divides such numbers by small
# ones has a floor of its own.
ABSOLUTE = 2.0**-46
# Rounding moves no line by a visible part of a pixel, but may decide how two segments of a line are joined: some pixels get another shade. A hundred in a
# picture of a million; two words that are others are more than a thousand.
PIXELS, SHADE = 1e-4, 0.25


def page(name: str, table: Table) -> str:
    return to_caption(table) if name in FIGURES else to_markdown(table)


def made_or_not(name: str) -> Table | NotRun:
    try:
        return made(name)[0]
    except NotRun as missing:
        return missing


def pinned(package: str) -> str:
    return re.findall(rf"^{package}==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]


def picture(name: str, table: Table) -> bytes | None:
    """A figure drawn now, with the version of matplotlib that drew those of the pages; None with another, or if it is a table."""
    if name not in FIGURES or pytest.importorskip("matplotlib").__version__ != pinned("matplotlib"):
        return None
    return FIGURES[name].picture(table, "png")


def differing(one: bytes, other: bytes) -> float:
    """The share of pixels of another shade; 1 if the pictures are not of one size."""
    from matplotlib.image import imread

    first, second = (numpy.asarray(imread(io.BytesIO(each), format="png")) for each in (one, other))
    return float((abs(first - second).max(axis=-1) > SHADE).mean()) if first.shape == second.shape else 1.0


@pytest.mark.parametrize("name", RECORDED)
def test_made_from_records(name: str) -> None:
    stored, table = EVIDENCE / f"{name}.md", made_or_not(name)
    if isinstance(table, NotRun):
        assert stored.read_text() == table.to_markdown(), AGAIN
        assert not stored.with_suffix(".csv").exists()
        assert not stored.with_suffix(".png").exists()
        return
    assert stored.read_text() == page(name, table), AGAIN
    assert stored.with_suffix(".csv").read_text() == to_csv(table), AGAIN
    drawn = picture(name, table)
    if drawn is not None:
        assert stored.with_suffix(".png").read_bytes() == drawn, AGAIN


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in COMPUTED])
def test_computed(name: str) -> None:
    stored = EVIDENCE / f"{name}.md"
    csv_text = stored.with_suffix(".csv").read_text()
    table = with_stored_rounding(made(name)[0], csv_text)
    assert stored.read_text() == page(name, table), AGAIN
    assert apart(table, csv_text) == []
    drawn = picture(name, table)
    if drawn is not None:
        assert differing(stored.with_suffix(".png").read_bytes(), drawn) < PIXELS, AGAIN


def test_pictures_can_be_read_in_a_column() -> None:
    """A wide picture is shown smaller, and its words with it."""
    pictures = {path.name: path.read_bytes() for path in sorted(EVIDENCE.glob("*.png"))}
    assert pictures
    width = {name: struct.unpack(">I", png[16:20])[0] / (resolution(png) or 1) for name, png in pictures.items()}
    assert {name: inches for name, inches in width.items() if inches > WIDEST} == {}


def apart(table: Table, stored: str) -> list[str]:
    """Where a CSV is not the table: words that differ, and numbers that differ by more than rounding."""
    old, new = (list(csv.reader(text.splitlines())) for text in (stored, to_csv(table)))
    if old[0] != new[0] or len(old) != len(new):
        return [f"columns {old[0]} and {new[0]}, {len(old)} and {len(new)} rows"]
    floors = [max(ABSOLUTE, column.floor) for column in table.columns]
    return [
        f"row {row}, {key}: {was} and {now}"
        for row, (before, after) in enumerate(zip(old[1:], new[1:], strict=True), 1)
        for key, floor, was, now in zip(new[0], floors, before, after, strict=True)
        if not alike(was, now, floor)
    ]


def with_stored_rounding(table: Table, stored: str) -> Table:
    """The table with the rounding errors of the processor that it was stored on, where those of this one are of the same size: within a factor of two."""
    keys = [column.key for column in table.columns if column.rounding]
    rows = []
    for now, was in zip(table.rows, csv.DictReader(stored.splitlines()), strict=True):
        sizes = {key: (float(was[key]), now[key]) for key in keys}
        rows.append({**now, **{key: old for key, (old, new) in sizes.items() if isinstance(new, float) and old / 2 <= new <= 2 * old}})
    return replace(table, rows=tuple(rows))


def alike(was: str, now: str, floor: float) -> bool:
    if was == now:
        return True
    try:
        numbers = float(was), float(now)
    except ValueError:
        return False
    if "." not in was + now and "e" not in was + now:
        return False  # whole numbers
    return math.isclose(*numbers, rel_tol=RELATIVE, abs_tol=floor)


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ("1.0", "1.0000009", True),
        ("1.0", "1.000002", False),
        ("word", "word", True),
        ("word", "other", False),
        ("", "1.0", False),
        ("3", "4", False),
        ("1000000", "1000001", False),
        ("2.8e-17", "-1.1e-16", True),
        ("9.66e-12", "9.70e-12", False),
        ("inf", "1e300", False),
    ],
)
def test_what_is_rounding(was: str, now: str, same: bool) -> None:
    assert alike(was, now, ABSOLUTE) is same


@pytest.mark.parametrize(("now", "same"), [(1.9e-7, True), (0.6e-7, True), (2.1e-7, False), (0.4e-7, False)])
def test_rounding_of_another_processor_is_of_the_same_size(now: float, same: bool) -> None:
    table, _ = made("ratio-fidelity")
    table = replace(table, rows=tuple({**row, "paired_float32_relative": now} for row in table.rows))
    stored = to_csv(replace(table, rows=tuple({**row, "paired_float32_relative": 1e-7} for row in table.rows)))
    assert (apart(with_stored_rounding(table, stored), stored) == []) is same


def test_every_file_belongs_to_an_item() -> None:
    names = {path.stem for path in EVIDENCE.iterdir() if path.suffix in (".md", ".csv", ".png")}
    assert names == {*TABLES, *FIGURES, "index", "study"}
