"""The numbers on the first page are those of the pages that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
(TABLE,) = re.findall(r"^\| \| pairgrad \| peers \| paper \| command \|\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
ROWS = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in TABLE.splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_number_is_on_the_page_that_is_named(row: list[str]) -> None:
    page = re.search(r"\]\(([^)]+)\)", row[-1])
    assert page is not None, row
    there = (ROOT / page[1]).read_text(encoding="utf-8").replace(",", "").replace(" / ", " of ")
    for cell in row[1:-1]:
        for number in re.findall(r"\d+ of \d+|\d+(?:\.\d+)?(?:e-\d+)?", cell):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", there), f"{number} is not on {page[1]}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_row_names_its_command(row: list[str]) -> None:
    command = re.search(r"\[`([^`]+)`\]", row[-1])
    assert command is not None
    words = command[1].split()
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        assert words[:3] == ["pairgrad", "tables", "--only"]
        assert (ROOT / "docs" / "evidence" / f"{words[3]}.md").exists()


def test_there_are_rows() -> None:
    assert len(ROWS) >= 8


def test_what_is_said_of_the_tests_is_on_their_pages() -> None:
    covered = re.search(r"ran (\d+\.\d) % of the lines", README)
    mistakes = re.search(r"of (\d+) small mistakes put\s+into .*\s+all\s+but (\d+) ", README)
    assert covered is not None
    assert mistakes is not None
    assert re.search(rf"^\| all \|.*\| {covered[1]} \|$", (ROOT / "docs" / "coverage.md").read_text(), re.MULTILINE)
    page = (ROOT / "docs" / "mutation-testing.md").read_text()
    counts = re.search(r"^\| all \| \d+ \| (\d+) \| (\d+) \| (\d+) \| \d+ \|$", page, re.MULTILINE)
    assert counts is not None
    killed, timed_out, survived = map(int, counts.groups())
    assert (int(mistakes[1]), int(mistakes[2])) == (killed + timed_out + survived, survived)


def test_what_is_said_to_matter_is_on_its_page() -> None:
    sentence = re.search(r"a true concentration of ([\d,]+) at dimension (\d+) is learned as ([\d,]*\d)", README)
    assert sentence is not None
    page = (ROOT / "docs" / "does-it-matter.md").read_text(encoding="utf-8")
    assert f"a concentration of {sentence[1]} at p = {sentence[2]} is learned as {sentence[3]}," in page
