"""Directories of training runs that survive kill -9, power loss, full disks and two processes at once.

`directory` is the whole of it; `log` (events), `checkpoint` (with `manifest`, `listing` and `tree`), `lock`, `facts`, `space` and `errors` are its parts.
"""

from pairgrad_paper.runs.checkpoint import Checkpoint, check_checkpoint, latest_checkpoint, load_checkpoint, save_checkpoint
from pairgrad_paper.runs.directory import RunDirectory
from pairgrad_paper.runs.errors import (
    CheckpointError,
    CheckpointWriteError,
    RunError,
    RunLocked,
    RunLockLost,
    RunLogError,
    RunLogWriteError,
    RunMismatch,
    SpaceError,
)
from pairgrad_paper.runs.facts import environment, source_revision
from pairgrad_paper.runs.listing import checkpoints
from pairgrad_paper.runs.lock import RunLock
from pairgrad_paper.runs.log import RunLog, read_log, rewind
from pairgrad_paper.runs.space import check_space, required_space
from pairgrad_paper.runs.tree import flatten, unflatten

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointWriteError",
    "RunDirectory",
    "RunError",
    "RunLock",
    "RunLockLost",
    "RunLocked",
    "RunLog",
    "RunLogError",
    "RunLogWriteError",
    "RunMismatch",
    "SpaceError",
    "check_checkpoint",
    "check_space",
    "checkpoints",
    "environment",
    "flatten",
    "latest_checkpoint",
    "load_checkpoint",
    "read_log",
    "required_space",
    "rewind",
    "save_checkpoint",
    "source_revision",
    "unflatten",
]
