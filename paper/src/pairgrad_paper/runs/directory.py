"""The directory of a run: what the run is, its log and its checkpoints.

```
RUN/
  run.json                 what the run is; written once, and again if it resumes with other options (`may_change`)
  record.jsonl             what happened, one line of JSON per event
  checkpoints/step-.../    what is needed to resume
  .lock                    held while a process works here
```
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from pairgrad.ground import integer_at_least, read_bytes, read_json, sync_directory, write_atomically
from pairgrad_paper.runs.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint, remove_leftovers, save_checkpoint
from pairgrad_paper.runs.errors import CheckpointError, CheckpointWriteError, RunError, RunLockLost, RunMismatch
from pairgrad_paper.runs.listing import checkpoints, step_of
from pairgrad_paper.runs.lock import LOCK, RunLock
from pairgrad_paper.runs.log import RunLog, read_log, rewind
from pairgrad_paper.runs.space import check_space, required_space

FORMAT = 1
RUN, LOG, CHECKPOINTS = "run.json", "record.jsonl", "checkpoints"
BEFORE = "before"  # among the facts: what some of them were in the earlier parts of the run
_PROBE = ".writable."
_TEMPORARIES = (f".{RUN}.", f".{LOG}.", ".coherence.csv.", _PROBE)  # what a killed write leaves


class RunDirectory:
    """A run's directory; use `create` to train in it and `open` to look at it.

    Attributes:
        path: of the directory.
        facts: what the run is, as given to `create`.
        environment: in what it was started.
        resumed: whether the run was there before.
        changed: a line for each fact that is another than before, where `create` was told that it may be.
        rewound: how many lines `resume` took from the log.
        warning: a sentence to show to the user, or None.
    """

    def __init__(self, path: Path, facts: dict[str, Any], environment: dict[str, Any], *, resumed: bool, lock: RunLock | None) -> None:
        self.path, self.facts, self.environment, self.resumed = path, facts, environment, resumed
        self._lock = lock
        self._log: RunLog | None = None
        self.rewound = 0
        self.changed: tuple[str, ...] = ()
        self.warning = lock.warning if lock else None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        facts: dict[str, Any],
        environment: dict[str, Any] | None = None,
        *,
        may_change: Collection[str] = (),
    ) -> Self:
        """Make the directory, or open the run in it, and lock it until the `with` block ends or `close` is called.

        Args:
            path: of the directory; parents are made.
            facts: what the run is and what may not change when it is resumed: recipe, realization, seed, data. Strict JSON.
            environment: what may change: see `environment()`. Kept from the first time.
            may_change: names among the facts that may be others than they were: the run resumes with those given, and `facts["before"]` keeps the old ones.

        Raises:
            RunError: the directory cannot be written, or has files and no run.
            RunLocked: another process works in it.
            RunMismatch: it holds a run with other facts; the message lists them.
        """
        folder = Path(path)
        given = _as_json({"format": FORMAT, "facts": facts, "environment": environment or {}})
        _check_writable(folder)
        lock = RunLock(folder).__enter__()
        try:
            resumed = (folder / RUN).exists()
            if resumed:
                there = _read(folder)
                before = there["facts"].pop(BEFORE, [])
                differences = tuple(_differences(there["facts"], given["facts"]))
                if _differences(_without(may_change, there["facts"]), _without(may_change, given["facts"])):
                    listed = "; ".join(differences)
                    raise RunMismatch(
                        f"{folder} holds another run. What differs: {listed}. Give another output directory, or the options of that run",
                        differences,
                    )
                if differences:
                    before = [*before, {name: value for name, value in there["facts"].items() if name in may_change}]
                given = {**there, "facts": {**given["facts"], **({BEFORE: before} if before else {})}}
            else:
                differences = ()
                _refuse_foreign(folder)
            if not resumed or differences:
                write_atomically(folder / RUN, json.dumps(given, indent=2, allow_nan=False) + "\n")
            for leftover in (file for file in folder.iterdir() if file.name.startswith(_TEMPORARIES)):
                leftover.unlink(missing_ok=True)
            remove_leftovers(folder / CHECKPOINTS)
            run = cls(folder, given["facts"], given["environment"], resumed=resumed, lock=lock)
            run.changed = differences
            return run
        except BaseException:
            lock.__exit__(None, None, None)
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, lock: bool = False) -> Self:
        """The run in a directory, to read it, or with `lock` to write to it too; a RunError if there is none.

        Nothing is written without `lock`. With it the directory must be closed, as after `create`.
        """
        folder = Path(path)
        content = _read(folder)
        if lock:
            _check_writable(folder)
        held = RunLock(folder).__enter__() if lock else None
        return cls(folder, content["facts"], content["environment"], resumed=True, lock=held)

    @property
    def run_path(self) -> Path:
        return self.path / RUN

    @property
    def log_path(self) -> Path:
        return self.path / LOG

    @property
    def checkpoints_path(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def log(self) -> RunLog:
        """The log, open for writing; a RunLockLost if another process may write to it too."""
        self._check_held()
        if self._log is None:
            self._log = RunLog(self.log_path)
        return self._log

    def events(self, on_torn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
        """What the log has; see `read_log`. Empty if nothing was written yet."""
        return read_log(self.log_path, on_torn) if self.log_path.exists() else []

    def checkpoints(self) -> list[Path]:
        """Oldest first, whole or damaged."""
        return checkpoints(self.checkpoints_path)

    def latest(self, on_damage: Callable[[CheckpointError], None], device: str | torch.device = "cpu") -> Checkpoint | None:
        """The newest whole checkpoint; see `latest_checkpoint`."""
        return latest_checkpoint(self.checkpoints_path, on_damage, device)

    def resume(
        self,
        on_damage: Callable[[CheckpointError], None],
        device: str | torch.device = "cpu",
        source: str | os.PathLike[str] | None = None,
    ) -> Checkpoint | None:
        """`latest`, and the log cut back to that step; None and an empty log if no checkpoint was written yet.

        Args:
            on_damage: as in `latest`.
            device: as in `latest`.
            source: the checkpoint to resume from instead, of this run or a copy. Later ones are renamed to `step-... .aside` and stay.

        Raises:
            CheckpointError: there are checkpoints and none is whole, or `source` is not. Starting again is for the user to decide.
            RunMismatch: `source` lies in the directory of another run.
        """
        self._check_held()
        found = self.latest(on_damage, device) if source is None else self.chosen(source, device)
        if found is None and self.checkpoints():
            raise CheckpointError(
                f"none of the {len(self.checkpoints())} checkpoints in {self.checkpoints_path} is intact, and nothing was removed: "
                f"`pairgrad check {self.path}` says what is wrong with each. Resume from a copy of one with --from COPY, "
                "or start from the beginning in another directory with --output"
            )
        if found is not None and source is not None:
            self._set_aside(found.step)
        self._close_log()
        self.rewound = rewind(self.log_path, -1 if found is None else found.step)
        return found

    def chosen(self, source: str | os.PathLike[str], device: str | torch.device = "cpu") -> Checkpoint:
        """The checkpoint at `source`; a RunMismatch if it lies in the directory of another run."""
        run = Path(source).absolute().parent.parent
        if (run / RUN).exists() and (differences := self.differences(_without([BEFORE], _read(run)["facts"]))):
            listed = "; ".join(differences)
            raise RunMismatch(
                f"{source} is of another run than {self.path}. What differs: {listed}. Choose a checkpoint of this run", differences
            )
        return load_checkpoint(source, device)

    def _set_aside(self, step: int) -> None:
        """Take the checkpoints after `step` from the list without removing them."""
        for path in self.checkpoints():
            if (step_of(path) or 0) > step:
                numbers = (f".aside{number or ''}" for number in itertools.count())
                os.rename(path, next(name for name in (path.with_name(path.name + each) for each in numbers) if not name.exists()))

    def save(self, step: int, state: Any, *, keep: int = 2, extra: dict[str, Any] | None = None) -> Path:
        """Bring the log to the disk, then a checkpoint, then the event "checkpoint"; see `save_checkpoint`."""
        self._check_held()
        self.log.sync()
        path = save_checkpoint(self.checkpoints_path, step, state, keep=keep, extra=extra)
        self.log.write("checkpoint", step, name=path.name)
        return path

    def differences(self, facts: dict[str, Any]) -> tuple[str, ...]:
        """A line for each fact that is not what it is here."""
        return tuple(_differences(_without([BEFORE], self.facts), _as_json({"facts": facts})["facts"]))

    def check_space(self, state: Any, keep: int = 2) -> None:
        """A SpaceError if the disk cannot take the checkpoints that are still to come: `keep`, and one while it is written."""
        each = required_space(state)
        count = max(1, integer_at_least("keep", keep, 1) + 1 - len(self.checkpoints()))
        check_space(self.path, count * each, f"{count} checkpoint{'s' if count > 1 else ''}")

    def close(self) -> None:
        """Close the log and let go of the lock."""
        self._close_log()
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _check_held(self) -> None:
        if self._lock is None:
            raise RunError(
                f"{self.path} is open for reading only: use RunDirectory.create, or open with lock=True, and write before it is closed"
            )
        try:
            self._lock.check()
        except RunLockLost:
            if self.run_path.exists():
                raise
            raise CheckpointWriteError(
                f"{self.run_path} is gone: {self.path} was moved or removed while a run worked in it. What was saved before is where it was moved to; "
                "move it back and run the same command again"
            ) from None


def _check_writable(folder: Path) -> None:
    """Write a file, bring it to the disk and delete it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, probe = tempfile.mkstemp(dir=folder, prefix=_PROBE)
        try:
            os.write(handle, b"writable?\n")
            os.fsync(handle)
        finally:
            os.close(handle)
            os.unlink(probe)
        sync_directory(folder.absolute().parent)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            culprit = next((place for place in (folder, *folder.parents) if place.exists() and not place.is_dir()), folder)
            raise RunError(
                f"{folder} cannot be a run's directory: {culprit} is not a directory. Choose another output directory"
            ) from error
        what = "its disk is full: free space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
        raise RunError(f"{folder} cannot be written ({error.strerror}): {what}, or choose another output directory") from error


def _refuse_foreign(folder: Path) -> None:
    foreign = sorted(file.name for file in folder.iterdir() if file.name != LOCK and not file.name.startswith(_TEMPORARIES))
    if foreign:
        shown = ", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else "")
        raise RunError(f"{folder} is not empty and has no {RUN}: it has {shown}. Choose a new or an empty directory")


def _read(folder: Path) -> dict[str, Any]:
    path = folder / RUN
    try:
        content = read_json(read_bytes(path))
        if content["format"] != FORMAT:
            raise RunError(
                f"{path} has format {content['format']!r}, this version reads {FORMAT}: use the version of pairgrad that wrote it"
            )
        if not isinstance(content["facts"], dict) or not isinstance(content["environment"], dict):
            raise TypeError("facts and environment must be objects")
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): is {folder} the directory of a run?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged or not of a run ({type(error).__name__}: {error}): restore it, or choose another directory"
        ) from error
    return content


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    """`content` as it will be read back; tuples become lists."""
    try:
        return read_json(json.dumps(content, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise type(error)(f"facts and environment must be strict JSON: {error}") from error


def _without(names: Collection[str], facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in names}


def _differences(there: Any, given: Any, path: str = "") -> list[str]:
    """`key: there -> given` for every leaf that differs."""
    if isinstance(there, dict) and isinstance(given, dict):
        missing = object()
        lines: list[str] = []
        for key in dict.fromkeys([*there, *given]):
            name = f"{path}.{key}" if path else key
            first, second = there.get(key, missing), given.get(key, missing)
            if first is missing or second is missing:
                shown = ["(absent)" if value is missing else json.dumps(value) for value in (first, second)]
                lines.append(f"{name}: {shown[0]} there, {shown[1]} given")
            else:
                lines += _differences(first, second, name)
        return lines
    return [] if there == given and type(there) is type(given) else [f"{path}: {json.dumps(there)} there, {json.dumps(given)} given"]
