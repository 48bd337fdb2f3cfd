"""`pairgrad times` as a user runs it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import invoke

from pairgrad_paper.records import Records, read
from paper.tests.made import read as made_from


def test_a_record_from_which_the_table_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mine.jsonl"
    done = invoke("times", "--output", str(path), "--elements", "16", "--repeats", "1")
    assert done.exit_code == 0, done.stderr
    assert f"Written to {path}" in done.stdout.replace("\n", "")
    record = read(path)
    assert (record.name, record.record) == ("mine", "times")
    assert record.facts == {"elements": 16, "repeats": 1, "threads": 1}
    assert made_from("complexity", Records(path.parent)).column("dim") == [64, 128, 256, 512, 1024, 2048, 4096]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = invoke("times", "--output", str(tmp_path / "file" / "below" / "times.jsonl"))
    assert done.exit_code == 2
    assert "pairgrad times: --output: cannot write" in done.stderr
