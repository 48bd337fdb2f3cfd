"""Directories of records, and that of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairgrad_paper.records import Record, RecordError, Records, write


def fill(folder: Path) -> Path:
    for name, kind in (("b", "run"), ("a", "run"), ("c", "fork")):
        write(folder / f"{name}.jsonl", Record(name, kind, "T", {"seed": ord(name)}, {}, ()))
    (folder / "notes.txt").write_text("not a record")
    return folder


def test_by_kind_in_the_order_of_their_names(tmp_path: Path) -> None:
    records = Records(fill(tmp_path))
    assert not records.own
    assert len(records) == 3
    assert [record.name for record in records] == ["a", "b", "c"]
    assert [record.name for record in records.of("run")] == ["a", "b"]
    assert [record.name for record in records.of("run", lambda record: record.facts["seed"] == 98)] == ["b"]
    assert records.of("frozen") == []


def test_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(RecordError, match="is not a directory of records: pairgrad collect makes one"):
            Records(place)


def test_one_damaged_record_is_named(tmp_path: Path) -> None:
    (fill(tmp_path) / "d.jsonl").write_text("{}\n")
    with pytest.raises(RecordError, match=r"d\.jsonl, line 1, must be an object with a kind"):
        Records(tmp_path).of("run")


def test_those_of_the_package() -> None:
    """Every record that comes with the package is whole, small, of a kind that is known, and has no path of the machine it was made on."""
    records = Records()
    assert records.own
    for record in records:
        path = records.directory / f"{record.name}.jsonl"
        assert record.record in ("run", "fork", "frozen", "states", "cost", "times")
        assert path.stat().st_size < 400_000
        text = path.read_text()
        assert not any(place in text for place in ('"/', " /home/", "/tmp/", "/work/", "/root/")), path.name
