"""Measures losses on several ranks: `python -m benchmarks.distributed [scaling|memory|wire|all] [--write] [--quick]`.

Without `--write` the page is only printed. Records are in benchmarks/results/distributed.json; `page` makes page and figure from them and measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
from pathlib import Path

from benchmarks.distributed import figure, measure, record, report
from benchmarks.distributed.cases import sizes
from benchmarks.distributed.record import PARTS, Record
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine, threads

_ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = "distributed-benchmarks.md"
RECORD = "distributed.json"
_THEN = ", then "


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.distributed", description="Measures time, bytes and memory of losses on several ranks."
    )
    parser.add_argument(
        "part", nargs="?", choices=(*PARTS, "all", "page"), default="all", help="what to measure; page: nothing (%(default)s)"
    )
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE}, its figure, and benchmarks/results/{RECORD}")
    parser.add_argument("--quick", action="store_true", help="a smoke run at small sizes; with --write, below runs/distributed")
    parser.add_argument("--output", type=Path, default=None, help="one folder for everything that is written")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    output = options.output or (_ROOT / "runs" / "distributed" if options.quick else None)
    docs, results = (_ROOT / "docs", _ROOT / "benchmarks" / "results") if output is None else (output, output)
    stored = record.read(results / RECORD)
    if options.part == "page":
        if stored is None:
            measure.say(f"there is no record at {results / RECORD}: measure first")
            return 2
        found = stored
    else:
        parts = list(PARTS) if options.part == "all" else [options.part]
        with threads(1):
            found = _new(options.quick, sys.argv[1:] if argv is None else argv)
        _keep_other_parts(found, stored, parts)
        for part in parts:
            getattr(measure, part)(found, sizes(quick=options.quick))
    print(report.page(found))
    if options.write:
        record.write(results / RECORD, found)
        figure.draw(found, docs / "assets" / figure.NAME)
        write_atomically(docs / PAGE, report.page(found))
    return 0 if all(goal.reached is not False for goal in report.goals(found)) else 1


def _new(quick: bool, arguments: list[str]) -> Record:
    command = shlex.join(["python", "-m", "benchmarks.distributed", *arguments])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Record(command, datetime.datetime.now(datetime.UTC).date().isoformat(), machine(), cores, quick)


def _keep_other_parts(new: Record, stored: Record | None, parts: list[str]) -> None:
    """What is not measured now stays, if it was measured on this machine on the same day."""
    if stored is None or (stored.date, stored.machine, stored.quick) != (new.date, new.machine, new.quick):
        return
    kept = [name for part, names in PARTS.items() if part not in parts for name in names if getattr(stored, name)]
    for name in kept:
        setattr(new, name, getattr(stored, name))
    if kept:
        before = [command for command in stored.command.split(_THEN) if command != new.command]
        new.command = _THEN.join((*before, new.command))
