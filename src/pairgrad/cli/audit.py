"""`pairgrad audit`: somebody's function, audited in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from pairgrad.cli.audit_child import Outcome, watch
from pairgrad.cli.output import prepare
from pairgrad.cli.spec import SpecError, parse_domain, parse_inputs
from pairgrad.cli.target import Unusable, split
from pairgrad.coherence.annotations import annotations, code_quality, failure_annotation
from pairgrad.coherence.intent import INTENTS
from pairgrad.coherence.report import Report
from pairgrad.coherence.verdict import Verdict
from pairgrad.ground.checks import integer_at_least, one_of
from pairgrad.ground.files import write_atomically

COHERENT, INCOHERENT, UNTOLD = 0, 1, 2  # exit codes
DTYPES = ("float64", "float32", "float16", "bfloat16")
EFFORTS = ("quick", "standard", "thorough")
FORMATS = ("text", "json", "github")
_EXTENSIONS = {"--html": (".html", ".htm"), "--json": (".json",), "--code-quality": (".json",)}


@dataclass(frozen=True)
class Options:
    """What the command line says beside the targets."""

    inputs: str | None = None
    inputs_from: str | None = None
    domain: str | None = None
    dtype: str | None = None
    effort: str = "standard"
    seed: int = 0
    tolerance: float = 0.0
    intent: str | None = None
    second_order: bool = True
    consequences: bool = True
    timeout: float = 300.0
    html: Path | None = None
    json: Path | None = None
    code_quality: Path | None = None
    format: str = "text"
    explain: bool = False
    quiet: bool = False
    traceback: bool = False

    def request(self, target: str) -> dict[str, Any]:
        """What the worker is told."""
        names = ("inputs", "inputs_from", "domain", "dtype", "effort", "seed", "tolerance", "intent", "second_order", "consequences")
        return {"target": target, "stdout_to_stderr": self.format != "text", **{name: getattr(self, name) for name in names}}


def run(targets: Sequence[str], options: Options) -> int:
    """Audit every target; the exit code of the worst. A second Ctrl-C ends it at once."""
    try:
        return _run(targets, options)
    except KeyboardInterrupt:
        return UNTOLD


def _run(targets: Sequence[str], options: Options) -> int:
    said = Console(stderr=True, highlight=False)
    try:
        _check(targets, options)
    except (Unusable, SpecError, ValueError, TypeError) as error:
        _complain(said, str(error))
        if _on_github(options):
            typer.echo(failure_annotation("pairgrad audit", str(error)), err=options.format == "json")
        return UNTOLD
    codes: list[int] = []
    entries: list[dict[str, Any]] = []
    data: list[dict[str, Any]] = []
    for place, target in enumerate(targets):
        with _shown(said, target if len(targets) > 1 else "", options.quiet) as show, _terminated_like_interrupted():
            outcome = watch(options.request(target), options.timeout, show)
        report = None if outcome.report is None else Report.from_dict(outcome.report)
        codes.append(_code(outcome, report))
        trouble = _tell(said, target, outcome, report, options)
        data.append({"target": target, **({"error": trouble} if trouble else {}), **(report.to_dict() if report is not None else {})})
        if report is not None:
            _save(said, report, target, options, several=len(targets) > 1)
            entries += code_quality(report, outcome.location, key=target)
        if outcome.how == "interrupted":
            left = targets[place + 1 :]
            if left:
                _complain(said, f"not audited: {', '.join(left)}")
            break
    if options.format == "json":
        typer.echo(json.dumps(data[0] if len(targets) == 1 else data, indent=2, allow_nan=False))
    if options.code_quality is not None:
        _write(said, options.code_quality, lambda file: write_atomically(file, json.dumps(entries, indent=2) + "\n"))
    return INCOHERENT if INCOHERENT in codes else max(codes)


# Before -------------------------------------------------------------------------------------------------------------------


def _check(targets: Sequence[str], options: Options) -> None:
    """Everything that can be found wrong without calling anything."""
    for target in targets:
        split(target)
    if options.inputs is not None and options.inputs_from is not None:
        raise ValueError("give --inputs or --inputs-from, not both")
    if options.inputs is not None:
        try:
            parse_inputs(options.inputs)
        except SpecError as error:
            raise ValueError(f"--inputs: {error}") from None
    if options.domain is not None:
        try:
            parse_domain(options.domain)
        except SpecError as error:
            raise ValueError(f"--domain: {error}") from None
    if options.dtype is not None:
        one_of("--dtype", options.dtype, DTYPES)
    if options.intent is not None:
        one_of("--intent", options.intent, INTENTS)
    one_of("--effort", options.effort, EFFORTS)
    one_of("--format", options.format, FORMATS)
    integer_at_least("--seed", options.seed, 0)
    if not 0 <= options.tolerance < 1:
        raise ValueError(f"--tolerance must be a number from 0 to 1, relative to the size of the gradient, got {options.tolerance:g}")
    if not 0 <= options.timeout < float("inf"):
        raise ValueError(f"--timeout must be a number of seconds, or 0 for none, got {options.timeout:g}")
    _check_file("--html", options.html, several=len(targets) > 1)
    _check_file("--json", options.json, several=len(targets) > 1)
    _check_file("--code-quality", options.code_quality, several=False)


def _check_file(option: str, path: Path | None, *, several: bool) -> None:
    """That it can be written, found out before the audit begins."""
    if path is None:
        return
    known = _EXTENSIONS[option]
    if several and path.suffix.lower() in known:
        raise ValueError(f"{option} must be a folder where there are several targets, one file each, got {path}")
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


# Meanwhile ----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _shown(console: Console, target: str, quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """How stages are shown: a bar on a terminal, a line each elsewhere."""
    if quiet:
        yield lambda stage: None
        return
    name = f"{target}: " if target else ""
    if not console.is_terminal:
        last = ""

        def line(stage: dict[str, Any]) -> None:
            nonlocal last
            if stage["stage"] != last and stage["steps"]:
                last = stage["stage"]
                typer.echo(f"{name}[{stage['step']}/{stage['steps']}] {last} ({stage['calls']} calls, {stage['seconds']:.1f} s)", err=True)

        yield line
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[calls]} calls"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{name}starting", total=None, calls=0)

        def move(stage: dict[str, Any]) -> None:
            total = stage["steps"] or None
            bar.update(task, description=f"{name}{stage['stage']}", total=total, completed=max(stage["step"] - 1, 0), calls=stage["calls"])

        yield move


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """A polite request to end (SIGTERM) does what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raised(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, raised)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# After --------------------------------------------------------------------------------------------------------------------


def _code(outcome: Outcome, report: Report | None) -> int:
    if report is None or outcome.failure is not None or outcome.how == "died":
        return UNTOLD
    if report.passed and report.complete:
        return COHERENT
    if report.verdict is Verdict.INCONCLUSIVE or (not report.complete and (report.passed or report.intent is not None)):
        return UNTOLD
    return INCOHERENT


def _tell(said: Console, target: str, outcome: Outcome, report: Report | None, options: Options) -> str:
    """Why the audit has no end, if it has none; the report; what else there is. Returns the first."""
    trouble = _trouble(target, outcome, options)
    if trouble:
        found = "nothing was found until then" if report is not None and _is_empty(report) else "this was found until then:"
        _complain(said, trouble + (f"; {found}" if report is not None and options.format == "text" else ""))
        if options.traceback and outcome.failure is not None and outcome.failure["way"]:
            typer.echo(outcome.failure["way"], err=True)
    if report is not None and options.format == "text" and not (trouble and _is_empty(report)):
        _print(report, options)
    for note in outcome.notes:
        _complain(said, note)
    if _on_github(options):
        undecided = trouble and report is not None and report.verdict is Verdict.INCONCLUSIVE
        lines = [] if report is None or undecided else annotations(report, outcome.location)
        if trouble:
            lines.append(failure_annotation(f"{target} could not be audited to the end", trouble, outcome.location))
        for line in lines:
            typer.echo(line, err=options.format == "json")
    return trouble


def _trouble(target: str, outcome: Outcome, options: Options) -> str:
    stage = outcome.stage
    calls = f" ({_counted(stage['calls'], 'call')})" if stage["calls"] else ""
    where = f"while {stage['stage']}{calls}" + (f", at {outcome.place}" if outcome.place else "")
    if outcome.failure is not None:
        text = outcome.failure["message"]
        if outcome.failure["kind"] == "raised":
            text += f" while {stage['stage']}{calls}" if stage["steps"] else ""
        return text + (
            ""
            if options.traceback or not outcome.failure["way"] or outcome.failure["kind"] != "raised"
            else "; --traceback shows the way there"
        )
    if outcome.how == "timeout":
        return f"{target} timed out after {options.timeout:g} s {where}"
    if outcome.how == "interrupted":
        return f"interrupted {where}"
    if outcome.how == "died" or outcome.report is None:
        return f"the process that audits {target} {_death(outcome.code)} {where}"
    return ""


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"ended with code {code}"


def _is_empty(report: Report) -> bool:
    return not report.states and all(finding.kind == "note" for finding in report.findings)


def _on_github(options: Options) -> bool:
    return options.format == "github" or os.environ.get("GITHUB_ACTIONS") == "true"


def _save(said: Console, report: Report, target: str, options: Options, *, several: bool) -> None:
    """The files that were asked for."""
    stem = re.sub(r"[^\w.-]+", "_", target).strip("_.")
    written = []
    for path, extension, write in ((options.html, ".html", report.to_html), (options.json, ".json", report.to_json)):
        if path is not None:
            file = path / f"{stem}{extension}" if several else path
            written += [str(file)] if _write(said, file, write) else []
    if written and not options.quiet:
        said.print(Text(f"Written: {', '.join(written)}"), soft_wrap=True)


def _write(said: Console, file: Path, write: Callable[[Path], Any]) -> bool:
    try:
        write(file)
    except OSError as error:
        _complain(said, f"cannot write {file}: {error.strerror or error}")
        return False
    return True


# Words --------------------------------------------------------------------------------------------------------------------


def _print(report: Report, options: Options) -> None:
    console = Console(highlight=False)
    if options.quiet:
        console.print(Text(f"{report.name}: {report.headline}"), soft_wrap=True)
        return
    lines = str(report).splitlines()
    styles = {"[alarm]": "red", "[warning]": "yellow", "[note]": ""}
    for number, line in enumerate(lines):
        style = next((style for mark, style in styles.items() if line.startswith(f"  - {mark}")), "")
        if number == 0:
            style = "bold green" if report.passed else "bold yellow" if report.verdict is Verdict.INCONCLUSIVE else "bold red"
        console.print(Text(_folded(line, console), style=style), soft_wrap=True)
    if options.explain:
        console.print()
        console.print(Text(_refilled(report.explain(), console)), soft_wrap=True)


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


def _complain(said: Console, text: str) -> None:
    """A sentence on standard error; lines that are laid out stay so."""
    first, *rest = f"pairgrad audit: {text}".split("\n")
    width = said.width if said.is_terminal else 10_000
    said.print(Text("\n".join([textwrap.fill(first, width, break_long_words=False, break_on_hyphens=False), *rest])), soft_wrap=True)


def _counted(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"
