"""What can go wrong with a run's files. Each message says which file, what is wrong with it and what to do."""

from __future__ import annotations


class RunError(RuntimeError):
    """A run's directory cannot be used as it is."""


class RunMismatch(RunError):
    """The directory holds another run than the one asked for. `differences` lists `key: there -> given`."""

    def __init__(self, message: str, differences: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.differences = differences


class RunLocked(RunError):
    """Another process works in the directory."""


class RunLockLost(RunError):
    """The lock file was removed or replaced while this process held it: another one may have entered."""


class SpaceError(RunError):
    """The disk has too little free space."""


class CheckpointError(RunError):
    """A checkpoint is damaged or missing."""


class CheckpointWriteError(RunError):
    """A checkpoint could not be written; older ones are as they were."""


class RunLogError(RunError):
    """The log of a run is damaged, or cannot be opened or written."""


class RunLogWriteError(RunLogError):
    """An event could not be written; the log is as it was."""
