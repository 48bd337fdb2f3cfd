"""The table of counts, on the screen and in docs/mutation-testing.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tools.mutation.results import KILLED, NOT_RUN, SURVIVED, TIMED_OUT

OUTCOMES = KILLED, TIMED_OUT, SURVIVED, NOT_RUN
_START, _END = "<!-- counts -->", "<!-- end of counts -->"


def table(counts: dict[str, Counter[str]]) -> str:
    lines = ["| file | mutants | " + " | ".join(OUTCOMES) + " |", "|---|---:|" + "---:|" * len(OUTCOMES)]
    rows = [(f"`{file}`", counts[file]) for file in sorted(counts)]
    for name, row in [*rows, ("all", sum(counts.values(), Counter()))]:
        lines.append(f"| {name} | {row.total()} | " + " | ".join(str(row[outcome]) for outcome in OUTCOMES) + " |")
    return "\n".join(lines)


def rows_on(page: str) -> dict[str, Counter[str]]:
    found = re.findall(r"^\| `([^`]+\.py)` \| \d+ \| ([0-9 |]+) \|$", page, re.MULTILINE)
    return {file: Counter(dict(zip(OUTCOMES, map(int, numbers.split(" | ")), strict=True))) for file, numbers in found}


def write(path: Path, new: dict[str, Counter[str]], exists: set[str]) -> None:
    """Replaces the rows of files that were run here, and drops those of files that no longer exist."""
    page = path.read_text(encoding="utf-8")
    run = {file: row for file, row in new.items() if row.total() > row[NOT_RUN]}
    rows = {file: row for file, row in (rows_on(page) | run).items() if file in exists}
    before, _, rest = page.partition(_START)
    _, end, after = rest.partition(_END)
    if not end:
        raise SystemExit(f"{path} must contain the marks {_START} and {_END}")
    path.write_text(f"{before}{_START}\n{table(rows)}\n{_END}{after}", encoding="utf-8")
