"""The page of all tables and figures: whole, escaped, the same for the same input, and honest about what is missing or does not hold."""

from __future__ import annotations

import base64
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pairgrad_paper.catalogue import FigureRecipe, RecordedFigure
from pairgrad_paper.records import Records
from pairgrad_paper.report import Item, collected, render
from pairgrad_paper.tables import Table, to_csv

from . import fakes
from .fakes import COMMAND, FIGURES, NASTY, TABLES, Page


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    return collected(TABLES, FIGURES, fakes.records(tmp_path_factory.mktemp("records")))


@pytest.fixture(scope="module")
def page(made: list[Item]) -> Page:
    return Page(render(made))


def test_order_and_origin(made: list[Item]) -> None:
    assert [item.name for item in made] == ["cubic-decay", "task-summary", "parity"]  # as in the paper
    assert [item.made for item in made] == ["record", "not run", "computed"]
    assert [record.name for record in made[0].records] == ["fake-one"]


def test_progress_is_told(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def told(name: str, steps: int):
        seen.append((name, steps))
        return nullcontext(lambda: None)

    collected(TABLES, {}, Records(tmp_path), told)
    assert seen == [("parity", 1), ("task-summary", 1)]


def test_nothing_is_loaded_and_nothing_runs(page: Page, made: list[Item]) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "base", "form"}
    assert all(source.startswith("data:image/") for source in page.all("src"))
    assert all(address.startswith(("#", "data:")) for address in page.all("href"))
    assert not any(name.startswith("on") for _, given in page.elements for name in given)
    (policy,) = [given["content"] for _, given in page.elements if given.get("http-equiv") == "Content-Security-Policy"]
    assert str(policy).startswith("default-src 'none'; style-src 'sha256-")
    (style,) = re.findall(r"<style>(.+?)</style>", render(made), re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def test_links_lead_somewhere(page: Page) -> None:
    inside = [address[1:] for address in page.all("href") if address.startswith("#")]
    assert {"main", "parity", "cubic-decay", "task-summary"} <= set(inside)
    assert set(inside) <= set(page.all("id"))
    assert set(page.all("aria-labelledby")) <= set(page.all("id"))


def test_what_comes_from_outside_is_escaped(made: list[Item], page: Page) -> None:
    assert NASTY not in render(made)
    assert page.words.count(NASTY) >= 5  # caption, heading, cell, check, note
    assert ("code", {}) in page.elements
    assert "Never run <b>" in page.words
    assert "A <machine>, torch 9.9" in page.words


def test_not_run_says_how(page: Page) -> None:
    assert "Not run. Seven GPUs & days. To run it:" in page.words
    assert f"{COMMAND} pairgrad collect runs/*" in page.words
    assert "Never run <b> (table, not run)" in page.words


def test_a_check_that_does_not_hold_is_seen_without_colours(page: Page) -> None:
    assert "it holds: ✓ yes" in page.words
    assert f"it does not {NASTY}: ✕ NO" in page.words
    assert "✕ 1 of 2 checks hold" in page.words
    assert "Of the 3 checks on this page, 2 hold, and 1 do not." in page.words
    assert "Checks that do not hold are in: A table." in page.words


def test_overview_names_what_is_not_there(page: Page) -> None:
    assert "Of its 8 tables and 11 figures, 1 are computed here, 1 are made from records of runs, and 17 are not run" in page.words
    assert page.words.count("not on this page") == 16
    assert re.search(r"figure cubic-decay none counted ?1 of 1 checks hold fig:dimension-error record fake-one", page.words)
    assert "By pairgrad fake --it, on A <machine>, torch 9.9." in page.words


def test_pictures_and_data_are_inside(made: list[Item], page: Page) -> None:
    (image,) = [given for tag, given in page.elements if tag == "img"]
    kind, _, content = str(image["src"]).partition(";base64,")
    assert kind == "data:image/svg+xml"
    assert b"<svg" in base64.b64decode(content)
    assert str(image["alt"]).startswith("A figure. The error of the analytic ratio")
    links = {str(given["download"]): str(given["href"]) for tag, given in page.elements if tag == "a" and "download" in given}
    assert set(links) == {"parity.csv", "cubic-decay.csv"}
    data = base64.b64decode(links["parity.csv"].partition(";base64,")[2]).decode()
    assert data == to_csv(fakes.computed())
    assert "unseen" in data
    assert "unseen" not in page.words


def test_large_pictures_are_png(tmp_path: Path) -> None:
    def many(plt: Any, table: Table) -> Any:
        figure = fakes.draw(plt, table)
        figure.axes[0].scatter(range(10_000), range(10_000))
        return figure

    (item,) = collected({}, {"cubic-decay": RecordedFigure(fakes.read, many)}, fakes.records(tmp_path))
    assert item.picture.startswith("data:image/png;base64,")


def test_equal_input_equal_bytes(made: list[Item], tmp_path: Path) -> None:
    assert render(collected(TABLES, FIGURES, fakes.records(tmp_path))) == render(made)


def test_wide_boxes_can_be_reached_by_keyboard(page: Page) -> None:
    boxes = [given for _, given in page.elements if "scroll" in str(given.get("class"))]
    assert len(boxes) == 3
    assert all(given["tabindex"] == "0" and given["role"] == "region" and given["aria-label"] for given in boxes)


@pytest.mark.parametrize(
    "broken",
    ["<p><div></div></p>", "<ul><p></p></ul></p>", "<td></td>", "<b>", "<i id=a></i><i id=a></i>", "<b><i></b></i>", "<a x=1 x=2></a>"],
)
def test_broken_pages_are_noticed(broken: str) -> None:
    with pytest.raises(ValueError, match=r"<|closed|twice"):
        Page(broken)


def test_a_figure_that_is_computed(tmp_path: Path) -> None:
    recipe = FigureRecipe(1, lambda tick: fakes.read(fakes.records(tmp_path)), fakes.draw)
    (item,) = collected({}, {"cubic-decay": recipe}, Records(tmp_path))
    assert (item.made, item.kind) == ("computed", "figure")


def test_published_numbers_alone_are_not_called_a_result(tmp_path: Path) -> None:
    """The tables of tasks exist without a run; then they show what the paper printed, and the page says that nothing was run."""
    from pairgrad_paper.catalogue import TABLES as real

    (item,) = collected({"task-summary": real["task-summary"]}, {}, Records(tmp_path))
    assert item.table is not None
    assert item.made == "not run"
    assert "0 are computed here, 0 are made from records of runs, and 19 are not run" in Page(render([item])).words
