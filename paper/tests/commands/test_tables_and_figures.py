"""`pairgrad tables` and `pairgrad figures` as a user runs them, and what they say when they cannot."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.cli.command import invoke

from pairgrad_paper import catalogue
from pairgrad_paper.tables import Check, Column, Table


def test_tables_of_those_names(tmp_path: Path) -> None:
    done = invoke("tables", "--output", str(tmp_path), "--only", "parity", "--only", "constants")
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"parity.csv", "parity.md", "constants.csv", "constants.md"}
    assert "1.645e+05" in done.stdout
    assert "-1.93915e-03" in done.stdout
    assert f"Written to {tmp_path}" in done.stdout.replace("\n", "")
    rows = list(csv.DictReader((tmp_path / "parity.csv").read_text().splitlines()))
    assert [row["nu"] for row in rows] == ["63", "64", "255", "256"]
    assert all(row["raw_same_digits"] == "yes" for row in rows)
    assert "`tab:parity-counterfactual`" in (tmp_path / "parity.md").read_text()
    assert "\x1b" not in done.stdout  # no bar and no colour where nobody looks


def test_figures_of_those_names(tmp_path: Path) -> None:
    done = invoke("figures", "--output", str(tmp_path), "--only", "clipped-defect")
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"clipped-defect.{kind}" for kind in ("svg", "png", "pdf", "csv", "md")}
    assert len((tmp_path / "clipped-defect.csv").read_text().splitlines()) == 131


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("tables", "ratio-fidelity, difference-fidelity, parity, constants, complexity"),
        ("figures", "value-and-slope, cubic-decay, concentration-depth, clipped-defect, complexity"),
    ],
)
def test_unknown_name_lists_the_known(command: str, known: str, tmp_path: Path) -> None:
    done = invoke(command, "--only", "nothing", "--output", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert f"'nothing'; there are {known}" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["demo", "tables", "figures"])
def test_a_directory_that_cannot_be_written(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = invoke(command, "--output", str(tmp_path / "file" / "below"))
    assert done.exit_code == 2
    assert f"pairgrad {command}: cannot write to" in done.stderr
    assert "choose another directory with --output" in done.stderr


def printed(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    columns = (Column("first", "first"), *(Column(f"c{i}", f"two words {i}", ".3e") for i in range(6)))
    row = {"first": "[bold]name[/bold]", **{f"c{i}": 10.0**-i / 3 for i in range(6)}}
    table = Table(
        "t", "A [title]", "Caption.", "tab:x", columns, (row,), (Check("it holds", True), Check("this too", False)), ("[A] note.",)
    )
    monkeypatch.setattr(catalogue, "TABLES", {"t": catalogue.TableRecipe(1, lambda tick: table)})
    text = invoke("tables", "--output", str(tmp_path), columns=width).stdout
    assert all(len(line) <= width for line in text.splitlines())
    return text


@pytest.mark.parametrize(("width", "blocks"), [(120, 1), (50, 2), (30, 6)])
def test_wide_tables_are_shown_in_blocks(width: int, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(width, tmp_path, monkeypatch)
    assert text.count("[bold]name[/bold]") == blocks
    for i in range(6):
        assert text.count(f"{10.0**-i / 3:.3e}") == 1
    assert "A [title]" in text
    assert "[A] note." in text
    assert "it holds: yes" in text
    assert "this too: NO" in text
    assert "…" not in text
