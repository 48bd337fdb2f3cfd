"""Training callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pairgrad.coherence import RunReport


class Observer:
    """Does nothing; a progress bar or a logger overrides what it wants to know."""

    def started(self, step: int, steps: int, per_epoch: int) -> None:
        """Training begins at update `step` of `steps`."""

    def updated(self, step: int, measures: Mapping[str, float] | None) -> None:
        """Update `step` is done; its measures, where they were read."""

    def epoch(self, epoch: int, facts: Mapping[str, object]) -> None:
        """An epoch is over."""

    def looked(self, step: int, report: RunReport) -> None:
        """The coherence monitor looked at the custom backwards."""

    def saved(self, step: int, path: Path) -> None:
        """A checkpoint is on disk."""

    def said(self, message: str) -> None:
        """Something that the user should know."""
