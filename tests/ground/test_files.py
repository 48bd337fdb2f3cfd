"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pairgrad.ground.files import write_atomically


def test_writes_text_and_bytes_and_makes_parents(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "a" / "b.txt", "täxt").read_text() == "täxt"
    assert write_atomically(tmp_path / "c.bin", b"\x00\xff").read_bytes() == b"\x00\xff"


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_atomically(tmp_path / "kept.txt", "old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept.txt"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_atomically(tmp_path / "x", "x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
