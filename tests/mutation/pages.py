"""The tables of docs/mutation-testing.md."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.mutation import explained
from tests.mutation.explained import KINDS, Explanation
from tests.mutation.results import counts
from tests.mutation.scope import ROOT, selected

PAGE = ROOT / "docs" / "mutation-testing.md"
_COLUMNS = "mutants", "killed", "timeout", "explained", "unexplained"


def counts_table(table: dict[str, Counter[str]]) -> str:
    lines = ["| file | " + " | ".join(_COLUMNS) + " |", "|---|" + "---:|" * len(_COLUMNS)]
    lines += [f"| `{module}` | " + " | ".join(str(row[c]) for c in _COLUMNS) + " |" for module, row in table.items()]
    total = sum(table.values(), Counter())
    lines.append("| all | " + " | ".join(str(total[c]) for c in _COLUMNS) + " |")
    return "\n".join(lines)


def explained_table(explanations: list[Explanation]) -> str:
    lines = ["| file and function | kind | changes | why they need no test |", "|---|---|---:|---|"]
    lines += [f"| `{e.module}`, `{e.function}` | {e.kind} | {len(e.changes)} | {_cell(e.reason)} |" for e in explanations]
    return "\n".join(lines)


def kinds_table() -> str:
    return "\n".join(["| kind | meaning |", "|---|---|", *(f"| {kind} | {text} |" for kind, text in KINDS.items())])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def replaced(page: str, name: str, table: str) -> str:
    """The page with the table between its two marks replaced."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(start) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"docs/mutation-testing.md must contain the marks {start} and {end}")
    return pattern.sub(lambda _: f"{start}\n{table}\n{end}", page)


def with_explanations(page: str) -> str:
    return replaced(replaced(page, "kinds", kinds_table()), "explained", explained_table(explained.load()))


def counts_on(page: str) -> dict[str, Counter[str]]:
    """The rows that the page has, as `counts` gives them."""
    table: dict[str, Counter[str]] = {}
    for module, numbers in re.findall(r"^\| `([^`]+\.py)` \| ([0-9 |]+) \|$", page, re.MULTILINE):
        table[module] = Counter(dict(zip(_COLUMNS, map(int, numbers.split(" | ")), strict=True)))
    return table


def with_counts(page: str, new: dict[str, Counter[str]]) -> str:
    """The page with these rows, and with the others as they were: outcomes are kept beside the checkout that they were seen in."""
    table = counts_on(page) | new
    return replaced(page, "counts", counts_table({module: table[module] for module in selected([]) if module in table}))


def write(records: list[dict[str, Any]]) -> None:
    page = with_explanations(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(with_counts(page, counts(records, explained.index(explained.load()))), encoding="utf-8")
