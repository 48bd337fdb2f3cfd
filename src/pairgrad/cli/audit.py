"""`pairgrad audit`: a user's function, audited in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from pairgrad.cli.audit_child import Outcome, watch
from pairgrad.cli.commands import AuditOptions
from pairgrad.cli.exit_codes import INTERRUPTED
from pairgrad.cli.mistakes import laid_out
from pairgrad.cli.output import prepare, write_json
from pairgrad.cli.spec import SpecError, check_inputs, check_sweep, parse_constraints, parse_domain
from pairgrad.cli.streams import Streams
from pairgrad.cli.target import Unusable, saying, split
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.report.annotations import annotations, code_quality, failure_annotation, failure_entry
from pairgrad.coherence.report.report import Report
from pairgrad.coherence.report.sweep import SweepReport
from pairgrad.coherence.subject.intent import INTENTS
from pairgrad.ground.checks import integer_at_least, one_of
from pairgrad.ground.text import printable

COHERENT, INCOHERENT, UNTOLD = 0, 1, 2  # exit codes
_CHOICES = {
    "dtype": ("float64", "float32", "float16", "bfloat16"),
    "intent": INTENTS,
    "effort": ("quick", "standard", "thorough"),
    "format": ("text", "json", "github"),
}


def request(target: str, options: AuditOptions) -> dict[str, Any]:
    """What the worker is told."""
    names = (
        "inputs",
        "inputs_from",
        "sweep",
        "domain",
        "constraints",
        "dtype",
        "effort",
        "seed",
        "tolerance",
        "intent",
        "second_order",
        "transforms",
        "consequences",
        "seconds",
    )
    cache = None if options.cache is None else str(options.cache)
    return {
        "target": target,
        "cache": cache,
        "compiled": options.compiled or False,
        "stdout_to_stderr": options.format != "text",
        **{name: getattr(options, name) for name in names},
    }


def run(options: AuditOptions) -> int:
    """Audit every target; the exit code of the worst. A second Ctrl-C ends it at once."""
    audits = _Audits(options)
    try:
        audits.all()
    except KeyboardInterrupt:
        audits.interrupted = True
        audits.give_up("interrupted")
    except Exception as error:
        audits.say(f"cannot continue: {saying(error)}")
        if options.traceback:
            audits.streams.line(laid_out(traceback.format_exc()), err=True)
        audits.give_up(f"cannot continue: {saying(error)}")
    return audits.code


class _Audits:
    """The targets of one call, one after the other: files first, then words, because a reader may be gone."""

    def __init__(self, options: AuditOptions) -> None:
        self._options = options
        self.streams = Streams("pairgrad audit")
        self._several, self._stems = len(options.targets) > 1, _stems(options.targets)
        self._codes: list[int] = []
        self._entries: list[dict[str, Any]] = []
        self._data: list[dict[str, Any]] = []
        self.interrupted = False
        self._unwritten = False  # whether a file that was asked for is missing

    @property
    def code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        if INCOHERENT in self._codes:
            return INCOHERENT
        return UNTOLD if self._unwritten or self.streams.lost else max(self._codes, default=UNTOLD)

    @property
    def _left(self) -> list[str]:
        return self._options.targets[len(self._codes) :]

    def say(self, text: str, *, lines: bool = False) -> None:
        """A sentence on standard error; with `lines`, those that are laid out stay so."""
        first, *rest = printable(f"pairgrad audit: {text}", lines=lines).split("\n")
        width = self.streams.err.width if self.streams.err.is_terminal else 10_000
        words = textwrap.fill(first, width, break_long_words=False, break_on_hyphens=False)
        self.streams.show(Text("\n".join([words, *rest])), err=True)

    def all(self) -> None:
        options = self._options
        try:
            _check_file("--html", options.html, (".html", ".htm"), several=self._several or options.sweep is not None)
            _check_file("--json", options.json, (".json",), several=self._several)
            _check_file("--code-quality", options.code_quality, (".json",), several=False)
        except ValueError as error:
            self._options = replace(options, html=None, json=None, code_quality=None)  # none of them is touched
            self._refuse(printable(str(error)))
            return
        try:
            _check(options)
        except (Unusable, ValueError, TypeError) as error:
            self._refuse(str(error))
            return
        while self._left:
            self.interrupted |= self._next(self._left[0]) == "interrupted"
            if self.interrupted and self._left:
                left = ", ".join(self._left)
                self._skip("not audited: interrupted before")
                self.say(f"not audited: {left}")
        self._finish()

    def give_up(self, why: str) -> None:
        """What is left is not audited. No file says otherwise, and nothing is said here."""
        try:
            self._skip(why)
            self._write_quality()
        except Exception:
            self._codes.append(UNTOLD)

    def _refuse(self, why: str) -> None:
        """A mistake on the command line."""
        self._skip(why)
        self.say(why, lines=True)
        self._annotate(failure_annotation("pairgrad audit", why))
        self._finish()

    def _skip(self, why: str) -> None:
        for target in self._left:
            self._record(target, UNTOLD, why)

    def _next(self, target: str) -> str:
        """Audit one; how that ended."""
        options = self._options
        with _shown(self.streams, target if self._several else "", options.quiet) as show, _terminated_like_interrupted():
            outcome = watch(request(target, options), options.timeout, show)
        report = None if outcome.report is None else (Report if self._options.sweep is None else SweepReport).from_dict(outcome.report)
        trouble = _trouble(target, outcome, options)
        written = self._record(target, _code(outcome, report), trouble, report, outcome.location)
        self._tell(trouble, outcome, report)
        for made in _audits_of(trouble, report):
            self._annotate(*annotations(made, outcome.location))
        if trouble:
            self._annotate(failure_annotation(f"{target} could not be audited to the end", trouble, outcome.location))
        if written and not options.quiet:
            self.streams.show(printable(f"Written: {', '.join(written)}"), err=True)
        return outcome.how

    def _record(
        self, target: str, code: int, trouble: str, report: Report | SweepReport | None = None, location: str | None = None
    ) -> list[str]:
        """Keep what became of a target, and write its files; their names."""
        data = {"target": target, **({"error": trouble} if trouble else {}), **(report.to_dict() if report is not None else {})}
        written = self._save(report, data)
        self._data.append(data)
        for number, made in enumerate(_audits_of(trouble, report)):
            self._entries += code_quality(made, location, key=target + f" {number}" * (number > 0))
        if trouble:
            self._entries.append(failure_entry(target, trouble, location))
        self._codes.append(code)
        return written

    def _tell(self, trouble: str, outcome: Outcome, report: Report | SweepReport | None) -> None:
        """Why the audit has no end, if it has none; the report; what else there is."""
        empty = isinstance(report, Report) and not report.states and all(finding.kind == "note" for finding in report.findings)
        as_text = report is not None and self._options.format == "text"
        if trouble:
            found = "nothing was found until then" if empty else "this was found until then:"
            self.say(f"{trouble}; {found}" if as_text else trouble, lines=True)
            if self._options.traceback and outcome.failure is not None and outcome.failure["way"]:
                self.streams.line(laid_out(outcome.failure["way"]), err=True)
        if report is not None and as_text and not (trouble and empty):
            _print(self.streams, report, self._options)
        for note in outcome.notes:
            self.say(note)

    def _annotate(self, *lines: str) -> None:
        if self._options.format == "github" or os.environ.get("GITHUB_ACTIONS") == "true":
            for line in lines:
                self.streams.line(line, err=self._options.format == "json")

    def _finish(self) -> None:
        self._write_quality()
        if self._options.format == "json":
            data = json.dumps(self._data if self._several else self._data[0], indent=2, allow_nan=False)
            self.streams.line(data.replace("##", "\\u0023#"))  # the same strings, in which a code host finds no command

    def _save(self, report: Report | SweepReport | None, data: dict[str, Any]) -> list[str]:
        """The files that were asked for. Without a report they say why there is none, and the page of an earlier one is gone."""
        written = []
        options = self._options
        for path, extension in ((options.html, ".html"), (options.json, ".json")):
            if path is None:
                continue
            file = path / f"{self._stems[len(self._codes)]}{extension}" if self._several else path
            with self._writing(file):
                if extension == ".html" and options.sweep is not None and report is not None:
                    file = file.with_suffix("") if self._several else file
                elif extension == ".html" and report is None:
                    if not file.is_dir():
                        file.unlink(missing_ok=True)
                    continue
                if extension == ".html" and report is not None:
                    report.to_html(file)
                elif report is None or "error" in data:
                    write_json(file, data)
                else:
                    report.to_json(file)
                written.append(str(file))
        return written

    def _write_quality(self) -> None:
        if self._options.code_quality is not None:
            with self._writing(self._options.code_quality):
                write_json(self._options.code_quality, self._entries)

    @contextlib.contextmanager
    def _writing(self, file: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, UnicodeError, ImportError) as error:
            self._unwritten = True
            self.say(f"cannot write {file}: {getattr(error, 'strerror', None) or error}")


def _stems(targets: Sequence[str]) -> list[str]:
    """A file name for each, no two of them equal."""
    stems: dict[str, str] = {}  # by what a file system that ignores case sees
    for target in targets:
        plain = re.sub(r"[^\w.-]+", "_", target).strip("_.")
        names = (plain, *(f"{plain}-{number}" for number in range(2, len(targets) + 1)))
        stem = next(name for name in names if name.lower() not in stems)
        stems[stem.lower()] = stem
    return list(stems.values())


def _audits_of(trouble: str, report: Report | SweepReport | None) -> list[Report]:
    """The audits that say something: not those where the trouble is all that there is to say."""
    if isinstance(report, SweepReport):
        return [row.report for row in report.rows if row.report is not None]
    return [] if report is None or (trouble and report.verdict is Verdict.INCONCLUSIVE) else [report]


def _check(options: AuditOptions) -> None:
    """Everything that can be found wrong without calling anything."""
    for target in options.targets:
        split(target)
    if options.inputs is not None and options.inputs_from is not None:
        raise ValueError("give --inputs or --inputs-from, not both")
    for option, text, check in (
        ("--inputs", options.inputs, check_inputs),
        ("--sweep", options.sweep, check_sweep),
        ("--domain", options.domain, parse_domain),
        ("--constraints", options.constraints, parse_constraints),
    ):
        if text is not None:
            try:
                check(text)
            except SpecError as error:
                raise ValueError(f"{option}: {error}") from None
    for name, choices in _CHOICES.items():
        if getattr(options, name) is not None:
            one_of(f"--{name}", getattr(options, name), choices)
    integer_at_least("--seed", options.seed, 0)
    if options.sweep is not None and options.domain is not None:
        raise ValueError("give --sweep or --domain, not both: a sweep audits each configuration at its inputs")
    if not 0 <= options.tolerance < 1:
        raise ValueError(f"--tolerance must be a number from 0 to 1, relative to the size of the gradient, got {options.tolerance:g}")
    if not 0 <= options.seconds < float("inf"):
        raise ValueError(f"--seconds must be a number of seconds, or 0 for as long as it takes, got {options.seconds:g}")
    if not 0 <= options.timeout < float("inf"):
        raise ValueError(f"--timeout must be a number of seconds, or 0 for none, got {options.timeout:g}")


def _check_file(option: str, path: Path | None, known: tuple[str, ...], *, several: bool) -> None:
    """That it can be written, found out before the audit begins."""
    if path is None:
        return
    if several and path.suffix.lower() in known:
        raise ValueError(f"{option} must be a folder where there are several targets or a sweep, one file each, got {path}")
    if not several and path.suffix.lower() not in known:
        raise ValueError(f"{option} must be a file that ends in {' or '.join(known)}, got {path}")
    if not several and path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder")
    folder = path if several else path.parent
    try:
        prepare(folder)
    except FileExistsError:
        raise ValueError(f"cannot write {path}: {folder} is not a folder") from None
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}; choose another place with {option}") from None


@contextlib.contextmanager
def _shown(streams: Streams, target: str, quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """How stages are shown: a bar on a terminal, a line each elsewhere."""
    name, last, terminal = f"{target}: " if target else "", "", streams.err.is_terminal
    calls = TextColumn("{task.fields[calls]} calls")
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=16), calls, TimeElapsedColumn())
    with Progress(*columns, console=streams.err, transient=True, disable=quiet or not terminal) as bar:
        task = bar.add_task(f"{name}starting", total=None, calls=0)

        def show(stage: dict[str, Any]) -> None:
            nonlocal last
            step, steps, calls = stage["step"], stage["steps"], stage["calls"]
            bar.update(task, description=f"{name}{stage['stage']}", total=steps or None, completed=max(step - 1, 0), calls=calls)
            if steps and stage["stage"] != last and not quiet and not terminal:
                last = stage["stage"]
                streams.line(printable(f"{name}[{step}/{steps}] {last} ({_counted(calls)}, {stage['seconds']:.1f} s)"), err=True)

        yield show


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """A polite request to end (SIGTERM) does what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _code(outcome: Outcome, report: Report | SweepReport | None) -> int:
    if report is None or outcome.failure is not None or outcome.how == "died":
        return UNTOLD
    if report.passed and report.complete:
        return COHERENT
    if isinstance(report, SweepReport):
        return INCOHERENT if report.failing else UNTOLD
    if report.verdict is Verdict.INCONCLUSIVE or (not report.complete and (report.passed or report.intent is not None)):
        return UNTOLD
    return INCOHERENT


def _trouble(target: str, outcome: Outcome, options: AuditOptions) -> str:
    stage = outcome.stage
    calls = f" ({_counted(stage['calls'])})" if stage["calls"] else ""
    target = printable(target)
    where = printable(f"while {stage['stage']}{calls}" + (f", at {outcome.place}" if outcome.place else ""))
    if outcome.failure is not None:
        text = outcome.failure["message"]
        if outcome.failure["kind"] == "raised":
            text += printable(f" while {stage['stage']}{calls}") if stage["steps"] else ""
            text += "; --traceback shows the way there" if outcome.failure["way"] and not options.traceback else ""
        return text
    if outcome.how == "timeout":
        return f"{target} timed out after {options.timeout:g} s {where}"
    if outcome.how == "interrupted":
        return f"interrupted {where}"
    if outcome.how == "died" or outcome.report is None:
        return f"the process that audits {target} {_death(outcome.code)} {where}"
    return ""


def _death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with code {code}"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    return f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _print(streams: Streams, report: Report | SweepReport, options: AuditOptions) -> None:
    console = streams.out
    if options.quiet:
        streams.show(printable(f"{report.name}: {report.headline}"))
        return
    first, *rest = str(report).splitlines()
    failing = bool(report.failing) if isinstance(report, SweepReport) else report.verdict is not Verdict.INCONCLUSIVE
    colour = "green" if report.passed else "red" if failing else "yellow"
    streams.show(Text(_folded(first, console), style=f"bold {colour}"))
    for line in rest:
        style = "red" if line.startswith("  - [alarm]") else "yellow" if line.startswith("  - [warning]") else ""
        streams.show(Text(_folded(line, console), style=style))
    if options.explain and isinstance(report, Report):
        streams.show(Text("\n" + _refilled(report.explain(), console)))


def _folded(line: str, console: Console) -> str:
    """A line of a report, folded under itself on a terminal; whole in a file."""
    if not console.is_terminal or len(line) <= console.width:
        return line
    indent = re.match(r"\s*(?:- )?", line)
    return textwrap.fill(line, console.width, subsequent_indent=" " * ((indent.end() if indent else 0) + 2), drop_whitespace=True)


def _refilled(text: str, console: Console) -> str:
    if not console.is_terminal or console.width >= 100:
        return text
    return "\n\n".join(textwrap.fill(" ".join(part.split()), console.width) for part in text.split("\n\n"))


def _counted(calls: int) -> str:
    return f"{calls} call{'' if calls == 1 else 's'}"
