"""`pairgrad frozen`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pairgrad.experiments.frozen.capture import check_batch_size
from pairgrad.experiments.frozen.record import frozen_record
from pairgrad.experiments.frozen.source import Source
from pairgrad.experiments.records import Record, write
from pairgrad.experiments.settings import SettingError
from pairgrad.ground.balls import flint


@dataclass(frozen=True)
class Reading:
    """How a run is read, and where its record goes."""

    run: Path
    data_root: Path | None
    output: Path | None
    threads: int | None
    verify: bool

    def source(self) -> Source:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        if self.output is not None and not self.output.absolute().parent.is_dir():
            raise SettingError(f"--output must be a file in a directory that exists, got {self.output}: make {self.output.parent} first")
        if self.output is not None and self.output.is_dir():
            raise SettingError(f"--output must be a file, got the directory {self.output}")
        return Source.open(self.run, self.data_root, verify=self.verify)

    def write(self, record: Record, console: Console) -> None:
        path = Path(f"{record.name}.jsonl") if self.output is None else self.output
        write(path, record)
        console.print(Text(f"written to {path}"), soft_wrap=True)


def run(reading: Reading, steps: Sequence[int] | None, batch_size: int, save: Path | None, quiet: bool, console: Console) -> None:
    """Measure, say what was found and write it."""
    flint()  # the yardstick of the exact scores: better missed now than after minutes
    source = reading.source()
    check_batch_size(batch_size, len(source.benchmark.train))
    for step in steps or ():
        source.check_step(step)
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
    say = (lambda _: None) if quiet else (lambda sentence: console.print(Text(sentence, style="dim"), soft_wrap=True))
    record = frozen_record(source, steps or None, batch_size, reading.output.stem if reading.output else None, save, say)
    _show(record, console)
    reading.write(record, console)
    if save is not None:
        files = len(record.of("state"))
        console.print(Text(f"{files} captured views written to {save}: pairgrad certify --state FILE bounds their errors"), soft_wrap=True)


def _show(record: Record, console: Console) -> None:
    table = Table("update", "view", "r / nu", "at the cap", "scores and loss", "defect", "gradient, relative")
    for state, found in zip(record.of("state"), record.of("counterfactual"), strict=True):
        table.add_row(
            str(state["step"]),
            str(state["view"]),
            f"{state['radius_low']:.2f} to {state['radius_high']:.2f}",
            f"{state['capped']} of {state['classes']}",
            "equal" if found["score"] == found["loss"] == 0 else "differ",
            f"{found['defect']:.3e}",
            f"{found['relative']:.3e}",
        )
    console.print(table)
    last = record.of("replay")[-1]
    console.print(
        Text(
            f"one update at {last['step']}: gradients of all parameters {last['gradient_gap']:.2e} apart, {last['gradient_residual']:.2e} after the best "
            f"scaling; steps of {last['optimizer']} {last['update_gap']:.2e} and {last['update_residual']:.2e}"
        ),
        soft_wrap=True,
    )
