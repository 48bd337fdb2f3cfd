"""Several runs under one another: a bar for each on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pairgrad.coherence import RunReport
from pairgrad_paper.commands.progress import Lines, Silent, reading


class _Task(Silent):
    """One of the bars."""

    def __init__(self, console: Console, bars: Progress, task: TaskID) -> None:
        super().__init__(console)
        self._bars, self._task = bars, task
        self._loss, self._coherence = "", ""

    def started(self, step: int, steps: int, per_epoch: int) -> None:
        self._bars.start_task(self._task)
        self._bars.update(self._task, total=steps, completed=step)

    def updated(self, step: int, measures: Mapping[str, float] | None) -> None:
        if measures is not None:
            self._loss = f"loss {measures['total']:.3f}"
        self._bars.update(self._task, completed=step, live="  ".join(filter(None, (self._loss, self._coherence))))

    def looked(self, step: int, report: RunReport) -> None:
        worst = reading(report)
        self._coherence = "incoherent" if "incoherent" in worst else "coherent" if "coherent" in worst else ""


@contextmanager
def watched(console: Console, names: Sequence[str]) -> Iterator[dict[str, Silent]]:
    """An observer for each run; the bars stay when they are full."""
    if not console.is_terminal:
        yield {name: Lines(console, name) for name in names}
        return
    width = max(map(len, names))
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[live]}"),
        console=console,
    )
    with bars:
        yield {name: _Task(console, bars, bars.add_task(name.ljust(width), start=False, total=None, live="")) for name in names}
