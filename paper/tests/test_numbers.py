"""Every published number, counted: the list is whole, verdicts are those of our tables, and pages say what the list says."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pairgrad_paper.catalogue import TABLES, SummaryTable
from pairgrad_paper.commands.tables import run
from pairgrad_paper.records import Records
from pairgrad_paper.report import Item, collected, render
from pairgrad_paper.tables import Printed, Row, Table, to_csv, to_markdown
from pairgrad_paper.tables.numbers import SOURCES, beside, counts, in_words, numbers, verdict
from pairgrad_paper.tables.published import COLUMNS, NUMBERS, SETUP

from . import run_fakes
from .made import made
from .records_fakes import stored
from .report.fakes import Page

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
# Counted in the LaTeX source by a script: numbers in the rows of a table and in the captions of tables and figures.
IN_TABLES = {
    "tab:task-summary": 84,
    "tab:backward-counterfactual": 13,
    "tab:parity-counterfactual": 27,
    "tab:captured-audit": 4,
    "tab:dimension-main": 34,
    "tab:endpoint-scaling": 30,
    "tab:h100-local": 10,
    "tab:task-complete": 123,
    "fig:proco-conditions": 4,
    "fig:dimension-error": 1,
    "fig:proco-state-distribution": 3,
    "fig:class-count-control": 4,
    "fig:patt-measured-field": 7,
    "fig:mechanism-controls": 2,
    "fig:regime-scaling": 5,
}


def stored_rows(name: str) -> Sequence[Row]:
    """What the evidence has of an item, with numbers as numbers."""
    with (EVIDENCE / f"{name}.csv").open(newline="") as file:
        return [{key: _cell(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _cell(text: str) -> float | str | None:
    try:
        return float(text)
    except ValueError:
        return text or None


@pytest.fixture(scope="module")
def table() -> Table:
    return numbers({name: stored_rows(name) for name in SOURCES})


def test_every_number_of_tables_and_captions_is_a_result_or_says_what_was_run() -> None:
    found = Counter(printed.label for printed in NUMBERS if printed.place != "text")
    for setup in SETUP:
        found[setup.label] += setup.count
    assert found == IN_TABLES
    assert sum(printed.place == "text" for printed in NUMBERS) == 13
    places = [(printed.label, printed.row, printed.column) for printed in NUMBERS]
    assert len(set(places)) == len(places) == 291
    assert sum(len(column.numbers) for column in COLUMNS) == len(NUMBERS)


def test_every_number_is_in_the_table_once(table: Table) -> None:
    rows = [(row["label"], row["row"], row["column"], row["published"]) for row in table.rows]
    assert rows == [(printed.label, printed.row, printed.column, printed.text) for printed in NUMBERS]


@pytest.mark.parametrize(
    ("text", "ours", "wanted"),
    [
        ("2.55e-03", 2.5549e-3, "equal in all digits"),
        ("2.55e-03", 2.556e-3, "equal in size"),
        ("2.00", 2.19, "equal in size"),
        ("2.00", 2.21, "differs"),
        ("-2.00", -1.8, "equal in size"),
        ("-2.00", 2.0, "differs"),
        ("0", 0.0, "equal in all digits"),
        ("0", 1e-12, "differs"),
        ("0", None, "not run"),
    ],
)
def test_verdicts(text: str, ours: float | None, wanted: str) -> None:
    assert verdict(Printed(text, "tab:any"), ours) == wanted


def test_what_differs_has_a_reason_and_what_was_not_run_says_what_it_needs(table: Table) -> None:
    assert all(row["why"] for row in table.rows if row["verdict"] in ("differs", "not run"))
    assert {row["why"] for row in table.rows if row["verdict"].startswith("equal")} == {None}  # type: ignore[union-attr]
    captured = [row for row in table.rows if row["label"] == "tab:captured-audit"]
    assert [row["verdict"] for row in captured] == ["differs", "differs", "equal in all digits", "equal in all digits"]
    assert [round(float(str(row["ratio"])), 2) for row in captured[:2]] == [0.27, 0.07]


def test_without_records_what_takes_them_is_not_run(tmp_path: Path) -> None:
    found = numbers({"captured-audit": (), "constants": stored_rows("constants")})
    of = {label: counts(row for row in found.rows if row["label"] == label) for label in ("tab:captured-audit", "app:curl-proof")}
    assert of["tab:captured-audit"]["not run"] == 4
    assert of["app:curl-proof"]["equal in all digits"] == 5
    assert all("pairgrad frozen" in str(row["why"]) for row in found.rows if row["label"] == "tab:captured-audit")


def test_runs_on_gpus_are_counted_as_soon_as_there_are_records(tmp_path: Path) -> None:
    full = [run_fakes.run("original", seed, "patt-cifar10-lt-if50", shift=seed / 100, notes=()) for seed in (1, 2)]
    records = stored(tmp_path, run_fakes.costs("cuda", original=270.0), *full)
    found = numbers({name: TABLES[name].table(lambda: None, records).rows for name in ("h100-local", "task-complete")})
    cells = {(row["label"], row["row"], row["column"]): row for row in found.rows}
    assert cells["tab:h100-local", "Original recurrence", "Runtime (ms)"]["verdict"] == "equal in size"
    assert cells["tab:h100-local", "AR/FR", "Runtime (ms)"]["verdict"] == "differs"
    assert cells["app:h100-local", "Structure-aware AR/FR beside AR/FR", "times faster"]["ours"] == pytest.approx(954.5 / 5.72)
    accuracy = cells["tab:task-complete", "CIFAR-10-LT, IF 50, Acc.", "Original recurrence"]
    assert (accuracy["ours"], accuracy["verdict"]) == (pytest.approx(53.5), "differs")
    assert cells["tab:task-complete", "CIFAR-10-LT, IF 50, Acc.", "Original recurrence, deviation"]["ours"] == pytest.approx(0.5**0.5)
    assert cells["tab:task-complete", "CIFAR-10-LT, IF 50, Acc.", "AR/FR"]["verdict"] == "not run"


def test_the_page_is_made_of_the_pages_of_the_tables(table: Table) -> None:
    assert (EVIDENCE / "numbers.md").read_text() == to_markdown(table), "make evidence writes it again"
    assert (EVIDENCE / "numbers.csv").read_text() == to_csv(table), "make evidence writes it again"
    counted = table.parts[0]
    assert counted.rows[-1]["numbers"] == sum(int(str(row["numbers"])) for row in counted.rows[:-1]) == 291


@pytest.mark.slow
def test_the_page_is_what_the_code_makes_now(table: Table) -> None:
    """The figures and tables that are computed take some seconds."""
    now = made("numbers")[0]
    assert [(row["verdict"], row["why"]) for row in now.rows] == [(row["verdict"], row["why"]) for row in table.rows]


def test_the_list_of_tables_has_the_counts(table: Table) -> None:
    """Of every table of the evidence that stands beside published numbers, in `index.md`."""
    seen = set()
    for line in (EVIDENCE / "index.md").read_text().splitlines():
        names = re.findall(r"\]\(([a-z0-9-]+)\.md\)", line.split("|")[1]) if line.startswith("| [") else []
        for name in names:
            if rows := beside(table.rows, name):
                seen.add(name)
                assert in_words(rows, of_all=True) in line, name
    assert seen == set(SOURCES) - {"patt-measured-field"}  # a figure


def test_a_terminal_shows_the_counts_and_not_every_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = TABLES["numbers"]
    monkeypatch.setattr(type(summary), "table", lambda self, tick, records: numbers({}))
    run(tmp_path, ["numbers"])
    said = capsys.readouterr().out
    assert "291 published numbers: 291 not run." in said
    assert "tab:captured-audit" in said
    assert "Finite-potential score" not in said
    assert "Finite-potential score" in (tmp_path / "numbers.csv").read_text()


def test_the_report_counts_beside_every_item(table: Table) -> None:
    items = collected({name: TABLES[name] for name in ("captured-audit", "cifar-study")}, {}, Records())
    words = Page(render([*items, Item("numbers", "table", table)])).words
    assert "291 published numbers: 60 equal in all digits" in words
    assert re.search(r"table captured-audit 2 of 4 equal in all digits, 2 differ ?2 of 2 checks hold", words)
    assert re.search(r"table cifar-study none counted ?2 of 2 checks hold", words)
    assert "All 291 rows" in words


def test_what_was_not_run_is_left_out_of_a_summary(tmp_path: Path) -> None:
    given: dict[str, Sequence[Row]] = {}

    def make(found: Mapping[str, Sequence[Row]]) -> Table:
        given.update(found)
        return table_of_nothing

    table_of_nothing = Table("numbers", "", "", "", (), ())
    ticks: list[None] = []
    assert SummaryTable(("captured-audit", "task-summary"), make).table(lambda: ticks.append(None), Records(tmp_path)) is table_of_nothing
    assert list(given) == ["task-summary"]
    assert len(ticks) == 2
