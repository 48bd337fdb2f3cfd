"""Reports for code hosts: annotations for GitHub, and the code-quality format of GitLab."""

import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pairgrad.coherence.causes.nodes import location_of
from pairgrad.coherence.finding import Finding
from pairgrad.coherence.judge.verdict import Verdict
from pairgrad.coherence.report.report import Report
from pairgrad.coherence.report.run import RunReport
from pairgrad.ground.text import printable

_SEVERITY = {"error": "critical", "warning": "minor"}  # of GitLab
_NOWHERE = "unknown"  # GitLab asks for a path


def annotations(report: Report | RunReport, location: str | None = None) -> list[str]:
    """One line for GitHub for each thing that does not pass, as the log of a workflow takes it; none if the report passes.

    Args:
        report: of an audit or of a recorded run.
        location: "file:line" of what was audited. Without it, an audit is put where its only custom backward is, if it names one.
    """
    return [_command(issue) for issue in _issues(report, location)]


def code_quality(report: Report | RunReport, location: str | None = None, *, key: str = "") -> list[dict[str, Any]]:
    """The same as entries for a GitLab code-quality file, which is a JSON list of them.

    The fingerprint is made of what was audited and what kind of thing was found, not of numbers and lines, so that it stays when those change.

    Args:
        report, location: as for `annotations`.
        key: goes into the fingerprint; tells apart several audits of one function, such as the id of a test.
    """
    entries, seen = [], {}
    for issue in _issues(report, location):
        identity = "\0".join((issue.check, issue.path or "", issue.name, key))
        seen[identity] = seen.get(identity, 0) + 1
        entries.append(_entry(issue, f"{identity}\0{seen[identity]}"))
    return entries


def failure_annotation(title: str, message: str, location: str | None = None) -> str:
    """A line for GitHub on something that could not be audited."""
    return _command(_Issue("error", "failure", title, title, message, *_place(location)))


def failure_entry(target: str, message: str, location: str | None = None) -> dict[str, Any]:
    """An entry for GitLab on a target that could not be audited to the end."""
    title, words = f"{target} could not be audited to the end", " ".join(message.split())
    return _entry(_Issue("error", "failure", target, title, words, *_place(location)), f"failure\0{target}")


def callable_location(fn: Callable[..., Any]) -> str | None:
    """File and line, "file:line", of a function, of the class of a module, or of the Function whose `apply` this is; None if they cannot be told."""
    for _ in range(16):
        owner = getattr(fn, "__self__", None)
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            return location_of(owner)
        inner = getattr(fn, "__wrapped__", None) or getattr(fn, "func", None) or getattr(fn, "__func__", None)
        if inner is None:
            break
        fn = inner
    code = getattr(fn, "__code__", None)
    if code is not None:
        return f"{os.path.abspath(code.co_filename)}:{code.co_firstlineno}"
    try:
        kind = fn if inspect.isclass(fn) else type(fn)
        return f"{os.path.abspath(inspect.getsourcefile(kind) or '')}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return None


@dataclass(frozen=True)
class _Issue:
    level: str  # "error" or "warning"
    check: str  # the verdict, or the kind of thing
    name: str  # of what does not pass
    title: str
    message: str
    path: str | None
    line: int | None


def _issues(report: Report | RunReport | None, location: str | None) -> Iterator[_Issue]:
    if isinstance(report, Report) and not report.passed:
        yield from _of_audit(report, location)
    if isinstance(report, RunReport):
        for node in report.nodes:
            if not node.passed:
                message = "\n".join((f"{node.headline}.", *node.details))
                title = _title(node.name, node.verdict)
                yield _Issue(_level(node.verdict), node.verdict.value, node.name, title, message, *_place(node.location or location))
        yield from _issues(report.loss, location)


def _of_audit(report: Report, location: str | None) -> Iterator[_Issue]:
    nodes = [finding for finding in report.findings if finding.kind == "node" and finding.numbers.get("location")]
    bad = [finding for finding in nodes if finding.severity == "warning"]
    if location is None and len(bad or nodes) == 1:
        location = (bad or nodes)[0].numbers["location"]
    path, line = _place(location)
    grave = [finding for finding in report.findings if finding.severity == "alarm"] or [
        finding for finding in report.findings if finding.severity == "warning"
    ]
    remedies = [f"What to do: {remedy}." for remedy in dict.fromkeys(finding.remedy for finding in grave) if remedy]
    lines = report.summary.splitlines()[1:]
    said = [*lines, *(_sentence(finding) for finding in grave if _sentence(finding) != f"{lines[0]}."), *remedies]
    yield _Issue(
        _level(report.verdict), report.verdict.value, report.name, _title(report.name, report.verdict), "\n".join(said), path, line
    )
    for finding in bad:
        if finding.numbers["location"] == location:
            continue
        name = finding.where.partition(" (")[0]
        path, line = _place(finding.numbers["location"])
        message = f"{_sentence(finding)} Met in the audit of {report.name}."
        verdict = Verdict(finding.numbers.get("verdict", Verdict.INCOHERENT))
        yield _Issue("warning", "node", name, _title(name, verdict), message, path, line)


def _level(verdict: Verdict) -> str:
    return "warning" if verdict is Verdict.INCONCLUSIVE else "error"


def _title(name: str, verdict: Verdict) -> str:
    words = {Verdict.JUMP: "has a jump", Verdict.INCONCLUSIVE: "could not be decided", Verdict.KINK: "has a kink"}
    return f"{name} {words.get(verdict, f'is {verdict.value}')}"


def _sentence(finding: Finding) -> str:
    return f"{finding.where + ': ' if finding.where else ''}{finding.text}."


def _place(location: str | None) -> tuple[str | None, int | None]:
    """The path, from the root of the checkout if it is in there, with slashes; and the line."""
    if not location:
        return None, None
    name, colon, number = location.rpartition(":")
    if not colon or not number.isdigit():
        name, number = location, "1"
    path, root = Path(os.path.abspath(name)), Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    if path.is_relative_to(root):
        path = path.relative_to(root)
    return path.as_posix(), int(number)


def _entry(issue: _Issue, identity: str) -> dict[str, Any]:
    return {
        "description": printable(f"{issue.title}: {issue.message}".replace("\n", " ")),
        "check_name": f"pairgrad/{issue.check}",
        "fingerprint": hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:32],
        "severity": _SEVERITY[issue.level],
        "location": {"path": issue.path or _NOWHERE, "lines": {"begin": issue.line or 1}},
    }


def _command(issue: _Issue) -> str:
    properties = {"file": issue.path, "line": issue.line, "title": issue.title}
    escaped = {name: _data(str(value)).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items() if value is not None}
    listed = ",".join(f"{name}={value}" for name, value in escaped.items())
    return f"::{issue.level} {listed}::{_data(issue.message)}"


def _data(text: str) -> str:
    return printable(text, lines=True).replace("%", "%25").replace("\n", "%0A")
