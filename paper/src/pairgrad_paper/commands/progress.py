"""What is seen of a training run: a bar on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from pairgrad.cli import silence
from pairgrad.coherence import RunReport
from pairgrad.ground import printable
from pairgrad_paper.training import Observer


def tell(console: Console, words: str, style: str = "") -> None:
    """Print one line. A log that cannot be written any more does not end a training."""
    try:
        console.print(Text(printable(words), style=style))
    except OSError:
        silence(console)


def reading(report: RunReport) -> str:
    """The monitor's report in a few words: whether the custom backwards are derivatives, or how far the worst is off."""
    count = f"{len(report.nodes)} custom backward{'s' if len(report.nodes) > 1 else ''}"
    if not report.nodes:
        return "no custom backward seen"
    worst = max(report.nodes, key=lambda node: (not node.passed, node.defect))
    if not worst.passed:
        return f"{count}, {worst.verdict.value}: defect {worst.defect:.1e}"
    limit = max((node.worst.limit for node in report.nodes if node.worst is not None), default=0.0)
    return f"{count}, coherent to {limit:.0e}"


class Silent(Observer):
    """Messages only."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Leave the terminal as it was found."""

    def said(self, message: str) -> None:
        tell(self.console, message)


class Lines(Silent):
    """For logs: a line for every epoch after which the network was evaluated, and at least for every tenth of the run."""

    def __init__(self, console: Console, title: str = "") -> None:
        super().__init__(console)
        self.title = f"{title} " if title else ""
        self.began, self.start, self.steps, self.per_epoch = time.monotonic(), 0, 1, 1
        self.coherence, self.shown = "", 0

    def started(self, step: int, steps: int, per_epoch: int) -> None:
        self.began, self.start, self.steps, self.per_epoch, self.shown = time.monotonic(), step, steps, per_epoch, step

    def epoch(self, epoch: int, facts: Mapping[str, object]) -> None:
        step = (epoch + 1) * self.per_epoch
        if step < self.steps and step - self.shown < self.steps / 10 and not _evaluated(facts):
            return
        self.shown = step
        left = (time.monotonic() - self.began) / max(step - self.start, 1) * (self.steps - step)
        words = [f"{self.title}epoch {epoch + 1}", *_measures(facts), f"{_clock(left)} left"]
        if self.coherence:
            words.append(self.coherence)
        tell(self.console, "  ".join(words))

    def looked(self, step: int, report: RunReport) -> None:
        self.coherence = reading(report)


class Bar(Silent):
    """For terminals."""

    def __init__(self, console: Console, title: str = "") -> None:
        super().__init__(console)
        self.title = f"{title} " if title else ""
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[live]}", markup=False),
            console=console,
            transient=True,
        )
        self.task = self.bar.add_task("training", total=None, live="")
        self.live, self.coherence, self.running = "", "", True
        self.bar.start()

    def started(self, step: int, steps: int, per_epoch: int) -> None:
        self.per_epoch = per_epoch
        self.bar.reset(self.task, total=steps, completed=step, live="")

    def updated(self, step: int, measures: Mapping[str, float] | None) -> None:
        if measures is not None:
            self.live = f"loss {measures['total']:.4f}"
        description = f"{self.title}epoch {(step - 1) // self.per_epoch + 1}"
        self.bar.update(self.task, completed=step, description=description, live="  ".join(filter(None, (self.live, self.coherence))))

    def epoch(self, epoch: int, facts: Mapping[str, object]) -> None:
        if _evaluated(facts):
            tell(self.console, "  ".join([f"epoch {epoch + 1}", *_measures(facts)]))

    def looked(self, step: int, report: RunReport) -> None:
        self.coherence = reading(report)

    def saved(self, step: int, path: Path) -> None:
        self.bar.update(self.task, refresh=True)

    def finish(self) -> None:
        if self.running:
            self.running = False
            self.bar.stop()
            if self.coherence:
                tell(self.console, f"last look of the coherence monitor: {self.coherence}")


def shown_progress(console: Console, title: str = "") -> Bar | Lines:
    """A bar on a terminal, lines in a log."""
    return Bar(console, title) if console.is_terminal else Lines(console, title)


def _evaluated(facts: Mapping[str, object]) -> bool:
    return any(name.startswith("test_") for name in facts)


def _measures(facts: Mapping[str, object]) -> list[str]:
    shown = []
    for name, word in (("train_total", "loss"), ("train_accuracy", "training accuracy"), ("test_accuracy", "test"), ("test_few", "tail")):
        value = facts.get(name)
        if isinstance(value, float):
            shown.append(f"{word} {value:.4f}" if word == "loss" else f"{word} {100 * value:.1f}%")
    return shown


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
