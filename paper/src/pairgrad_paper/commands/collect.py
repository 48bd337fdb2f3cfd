"""`pairgrad collect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pairgrad.cli import prepare
from pairgrad.ground import printable
from pairgrad_paper.forks.record import fork_record, is_fork
from pairgrad_paper.records import Record, RecordError, read, write
from pairgrad_paper.records.costs import records_of_costs
from pairgrad_paper.records.runs import record_of_run
from pairgrad_paper.runs import RunDirectory

_KINDS = ("run", "fork", "frozen", "states", "cost", "times")


def run(paths: Sequence[Path], directory: Path, console: Console) -> None:
    """Make records of what the paths hold and write them; none, if one of them cannot be read."""
    records = [record for path in paths for record in _records(path)]
    twice = [name for name, count in Counter(record.name for record in records).items() if count > 1]
    if twice:
        raise RecordError(f"several of what is to be collected are called {', '.join(twice)}: a record would replace another")
    try:
        prepare(directory)
    except OSError as error:
        raise RecordError(f"cannot write to {directory} ({error.strerror or error}): choose another directory with --records") from error
    for record in records:
        target = directory / f"{record.name}.jsonl"
        before = target.read_bytes() if target.exists() else None
        write(target, record)
        change = "new" if before is None else "as it was" if before == target.read_bytes() else "replaced"
        console.print(
            Text(printable(f"{target.name}: {_described(record)}; {target.stat().st_size / 1000:.0f} kB, {change}")), soft_wrap=True
        )
    console.print(
        Text(printable(f"in {directory}: pairgrad tables --records {directory}, pairgrad figures --records {directory}")), soft_wrap=True
    )


def _records(path: Path) -> list[Record]:
    """Those of a run's directory, of a file of the benchmark, the one that the file is, or all of a directory of such files."""
    if path.is_dir():
        kept = [] if (path / "run.json").exists() else sorted(path.glob("*.jsonl"))
        if kept:
            return [record for file in kept for record in _records(file)]
        run = RunDirectory.open(path)
        return [fork_record(run) if is_fork(run.facts) else record_of_run(path)]
    if path.suffix == ".json":
        return records_of_costs(path)
    if not path.exists():
        raise RecordError(
            f"{path} does not exist: give a run's directory, a record (.jsonl), or what python -m benchmarks.learning wrote (.json)"
        )
    record = read(path)
    if record.record not in _KINDS:
        raise RecordError(f"{path} is a record of kind {record.record!r}, and tables and figures know {', '.join(_KINDS)}")
    return [record]


def _described(record: Record) -> str:
    counts = Counter(line["kind"] for line in record.lines)
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.items() if kind != "end")
    ending = next((f"; {line['ending']}" for line in record.lines if line["kind"] == "end" and "ending" in line), "")
    return f"{record.record}, lines: {shown}{ending}"
