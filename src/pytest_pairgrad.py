"""The pytest plugin of pairgrad: `pytest --coherence`, the marker `coherence` and the fixtures `coherence` and `triton_interpreter`.

It stands outside the package, because pytest loads plugins in every session, and importing `pairgrad` imports torch. Here that happens only when the plugin
is asked for something.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pairgrad.coherence import Report
    from pairgrad.testing.session import Session

MARKER = "coherence(skip=False, intent=None): how --coherence takes the custom backwards that run in the test: not at all, or as declared"
SECONDS = 10.0  # for the audit of what was recorded, by default
_OUTPUT = "pairgrad"  # the entry of what an xdist worker hands to its controller
_FINISHED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
_SESSION: pytest.StashKey[Session] = pytest.StashKey()
_PITFALLS: pytest.StashKey[list[str]] = pytest.StashKey()  # of Triton's interpreter, that the kernels of a recorded session met


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options `--coherence...`."""
    group = parser.getgroup("coherence", "audit of custom backwards (pairgrad)")
    group.addoption(
        "--coherence",
        action="store_true",
        help="record the custom backwards that run in the tests, audit them at the states visited, and fail if one is not the derivative of its forward",
    )
    group.addoption("--coherence-warn", action="store_true", help="report what --coherence finds, but do not fail for it")
    group.addoption("--coherence-html", metavar="PATH", help="write the reports as pages into a folder, or as one page into PATH.html")
    group.addoption("--coherence-json", metavar="FILE", help="write the reports as JSON")
    group.addoption(
        "--coherence-seconds",
        metavar="S",
        type=float,
        default=SECONDS,
        help=f"begin no further state S seconds after the audit of the recording began; the summary says what was left out (default: {SECONDS:g})",
    )
    group.addoption(
        "--coherence-annotations",
        action="store_true",
        help="print annotations that code hosts show beside the source (done anyway where GITHUB_ACTIONS is set)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker, and refuses options that cannot be kept before any test has run."""
    config.addinivalue_line("markers", MARKER)
    if _recording(config) and os.environ.get("TRITON_INTERPRET"):
        _interpret(config)
    if hasattr(config, "workerinput"):  # the controller has looked
        return
    seconds: Any = config.getoption("coherence_seconds")
    if not seconds > 0:
        raise pytest.UsageError(f"--coherence-seconds must be a number > 0, got {seconds:g}")
    for option in ("coherence_json", "coherence_html"):
        if path := config.getoption(option):
            reason = _unwritable(Path(path), is_folder=option == "coherence_html" and not path.endswith(".html"))
            if reason:
                raise pytest.UsageError(f"--{option.replace('_', '-')}={path} cannot be written: {reason}")


def _interpret(config: pytest.Config) -> None:
    """Runs the kernels of a recorded session in Triton's interpreter, from before the first test file is imported."""
    from pairgrad.testing.interpreter import is_set, triton_interpreter

    if is_set():
        stack = ExitStack()
        config.add_cleanup(stack.close)
        try:
            config.stash[_PITFALLS] = stack.enter_context(triton_interpreter())
        except RuntimeError as error:
            raise pytest.UsageError(str(error)) from None


def _unwritable(path: Path, *, is_folder: bool) -> str:
    """Why a file, or a folder of files, cannot be made there; empty if it can. Nothing is made."""
    if path.exists() and path.is_dir() != is_folder:
        return "it is a folder" if path.is_dir() else "it is a file, not a folder"
    if not is_folder and path.exists() and not os.access(path, os.W_OK):
        return "permission denied"
    place = path if is_folder else path.parent
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"{place} is not a folder"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"permission denied for {place}"


def _recording(config: pytest.Config) -> bool:
    return any(config.getoption(name) for name in ("coherence", "coherence_warn", "coherence_html", "coherence_json"))


def _session(config: pytest.Config) -> Session:
    """The session, made when it is first asked for."""
    if _SESSION not in config.stash:
        from pairgrad.testing.session import Session

        config.stash[_SESSION] = Session()
    return config.stash[_SESSION]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reads the markers, where tests are recorded."""
    if _recording(config):
        for item in items:
            _marked(item)  # a marker that makes no sense is told now


def _marked(item: pytest.Item) -> tuple[bool, str | None]:
    """Whether a test is left out, and what its backwards are declared as."""
    marker = item.get_closest_marker("coherence")
    if marker is None:
        return False, None
    from pairgrad.coherence.subject.intent import INTENTS

    intent, unknown = marker.kwargs.get("intent"), set(marker.kwargs) - {"skip", "intent"}
    if marker.args or unknown or (intent is not None and intent not in INTENTS):
        given = ", ".join([*map(repr, marker.args), *(f"{key}={value!r}" for key, value in marker.kwargs.items())])
        raise pytest.UsageError(
            f"{item.nodeid}: the marker takes skip=True, or intent= one of {', '.join(map(repr, INTENTS))}, got coherence({given})"
        )
    return bool(marker.kwargs.get("skip")), intent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Records the custom backwards that run in a test."""
    if _recording(item.config):
        skip, intent = _marked(item)
        if not skip:
            with _session(item.config).recording(item.nodeid, intent):
                return (yield)
    return (yield)


@pytest.fixture
def coherence(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """`coherence(fn, inputs, domain=...)` asserts that a backward is the derivative of its forward, as pairgrad.assert_coherent does.

    It returns the report, which is also kept for the summary, the pages and the JSON file of the session, and is shown if the test fails.
    """
    session, item = _session(request.config), request.node
    intent = _marked(item)[1]

    def check(fn: Callable[..., Any], inputs: Any = None, *, allow: Iterable[str] = (), **options: Any) -> Report:
        __tracebackhide__ = True
        if intent is not None:
            options.setdefault("intent", intent)
        found = session.check(item.nodeid, fn, inputs, allow=allow, **options)
        item.user_properties.append(("coherence", found.said))
        item.add_report_section("call", "coherence", str(found.report))
        if not found.passed:
            raise AssertionError(f"{found.said}\n\n{found.report.explain()}")
        return found.report

    return check


@pytest.fixture
def triton_interpreter() -> Iterator[list[str]]:
    """Runs Triton kernels on CPU tensors, as pairgrad.testing.triton_interpreter does; without TRITON_INTERPRET=1, the test is skipped.

    It gives the list of the interpreter's pitfalls that the kernels have met.
    """
    from pairgrad.testing.interpreter import NOT_SET, triton_interpreter

    if not os.environ.get("TRITON_INTERPRET"):
        pytest.skip(NOT_SET)
    with triton_interpreter() as pitfalls:
        yield pitfalls


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """A worker of pytest-xdist is done: what it found is here. Or it is dead."""
    text = (getattr(node, "workeroutput", None) or {}).get(_OUTPUT)
    if text is not None:
        _session(node.config).receive(text)
    elif error and _recording(node.config):
        _session(node.config).errors.append(f"worker {node.gateway.id} died; what it recorded is lost")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """Audits what was recorded, once the last test is over."""
    config = session.config
    if (_SESSION not in config.stash and not _recording(config)) or config.getoption("collectonly"):
        return
    if exitstatus not in _FINISHED:
        if _recording(config) and exitstatus != pytest.ExitCode.USAGE_ERROR:
            why = "was interrupted" if exitstatus == pytest.ExitCode.INTERRUPTED else f"ended early (exit code {int(exitstatus)})"
            _session(config).unaudited = f"not audited: the session {why}"
        return
    found = _session(config)
    if _recording(config):
        _say(config, found)
        found.finish(config.getoption("coherence_seconds"))
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = found.to_json()
        return
    _write(config, found)
    if not found.passed and not config.getoption("coherence_warn"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _say(config: pytest.Config, found: Session) -> None:
    """That there is something to wait for."""
    reporter, met = config.pluginmanager.get_plugin("terminalreporter"), found.met
    if reporter is not None and met and config.get_verbosity() >= 0 and not hasattr(config, "workeroutput"):
        reporter.ensure_newline()
        reporter.write_line(f"auditing {met} custom {'backward' if met == 1 else 'backwards'} ...")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says what was found."""
    if _SESSION not in config.stash:
        return
    found = config.stash[_SESSION]
    if not _recording(config) and all(audit.passed for audit in found.audits) and config.get_verbosity() <= 0:
        return
    lines = found.lines()
    if not lines:
        return
    terminalreporter.section("coherence")
    for line in [*lines, *config.stash.get(_PITFALLS, [])]:
        terminalreporter.write_line(line)
    if not found.passed:
        terminalreporter.write_line(_verdict(found, config), red=True)
    if config.getoption("coherence_annotations") or os.environ.get("GITHUB_ACTIONS"):
        for line in found.annotations():
            terminalreporter.write_line(line)


def _verdict(found: Session, config: pytest.Config) -> str:
    if config.getoption("coherence_warn"):
        return "coherence: does not pass (--coherence-warn: the session does not fail for it)"
    if not found.failing:
        return "coherence: FAILED"
    return (
        "coherence: FAILED. Fix the backward, declare it with pairgrad.intended if it is meant to differ, "
        "or leave a test out with @pytest.mark.coherence(skip=True)"
    )


def _write(config: pytest.Config, found: Session) -> None:
    """Writes the files asked for. One that cannot be written fails the session."""
    for option, write in (("coherence_json", found.to_json), ("coherence_html", found.to_html)):
        if path := config.getoption(option):
            try:
                write(Path(path))
                found.files.append(path)
            except (OSError, ImportError) as error:
                found.errors.append(f"--{option.replace('_', '-')}={path} could not be written: {error}")
