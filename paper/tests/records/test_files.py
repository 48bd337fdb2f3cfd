"""Records as files: what is read back, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pairgrad_paper.records import Record, RecordError, read, to_lines, write

HEAD = {
    "kind": "record",
    "format": 1,
    "record": "fork",
    "title": "A fork",
    "facts": {"seed": 1},
    "environment": {"command": "pairgrad fork"},
}
LINES = to_lines("probe", [{"step": 0, "gap": 0.1 + 0.2}, {"step": 5, "gap": 1e-300}])


def record(name: str = "fork-a") -> Record:
    return Record(name, "fork", "A fork", {"seed": 1}, {"command": "pairgrad fork"}, (*LINES, {"kind": "end", "step": 5}))


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = write(tmp_path / "below" / "fork-a.jsonl", record())
    assert read(path) == record()
    assert read(path).command == "pairgrad fork"
    assert json.loads(path.read_text().splitlines()[0]) == HEAD
    before = path.read_bytes()
    assert write(path, read(path)).read_bytes() == before


def test_lines_of_a_kind() -> None:
    assert record().of("probe") == list(LINES)
    assert record().one("end") == {"kind": "end", "step": 5}
    with pytest.raises(RecordError, match=r"record fork-a has no lines of kind 'loss'; it has end, probe"):
        record().of("loss")
    with pytest.raises(RecordError, match=r"must have one line of kind 'probe', got 2"):
        record().one("probe")


def test_numbers_that_json_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(tmp_path / "a.jsonl", Record("a", "fork", "A", {}, {}, ({"kind": "probe", "gap": math.nan},)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damaged", ['{"kind": "probe", "step":', "[1, 2]", '{"step": 3}', '{"kind": 7}'])
def test_a_damaged_line_is_named(tmp_path: Path, damaged: str) -> None:
    path = written(tmp_path / "a.jsonl", HEAD, {"kind": "probe"}, damaged)
    with pytest.raises(RecordError, match=r"a\.jsonl, line 3,"):
        read(path)


@pytest.mark.parametrize("key", ["kind", "format", "record", "title", "facts", "environment"])
def test_a_first_line_that_lacks_something(tmp_path: Path, key: str) -> None:
    head = {name: value for name, value in HEAD.items() if name != key}
    with pytest.raises(
        RecordError, match="must be an object with a kind" if key == "kind" else "is not a record: its first line must have"
    ):
        read(written(tmp_path / "a.jsonl", head))


def test_another_format_and_no_record_at_all(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="has format 2, and this version of pairgrad reads format 1"):
        read(written(tmp_path / "a.jsonl", {**HEAD, "format": 2}))
    with pytest.raises(RecordError, match="is not a record"):
        read(written(tmp_path / "b.jsonl"))
    with pytest.raises(RecordError, match="is not a record"):
        read(written(tmp_path / "c.jsonl", {"kind": "step", "step": 10}))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    for name in ("folder.jsonl", "bytes.jsonl", "missing.jsonl"):
        with pytest.raises(RecordError, match=f"{name} cannot be read as a record"):
            read(tmp_path / name)


def test_blank_lines_do_not_count(tmp_path: Path) -> None:
    assert len(read(written(tmp_path / "a.jsonl", HEAD, "", {"kind": "probe"}, "  ")).lines) == 1


def test_a_line_nested_too_deeply_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"a\.jsonl, line 2, .*nested more than 64 deep"):
        read(written(tmp_path / "a.jsonl", HEAD, "[" * 900 + "]" * 900))
