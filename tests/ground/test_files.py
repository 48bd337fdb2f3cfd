"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pairgrad.ground.files import sync_directory, write_atomically


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


def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        calls.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"{os.fstat(handle).st_size} bytes")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), replace(*names)))
    write_atomically(tmp_path / "x", "four")
    assert calls == ["4 bytes", "rename", *(["directory"] if os.name == "posix" else [])]


def test_a_directory_that_cannot_be_synced_is_no_failure_and_a_broken_disk_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(code: int) -> Callable[[int], None]:
        def fsync(handle: int) -> None:
            raise OSError(code, os.strerror(code))

        return fsync

    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    sync_directory(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync_directory(tmp_path)


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    assert write_atomically(link, "new") == link
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert [path.name for path in real.parent.iterdir()] == ["real.txt"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_the_umask_is_found_out_without_setting_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting it is for all threads: a file that another one makes in that moment would be writable for all users."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
    assert write_atomically(tmp_path / "x", "x").read_text() == "x"


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "x", "old")
    path.chmod(0o600)
    assert write_atomically(path, "new").read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        write_atomically(tmp_path / "a", "x")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to make the link of another user")
@pytest.mark.parametrize(
    ("mode", "owner", "refused"), [(0o1777, 12345, True), (0o1777, 0, False), (0o0777, 12345, False), (0o1755, 12345, False)]
)
def test_a_link_that_another_user_left_in_a_shared_directory_is_not_followed(mode: int, owner: int, refused: bool, tmp_path: Path) -> None:
    shared, private = tmp_path / "shared", tmp_path / "private"
    shared.mkdir()
    shared.chmod(mode)
    private.write_text("precious")
    (shared / "report.json").symlink_to(private)
    os.lchown(shared / "report.json", owner, owner)
    (tmp_path / "through").symlink_to(shared / "report.json")
    for path in (shared / "report.json", tmp_path / "through"):
        if refused:
            with pytest.raises(PermissionError, match=r"is a symbolic link of another user.*shared/report\.json"):
                write_atomically(path, "new")
            assert private.read_text() == "precious"
        else:
            write_atomically(path, "new")
            assert private.read_text() == "new"
