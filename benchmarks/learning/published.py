"""The published costs of the same step on an H100, as printed."""

from __future__ import annotations

from benchmarks.learning.contestants import COMPILED, DENSE, ORIGINAL, RECORDED
from pairgrad_paper.tables.published import PrintedColumn

_TABLE = "tab:h100-local"
H100_MILLISECONDS = PrintedColumn(
    _TABLE,
    {ORIGINAL: "266.40", RECORDED: "412.80", "log-miller": "120.28", DENSE: "4.90", COMPILED[1]: "0.206"},
    lambda name: (name, "milliseconds"),
)
H100_MEBIBYTES = PrintedColumn(
    _TABLE,
    {ORIGINAL: "504.89", RECORDED: "1755.42", "log-miller": "504.89", DENSE: "508.12", COMPILED[1]: "32.00"},
    lambda name: (name, "MiB"),
)
