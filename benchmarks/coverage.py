"""Lines of the library that the tests run: `python -m benchmarks.coverage build/coverage/report.json` writes docs/coverage.md from what coverage.py says."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import table
from pairgrad.ground.files import write_atomically

GOAL = 95.0
SHOWN = 3  # a file with fewer lines left is counted, not listed
ALL_TESTS = "by all tests but the slow ones"
REASONS = """\
- **CUDA.** The machine has no GPU: branches for devices other than the CPU are run by tests marked `gpu` alone.
- **Compiled code.** `torch.compile` reads the bytecode of a function and runs its own; what runs only inside a compiled region is not seen.
- **Killed processes.** A process that a test ends with SIGKILL, or that crashes on purpose, takes its counts with it. So do workers that are ended before
  they leave.
- **Missing packages.** What stands behind a package that is not installed here (Lightning, transformers), and the errors for packages that are.
- **Slow tests.** Real data sets, large sizes and long proofs are left to `make test-all`.
"""


def package(path: str) -> str:
    """The folder that a file counts for: a subpackage of pairgrad, with the parts of the experiments one by one."""
    parts = Path(path).with_suffix("").parts
    parts = parts[parts.index("src") + 1 :] if "src" in parts else parts
    deep = 3 if parts[:2] == ("pairgrad", "experiments") else 2
    return ".".join(parts[: min(deep, max(len(parts) - 1, 1))])


def ranges(lines: Sequence[int]) -> str:
    """Line numbers with neighbours joined: 3-5, 9."""
    joined: list[list[int]] = []
    for line in sorted(lines):
        if joined and line == joined[-1][1] + 1:
            joined[-1][1] = line
        else:
            joined.append([line, line])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in joined)


def share(run: int, lines: int) -> str:
    """In percent, rounded down: 100 means all."""
    return f"{1000 * run // lines / 10 if lines else 100:.1f}"


def by_package(files: Mapping[str, Any]) -> Iterable[tuple[str, int, int]]:
    """Name, lines and lines that ran of every package."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, found in files.items():
        summary = found["summary"]
        counts[package(path)][0] += summary["num_statements"]
        counts[package(path)][1] += summary["covered_lines"]
    return sorted((name, lines, run) for name, (lines, run) in counts.items() if lines)


def page(report: Mapping[str, Any], how: str) -> str:
    """The page as Markdown."""
    files, totals = report["files"], report["totals"]
    rows = [(f"`{name}`", f"{lines:,}", f"{lines - run:,}", share(run, lines)) for name, lines, run in by_package(files)]
    whole = totals["num_statements"], totals["covered_lines"]
    rows.append(("all", f"{whole[0]:,}", f"{whole[0] - whole[1]:,}", share(whole[1], whole[0])))
    left = sorted((path, found["missing_lines"]) for path, found in files.items() if len(found["missing_lines"]) >= SHOWN)
    few = sum(0 < len(found["missing_lines"]) < SHOWN for found in files.values())
    reached = "reached" if 100 * whole[1] >= GOAL * whole[0] else "not reached"
    goal = f"The goal of {GOAL:g} % is {reached}: {share(whole[1], whole[0])} %."
    if how != ALL_TESTS:
        goal = "This is a part of the library and of its tests, and says nothing of the whole: `make coverage` measures that, and writes this page anew."
    return "\n".join(
        [
            "# Coverage",
            "",
            f"Lines of `pairgrad` and of its pytest plugin that run {how},",
            "in whichever process: workers, spawned and forked ranks, the command line.",
            goal,
            "A line that runs need not be tested; a line that never runs is not.",
            "",
            f"Measured with coverage.py {report['meta']['version']}. {totals['excluded_lines']} lines do not count: imports for the type",
            "checker, and bodies of protocols.",
            "",
            table(("package", "lines", "not run", "% run"), rows, right=1),
            "",
            "## What is left, and why",
            "",
            REASONS,
            f"Files with {SHOWN} or more lines that did not run ({few} others have one or two):",
            "",
            table(("file", "not run", "lines"), [(f"`{path}`", str(len(lines)), ranges(lines)) for path, lines in left], right=3),
            "",
        ]
    )


def main() -> None:
    """Read a report and write the page."""
    parser = argparse.ArgumentParser(description="Write the page on coverage from the JSON report of coverage.py.")
    parser.add_argument("report", type=Path)
    parser.add_argument("--how", default=ALL_TESTS, help="which tests were run, for the first sentence")
    parser.add_argument("--output", default="docs/coverage.md")
    options = parser.parse_args()
    print(f"written: {write_atomically(options.output, page(json.loads(options.report.read_text()), options.how))}")


if __name__ == "__main__":
    main()
