"""Learn concentrations with potentials whose backward is right, wrong, or right for another function, and write docs/does-it-matter.md.

python -m benchmarks.matter --data-root DIR      # everything, an hour on one core; resumes where it was stopped
python -m benchmarks.matter one optimizers       # some experiments
python -m benchmarks.matter --page               # the page and its figure again, from the results
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

from benchmarks.matter import figure, page
from benchmarks.matter.autoencoder import autoencoder
from benchmarks.matter.classes import classes
from benchmarks.matter.one import one
from benchmarks.matter.optimizers import optimizers
from benchmarks.matter.regression import regression
from benchmarks.matter.seeds import SEPARATOR
from benchmarks.matter.trial import Experiment, Trial
from pairgrad.ground import machine_line, threads, write_atomically

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "matter.json", ROOT / "docs" / "does-it-matter.md"
FIGURE = ROOT / "docs" / "assets" / "does-it-matter.png"
SEEDS = 5
EXPERIMENTS: dict[str, Experiment] = {
    "one": one,
    "optimizers": optimizers,
    "regression": regression,
    "classes": classes,
    "autoencoder": autoencoder,
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matter", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"{', '.join(EXPERIMENTS)}; all of them if none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--data-root", type=Path, default=os.environ.get("PAIRGRAD_DATA"), help="has text/; without it real data are left out"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.experiments if name not in EXPERIMENTS]:
        parser.error(f"EXPERIMENT must be one of {', '.join(EXPERIMENTS)}, got {unknown[0]}")
    results = page.load(RESULTS)
    if not options.page:
        data_root = None if options.data_root is None else Path(options.data_root)
        with threads(1):
            for name in options.experiments or EXPERIMENTS:
                for trial in EXPERIMENTS[name](options.seeds, False, data_root):
                    if key(trial) not in results["trials"]:
                        found = {what: value if math.isfinite(value) else None for what, value in trial.measure().items()}
                        print(key(trial), found, file=sys.stderr, flush=True)
                        results["trials"][key(trial)] = found
                        results["machine"] = machine_line()
                        write_atomically(RESULTS, json.dumps(results, indent=0, allow_nan=False) + "\n")
    write_atomically(FIGURE, figure.picture(results["trials"]))
    write_atomically(PAGE, page.text(results))


def key(trial: Trial) -> str:
    return SEPARATOR.join((trial.experiment, trial.setting, trial.arm, str(trial.seed)))


if __name__ == "__main__":
    main()
