"""`pairgrad frozen`."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pairgrad.ground import printable
from pairgrad_paper.captured.capture import check_batch_size
from pairgrad_paper.captured.record import frozen_record
from pairgrad_paper.captured.source import Source
from pairgrad_paper.commands.run_commands import FrozenOptions, StatesOptions
from pairgrad_paper.recipes.settings import SettingError
from pairgrad_paper.records import Record, write


def opened(options: FrozenOptions | StatesOptions) -> Source:
    """The run that is read."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.output is not None and not options.output.absolute().parent.is_dir():
        raise SettingError(f"--output must be a file in a directory that exists, got {options.output}: make {options.output.parent} first")
    if options.output is not None and options.output.is_dir():
        raise SettingError(f"--output must be a file, got the directory {options.output}")
    return Source.open(options.run, options.data_root, verify=options.verify)


def written(record: Record, output: Path | None, console: Console) -> None:
    """Write the record, and say where."""
    path = Path(f"{record.name}.jsonl") if output is None else output
    write(path, record)
    console.print(Text(printable(f"written to {path}")), soft_wrap=True)


def run(options: FrozenOptions, console: Console) -> None:
    """Measure, say what was found and write it."""
    source, save = opened(options), options.save
    check_batch_size(options.batch_size, len(source.benchmark.train))
    for step in options.step or ():
        source.check_step(step)
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
    say = (lambda _: None) if options.quiet else (lambda sentence: console.print(Text(printable(sentence), style="dim"), soft_wrap=True))
    name = options.output.stem if options.output else None
    record = frozen_record(source, options.step or None, options.batch_size, name, save, say)
    _show(record, console)
    written(record, options.output, console)
    if save is not None:
        files = len(record.of("state"))
        console.print(
            Text(printable(f"{files} captured views written to {save}: pairgrad certify FILE bounds their errors")), soft_wrap=True
        )


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
