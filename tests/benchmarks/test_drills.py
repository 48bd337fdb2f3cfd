"""The drills of docs/reliability.md: few tries of each find nothing wrong, and what is broken on purpose is found."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
from benchmarks.drills import disk, files, numbers, runs
from benchmarks.drills.__main__ import main
from benchmarks.drills.row import Drill

import pairgrad as pg

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


def wrong(drill: Drill, folder: Path) -> list[str]:
    """What went wrong in a few tries."""
    rows = list(drill(folder, True))
    assert rows
    return [row.found for row in rows if row.wrong]


@pytest.mark.parametrize("drill", [disk.crashes, disk.full])
def test_crashes_and_full_disks_lose_nothing(drill: Drill, tmp_path: Path) -> None:
    assert wrong(drill, tmp_path) == []


def test_numbers_are_as_accurate_as_documented(tmp_path: Path) -> None:
    assert wrong(numbers.numbers, tmp_path) == []


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    assert wrong(files.files, tmp_path) == []


def dies(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_readers_that_are_broken_are_noticed(tmp_path: Path) -> None:
    broken = {
        "pairgrad_paper.data.cifar.read_pickle": (pickle.loads, "executed: pickle.find_class"),
        "pairgrad_paper.records.files.read_json": (lambda text: 1 / 0, "ZeroDivisionError"),
        "pairgrad_paper.runs.manifest.read_safetensors": (dies, "the child ended with status 9"),
    }
    with ExitStack() as stack:
        for name, (instead, _) in broken.items():
            stack.enter_context(mock.patch(name, instead))
        found = wrong(files.files, tmp_path)
    assert len(found) == len(broken)
    assert all(any(noticed in each for each in found) for _, noticed in broken.values())


@pytest.mark.parametrize("name", ["log_prob", "entropy"])
def test_a_wrong_density_or_entropy_is_noticed(name: str, tmp_path: Path) -> None:
    right = getattr(pg.VonMisesFisher, name)
    with mock.patch.object(pg.VonMisesFisher, name, lambda *arguments: right(*arguments) * (1 + 1e-5)):
        (found,) = wrong(numbers.numbers, tmp_path)
    assert f"the worst: {name} in torch.float64" in found


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("drill", [runs.kills, runs.stops, runs.memory])
def test_runs_survive_what_is_done_to_their_processes(drill: Drill, tmp_path: Path) -> None:
    assert wrong(drill, tmp_path) == []


def nothing(*_: object, **__: object) -> None:
    pass


@pytest.mark.parametrize(
    ("drill", "what", "instead"),
    [
        (disk.crashes, "pairgrad_paper.runs.checkpoint.sync_directory", nothing),  # names that a power cut can take
        (disk.crashes, "pairgrad_paper.runs.log.RunLog.sync", nothing),  # a checkpoint whose record a power cut can take
        (disk.full, "pairgrad_paper.runs.checkpoint.CheckpointWriteError", KeyError),  # an error that no command explains
    ],
)
def test_what_is_left_out_of_a_run_is_noticed(drill: Drill, what: str, instead: Callable[..., object], tmp_path: Path) -> None:
    with mock.patch(what, instead):
        assert wrong(drill, tmp_path)


def test_a_few_tries_are_printed_and_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--few", "full"]) == 0
    assert "all resumed" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["earthquake"])
    assert "DRILL must be one of crashes, full, kills" in capsys.readouterr().err
