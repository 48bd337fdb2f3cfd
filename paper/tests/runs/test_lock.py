"""One process at a time, however the other one ended."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pairgrad_paper.runs import RunDirectory, RunError, RunLock, RunLocked, RunLockLost

HOLDER = """
import os, sys, time
from pairgrad_paper.runs import RunLock

with RunLock(sys.argv[1]):
    child = os.fork()  # a data loader's worker, say
    if child:
        print(child, flush=True)
    time.sleep(3600)  # until it is killed
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        worker = int(holder.stdout.readline())
        try:
            with pytest.raises(
                RunLocked, match=rf"is in use by process {holder.pid} on .* since \d{{4}}-.*Wait for it, stop it, or choose"
            ):
                RunDirectory.create(tmp_path, {})
            assert not (tmp_path / "run.json").exists()
            holder.kill()
            holder.wait()
            os.kill(worker, 0)  # its child lives on
            RunDirectory.create(tmp_path, {}).close()
        finally:
            holder.kill()
            os.kill(worker, signal.SIGKILL)


def test_the_lock_is_free_after_the_block_and_the_file_stays(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLock(tmp_path) as held:
            assert held.warning is None
            assert f'"pid": {os.getpid()}' in (tmp_path / ".lock").read_text()
            with pytest.raises(RunLocked), RunLock(tmp_path):
                pass
        assert (tmp_path / ".lock").read_text() == ""


def test_a_file_left_by_a_dead_process_means_nothing(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text('{"pid": 1, "host": "elsewhere", "since": "once"}' * 10)
    with RunLock(tmp_path):
        assert (tmp_path / ".lock").read_text().count("pid") == 1


def test_a_holder_that_has_not_yet_said_who_it_is(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / ".lock").write_text('{"pid": 1, "ho')
        with pytest.raises(RunLocked, match="in use by another process"), RunLock(tmp_path):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_warning(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refused)
    with RunDirectory.create(tmp_path, {}) as run:
        assert run.warning == (
            f"the file system of {tmp_path} has no locks ({os.strerror(code)}): make sure that no other process works in this directory"
        )


def test_other_errors_are_not_taken_for_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(handle: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="Input/output error"), RunLock(tmp_path):
        pass


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"\.lock cannot be opened"), RunLock(tmp_path):
        pass
    assert (tmp_path / "elsewhere").read_text() == "precious"
    with pytest.raises(RunError, match=r"\.lock cannot be opened \(No such file or directory\)"), RunLock(tmp_path / "nowhere"):
        pass


def test_nothing_is_written_once_the_lock_file_is_gone(tmp_path: Path) -> None:
    """A second process gets in, and the records of the two would mix."""
    with RunDirectory.create(tmp_path, {}) as first:
        first.log.write("step", 1)
        first.save(1, {})
        (tmp_path / ".lock").unlink()
        message = r"\.lock was removed or replaced while this process worked in .* nothing more is written here\. When no other process"
        with pytest.raises(RunLockLost, match=message):
            first.log.write("step", 2)
        with RunDirectory.create(tmp_path, {}) as second:
            second.log.write("step", 2)
            for write in (lambda: first.save(2, {}), lambda: first.log.write("step", 3), lambda: first.resume(pytest.fail)):
                with pytest.raises(RunLockLost, match=message):
                    write()
            second.save(2, {})
        assert [event["step"] for event in second.events() if event["kind"] == "step"] == [1, 2]
        assert [path.name for path in second.checkpoints()] == ["step-00000001", "step-00000002"]


def test_a_lock_file_removed_while_it_is_being_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, removed = fcntl.flock, []

    def late(handle: int, operation: int) -> None:
        if not removed:
            removed.append(True)
            (tmp_path / ".lock").unlink()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with RunLock(tmp_path) as held:
        held.check()
        with pytest.raises(RunLocked), RunLock(tmp_path):
            pass
