"""Runs tests in forked processes: once on the unchanged code with coverage, then on each mutant until a test fails.

The parent has imported torch but not the package. A fork imports the package with one changed file, so it starts in a second or two, and constants,
defaults and decorators are mutated like everything else. Needs Linux or macOS.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from tools.mutation.settings import Settings

MEMORY = 4 << 30  # bytes that a mutant may allocate beyond what the process has
OPTIONS = ["-q", "--assert=plain", "--tb=no", "--color=no", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]


def preload(settings: Settings) -> None:
    """Imports what every test needs and no mutant changes, and makes the checkout's package the one that is imported."""
    sys.path[:0] = [str((settings.root / settings.package).parent), str(settings.root)]
    os.chdir(settings.root)
    for name in settings.preload:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def fork(work: Callable[[], int]) -> int:
    """Starts `work` in a process group of its own, without output; its result is the exit status. Returns the process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        with contextlib.suppress(OSError):  # the child does the same; whichever comes first
            os.setpgid(child, child)
        return child
    code = 99
    try:
        os.setpgrp()
        for descriptor in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        code = work()
    finally:
        os._exit(code)


def run_tests(arguments: list[str], settings: Settings, plugin: Any) -> int:
    """Runs pytest in this process, with Hypothesis drawing the same examples every time."""
    if importlib.util.find_spec("hypothesis"):
        from hypothesis import Phase
        from hypothesis import settings as hypothesis

        hypothesis.register_profile("mutation", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate), deadline=None)
        hypothesis.load_profile("mutation")
    return int(pytest.main([*arguments, f"--rootdir={settings.root}", *OPTIONS], plugins=[plugin]))


class Baseline:
    """A pytest plugin that writes for each test that passes its time and, for each source file, the lines that it executes."""

    def __init__(self, settings: Settings, files: list[str], output: Path) -> None:
        from coverage import Coverage

        self._output = output
        self._files = {file: str(settings.source(file)) for file in files}
        self._package = Path(settings.package).name
        self._recorder = Coverage(data_file=None, include=list(self._files.values()), config_file=False)
        self._caches: list[Any] = []
        self._start = 0.0
        self.seconds: dict[str, float] = {}

    def pytest_collection_finish(self) -> None:
        cached = [thing for thing in gc.get_objects() if type(thing) is functools._lru_cache_wrapper]
        self._caches = [thing for thing in cached if str(getattr(thing, "__module__", "")).startswith(self._package)]
        self._recorder.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        for cached in self._caches:
            cached.cache_clear()  # otherwise a test does not execute what an earlier one computed
        self._recorder.switch_context(nodeid)
        self._start = time.process_time()
        self.seconds[nodeid] = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.seconds.pop(report.nodeid, None)
        elif report.nodeid in self.seconds:
            self.seconds[report.nodeid] = round(time.process_time() - self._start, 3)

    def pytest_sessionfinish(self) -> None:
        self._recorder.stop()
        data = self._recorder.get_data()
        lines: dict[str, dict[str, list[int]]] = {}
        for file, path in self._files.items():
            by_test = lines.setdefault(file, {})
            for line, tests in data.contexts_by_lineno(path).items():
                for test in tests:
                    if test in self.seconds:
                        by_test.setdefault(test, []).append(line)
        self._output.write_text(json.dumps({"seconds": self.seconds, "lines": lines}), encoding="utf-8")


def baseline(settings: Settings, folder: str, files: list[str], output: Path) -> None:
    """Runs the tests of a folder on the unchanged code. Tests that fail are left out."""
    child = fork(lambda: run_tests(settings.folders[folder], settings, Baseline(settings, files, output)))
    _, status = os.waitpid(child, 0)
    if not output.exists() or not json.loads(output.read_text(encoding="utf-8"))["seconds"]:
        output.unlink(missing_ok=True)
        raise SystemExit(
            f"no test in {settings.folders[folder]} passes on the unchanged code (pytest ended with status {status}): run them alone first"
        )


class _Chosen:
    """A pytest plugin that keeps the chosen tests, in their order, and writes which of them failed."""

    def __init__(self, tests: list[str], output: Path) -> None:
        self._tests, self._output = tests, output

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in self._tests]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "failed":
            self._output.write_text(report.nodeid, encoding="utf-8")


def start(settings: Settings, file: str, source: str, tests: list[str], seconds: float, output: Path) -> int:
    """Starts a process that imports `file` with another source and runs `tests`; `output` then has the name of the one that failed."""
    path = os.path.realpath(settings.source(file))
    plain = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        if os.path.realpath(self.path) == path:
            return compile(source, path, "exec", dont_inherit=True)
        return plain(self, fullname)

    def work() -> int:
        _limit(seconds)
        SourceFileLoader.get_code = get_code
        files = list(dict.fromkeys(name.split("::")[0] for name in tests))
        return run_tests([*files, "-x"], settings, _Chosen(tests, output))

    return fork(work)


def _limit(seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    statm = Path("/proc/self/statm")
    if statm.exists():
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


def end(child: int) -> None:
    """Kills a process and everything that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
