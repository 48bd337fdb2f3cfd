"""Tables of the pages that the benchmarks write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: int) -> str:
    """The columns from number `right` on are aligned to the right."""
    rule = ["---" if i < right else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))
