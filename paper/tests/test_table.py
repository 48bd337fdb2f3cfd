"""Tables as data, and their CSV and Markdown."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from pairgrad_paper.tables import (
    Check,
    Column,
    Printed,
    Table,
    compared,
    compared_columns,
    is_words,
    number,
    same_digits,
    to_caption,
    to_csv,
    to_markdown,
    write,
)

THIRD = 1 / 3


def small() -> Table:
    return Table(
        name="small",
        title="A title",
        caption="What is compared.",
        label="tab:some",
        columns=(
            Column("what", "what"),
            *compared_columns("value", "ours", ".2e"),
            Column("hidden", "hidden", ".1f", shown=False),
            Column("flag", "flag"),
        ),
        rows=(
            {"what": "|a|", **compared("value", THIRD, Printed("3.33e-01", "tab:some")), "hidden": 0.1, "flag": True},
            {"what": "b", **compared("value", 2 * THIRD, Printed("6.66e-01", "tab:some")), "hidden": None, "flag": False},
        ),
        checks=(Check("it holds", True), Check("it does not", False)),
        notes=("A note.",),
    )


@pytest.mark.parametrize(
    ("text", "ours", "same"),
    [
        ("2.74e-06", 2.7449e-6, True),
        ("2.74e-06", 2.7451e-6, False),
        ("2.74e-06", 2.7349e-6, False),
        ("4.00e-06", 3.9992e-6, True),  # the zeros are digits too
        ("4.00e-06", 3.994e-6, False),
        ("9.99e-06", 1.0001e-5, False),
        ("-3.02", -3.0164, True),
        ("-3.02", 3.0164, False),
        ("-3.02", -2.9965, False),
        ("34906.3", 34906.2503, True),
        ("1.56080", 1.560804, True),
        ("1.56080", 1.56081, False),
        ("2.74e-06", math.nan, False),
    ],
)
def test_same_digits(text: str, ours: float, same: bool) -> None:
    assert Printed(text, "tab:any").same_digits(ours) is same


def test_compared_cells() -> None:
    cells = compared("value", 2.0, Printed("4.0", "tab:any"), error="_error")
    assert cells == {"value_error": 2.0, "value_published": "4.0", "value_ratio": 0.5, "value_same_digits": False}
    assert set(cells) == {column.key for column in compared_columns("value", "v", "g", error="_error")}


def test_same_digits_counts_and_holds_only_for_all() -> None:
    rows = small().rows
    assert same_digits("x", rows[:1], "value").held
    check = same_digits("x", rows, "value")
    assert not check.held
    assert "in 1 of 2 rows" in check.text


def test_rows_and_columns_must_agree() -> None:
    with pytest.raises(ValueError, match=r"'t'.*\['a', 'b'\]"):
        Table("t", "", "", "", (Column("a", "a"),), ({"b": 1},))


def test_number_of_a_cell() -> None:
    row = {"count": 3, "size": 0.25, "word": "0.25", "none": None}
    assert (number(row, "count"), number(row, "size")) == (3.0, 0.25)
    for key in ("word", "none"):
        with pytest.raises(TypeError, match=f"{key} is .*, not a number"):
            number(row, key)


def test_csv_keeps_every_digit() -> None:
    rows = list(csv.DictReader(to_csv(small()).splitlines()))
    assert len(rows) == 2
    assert list(rows[0]) == ["what", "value", "value_published", "value_ratio", "value_same_digits", "hidden", "flag"]
    assert [float(row["value"]) for row in rows] == [THIRD, 2 * THIRD]
    assert [row["value_published"] for row in rows] == ["3.33e-01", "6.66e-01"]
    assert [float(row["value_ratio"]) for row in rows] == [THIRD / 0.333, 2 * THIRD / 0.666]
    assert [row["value_same_digits"] for row in rows] == ["yes", "no"]
    assert [row["hidden"] for row in rows] == ["0.1", ""]


def test_markdown_shows_columns_checks_and_notes() -> None:
    lines = to_markdown(small()).splitlines()
    assert lines[0] == "# A title"
    assert "What is compared. In the paper: `tab:some`." in lines
    assert "| what | ours | ours, published | ours / published | flag |" in lines
    assert "| --- | ---: | ---: | ---: | ---: |" in lines
    assert "| \\|a\\| | 3.33e-01 | 3.33e-01 | 1.0010 | yes |" in lines
    assert "- it holds: yes" in lines
    assert "- it does not: NO" in lines
    assert "A note." in lines
    assert "hidden" not in "\n".join(lines)


def test_caption_has_the_picture_and_the_data() -> None:
    text = to_caption(small())
    assert "![A title](small.png)" in text
    assert "[small.csv](small.csv)" in text
    assert "`tab:some`" in text


def test_words_and_numbers() -> None:
    assert [is_words(small(), key) for key in ("what", "value", "value_published", "flag")] == [True, False, False, False]


def test_files(tmp_path: Path) -> None:
    paths = write(small(), tmp_path / "new")
    assert [path.name for path in paths] == ["small.csv", "small.md"]
    assert paths[0].read_text() == to_csv(small())
    assert paths[1].read_text() == to_markdown(small())


def test_rounding_is_not_shown() -> None:
    column = Column("zero", "zero", ".1e", floor=1e-14)
    assert [column.text(cell) for cell in (0.0, -2.8e-17, 1e-14, -0.5, None, "text")] == [
        "< 1e-14",
        "< 1e-14",
        "1.0e-14",
        "-5.0e-01",
        "",
        "text",
    ]
    assert Column("zero", "zero", ".1e").text(0.0) == "0.0e+00"


def test_bounds_are_shown_rounded_up() -> None:
    assert Column("bound", "bound", ".2e", upwards=True).text(5.0516e-9) == "5.06e-09"
    assert Column("bound", "bound", ".2e").text(5.0516e-9) == "5.05e-09"
    assert Column("bound", "bound", ".2e", upwards=True).text(None) == ""
