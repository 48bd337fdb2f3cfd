"""The drills of docs/reliability.md: few tries of each find nothing wrong, and what is broken on purpose is found."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
from benchmarks.drills import disk, files, numbers, runs
from benchmarks.drills.__main__ import main
from benchmarks.drills.kinds import Kind, kinds
from benchmarks.drills.row import Drill
from paper.tests.commands.several import ENVIRONMENT

import pairgrad as pg
from pairgrad.ground import write_atomically

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc"),
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # of JAX, where another test has imported it; the child does not use it
]


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


def opened(kind: Kind, folder: Path) -> list[str]:
    """What went wrong with the files of a kind that ask for much, and with a few others."""
    outcomes = files.opened(kind, folder, len(kind.hostile) + len(kind.harmless) + 1)
    return [outcome["wrong"] for outcome in outcomes if outcome["wrong"]]


def test_readers_without_limits_are_noticed(tmp_path: Path) -> None:
    limits = {
        "pairgrad.ground.reading._ROOM": "`.npz` files",
        "pairgrad.ground.reading._INFLATED": "`.npz` files",
        "pairgrad.ground.reading._TABLE": "`.safetensors` files of inputs",
        "pairgrad_paper.data.pictures._PIXELS": "pictures",
    }
    found = {kind.what: kind for kind in kinds(tmp_path, False)}
    for what in {*limits.values()}:
        assert opened(found[what], tmp_path / f"limited {what}") == []
    for limit, what in limits.items():
        with mock.patch(limit, 10**15):
            assert opened(found[what], tmp_path / limit), limit


def runs_out(*_: object) -> None:
    try:
        raise MemoryError
    except MemoryError:
        raise ValueError("x.txt is damaged") from None


def test_a_refusal_for_want_of_memory_is_noticed(tmp_path: Path) -> None:
    (found,) = opened(Kind("texts", [{"x.txt": b"x"}], runs_out), tmp_path / "opened")
    assert "refused only because memory ran out" in found


def test_a_child_that_is_paused_is_not_one_that_hangs(tmp_path: Path) -> None:
    def turns(*_: object) -> None:
        while True:
            pass

    with mock.patch.object(files, "HANGS", 1):
        assert opened(Kind("texts", [{"x.txt": b"x"}], lambda *_: time.sleep(1.5)), tmp_path / "paused") == []
        (found,) = opened(Kind("texts", [], turns, hostile=[{"x.txt": b"x"}]), tmp_path / "hangs")[:1]
    assert f"the child ended with status {signal.SIGPROF}" in found


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


PLANTED = """
import os
from pathlib import Path
from pairgrad_paper.runs import RunDirectory, RunError

right, planted = RunDirectory.resume, Path(__file__).with_name("planted")

def resume(*arguments, **options):
    found = right(*arguments, **options)
    if found is not None and not planted.exists():
        planted.touch()
        raise RunError("planted")
    return found

RunDirectory.resume = resume
"""


@pytest.mark.slow
@pytest.mark.distributed
def test_a_run_that_once_does_not_resume_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    with mock.patch.dict(ENVIRONMENT, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path])):
        row = next(runs.kills(tmp_path, True))
    assert (tmp_path / "planted").exists()
    assert row.wrong == 1
    assert "planted" in row.found


def nothing(*_: object, **__: object) -> None:
    pass


def without_its_name_on_the_disk(path: Path, content: str) -> None:
    with mock.patch("pairgrad.ground.files.sync_directory", nothing):
        write_atomically(path, content)


def unless_it_is_temporary(path: Path, missing_ok: bool = False, right: Callable[..., None] = Path.unlink) -> None:
    if not path.name.startswith(".result.json."):
        right(path, missing_ok)


@pytest.mark.parametrize(
    ("drill", "what", "instead"),
    [
        (disk.crashes, "pairgrad_paper.runs.checkpoint.sync_directory", nothing),  # names that a power cut can take
        (disk.crashes, "pairgrad_paper.runs.log.RunLog.sync", nothing),  # a checkpoint whose record a power cut can take
        (disk.crashes, "benchmarks.drills.disk.write_atomically", without_its_name_on_the_disk),  # a file that a power cut makes old again
        (disk.full, "pairgrad_paper.runs.checkpoint.CheckpointWriteError", KeyError),  # an error that no command explains
        (disk.full, "pathlib.Path.unlink", unless_it_is_temporary),  # a temporary file that stays
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
