"""Break runs, files and numbers on purpose, count what goes wrong, and write docs/reliability.md.

python -m benchmarks.drills                      # everything: at most an hour on two cores
python -m benchmarks.drills crashes full         # some: the other tables of the page stay as they were
python -m benchmarks.drills --few                # a few tries of each, printed and not written
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.drills import disk, files, numbers, page, runs
from benchmarks.drills.row import Drill
from pairgrad.ground import machine_line, threads, write_atomically

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "drills.json", ROOT / "docs" / "reliability.md"
DRILLS: dict[str, Drill] = {
    "crashes": disk.crashes,
    "full": disk.full,
    "kills": runs.kills,
    "stops": runs.stops,
    "memory": runs.memory,
    "files": files.files,
    "numbers": numbers.numbers,
}


def main(argv: list[str] | None = None) -> int:
    """0 if nothing went wrong, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drills", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("drills", nargs="*", metavar="DRILL", help=f"{', '.join(DRILLS)}; all of them if none is named")
    parser.add_argument("--few", action="store_true", help="make a few tries of each and write nothing")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.drills if name not in DRILLS]:
        parser.error(f"DRILL must be one of {', '.join(DRILLS)}, got {unknown[0]}")
    wrong = 0
    for name in options.drills or DRILLS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, threads(1):
            rows, machine = list(DRILLS[name](Path(folder), options.few)), machine_line()
        seconds = time.monotonic() - began
        for row in rows:
            wrong += row.wrong
            print(f"{name}: {row.what}: {row.tried}: {row.found}", flush=True)
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        if not options.few:
            results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            results[name] = {
                "rows": [dataclasses.asdict(row) for row in rows],
                "seconds": round(seconds),
                "machine": machine,
            }
            write_atomically(RESULTS, json.dumps(results, indent=1) + "\n")
            write_atomically(PAGE, page.text({name: results[name] for name in DRILLS if name in results}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
