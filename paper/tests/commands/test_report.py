"""`pairgrad report` as a user runs it."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest
from tests.cli.command import invoke

from pairgrad_paper import catalogue
from paper.tests.report import fakes


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "TABLES", fakes.TABLES)
    monkeypatch.setattr(catalogue, "FIGURES", fakes.FIGURES)


def test_one_file(tmp_path: Path) -> None:
    fakes.records(tmp_path / "records")
    done = invoke("report", "--output", str(tmp_path / "site"), "--records", str(tmp_path / "records"))
    assert done.exit_code == 0, done.stderr
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["index.html"]
    fakes.Page((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    assert "3 tables and figures, of which 1 are not run" in done.stdout
    assert "parity: it does not" in done.stdout
    assert "\x1b" not in done.stdout


def test_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address))
    fakes.records(tmp_path / "records")
    monkeypatch.chdir(tmp_path)
    assert invoke("report", "--output", "site", "--records", "records", "--open").exit_code == 0
    assert opened == [(tmp_path / "site" / "index.html").as_uri()]


def test_no_such_directory_of_records(tmp_path: Path) -> None:
    done = invoke("report", "--output", str(tmp_path), "--records", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert "none is not a directory of records" in done.stderr
