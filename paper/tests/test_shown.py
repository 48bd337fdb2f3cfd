"""Pages that show what commands make hold it themselves, between two comments, and the commands that make it keep it up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairgrad_paper.catalogue import FIGURES, TABLES
from pairgrad_paper.tables import PLACE, NotRun, to_markdown, with_shown, write, write_not_run

from .made import made

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
PAGES = [page for page in sorted(EVIDENCE.glob("*.md")) if PLACE.search(page.read_text())]


def test_the_pages_are_found() -> None:
    assert [page.name for page in PAGES] == ["index.md", "study.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_is_stored(page: Path) -> None:
    text = page.read_text()
    names = [place["name"] for place in PLACE.finditer(text)]
    assert names == list(dict.fromkeys(names))
    assert set(names) <= {*TABLES, *FIGURES}
    for name in names:
        assert with_shown(text, name, (EVIDENCE / f"{name}.md").read_text()) == text, (
            f"{page.name} does not show {name}.md: make evidence mends it"
        )
    assert text.count("<!-- begin") == text.count("<!-- end") == len(names)


def test_an_item_is_shown_on_one_page() -> None:
    names = [place["name"] for page in PAGES for place in PLACE.finditer(page.read_text())]
    assert len(names) == len(set(names))
    assert set(FIGURES) <= set(names)


def test_no_page_includes_another_file() -> None:
    assert [page.name for page in ROOT.glob("docs/**/*.md") if "--8<--" in page.read_text()] == []


def test_writing_a_table_brings_pages_up_to_date(tmp_path: Path) -> None:
    table, _ = made("parity")
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text("Before.\n\n<!-- begin parity -->\nold\n<!-- end parity -->\n\nAfter <!-- begin parity -->, in a line.\n")
    other.write_text("<!-- begin constants -->\nkept\n<!-- end constants -->\n")
    assert [path.name for path in write(table, tmp_path)] == ["parity.csv", "parity.md", "page.md"]
    text = page.read_text()
    assert text.startswith("Before.\n\n<!-- begin parity -->\n\n")
    assert text.endswith("\n\n<!-- end parity -->\n\nAfter <!-- begin parity -->, in a line.\n")
    assert "old" not in text
    assert to_markdown(table).splitlines()[4] in text
    assert f"# {table.title}" not in text
    assert "kept" in other.read_text()
    assert [path.name for path in write(table, tmp_path)] == ["parity.csv", "parity.md"]  # nothing left to do


def test_what_was_not_run_is_shown_as_that(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin some -->\n<!-- end some -->\n")
    write_not_run(NotRun("A title", "tab:some", ("pairgrad tables",), "a GPU"), "some", tmp_path)
    assert "pairgrad tables" in page.read_text()
