"""A watch over long runs: a bounded sample of visited states, audited between steps now and then, as scalars."""

from __future__ import annotations

import csv
import os
import random
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.report.run import NodeReport, RunReport
from pairgrad.coherence.training.record import STATEFUL, Recording
from pairgrad.ground.checks import describe, integer_at_least, one_of, real_number
from pairgrad.ground.files import followed
from pairgrad.ground.text import printable

REACTIONS = ("warn", "raise", "ignore")
# What a row of the file says of a function, beside the step and what the look took.
_CELLS: dict[str, Callable[[NodeReport], Any]] = {
    "function": lambda node: printable(node.name),
    "location": lambda node: printable(node.location or ""),
    "verdict": lambda node: node.verdict.value,
    "defect": lambda node: node.defect,
    "error": lambda node: node.defect_error,
    "limit": lambda node: None if node.worst is None else node.worst.limit,
    "visits": lambda node: node.visits,
    "looked": lambda node: node.looked,
    "decided": lambda node: node.decided,
    "failed": lambda node: node.failed,
    "share_low": lambda node: node.share_low,
    "share_high": lambda node: node.share_high,
}
_DIGITS = {"defect": 6, "error": 6, "limit": 6, "share_low": 4, "share_high": 4, "seconds": 4}  # of the file
COLUMNS: tuple[str, ...] = ("step", *_CELLS, "seconds")
PREFIX = "coherence"
OFTEN = 64  # steps between looks from which on not every step is watched
WATCHED = 4  # one of that many steps is, drawn at random
REMEMBERED = 1024  # looks whose reports are kept as rows


class CoherenceWarning(UserWarning):
    """A custom backward is incoherent at states that the run visits."""


class IncoherentBackward(RuntimeError):
    """Raised by a monitor with `reaction="raise"`; `report` is the RunReport."""

    def __init__(self, message: str, report: RunReport) -> None:
        super().__init__(message)
        self.report = report


class CoherenceMonitor:
    """Watches the custom backwards of a training run.

    Between two looks it keeps a few states of each function, drawn evenly from all that were visited in the steps that are watched: all of them, or, where
    looks are 64 steps or more apart, one in four, drawn at random. Every `every` steps, inside `step()`, it audits
    them, logs what it found and starts a new draw. Nothing is audited during a forward or a backward, results keep their bits, and memory is bounded
    however long the run is. (A Function that keeps state of its own between calls, outside of its arguments, is called by a look like by anybody else;
    it is noticed, and not called again.)

    Args:
        every: steps between two looks.
        states: kept of each function.
        memory: bytes that copies may take.
        share: of the running time that looks may take, over the whole run. A look ends when its time is up, with each function looked at once; what it takes
            more is made up for by leaving out later ones.
        csv: a file to append one row for each function and look to.
        writer: anything with `add_scalar(name, value, step)`, such as torch.utils.tensorboard.SummaryWriter.
        log: a callable that gets {name: value} and the step.
        reaction: "warn" (once for each function), "raise" or "ignore", when a function turns out to be incoherent and is not declared.
        seed: of the draw.

    Attributes:
        report: the latest RunReport; None before the first look.
        rows: a list of the latest 1,024 rows, oldest first, {column: value}, with the columns of the file: `step`, `visits`, `looked`, `decided` and
            `failed` are whole numbers; `defect`, `error`, `limit`, `share_low`, `share_high` and `seconds` are floats, `limit` None of a function that
            was not looked at; `function`, `location` and `verdict` are texts.

    Examples:
        >>> import torch, pairgrad as pg
        >>> model = torch.nn.Linear(3, 1)
        >>> with pg.CoherenceMonitor(every=10) as monitor:
        ...     for step in range(20):
        ...         model(torch.randn(4, 3)).square().mean().backward()
        ...         _ = monitor.step()
        >>> monitor.report.nodes  # no custom backward on the way
        ()
    """

    def __init__(
        self,
        every: int = 1000,
        *,
        states: int = 8,
        memory: int = 64 * 2**20,
        share: float = 0.02,
        csv: str | os.PathLike[str] | None = None,
        writer: Any = None,
        log: Callable[[Mapping[str, float], int], object] | None = None,
        reaction: str = "warn",
        seed: int = 0,
    ) -> None:
        self.every = integer_at_least("every", every, 1)
        expected = "a number above 0 and up to 1, the part of the running time that looks may take"
        share = real_number("share", share, expected, lambda part: 0 < part <= 1, kind=ValueError)
        if writer is not None and not callable(getattr(writer, "add_scalar", None)):
            raise TypeError(f"writer must have a method add_scalar(name, value, step), such as a SummaryWriter, got {describe(writer)}")
        if log is not None and not callable(log):
            raise TypeError(f"log must be a callable of a dict of scalars and a step, got {describe(log)}")
        self._share, self._writer, self._log = float(share), writer, log
        self._reaction = one_of("reaction", reaction, REACTIONS)
        if csv is not None and (not isinstance(csv, (str, os.PathLike)) or not str(csv)):
            raise TypeError(f"csv must be the path of a file, or None, got {describe(csv)}")
        self._csv = None if csv is None else Path(csv)
        self._recording = Recording(states=states, memory=memory, loss=False, seed=seed)
        if self._csv is not None:
            _begin(self._csv)
        self._steps = self._looked_at = self._last = 0
        self._running = False
        self._since, self._spent = time.perf_counter(), 0.0
        self._warned: set[str] = set()
        self._random = random.Random(int(seed))
        self.report: RunReport | None = None
        self.rows: list[dict[str, Any]] = []

    # The run ----------------------------------------------------------------------------------------------------------

    def start(self) -> CoherenceMonitor:
        """Begins to watch; does nothing if it does already."""
        if not self._running:
            self._recording.__enter__()
            self._running = True
        return self

    def stop(self) -> None:
        """Ends watching. What was kept since the last look can still be looked at with `look()`."""
        if self._running:
            self._recording.__exit__()
            self._running = False

    def __enter__(self) -> CoherenceMonitor:
        return self.start()

    def __exit__(self, kind: Any, *_: object) -> None:
        self.stop() if kind is not None else self.finish()

    def finish(self) -> None:
        """Looks once more if steps were made since the last look, and stops."""
        self.stop()
        if self._steps > self._looked_at:
            self._try_to_look(self._last)

    def step(self, step: int | None = None) -> RunReport | None:
        """To be called after each training step; returns the report if this was a step to look at.

        Args:
            step: its number in the logs; by default, steps are counted from 1.
        """
        self._steps += 1
        self._last = self._steps if step is None else step
        self._recording.watch(self.every < OFTEN or self._random.randrange(WATCHED) == 0)
        within = self._spent <= self._share * (
            time.perf_counter() - self._since
        )  # a look at large tensors may have taken more than its share
        return self._try_to_look(self._last) if self._steps % self.every == 0 and within else None

    def _try_to_look(self, step: int) -> RunReport | None:
        """A look that fails is reported, and does not end a training."""
        try:
            return self.look(step)
        except IncoherentBackward:
            raise
        except Exception as error:
            said = printable(f"at step {step} the monitor failed with {type(error).__name__}: {error}")
            warnings.warn(said, CoherenceWarning, stacklevel=3)
            return None

    def look(self, step: int | None = None) -> RunReport:
        """Audits what was kept since the last look, logs it, and starts a new draw."""
        step = self._last if step is None else integer_at_least("step", step, 0)
        started = time.perf_counter()
        allowed = max(1e-3, self._share * (started - self._since) - self._spent)
        try:
            report = self._recording.audit(effort="glance", seconds=allowed)
            for node in report.nodes:  # what keeps state of its own between calls is not called again: the run would notice
                if STATEFUL in node.note or node.verdict is Verdict.NOT_REENTRANT:
                    self._recording.leave_out(node.name, node.location)
        finally:
            self._recording.clear()
            self._looked_at = self._steps
            self._spent += time.perf_counter() - started
        self.report = report
        self._write(report, step)
        self._react(report, step)
        return report

    # What is seen -----------------------------------------------------------------------------------------------------

    def _write(self, report: RunReport, step: int) -> None:
        cells = [{name: cell(node) for name, cell in _CELLS.items()} for node in report.nodes]
        rows = [{"step": step, **entries, "seconds": report.seconds} for entries in cells]
        self.rows = [*self.rows, *rows][-REMEMBERED:]
        if self._csv is not None and rows:
            with followed(self._csv).open("a", newline="") as file:
                csv.DictWriter(file, COLUMNS).writerows({name: _written(name, value) for name, value in row.items()} for row in rows)
        scalars = scalars_of(report)
        if self._writer is not None:
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)
        if self._log is not None:
            self._log(scalars, step)

    def _react(self, report: RunReport, step: int) -> None:
        failing = [node for node in report.nodes if not node.passed and node.verdict is not Verdict.INCONCLUSIVE]
        if not failing or self._reaction == "ignore":
            return
        if self._reaction == "raise":
            self.stop()
            raise IncoherentBackward(f"at step {step}: {'; '.join(map(str, failing))}", report)
        for node in failing:
            key = f"{node.name} {node.location}"
            if key not in self._warned:
                self._warned.add(key)
                warnings.warn(f"at step {step}: {node}", CoherenceWarning, stacklevel=4)


def scalars_of(report: RunReport) -> dict[str, float]:
    """What a monitor logs of a report: for each function the largest defect, the limit and the share of states at which it fails; and how many fail."""
    scalars: dict[str, float] = {}
    names = [node.name for node in report.nodes]
    for node in report.nodes:
        if node.looked:
            name = printable(node.name if names.count(node.name) == 1 else f"{node.name} ({node.location})")
            scalars[f"{PREFIX}/defect/{name}"] = node.defect
            scalars[f"{PREFIX}/share/{name}"] = node.share
            assert node.worst is not None
            scalars[f"{PREFIX}/limit/{name}"] = node.worst.limit
    scalars[f"{PREFIX}/failing"] = float(sum(not node.passed and node.verdict is not Verdict.INCONCLUSIVE for node in report.nodes))
    scalars[f"{PREFIX}/seconds"] = report.seconds
    return scalars


def _written(column: str, value: Any) -> Any:
    """A value of a row as the file has it; what is missing is empty."""
    return f"{value:.{_DIGITS[column]}g}" if column in _DIGITS and value is not None else value


def _begin(path: Path) -> None:
    """Writes the head of the file, or finds it there: a run that is taken up again goes on in the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path = followed(path)
    head = ",".join(COLUMNS)
    if path.exists() and path.stat().st_size:
        with path.open(newline="", errors="replace") as file:
            found = file.readline(10 * len(head)).strip()
        if path.read_bytes()[-1:] != b"\n":  # a run that was ended in the middle of a row
            with path.open("a", newline="") as file:
                file.write("\r\n")
        if found != head:
            raise ValueError(
                f"csv must be a new file or one that a CoherenceMonitor wrote, but {path} begins with {found[:60]!r}: choose another name"
            )
        return
    with path.open("w", newline="") as file:
        file.write(head + "\r\n")
