"""`python -m tools.mutation`: run mutants and count what the tests notice, per file."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutation import page, trials
from tools.mutation.mutants import Mutant, change, listed, mutated
from tools.mutation.results import KILLED, SURVIVED, TIMED_OUT, Results, digest
from tools.mutation.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("command", choices=("run", "page"), help="run mutants; or write the counts so far into docs/mutation-testing.md")
    parser.add_argument(
        "--modules", nargs="*", default=[], help="files or folders below the package; all that pyproject.toml names by default"
    )
    parser.add_argument("--sample", type=int, help="run this many mutants, drawn at random, instead of all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        help="start no further mutant after this time, runs on the unchanged code not counted",
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutants to run at the same time")
    parser.add_argument(
        "--budget", type=float, default=15.0, help="seconds of tests, by their usual time, that a mutant has to survive (default: 15)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=20.0,
        help="seconds of CPU beyond six times the usual after which a mutant is stopped (default: 20)",
    )
    parser.add_argument("--least", type=float, default=0.0, help="exit with status 1 if the tests notice less than this percentage")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the folder of pyproject.toml (default: this one)")
    options = parser.parse_args()
    settings = Settings.read(options.root)
    output = settings.root / "build" / "mutation"
    files = settings.files(options.modules)
    everything = [mutant for below in files.values() for file in below for mutant in listed(file, settings.source(file).read_text())]
    if options.command == "page":
        exists = {file for below in settings.files([]).values() for file in below}
        page.write(settings.root / "docs" / "mutation-testing.md", Results(settings, output).counts(everything), exists)
        return 0
    if options.sample is not None and options.sample < len(everything):
        everything = random.Random(options.seed).sample(everything, options.sample)
    results = Results(settings, output)
    trials.preload(settings)
    seconds = 60 * options.minutes
    for folder, below in files.items():
        todo = [mutant for mutant in everything if mutant.file in below and mutant.key not in results.records]
        if todo and seconds > 0:
            work = _Folder(settings, folder, results, output, options)
            start = time.monotonic()
            work.run(todo, start + seconds)
            seconds -= time.monotonic() - start
    return _report(results, everything, options.least)


@dataclass
class _Running:
    mutant: Mutant
    source: str
    tests: list[str]
    deadline: float
    killer: Path


class _Folder:
    """Runs the mutants of one folder, a few at a time."""

    def __init__(self, settings: Settings, folder: str, results: Results, output: Path, options: argparse.Namespace) -> None:
        self.settings, self.results, self.output, self.options = settings, results, output, options
        self.base = self._baseline(folder)
        self.killers: dict[str, list[str]] = {}
        self.running: dict[int, _Running] = {}

    def _baseline(self, folder: str) -> dict[str, Any]:
        files = self.settings.files([])[folder]
        state = digest(*(self.settings.source(file) for file in files), *self.settings.tests(folder))
        file = self.output / f"baseline-{folder}-{state}.json"
        if not file.exists():
            print(f"{folder}: running {', '.join(self.settings.folders[folder])} on the unchanged code", flush=True)
            trials.baseline(self.settings, folder, files, file)
        return json.loads(file.read_text(encoding="utf-8"))

    def run(self, mutants: list[Mutant], end: float) -> None:
        try:
            for number, mutant in enumerate(mutants):
                if time.monotonic() > end:
                    break
                self._start(mutant)
                while len(self.running) >= self.options.jobs:
                    self._wait(f"[{number + 1}/{len(mutants)}]")
            while self.running:
                self._wait("")
        finally:
            for child in self.running:
                trials.end(child)

    def _start(self, mutant: Mutant) -> None:
        before = self.settings.source(mutant.file).read_text(encoding="utf-8")
        after = mutated(mutant, before)
        tests = chosen(mutant, self.base, self.killers.get(mutant.file, []), self.options.budget)
        usual = sum(self.base["seconds"][test] for test in tests)
        killer = self.output / f"killer-{os.getpid()}-{mutant.occurrence}-{mutant.line}"
        child = trials.start(self.settings, mutant.file, after, tests, self.options.patience + 6 * usual, killer)
        self.running[child] = _Running(
            mutant, change(before, after), tests, time.monotonic() + 6 * (self.options.patience + 6 * usual), killer
        )

    def _wait(self, progress: str) -> None:
        child, status = os.waitpid(-1, os.WNOHANG)
        late = [other for other, running in self.running.items() if time.monotonic() > running.deadline]
        if child == 0 and late:
            trials.end(late[0])
            child, status = os.waitpid(late[0], 0)
            status = signal.SIGXCPU
        if child == 0:
            time.sleep(0.02)
            return
        trials.end(child)  # what it may have left behind
        running = self.running.pop(child)
        by = running.killer.read_text(encoding="utf-8") if running.killer.exists() else ""
        running.killer.unlink(missing_ok=True)
        late_or_looping = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        outcome = TIMED_OUT if late_or_looping else SURVIVED if status == 0 else KILLED
        record = self.results.add(running.mutant, outcome, by, running.source)
        if by:
            known = self.killers.setdefault(running.mutant.file, [])
            known[:] = [by, *(name for name in known if name != by)][:8]
        print(f"{progress} {outcome}: {record['file']}:{record['line']}  {record['change']}", flush=True)


def chosen(mutant: Mutant, base: dict[str, Any], killers: list[str], budget: float) -> list[str]:
    """Tests that execute the changed statement. If none does, because it runs at import: those that execute anything of the file, or else all.

    Tests that noticed other mutants of the file come first, then the fastest.
    """
    first, last = mutant.lines
    lines, seconds = base["lines"].get(mutant.file, {}), base["seconds"]
    fitting = [test for test, executed in lines.items() if any(first <= line <= last for line in executed)] or list(lines) or list(seconds)
    rank = {name: i for i, name in enumerate(killers)}
    fitting.sort(key=lambda name: (rank.get(name, len(rank)), seconds[name]))
    tests, spent = fitting[:1], seconds[fitting[0]]
    for name in fitting[1:]:
        spent += seconds[name]
        if spent > budget:
            break
        tests.append(name)
    return tests


def _report(results: Results, mutants: list[Mutant], least: float) -> int:
    counts = results.counts(mutants)
    survivors = [results.records[m.key] for m in mutants if results.records.get(m.key, {}).get("outcome") == SURVIVED]
    for record in sorted(survivors, key=lambda r: (r["file"], r["line"])):
        print(f"survived: {record['file']}:{record['line']}  {record['change']}")
    print(page.table(counts))
    noticed = sum(row[KILLED] + row[TIMED_OUT] for row in counts.values())
    share = 100 * noticed / max(1, noticed + len(survivors))
    print(f"the tests noticed {noticed} of {noticed + len(survivors)} mutants that were run ({share:.1f} %)")
    return 1 if share < least else 0


if __name__ == "__main__":
    sys.exit(main())
