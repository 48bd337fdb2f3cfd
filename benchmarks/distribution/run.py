"""The command: `python -m benchmarks.distribution [--quick] [--only QUANTITY] [--dims P ...] [--output PAGE]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from benchmarks.contestants import restrict_jax
from benchmarks.distribution.contestants import imported
from benchmarks.distribution.places import CONCENTRATIONS, QUANTITIES, places
from benchmarks.distribution.report import line, page, versions
from benchmarks.distribution.rows import FULL, QUICK, measure, record, rows_of
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine_line, threads

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "distribution-benchmarks.md"
RECORD = ROOT / "benchmarks" / "results" / "distribution.json"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.distribution", description="Time VonMisesFisher and its peers, and write the page and its record."
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter repetitions, without what takes scipy half a minute")
    parser.add_argument(
        "--only", action="append", choices=QUANTITIES, metavar="QUANTITY", help=f"one of {', '.join(QUANTITIES)}; may be repeated"
    )
    parser.add_argument("--dims", type=int, nargs="+", choices=CONCENTRATIONS, default=list(CONCENTRATIONS), metavar="P")
    parser.add_argument("--render", action="store_true", help="measure nothing: write the page from the record")
    parser.add_argument("--output", type=Path, default=PAGE, help="the page (%(default)s)")
    parser.add_argument("--record", type=Path, default=RECORD, help="the record (%(default)s)")
    options = parser.parse_args(argv)
    if not options.render:
        _measure(options)
    written = json.loads(options.record.read_text(encoding="utf-8"))
    write_atomically(options.output, page(rows_of(written["rows"]), written["measured"]))
    return 0


def _measure(options: argparse.Namespace) -> None:
    restrict_jax(1)
    effort = QUICK if options.quick else FULL
    rows, begin = [], time.perf_counter()
    with threads(1), _one_blas_thread():
        for place in places(tuple(options.only or QUANTITIES), tuple(options.dims)):
            rows.append(measure(place, effort))
            print(line(rows[-1]), file=sys.stderr, flush=True)
        machine = f"{machine_line()}; {versions()}"
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)
    command = "make bench-distributions" + " ARGS=--quick" * options.quick
    if options.only or len(options.dims) < len(CONCENTRATIONS):
        command += " (a part of it)"
    measured = json.dumps({"command": command, "machine": machine, "timing": effort.description})
    lines = ",\n".join(json.dumps(entry) for entry in record(rows))
    write_atomically(options.record, f'{{"measured": {measured}, "rows": [\n{lines}\n]}}\n')


def _one_blas_thread() -> AbstractContextManager[object]:
    """numpy and scipy on one thread; where threadpoolctl is missing, that is left to OPENBLAS_NUM_THREADS."""
    imported("scipy.stats")  # it brings a library of its own
    pools = imported("threadpoolctl")
    return nullcontext() if pools is None else pools.threadpool_limits(1)
