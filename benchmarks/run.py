"""Measures everything and writes docs/benchmarks.md and benchmarks/results/*.csv: `python -m benchmarks.run --help`."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import torch

from benchmarks import contestants, report
from benchmarks.contestants import CONTESTANTS, DTYPES, EAGER, LIBRARY, NotAvailable, Setting
from benchmarks.import_time import import_times
from benchmarks.report import Results, Row
from benchmarks.timing import Measurement, affordable_size, interleaved, once
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import machine

_ROOT = Path(__file__).resolve().parent.parent
_WARMUPS = 2
_SLOW_SECONDS = 0.4  # what one call of a slow contestant may take; its number of elements is chosen for that
_LONG_SECONDS = 0.1  # a call that takes longer is repeated less often
_LONG_REPEATS = 3


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Times pairgrad and its peers.")
    parser.add_argument("--elements", type=int, default=1_000_000, help="elements per call (%(default)s)")
    parser.add_argument(
        "--repeats",
        type=int,
        default=9,
        help=f"timed calls per cell (%(default)s); at most {_LONG_REPEATS} where one takes more than {_LONG_SECONDS} s",
    )
    parser.add_argument("--dims", type=int, nargs="+", default=[4, 64, 512, 4096], help="feature dimensions p, even and >= 4")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, and of JAX where it is 1 (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="NAME", help=", ".join(CONTESTANTS))
    parser.add_argument(
        "--full", action="store_true", help="also what is slow to compile, and recurrences in float32: takes more than an hour"
    )
    parser.add_argument("--output", type=Path, default=_ROOT / "docs" / "benchmarks.md", help="the page")
    parser.add_argument("--results", type=Path, default=_ROOT / "benchmarks" / "results", help="folder of the CSV files")
    options = parser.parse_args(argv)
    for name in ("elements", "repeats", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be >= 1, got {getattr(options, name)}")
    for dim in options.dims:
        if dim < 4 or dim % 2:
            parser.error(f"--dims must be even and >= 4, because the recurrences run over integer orders >= 1, got {dim}")
    return options


def main(argv: list[str] | None = None) -> int:
    """Runs, and on Ctrl-C writes what was measured until then."""
    options = parse(argv)
    torch.set_num_threads(options.threads)
    contestants.restrict_jax(options.threads)
    arguments = sys.argv[1:] if argv is None else argv
    command = shlex.join(["python", "-m", "benchmarks.run", *arguments])
    results = Results(options.elements, options.dims, options.dtypes, command, machine())
    start = time.perf_counter()
    try:
        _say("import times")
        results.imports = import_times(options.repeats)
        for dtype in options.dtypes:
            for dim in options.dims:
                measure(results, dtype, dim, options)
                _save(results, options)
    except KeyboardInterrupt:
        results.interrupted = True
        _say("interrupted; writing what was measured")
    _save(results, options)
    _say(f"{options.output} written after {time.perf_counter() - start:.0f} s")
    for goal in report.goals(results):
        _say(f"goal: {goal.text}: {' '.join(goal.verdict())}")
    return 130 if results.interrupted else 0


def measure(results: Results, dtype: str, dim: int, options: argparse.Namespace) -> None:
    """Prepares every cell of a dtype and dimension, then measures them in turns. Rows are added even when interrupted."""
    torch._dynamo.reset()  # frees the compiled code of the dimension before
    rows: dict[Setting, Row] = {}
    measurements: dict[Setting, Measurement] = {}
    for setting in contestants.settings(dtype, dim, tuple(options.only), full=options.full):
        start = time.perf_counter()
        rows[setting] = row = Row(setting)
        measurement = _prepare(row, options)
        if measurement is not None:
            measurements[setting] = measurement
        seconds = time.perf_counter() - start
        if seconds > 1 or row.note:
            _say(f"prepared {_name(setting)}: {row.note or f'{seconds:.1f} s'}")
    try:
        interleaved(measurements, {setting: row.samples for setting, row in rows.items()})
    finally:
        results.rows += [row for row in rows.values() if row.measured or row.note]
        for row in rows.values():
            if row.measured:
                _say(f"{_name(row.setting)}: {row.median:.4g} ms per 1e6, {len(row.samples.seconds)} calls on {row.elements} elements")


def _prepare(row: Row, options: argparse.Namespace) -> Measurement | None:
    """The measurement of a row, its first call made (which compiles); or None, with the reason as note."""
    setting = row.setting
    try:
        make = contestants.maker(setting)
        row.elements = options.elements
        if setting.slow:
            row.elements = affordable_size(make, options.elements, _SLOW_SECONDS, proportional=setting.mode == LIBRARY)
        call = make(row.elements)
        row.nonfinite = contestants.nonfinite_share(call())
    except NotAvailable as reason:
        row.note = str(reason)
        return None
    except Exception as error:
        if setting.mode == EAGER:
            raise
        row.note = f"fails in this mode: {type(error).__name__}: {str(error).splitlines()[0]}"
        return None
    if once(call) > _LONG_SECONDS:
        return Measurement(call, min(_LONG_REPEATS, options.repeats), warmups=0)
    return Measurement(call, options.repeats, _WARMUPS)


def _save(results: Results, options: argparse.Namespace) -> None:
    write_atomically(options.output, report.page(results))
    write_atomically(options.results / "timings.csv", report.timings_csv(results))
    if results.imports:
        write_atomically(options.results / "import_time.csv", report.imports_csv(results.imports))


def _name(setting: Setting) -> str:
    return f"{setting.dtype} p={setting.dim} {setting.contestant} [{setting.mode}] {setting.quantity} {setting.direction}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
