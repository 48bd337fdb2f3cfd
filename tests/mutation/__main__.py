"""`python -m tests.mutation`: run mutants, list survivors, write the tables of docs/mutation-testing.md."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.mutation import explained, pages
from tests.mutation.mutants import Mutant, Place, digest, make, places, text_of
from tests.mutation.results import KILLED, SURVIVED, TIMEOUT, Results, counts, importers, is_explained, tests_digest
from tests.mutation.scope import GROUPS, ROOT, Group, selected

FOLDER = ROOT / "build" / "mutation"
BUDGET = 15.0  # seconds of tests, by their usual time, that one mutant has to survive; the cheapest and the likeliest killers come first
SECOND_BUDGET = 40.0  # of survivors, tried again with a new import


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="make mutants, run the tests against them; exit status 1 if one survives unexplained")
    run.add_argument("--modules", nargs="*", default=[], help="groups, folders or files of tests/mutation/scope.py; all by default")
    run.add_argument("--function", default="", help="only mutants of functions whose qualified name contains this")
    run.add_argument("--sample", type=int, help="this many mutants, drawn at random, instead of all")
    run.add_argument("--seed", type=int, default=0, help="of the sample")
    run.add_argument("--minutes", type=float, help="start no further mutant after this time; what is left is said")
    run.add_argument("--fresh", action="store_true", help="forget earlier outcomes, which are otherwise kept where they still hold")
    run.add_argument(
        "--again", action="store_true", help="also run mutants that explained.toml explains, to see whether they still survive"
    )
    run.add_argument("--budget", type=float, default=BUDGET, help=f"seconds of tests that a mutant has to survive (default: {BUDGET:g})")
    run.add_argument(
        "--tests", nargs="*", help="only these files below tests, and only mutants that survived before: to see whether a new test kills"
    )
    run.add_argument("--quick", action="store_true", help="do not try survivors again with a new import")
    for name, text in (
        ("survivors", "list those of earlier runs"),
        ("docs", "write docs/mutation-testing.md; rows of files not run here stay"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--modules", nargs="*", default=[])
    for command in commands.choices.values():
        command.add_argument(
            "--output", type=Path, default=FOLDER, help="where outcomes and measured times are kept (default: build/mutation)"
        )
    options = parser.parse_args()
    if options.command == "run":
        return _Run(options).go()
    results = Results(options.output)
    chosen = set(selected(options.modules))
    records = [r for r in results.records.values() if r["module"] in chosen]
    if options.command == "docs":
        pages.write(records)
        return 0
    return _report(records)


class _Run:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        if options.fresh:
            (options.output / "results.jsonl").unlink(missing_ok=True)
        self.results = Results(options.output)
        self.known = explained.index(explained.load())
        self.end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
        self.screen = os.fdopen(os.dup(2), "w", buffering=1)
        self.skipped = 0
        self.files: dict[str, Path] = {}

    def go(self) -> int:
        from tests.mutation.workers import warm_up

        everything = [place for module in selected(self.options.modules) for place in places(module)]
        if self.options.sample is not None and self.options.sample < len(everything):
            everything = random.Random(self.options.seed).sample(everything, self.options.sample)
        warm_up()
        for group in GROUPS:
            mine = [place for place in everything if place.module in group.modules and self._to_do(place)]
            if self.options.tests is not None:
                group = replace(group, tests=tuple(self.options.tests), leave_out=())
            if mine:
                self._group(group, mine)
        keys = {place.key for place in everything}
        status = _report([record for key, record in self.results.records.items() if key in keys], file=self.options.output / "report.json")
        if self.skipped:
            print(f"{self.skipped} mutants were not tried in {self.options.minutes:g} minutes; the same command goes on with them")
        return status

    def _to_do(self, place: Place) -> bool:
        return self._to_try(place) or self._to_confirm(place)

    def _to_try(self, place: Place) -> bool:
        record = self.results.records.get(place.key)
        if self.options.tests is not None:
            return record is not None and self._open(record)
        if record is None:
            return True
        return self._open(record) and (self.options.again or record["how"] == "not tried" or self.results.stale(record))

    def _to_confirm(self, place: Place) -> bool:
        """Whether it survived in a live session only."""
        record = self.results.records.get(place.key)
        if self.options.quick:
            return False
        return record is not None and self._open(record) and record["how"] == "live"

    def _open(self, record: dict[str, Any]) -> bool:
        return record["outcome"] == SURVIVED and (self.options.again or not is_explained(record, self.known))

    def _group(self, group: Group, mine: list[Place]) -> None:
        """First a fork with an open session does all it can, then this process does the rest, which needs pairgrad not to be imported."""
        self._file_of(group)  # before the fork: both sides go by the tests as they are now
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self._in_session(group, mine)
                code = 0
            except BaseException as error:
                self._say(f"{type(error).__name__}: {error}")
                if not isinstance(error, SystemExit):
                    import traceback

                    traceback.print_exc(file=self.screen)
            finally:
                self.screen.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"the session of {group.name} failed")
        self.results = Results(self.options.output)
        self._by_import(group, mine)

    def _in_session(self, group: Group, mine: list[Place]) -> None:
        from tests.mutation.workers import OpenSession, open_session

        def drive(session: OpenSession) -> None:
            base = self._baseline(group, session)
            killers: dict[str, list[str]] = {}
            for number, place in enumerate(mine):
                if not self._to_try(place):
                    continue
                if time.monotonic() > self.end:
                    return
                mutant = make(place)
                if mutant is None or mutant.at_import or self.options.function not in mutant.function:
                    continue
                if self._taken_as_explained(mutant):
                    continue
                tests = _choose(mutant, base, killers.get(mutant.function, []), self.options.budget)
                start = time.perf_counter()
                message = session.try_out(mutant, tests, base["seconds"]) if tests else {"survived": 0}
                if message is not None:
                    record = self._record(mutant, message, "live", time.perf_counter() - start, len(tests))
                    if record["outcome"] == KILLED and record["by"] in base["seconds"]:
                        order = killers.setdefault(mutant.function, [])
                        order[:] = [record["by"], *(name for name in order if name != record["by"])][:8]
                    self._show(record, number, len(mine))

        log = os.open(self.options.output / f"session-{group.name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        open_session(group, drive)

    def _file_of(self, group: Group) -> Path:
        if group.name not in self.files:
            state = digest(tests_digest(group) + "".join(text_of(module) for module in group.modules))
            self.files[group.name] = self.options.output / f"baseline-{group.name}-{state}.json"
        return self.files[group.name]

    def _baseline(self, group: Group, session: Any) -> dict[str, Any]:
        file = self._file_of(group)
        if not file.exists():
            self._say(f"{group.name}: running {len(session.items)} tests on the unchanged code")
            start = time.perf_counter()
            base = session.baseline()
            file.write_text(json.dumps(base), encoding="utf-8")
            self._say(f"{group.name}: {len(base['seconds'])} tests passed in {time.perf_counter() - start:.0f} s")
        return json.loads(file.read_text(encoding="utf-8"))

    def _by_import(self, group: Group, mine: list[Place]) -> None:
        from tests.mutation.workers import try_import

        base = json.loads(self._file_of(group).read_text(encoding="utf-8"))
        killers: dict[str, list[str]] = {}
        for number, place in enumerate(mine):
            if not self._to_do(place):
                continue
            mutant = make(place)
            if mutant is None or self.options.function not in mutant.function:
                continue
            if (self.options.quick and not mutant.at_import) or self._taken_as_explained(mutant):
                continue
            if time.monotonic() > self.end:
                self.skipped += 1
                continue
            tests = _choose(mutant, base, killers.get(mutant.place.module, []), SECOND_BUDGET / BUDGET * self.options.budget, imported=True)
            start = time.perf_counter()
            message = try_import(mutant, group, tests, base["seconds"]) if tests else {"survived": 0}
            record = self._record(mutant, message, "import", time.perf_counter() - start, len(tests))
            if record["outcome"] == KILLED and record["by"] in base["seconds"]:
                order = killers.setdefault(mutant.place.module, [])
                order[:] = [record["by"], *(name for name in order if name != record["by"])][:8]
            self._show(record, number, len(mine))

    def _taken_as_explained(self, mutant: Mutant) -> bool:
        """Explained survivors are counted as such without being run, unless they shall be seen to survive again."""
        if self.options.again or (mutant.place.module, mutant.function, mutant.before, mutant.after) not in self.known:
            return False
        if mutant.place.key not in self.results.records:
            self.results.add(mutant, SURVIVED, "", "not tried", 0.0, 0)
        return True

    def _record(self, mutant: Mutant, message: dict[str, Any], how: str, seconds: float, tests: int) -> dict[str, Any]:
        if "killed" in message:
            return self.results.add(mutant, KILLED, message["killed"], how, seconds, tests)
        if "crashed" in message:
            return self.results.add(mutant, KILLED, "the process ended", how, seconds, tests)
        if "hangs" in message:
            return self.results.add(mutant, TIMEOUT, "no end", how, seconds, tests)
        if self.options.tests is not None:  # it survived more tests before
            return self.results.records[mutant.place.key]
        return self.results.add(mutant, SURVIVED, "", how, seconds, tests)

    def _show(self, record: dict[str, Any], number: int, total: int) -> None:
        if record["outcome"] == SURVIVED:
            how = "explained" if is_explained(record, self.known) else f"SURVIVED {record['tried']} tests"
            self._say(
                f"[{number + 1}/{total}] {how}: {record['module']}:{record['line']} {record['function']}: {record['before']}  ->  {record['after']}"
            )
        elif number % 25 == 0:
            self._say(
                f"[{number + 1}/{total}] {record['module']}:{record['line']} {record['outcome']} by {record['by']} in {record['seconds']} s"
            )

    def _say(self, text: str) -> None:
        print(text, file=self.screen, flush=True)


def _choose(mutant: Mutant, base: dict[str, Any], killers: list[str], budget: float, *, imported: bool = False) -> list[str]:
    """Tests that execute the changed statement. If it runs at import, or no test runs it because other modules call its function when they are imported:
    all that execute anything of the file, or could read its constants because their own file imports from it. Known killers first, then the fastest.
    """
    first, last = mutant.lines
    covered = base["lines"][mutant.place.module]
    fitting = [] if mutant.at_import else [name for name, lines in covered.items() if any(first <= line <= last for line in lines)]
    if not fitting and imported:
        readers = importers(mutant.place.module, {name.partition("::")[0] for name in base["seconds"]})
        fitting = [name for name in base["seconds"] if covered.get(name) or name.partition("::")[0] in readers]
    rank = {name: i for i, name in enumerate(killers)}
    fitting.sort(key=lambda name: (rank.get(name, len(rank)), base["seconds"][name]))
    chosen, spent = [], 0.0
    for name in fitting:
        spent += base["seconds"][name]
        if spent > budget and chosen:
            break
        chosen.append(name)
    return chosen


def _report(records: list[dict[str, Any]], file: Path | None = None) -> int:
    known = explained.index(explained.load())
    print(pages.counts_table(counts(records, known)))
    open_ones = sorted(
        (r for r in records if r["outcome"] == SURVIVED and not is_explained(r, known)), key=lambda r: (r["module"], r["line"])
    )
    for r in open_ones:
        print(f"survived: src/pairgrad/{r['module']}:{r['line']} in {r['function']}\n    - {r['before']}\n    + {r['after']}")
    if open_ones:
        print(
            f"{len(open_ones)} mutants survived. Write a test that fails on each, or explain in tests/mutation/explained.toml why no test can",
            file=sys.stderr,
        )
    if file is not None:
        file.write_text(json.dumps({"counts": counts(records, known), "survivors": open_ones}, indent=1), encoding="utf-8")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
