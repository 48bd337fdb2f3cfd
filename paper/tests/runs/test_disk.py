"""Full and read-only disks: nothing half-written stays, what was good stays good, and the message says what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from pairgrad_paper.runs import (
    CheckpointError,
    CheckpointWriteError,
    RunDirectory,
    RunError,
    RunLog,
    RunLogError,
    SpaceError,
    check_space,
    latest_checkpoint,
    read_log,
    required_space,
    save_checkpoint,
)

from .disks import directory_to_lock, limited_files, read_only, small_disk

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs mounts or limits of POSIX")

SMALL, LARGE = {"x": torch.arange(1000.0)}, {"x": torch.arange(400_000.0)}  # 4 kB and 1.6 MB: the disks have 1 MB
Filled = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=["tmpfs", "limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Filled]]:
    """A directory, and a context in which no more than 1 MB can be written there."""
    if request.param == "tmpfs":
        with small_disk(tmp_path / "disk") as folder:
            yield folder, contextlib.nullcontext
    else:
        yield tmp_path, lambda: limited_files(1 << 20)


def unexpected(error: CheckpointError) -> None:
    raise AssertionError(f"reported as damaged: {error}")


def test_a_checkpoint_that_does_not_fit_leaves_the_older_ones(disk: tuple[Path, Filled]) -> None:
    folder, full = disk
    good = save_checkpoint(folder, 1, SMALL)
    free = os.statvfs(folder).f_bavail
    with full(), pytest.raises(CheckpointWriteError) as failure:
        save_checkpoint(folder, 2, LARGE)
    message = str(failure.value)
    assert re.search(r"step 2 in .*(No space left on device|File too large).*It needs 1\.5 MiB, .* are free", message), message
    assert (
        f"{good} is intact and stays. Free space, or make the directory writable, and run the same command again: it resumes from step 1"
        in message
    )
    assert os.listdir(folder) == ["step-00000001"]
    loaded = latest_checkpoint(folder, unexpected)
    assert loaded is not None
    assert torch.equal(loaded.state["x"], SMALL["x"])
    if folder.name == "disk":  # nobody else writes there
        assert os.statvfs(folder).f_bavail == free
    save_checkpoint(folder, 2, SMALL)
    assert sorted(os.listdir(folder)) == ["step-00000001", "step-00000002"]


def test_what_a_killed_save_left_does_not_take_the_room_of_the_next(tmp_path: Path) -> None:
    def left(checkpoints: Path) -> Path:
        leftover = checkpoints / ".step-00000001-abc.partial"
        leftover.mkdir(parents=True)
        (leftover / "state.safetensors").write_bytes(bytes(800_000))
        return leftover

    with small_disk(tmp_path / "disk") as folder:
        leftover = left(folder / "checkpoints")
        save_checkpoint(folder / "checkpoints", 2, {"x": torch.zeros(100_000)})
        assert not leftover.exists()
        shutil.rmtree(folder / "checkpoints")
        RunDirectory.create(folder, {}).close()
        leftover = left(folder / "checkpoints")
        with RunDirectory.create(folder, {}) as run:
            run.check_space({"x": torch.zeros(75_000)})
        assert not leftover.exists()


def test_the_first_checkpoint_that_does_not_fit_says_that_there_is_none(disk: tuple[Path, Filled]) -> None:
    folder, full = disk
    with full(), pytest.raises(CheckpointWriteError, match=r"There is no earlier checkpoint\. .* it starts again"):
        save_checkpoint(folder / "checkpoints", 2, LARGE)
    assert os.listdir(folder / "checkpoints") == []


def test_damaged_checkpoints_are_not_called_good(disk: tuple[Path, Filled]) -> None:
    folder, full = disk
    good, damaged = save_checkpoint(folder, 1, SMALL), save_checkpoint(folder, 2, SMALL)
    content = bytearray((damaged / "state.safetensors").read_bytes())
    content[-1] ^= 1
    (damaged / "state.safetensors").write_bytes(content)
    with full(), pytest.raises(CheckpointWriteError, match=rf"{good} is intact and stays.*from step 1$"):
        save_checkpoint(folder, 3, LARGE)


def test_a_log_on_a_full_disk_keeps_whole_lines(disk: tuple[Path, Filled]) -> None:
    folder, full = disk
    path = folder / "record.jsonl"
    with full(), RunLog(path) as log:
        fits = 0
        with contextlib.suppress(RunLogError):
            for fits in range(1000):
                log.write("step", fits, text="x" * 5000)
        size = path.stat().st_size
        with pytest.raises(RunLogError, match=r"record\.jsonl cannot be written \((No space left|File too large).*free space on its disk"):
            log.write("step", fits, text="x" * 5000)
        assert path.stat().st_size == size
    assert [event["step"] for event in read_log(path, on_torn=pytest.fail)] == list(range(fits))
    assert 100 < fits < 300


def test_a_run_on_a_full_disk_says_so_before_it_starts(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as folder:
        with (folder / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1024))
        with pytest.raises(RunError, match=r"run cannot be written \(No space left on device\): its disk is full: free space"):
            RunDirectory.create(folder / "run", {})


def test_a_used_up_quota_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(RunError, match=r"run cannot be written \(Disk quota exceeded\): its disk is full: free space"):
        RunDirectory.create(tmp_path / "run", {})
    assert os.listdir(tmp_path / "run") == []


@pytest.mark.parametrize("real", [True, False], ids=["tmpfs", "pretended"])
def test_space_is_checked_before_training(real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not real:
        used = iter([0, 0, 0, 0, 600_000, 600_000])
        monkeypatch.setattr(shutil, "disk_usage", lambda place: types.SimpleNamespace(free=(1 << 20) - next(used)))
    with small_disk(tmp_path / "disk") if real else contextlib.nullcontext(tmp_path / "disk") as folder:
        with pytest.raises(
            SpaceError, match=r"disk/run/checkpoints .*for 3 checkpoints: 4\.6 MiB are needed, 1\.0 MiB are free\. Free some"
        ):
            check_space(folder / "run" / "checkpoints", 3 * required_space(LARGE), "3 checkpoints")
        check_space(folder, 3 * required_space(SMALL), "3 checkpoints")
        middle = {"x": torch.zeros(75_000)}  # 0.3 MB: three fit, four do not
        with RunDirectory.create(folder / "run", {}) as run:
            run.check_space(middle, keep=2)
            with pytest.raises(SpaceError, match="for 4 checkpoints"):
                run.check_space(middle, keep=3)
            run.save(1, middle)
            run.save(2, middle)
            run.check_space(middle, keep=2)  # two of the three are there
            with pytest.raises(SpaceError, match="for 2 checkpoints"):
                run.check_space(middle, keep=3)


def test_required_space_is_enough_and_not_much_more(tmp_path: Path) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(50, 50) for _ in range(10)))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 50)).sum().backward()
    optimizer.step()
    states: list[Any] = [
        {},
        SMALL,
        {"é\\'\"" * 50: torch.zeros(2, 1, 1, 1)},
        {number: torch.zeros(()) for number in range(1000)},
        list(range(20_000)),
        {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    ]
    for state in states:
        path = save_checkpoint(tmp_path, 0, state)
        used = sum(file.stat().st_size for file in path.iterdir())
        assert used <= required_space(state) <= 1.5 * used + 24 * 1024


def test_a_read_only_directory_is_refused_before_anything(tmp_path: Path) -> None:
    with directory_to_lock(tmp_path / "place") as folder:
        good = save_checkpoint(folder / "checkpoints", 1, SMALL)
        with read_only(folder):
            with pytest.raises(
                RunError, match=r"place cannot be written \((Read-only file system|Permission denied)\): make it writable, or choose"
            ):
                RunDirectory.create(folder, {})
            with pytest.raises(RunError, match=r"new cannot be written"):
                RunDirectory.create(folder / "new", {})
            with pytest.raises(CheckpointWriteError, match=rf"(Read-only file system|Permission denied).*{good} is intact"):
                save_checkpoint(folder / "checkpoints", 2, SMALL)
            with pytest.raises(RunLogError, match=r"record\.jsonl cannot be opened for writing"):
                RunLog(folder / "record.jsonl")
            assert latest_checkpoint(folder / "checkpoints", unexpected) is not None


def test_interrupting_a_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, SMALL)
    assert os.listdir(tmp_path) == []
