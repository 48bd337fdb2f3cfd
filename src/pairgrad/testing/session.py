"""What a test session learns about custom backwards: recordings of its tests, audits made in them, and the words, files and verdict in the end.

Nothing here knows of pytest; `pytest_pairgrad` is what stands between the two.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairgrad.coherence.audit import audit
from pairgrad.coherence.judge.verdict import PASSING, Verdict
from pairgrad.coherence.report.annotations import annotations, callable_location
from pairgrad.coherence.report.report import Report
from pairgrad.coherence.report.run import NodeReport, RunReport
from pairgrad.coherence.subject.intent import intended, intent_of
from pairgrad.coherence.training.record import Recording, record
from pairgrad.ground.files import write_atomically
from pairgrad.ground.text import printable
from pairgrad.testing.merge import merged

TESTS_SCHEMA = "pairgrad.tests/1"
_NAMED = 3  # tests that are listed for a function


@dataclass(frozen=True)
class AuditInTest:
    """An audit that a test made itself.

    Attributes:
        test: its id.
        passed: whether the test accepted the verdict.
        location: file and line of what was audited, if known.
        report: of the audit.
    """

    test: str
    passed: bool
    location: str | None
    report: Report

    @property
    def said(self) -> str:
        """Name and verdict."""
        return printable(f"{self.report.name}: {self.report.headline}")


class Session:
    """Records the tests of a session, and audits what was recorded in the end."""

    def __init__(self) -> None:
        self.audits: list[AuditInTest] = []
        self.errors: list[str] = []
        self.files: list[str] = []  # that were written
        self.unaudited = ""  # why what was recorded was not audited
        self.run: RunReport | None = None
        self._recordings: dict[str | None, Recording] = {}  # by the intent that tests declare
        self._visits: dict[str | None, dict[tuple[str, str | None], list[tuple[int, str]]]] = {}
        self._tests: dict[tuple[str, str | None], list[str]] = {}

    @contextmanager
    def recording(self, test: str, intent: str | None = None) -> Iterator[None]:
        """Records the custom backwards that run meanwhile, as those of this test."""
        made = self._recordings.setdefault(intent, record(loss=False))
        with made:
            yield
        seen = self._visits.setdefault(intent, {})  # which backwards of a function, by number, belong to which test
        for function, backwards in made.counts().items():
            ends = seen.setdefault(function, [])
            if backwards > (ends[-1][0] if ends else 0):
                ends.append((backwards, test))

    def check(self, test: str, fn: Callable[..., Any], inputs: Any = None, *, allow: Iterable[str] = (), **options: Any) -> AuditInTest:
        """An audit for a test, kept whatever comes out of it. Its calls are not recorded."""
        allowed = tuple(allow)
        report = audit(fn, inputs, **options)
        found = AuditInTest(test, report.passes(allowed), callable_location(fn), report)
        self.audits.append(found)
        return found

    def finish(self, seconds: float | None = None) -> None:
        """Audits what was recorded here, in so many seconds in all."""
        reports, started = [] if self.run is None else [self.run], time.perf_counter()
        for intent, made in self._recordings.items():
            try:
                with _declared(made, intent):
                    found = made.audit(seconds=None if seconds is None else max(1e-3, seconds - (time.perf_counter() - started)))
            except Exception as error:
                self.errors.append(f"the audit of what was recorded raised {type(error).__name__}: {error}")
                continue
            self._name_tests(found, self._visits.get(intent, {}))
            reports.append(replace(found, loss_note="", nodes=tuple(_without_need(node) if intent else node for node in found.nodes)))
        self._recordings = {}
        if reports:
            self.run = merged(reports)

    def _name_tests(self, found: RunReport, visits: dict[tuple[str, str | None], list[tuple[int, str]]]) -> None:
        """The tests in which a function does not pass."""
        for node in found.nodes:
            key = node.name, node.location
            for state in node.states:
                test = next((test for end, test in visits.get(key, []) if state.visit < end), None)
                if test is not None and not state.passed and test not in self._tests.setdefault(key, []):
                    self._tests[key].append(test)

    @property
    def met(self) -> int:
        """How many custom backwards were recorded here."""
        return len({key for visits in self._visits.values() for key, ends in visits.items() if ends})

    @property
    def failing(self) -> list[NodeReport]:
        """Custom backwards that are wrong and not declared. What could not be decided is reported, and fails nothing."""
        nodes = () if self.run is None else self.run.nodes
        return [node for node in nodes if not node.passed and node.verdict is not Verdict.INCONCLUSIVE]

    @property
    def passed(self) -> bool:
        """Of what was recorded; an audit made in a test fails that test."""
        return not self.failing and not self.errors

    def lines(self) -> list[str]:
        """The report for the terminal."""
        lines = [] if self.run is None else [*self._count(self.run), *str(self.run).splitlines()]
        for node in self.failing:
            tests = self._tests.get((node.name, node.location), [])
            if tests:
                more = f" and {len(tests) - _NAMED} more" if len(tests) > _NAMED else ""
                lines.append(f"  {node.name} does not pass in {', '.join(tests[:_NAMED])}{more}")
        if self.audits:
            lines.append(f"{len(self.audits)} {'audit' if len(self.audits) == 1 else 'audits'} made by tests:")
            ranked = sorted(self.audits, key=lambda found: found.passed)
            lines += [f"  {found.test}: {found.said}" for found in ranked]
        lines += [self.unaudited] if self.unaudited else []
        return [*map(printable, lines), *(printable(f"written: {file}") for file in self.files), *map(printable, self.errors)]

    def _count(self, run: RunReport) -> list[str]:
        """How many custom backwards fail, and all their names."""
        if not run.nodes:
            return []
        names = [node.name for node in self.failing]
        count = f"{len(names)} of {len(run.nodes)} custom backwards fail"
        return [f"{count}: {', '.join(names)}" if names else count]

    def annotations(self) -> list[str]:
        """Lines that code hosts show beside the source."""
        lines = [] if self.run is None else annotations(self.run)
        for found in self.audits:
            if not found.passed:
                lines += annotations(found.report, found.location)
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": TESTS_SCHEMA,
            "passed": self.passed,
            "run": None if self.run is None else self.run.to_dict(),
            "tests": [{"name": name, "location": location, "tests": tests} for (name, location), tests in self._tests.items()],
            "audits": [
                {"test": found.test, "passed": found.passed, "location": found.location, "report": found.report.to_dict()}
                for found in self.audits
            ],
            "errors": self.errors,
        }

    def to_json(self, path: Path | None = None) -> str:
        text = json.dumps(self.to_dict(), indent=None if path is None else 2, allow_nan=False)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text + "\n")
        return text

    def receive(self, text: str) -> None:
        """Takes in what another process handed out with `to_json`."""
        data = json.loads(text)
        if data["run"] is not None:
            found = RunReport.from_dict(data["run"])
            self.run = found if self.run is None else merged([self.run, found])
        for entry in data["tests"]:
            tests = self._tests.setdefault((entry["name"], entry["location"]), [])
            tests += [test for test in entry["tests"] if test not in tests]
        self.audits += [AuditInTest(a["test"], a["passed"], a["location"], Report.from_dict(a["report"])) for a in data["audits"]]
        self.errors += data["errors"]

    def to_html(self, path: Path) -> None:
        """Pages in a folder, with an index; or the page on what was recorded alone, if the name ends in .html."""
        from pairgrad.coherence.report.page import Entry, contents  # needs jinja2

        run = self.run or merged([])
        if path.suffix == ".html":
            path.parent.mkdir(parents=True, exist_ok=True)
            run.to_html(path)
            return
        path.mkdir(parents=True, exist_ok=True)
        run.to_html(path / "run.html")
        entries = [Entry("run.html", "Custom backwards met in the tests", run.verdict.value, run.passed, run.headline)]
        for i, found in enumerate(self.audits):
            name = f"audit-{i}-{re.sub(r'[^A-Za-z0-9]+', '-', found.test.rpartition('::')[2]).strip('-')[:60]}.html"
            found.report.to_html(path / name)
            title = f"{found.test}: {found.report.name}"
            entries.append(Entry(name, title, found.report.verdict.value, found.passed, found.report.headline))
        head = next(iter(self._count(run)), "no custom backward was met")
        write_atomically(path / "index.html", contents("Coherence of the tests", head, entries))


def _without_need(node: NodeReport) -> NodeReport:
    """What a test declares is about the function that needs it, not about the others that run in the test."""
    return replace(node, intent=None) if node.passed and node.verdict in PASSING else node


@contextmanager
def _declared(made: Recording, intent: str | None) -> Iterator[None]:
    """The functions of a recording count as declared meanwhile, except for those that are declared otherwise."""
    with ExitStack() as stack:
        if intent is not None:
            for function in {visit.function for visit in made.visits()}:
                if intent_of(function) is None:
                    before = set(vars(function))
                    intended(intent)(function)
                    for name in set(vars(function)) - before:
                        stack.callback(delattr, function, name)
        yield
