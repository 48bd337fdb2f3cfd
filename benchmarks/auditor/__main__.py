"""The auditor beside gradcheck and opcheck (with its cost), over the functions of torch, and the cost of recording: writes three pages of docs/.

python -m benchmarks.auditor                     # everything: some fifteen minutes
python -m benchmarks.auditor comparison          # the zoo, and the cost: docs/auditor-comparison.md
python -m benchmarks.auditor library             # the functions of torch: docs/auditor-library.md
python -m benchmarks.auditor cost                # time and memory alone, printed
python -m benchmarks.auditor recording           # what recording a training run costs: docs/auditor-recording.md
python -m benchmarks.auditor example             # a page of a report, and its picture: docs/assets/audit-example.html and .png
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.coherence.library_functions import FUNCTIONS

from benchmarks.auditor import comparison, cost, example, library, recording
from pairgrad.ground.files import write_atomically
from pairgrad.ground.timing import threads

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMAND = "python -m benchmarks.auditor"


def main(argv: list[str] | None = None) -> int:
    """0 if the audit found every broken function and accused no right one, and recording costs what it may; 1 otherwise."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("comparison", "library", "cost", "recording", "example", "all"), default="all")
    parser.add_argument("--seeds", type=int, default=1, help="inputs and audits are drawn this many times")
    parser.add_argument("--output", type=Path, default=DOCS, help="directory of the pages")
    options = parser.parse_args(argv)
    seeds = f" --seeds {options.seeds}" if options.seeds != 1 else ""
    good = True
    with threads(1):
        if options.what == "cost":
            print(cost.table(cost.measure()), cost.many_table(cost.many()), sep="\n")
        if options.what in ("comparison", "all"):
            cases = comparison.compare(comparison.zoo_cases(), options.seeds)
            text = comparison.page(cases, comparison.time_scalars(), cost.measure(), cost.many(), f"{COMMAND} comparison{seeds}")
            write_atomically(options.output / "auditor-comparison.md", text)
            print(text)
            good &= comparison.clean(cases)
        if options.what in ("library", "all"):
            entries = library.sweep(FUNCTIONS, options.seeds)
            text = library.page(entries, f"{COMMAND} library{seeds}")
            write_atomically(options.output / "auditor-library.md", text)
            print(text)
            good &= not library.false_alarms(entries)
        if options.what in ("recording", "all"):
            measured = recording.measure(lambda text: print(f"recording: {text}", file=sys.stderr))
            text = recording.page(*measured, f"{COMMAND} recording")
            write_atomically(options.output / "auditor-recording.md", text)
            print(text)
            good &= recording.good(*measured)
        if options.what in ("example", "all"):
            print(*example.make(options.output / "assets"), sep="\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
