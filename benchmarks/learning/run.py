"""Measures the learning step and writes docs/learning-benchmarks.md, its records and its figure: `python -m benchmarks.learning --help`."""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
import time
from pathlib import Path

from benchmarks.learning import figure, growth, record, report
from benchmarks.learning.allocator import keep_memory
from benchmarks.learning.contender import Local
from benchmarks.learning.contestants import ALL, SETTINGS
from benchmarks.learning.device import default_device
from benchmarks.learning.goals import goals
from benchmarks.learning.record import Run
from benchmarks.learning.session import GROWTH, PROTOCOLS, QUICK, measure, say
from benchmarks.learning.worker import Isolated
from benchmarks.learning.workload import SEED, Workload
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine, threads

_ROOT = Path(__file__).resolve().parent.parent.parent
_PAGE = "learning-benchmarks.md"
_PARTS = (*SETTINGS, "growth")  # in this order, whatever order they are asked for in


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description="Measures time and memory of the learning step.")
    parser.add_argument(
        "--protocol",
        choices=list(PROTOCOLS),
        default="interleaved",
        help="paper: three warm-ups and seven repetitions at the paper's size alone; its records stand beside those of the other (%(default)s)",
    )
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=None, help="sizes to measure, and growth (all; with paper: its size)")
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL), metavar="NAME", help=", ".join(ALL))
    parser.add_argument("--quick", action="store_true", help="a smoke run at small sizes, written below runs/")
    parser.add_argument("--from-records", action="store_true", help="measure nothing; make the page and the figure from the stored records")
    parser.add_argument("--output", type=Path, default=None, help=f"the page (docs/{_PAGE}); records go beside it, the figure into assets/")
    options = parser.parse_args(argv)
    if options.output is None:
        options.output = _ROOT / ("runs/learning" if options.quick else "docs") / _PAGE
    if options.parts is None:
        options.parts = ["paper"] if options.protocol == "paper" else list(_PARTS)
    return options


def main(argv: list[str] | None = None) -> int:
    """Measures, and on Ctrl-C writes what was measured until then."""
    options = parse(argv)
    records = options.output.with_suffix(".json")
    runs = record.read(records)
    if options.from_records:
        if not runs:
            say(f"there are no records at {records}: run without --from-records first")
            return 2
        _write_page(runs, options.output)
        return 0
    for name, stored in runs.items():
        say(
            f"{'replacing what is measured now in' if name == options.protocol else 'keeping'} the record of protocol {name} of {stored.date}"
        )
    start = time.perf_counter()
    with threads(1):
        run = _new_run(options, sys.argv[1:] if argv is None else argv)
        _keep_other_parts(run, runs.get(options.protocol), options.parts)
        runs[options.protocol] = run
        try:
            for part in [part for part in _PARTS if part in options.parts]:
                _measure(run, part, options)
                record.write(records, runs)
        except KeyboardInterrupt:
            run.interrupted = True
            say("interrupted; writing what was measured")
    record.write(records, runs)
    _write_page(runs, options.output)
    say(f"{options.output} written after {time.perf_counter() - start:.0f} s")
    for goal in goals(run):
        say(f"goal: {goal.text}: {' '.join(goal.verdict())}")
    return 130 if run.interrupted else 0


def _new_run(options: argparse.Namespace, arguments: list[str]) -> Run:
    protocol = QUICK if options.quick else PROTOCOLS[options.protocol]
    return Run(
        protocol=options.protocol,
        command=shlex.join(["python", "-m", "benchmarks.learning", *arguments]),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=machine(),
        device=default_device(),
        seed=SEED,
        warmups=protocol.warmups,
        repeats=protocol.repeats,
        budget=protocol.budget,
        quick=options.quick,
    )


def _keep_other_parts(run: Run, stored: Run | None, parts: list[str]) -> None:
    """Parts that are not measured now stay as they were measured on this machine on the same day; older ones, or another machine's, do not."""
    if stored is None or (stored.date, stored.machine, stored.quick) != (run.date, run.machine, run.quick):
        return
    run.rows = [row for row in stored.rows if row.setting not in parts]
    if "growth" not in parts:
        run.growth, run.kept_memory = stored.growth, stored.kept_memory
    if run.rows or run.growth:
        run.command = f"{stored.command}, then {run.command}"


def _measure(run: Run, part: str, options: argparse.Namespace) -> None:
    if part == "growth":
        run.kept_memory = run.device == "cpu" and keep_memory()
        names = [name for name in growth.CONTESTANTS if name in options.only]
        for size in growth.sizes(growth.centre(quick=run.quick)):
            measure(part, Workload(size, run.seed, run.device), names, QUICK if run.quick else GROWTH, run.growth, Local)
        return
    setting = SETTINGS[part]
    workload = Workload(setting.quick if run.quick else setting.size, run.seed, run.device, setting.streaming)
    names = [name for name in setting.contestants if name in options.only]
    measure(part, workload, names, QUICK if run.quick else PROTOCOLS[run.protocol], run.rows, Isolated)


def _write_page(runs: dict[str, Run], path: Path) -> None:
    for run in runs.values():
        if run.growth:
            figure.draw(run, path.parent / "assets" / figure.NAME)
    write_atomically(path, report.page(runs, path.with_suffix(".json").name))
