"""Running the tests against mutants: processes forked from one that has already loaded torch, and, for most mutants, already collected the tests.

A mutant inside a function is put into a fork of a running pytest session, by giving the live function the mutant's code: a tenth of a second. A mutant that
is executed at import (a constant, a default, a decorator) goes into a fork that has not yet imported pairgrad: some seconds. What survives the first way is
tried again the second way, because objects made during collection still hold what the unchanged code computed.
"""

from __future__ import annotations

import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.scope import ROOT, SOURCE, Group

PATIENCE = 5.0, 6.0  # seconds of CPU, and multiples of its usual time, after which a test of a mutant counts as hanging
STANDSTILL = 120.0  # seconds without an answer from a process that is given up: it waits for something
MEMORY = 4 << 30  # bytes that a mutant may take beyond what the process has
_WARM = "numpy", "torch", "torch.func", "torch.utils._pytree", "scipy.special", "scipy.integrate", "mpmath", "flint"


def warm_up() -> None:
    """Imports what every test needs and no mutant touches."""
    for name in _WARM:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    import torch

    torch.set_num_threads(1)


def in_fork(work: Callable[[Callable[[dict[str, Any]], None]], None], standstill: float = STANDSTILL) -> list[dict[str, Any]]:
    """Runs `work(send)` in a fork and gives back what it sent; {"hangs": ...} or {"crashed": ...} at the end if it did not end by itself."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            work(lambda message: _write_all(write, json.dumps(message).encode() + b"\n"))
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    messages: list[dict[str, Any]] = []
    rest = b""
    hangs = False
    while True:
        ready, _, _ = select.select([read], [], [], standstill)
        if not ready:
            os.kill(child, signal.SIGKILL)
            hangs = True
            break
        chunk = os.read(read, 1 << 16)
        if not chunk:
            break
        *complete, rest = (rest + chunk).split(b"\n")
        messages += [json.loads(line) for line in complete]
    os.close(read)
    _, status = os.waitpid(child, 0)
    if hangs or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF):
        messages.append({"hangs": True})
    elif status != 0:
        messages.append({"crashed": status})
    return messages


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class _Watch:
    """Keeps the reports of the test that is running, and loads settings under which Hypothesis repeats itself."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []
        self.collected: list[pytest.Item] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutation", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate), deadline=None)
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def run(self, item: pytest.Item, following: pytest.Item | None) -> str:
        """Passed, failed or skipped."""
        self.reports.clear()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        outcomes = {report.outcome for report in self.reports}
        return "failed" if "failed" in outcomes else "skipped" if "skipped" in outcomes else "passed"

    def run_until_failure(self, items: list[pytest.Item], seconds: dict[str, float], send: Callable[[dict[str, Any]], None]) -> None:
        first, factor = PATIENCE
        for item, following in zip(items, [*items[1:], None], strict=True):
            signal.setitimer(signal.ITIMER_PROF, first + factor * seconds[item.nodeid])  # of CPU; ends the process
            if self.run(item, following) == "failed":
                send({"killed": item.nodeid})
                return
        send({"survived": len(items)})


def arguments(group: Group) -> list[str]:
    left_out = [f"--deselect=tests/{name}" if "::" in name else f"--ignore={ROOT / 'tests' / name}" for name in group.leave_out]
    tests = [str(ROOT / "tests" / name) for name in group.tests]
    return [
        *tests,
        *left_out,
        f"--rootdir={ROOT}",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-n",
        "0",
        "--color=no",
        "--tb=native",
        "--assert=plain",
    ]


# The session that stays open --------------------------------------------------------------------------------------------


class OpenSession(_Watch):
    """A pytest session that has collected the tests of a group, and calls `drive` with itself instead of running them."""

    def __init__(self, group: Group, drive: Callable[[OpenSession], None]) -> None:
        super().__init__()
        self.group, self._drive = group, drive
        self.items: dict[str, pytest.Item] = {}
        self._functions: list[types.FunctionType] = []
        self._caches: list[Any] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise SystemExit(f"{session.testsfailed} errors during collection of the tests of {self.group.name}")
        self.items = {item.nodeid: item for item in session.items}
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType and thing.__code__.co_filename.startswith(str(SOURCE)):
                self._functions.append(thing)
            elif type(thing) is functools._lru_cache_wrapper and str(getattr(thing, "__module__", "")).startswith("pairgrad"):
                self._caches.append(thing)
        gc.freeze()
        self._drive(self)
        return True

    def baseline(self) -> dict[str, Any]:
        """Of each test that passes on the unchanged code: its time, and the lines of the group's modules that it executes."""
        paths = {str(SOURCE / module): module for module in self.group.modules}

        def work(send: Callable[[dict[str, Any]], None]) -> None:
            from coverage import Coverage

            recorder = Coverage(data_file=None, include=list(paths), branch=False, config_file=False)
            recorder.start()
            items = list(self.items.values())
            times = {}
            for item, following in zip(items, [*items[1:], None], strict=True):
                self._forget()  # what an earlier test computed, this one would not execute
                recorder.switch_context(item.nodeid)
                start = time.process_time()
                outcome = self.run(item, following)
                times[item.nodeid] = time.process_time() - start
                send({"test": item.nodeid, "outcome": outcome, "seconds": times[item.nodeid]})
            recorder.stop()
            data = recorder.get_data()
            for path, module in paths.items():
                covered: dict[str, list[int]] = {}
                for line, contexts in data.contexts_by_lineno(path).items():
                    for context in contexts:
                        covered.setdefault(context, []).append(line)
                for context, lines in covered.items():
                    send({"module": module, "by": context, "lines": sorted(lines)})
            send({"done": True})

        messages = in_fork(work, 900.0)
        if not messages or "done" not in messages[-1]:
            raise SystemExit(f"the tests of {self.group.name} did not run to their end on the unchanged code: {messages[-1:]}")
        failed = [m["test"] for m in messages if m.get("outcome") == "failed"]
        if failed:
            raise SystemExit(f"these tests of {self.group.name} fail on the unchanged code, run them alone first: {failed}")
        seconds = {m["test"]: m["seconds"] for m in messages if m.get("outcome") == "passed"}
        lines: dict[str, dict[str, list[int]]] = {module: {} for module in self.group.modules}
        for m in messages:
            if "module" in m and m["by"] in seconds:
                lines[m["module"]][m["by"]] = m["lines"]
        return {"seconds": seconds, "lines": lines}

    def try_out(self, mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> dict[str, Any] | None:
        """The last message of the fork; None if the mutant cannot be put into live functions."""
        changes = self._changes(mutant)
        if not changes:
            return None

        def work(send: Callable[[dict[str, Any]], None]) -> None:
            _limit_memory()
            for function, code in changes:
                function.__code__ = code
            self._forget()
            self.run_until_failure([self.items[name] for name in tests], seconds, send)

        return in_fork(work)[-1]

    def _forget(self) -> None:
        for cached in self._caches:
            cached.cache_clear()

    def _changes(self, mutant: Mutant) -> list[tuple[types.FunctionType, types.CodeType]]:
        path = str(SOURCE / mutant.place.module)
        try:
            wanted = _by_name(compile(mutant.source, path, "exec", dont_inherit=True))
        except (SyntaxError, ValueError):
            return []
        changes = []
        for function in self._functions:
            code = function.__code__
            if code.co_filename != path:
                continue
            found = wanted.get((code.co_qualname, code.co_firstlineno))
            if found is not None and found != code:
                if found.co_freevars != code.co_freevars:
                    return []
                changes.append((function, found))
        return changes


def _by_name(module: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """Code objects by qualified name and line; without those of which there are several, such as two lambdas on one line."""
    found: dict[tuple[str, int], list[types.CodeType]] = {}

    def visit(code: types.CodeType) -> Iterator[None]:
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found.setdefault((constant.co_qualname, constant.co_firstlineno), []).append(constant)
                yield from visit(constant)

    list(visit(module))
    return {name: codes[0] for name, codes in found.items() if len(codes) == 1}


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if Path("/proc/self/statm").exists() else 0
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


def open_session(group: Group, drive: Callable[[OpenSession], None]) -> None:
    """Collects the tests of a group and calls `drive`, in this process."""
    code = pytest.main(arguments(group), plugins=[OpenSession(group, drive)])
    if code != 0:
        raise SystemExit(f"the session of {group.name} ended with {code!r}")


# A new import -----------------------------------------------------------------------------------------------------------


class _Replaced(importlib.abc.MetaPathFinder):
    """Imports one module from other source than its file's."""

    def __init__(self, mutant: Mutant) -> None:
        self._path = SOURCE / mutant.place.module
        self._name = ".".join(("pairgrad", *Path(mutant.place.module).with_suffix("").parts))
        self._source = mutant.source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        source = self._source

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> types.CodeType:
                return compile(source, self.path, "exec", dont_inherit=True)

        return importlib.util.spec_from_file_location(fullname, self._path, loader=Loader(fullname, str(self._path)))


class _Ordered(_Watch):
    def __init__(self, tests: list[str], seconds: dict[str, float], send: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._tests, self._seconds, self._send = tests, seconds, send

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            self._send({"killed": "collection"})
            return True
        items = {item.nodeid: item for item in session.items}
        chosen = [items[name] for name in self._tests if name in items]
        if len(chosen) < len(self._tests):
            self._send({"killed": "collection"})
            return True
        self.run_until_failure(chosen, self._seconds, self._send)
        return True


def try_import(mutant: Mutant, group: Group, tests: list[str], seconds: dict[str, float]) -> dict[str, Any]:
    """As `OpenSession.try_out`, with a process that imports the mutant. Must be called where pairgrad is not imported yet."""
    if any(name == "pairgrad" or name.startswith("pairgrad.") for name in sys.modules):
        raise RuntimeError("pairgrad is imported already")

    def work(send: Callable[[dict[str, Any]], None]) -> None:
        _limit_memory()
        sys.meta_path.insert(0, _Replaced(mutant))
        files = sorted({name.split("::")[0] for name in tests})
        options = [a for a in arguments(group) if a.startswith("-") or a in ("no:cacheprovider", "no:randomly", "0")]
        code = pytest.main([*(str(ROOT / name) for name in files), *options], plugins=[_Ordered(tests, seconds, send)])
        if code not in (0, 1):
            send({"killed": f"pytest ended with {int(code)}"})

    return (in_fork(work) or [{"crashed": 0}])[-1]
