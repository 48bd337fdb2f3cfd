"""`pairgrad doctor`: what is installed, what works here, and a self-check."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pairgrad.cli.device_check import checks_on
from pairgrad.cli.output import progress, save_json
from pairgrad.cli.self_check import CHECKS, COMPILED, Skipped, usable_dtypes
from pairgrad.ground.devices import backends_here, device_name, devices_here, torch_build
from pairgrad.ground.timing import processor

OK, MISSING, OLD, FAILED, SKIPPED = "ok", "missing", "too old", "FAILED", "skipped"
# Extras that a user may want, and what for. Those of developers (docs, test, dev, bench-peers ...) are left out, as is "all", which is several of these.
EXTRAS = {
    "cli": "this command line",
    "reference": "ball arithmetic: certificates, 'reference', the tables",
    "html": "reports as HTML pages",
    "mixture": "VMFMixture",
    "triton": "losses with execution='triton'; GPU builds of torch bring it",
    "jax": "audits of JAX functions",
    "integrations": "Lightning, transformers, TensorBoard",
}
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?(?:[^;]*?>=(?P<least>[\d.]+))?[^;]*(?:;.*extra == ['\"](?P<extra>[\w-]+)['\"])?"
)


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    name: str
    status: str
    words: str = ""
    seconds: float | None = None


def run(console: Console, compiled: bool = False, file: Path | None = None, device: torch.device | None = None) -> bool:
    """Examine, print and, if asked for, write it down; False if something that should work does not."""
    facts = system()
    console.print(Text("System", style="bold"))
    for name, words in facts.items():
        _line(console, name, words)
    sections = (
        ("packages", "Packages", packages()),
        ("devices", "Devices and dtypes", devices()),
        ("checks", "Self-check", checks(console, {**CHECKS, **(COMPILED if compiled and device is None else {})})),
        *([] if device is None else [("device", f"{device} against the CPU", checks(console, checks_on(device, compiled)))]),
    )
    found: dict[str, list[Finding]] = {}
    for key, heading, findings in sections:
        console.print(Text(f"\n{heading}", style="bold"))
        found[key] = []
        for finding in findings:
            found[key].append(finding)
            seconds = "" if finding.seconds is None else f" ({finding.seconds:.1f} s)"
            _line(console, finding.name, f"{finding.words}{seconds}", finding.status)
    bad = [finding.name for findings in found.values() for finding in findings if finding.status == FAILED]
    agrees = "" if device is None else f" {device} agrees with the CPU."
    verdict = f"Not well: {', '.join(bad)}. Please report it with these lines." if bad else f"All is well.{agrees}"
    console.print(Text(f"\n{verdict}", style="bold red" if bad else "bold green"))
    data = {key: [asdict(finding) for finding in findings] for key, findings in found.items()}
    save_json(console, file, {"system": facts, **data, "healthy": not bad})
    return not bad


def system() -> dict[str, str]:
    """What one is asked for in a bug report."""
    build = torch_build()
    threads = torch.get_num_threads()
    return {
        "pairgrad": metadata.version("pairgrad"),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": f"{processor()}, {os.cpu_count()} logical cores",
        "torch": f"{torch.__version__}, {build}, {threads} thread{'s' * (threads != 1)}, {torch.backends.cpu.get_cpu_capability()}",
        "compile": _compiler(),
        "distributed": ", ".join(backends_here()) or "not in this build",
    }


def packages() -> Iterator[Finding]:
    """What the library needs, and every extra."""
    needs = list(requirements())
    for name, least, extra in needs:
        if extra is None:
            status, version = installed(name, least)
            yield Finding(name, FAILED if status == MISSING else status, f"{version or 'not installed'}, required")
    for extra, purpose in EXTRAS.items():
        found = [(name, *installed(name, least)) for name, least, of in needs if of == extra]
        lacking = [f"{name} {version or ''}".strip() for name, status, version in found if status != OK]
        if not lacking:
            yield Finding(f"[{extra}]", OK, f"{purpose} ({', '.join(f'{name} {version}' for name, _, version in found)})")
        else:
            status = OLD if all(status != MISSING for _, status, _ in found) else MISSING
            yield Finding(f"[{extra}]", status, f"{purpose}; lacks {', '.join(lacking)}: pip install -U 'pairgrad[{extra}]'")
    status, version = installed("pairgrad-paper", None)
    purpose = "pairgrad demo, pairgrad train, the paper's tables and figures"
    yield Finding("pairgrad-paper", status, f"{purpose} ({version})" if version else f"{purpose}: pip install pairgrad-paper")


def requirements() -> Iterator[tuple[str, str | None, str | None]]:
    """Name, least version and extra of everything that pairgrad declares."""
    for line in metadata.requires("pairgrad") or ():
        match = _REQUIREMENT.match(line)
        assert match is not None
        if match["name"] != "pairgrad":
            yield match["name"], match["least"], match["extra"]


def installed(name: str, least: str | None) -> tuple[str, str | None]:
    """Whether a distribution is there and new enough, and its version.

    Examples:
        >>> installed("no-such-thing", None)
        ('missing', None)
        >>> installed("torch", "1.0")[0], installed("torch", "99")[0]
        ('ok', 'too old')
    """
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return MISSING, None
    return (OK if least is None or _release(version) >= _release(least) else OLD), version


def devices() -> Iterator[Finding]:
    """Every device that torch sees, with the dtypes in which values and derivatives are right on it."""
    for place in devices_here():
        name = f"{found}: " if (found := device_name(place)) else ""
        usable = usable_dtypes(place)
        good = [f"{dtype}{note}" for dtype, (right, note) in usable.items() if right]
        bad = [f"{dtype} ({note})" for dtype, (right, note) in usable.items() if not right]
        # A device may lack float64, as MPS does; without float32 nothing can be done on it.
        status = OK if usable["float32"][0] else FAILED
        yield Finding(str(place), status, f"{name}{', '.join(good)}{'; not ' + ', '.join(bad) if bad else ''}")


def checks(console: Console, listed: Mapping[str, Callable[[], str]]) -> Iterator[Finding]:
    """Every check of the numbers, with a bar while it runs."""
    for name, check in listed.items():
        with progress(console, name, 1):
            finding = checked(name, check)
        yield finding


def checked(name: str, check: Callable[[], str]) -> Finding:
    """Run one check; what it says, and how long it took. A check fails by raising."""
    started = perf_counter()
    try:
        words = check()
    except Skipped as reason:
        return Finding(name, SKIPPED, str(reason))
    except Exception as error:
        return Finding(name, FAILED, f"{type(error).__name__}: {error}".splitlines()[0], perf_counter() - started)
    return Finding(name, OK, words, perf_counter() - started)


def _compiler() -> str:
    name = next((name for name in (os.environ.get("CXX"), "g++", "clang++", "c++", "cl") if name and shutil.which(name)), None)
    found = f"C++ compiler {name}" if name else "no C++ compiler found, which the CPU needs"
    return f"{found}; pairgrad doctor --compile tries it"


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


_NAMES = 17  # characters; the longest name has 16
_STYLES = {OK: "green", MISSING: "yellow", OLD: "yellow", FAILED: "bold red", SKIPPED: "dim"}


def _line(console: Console, name: str, words: str, status: str | None = None) -> None:
    """A name, for examinations a status, and words that are folded under themselves."""
    grid = Table.grid(Column(width=_NAMES), *([] if status is None else [Column(width=7)]), Column(overflow="fold"), padding=(0, 1))
    grid.add_row(Text(f"  {name}"), *([] if status is None else [Text(status, style=_STYLES[status])]), Text(words))
    console.print(grid)
