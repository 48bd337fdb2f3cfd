"""The outcome of each mutant, kept from run to run for as long as the source and the tests behind it stay the same."""

from __future__ import annotations

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tools.mutation.mutants import Mutant
from tools.mutation.settings import Settings

KILLED, TIMED_OUT, SURVIVED, NOT_RUN = "killed", "timed out", "survived", "not run"


def digest(*paths: Path) -> str:
    """Of the code in files: comments, docstrings and layout do not count."""
    return hashlib.sha256("".join(_code(path) for path in paths).encode()).hexdigest()[:16]


@cache
def _code(path: Path) -> str:
    if not path.exists():
        return ""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


class Results:
    """Outcomes by mutant. A kill holds while the file and the test file that noticed it are unchanged, a survival while all tests of the folder are."""

    def __init__(self, settings: Settings, output: Path) -> None:
        output.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._file = output / "results.jsonl"
        self.records: dict[str, dict[str, Any]] = {}
        for line in self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []:
            record = json.loads(line)
            if record["state"] == self._state(record):
                self.records[record["key"]] = record
            else:
                self.records.pop(record["key"], None)

    def _state(self, record: dict[str, Any]) -> str:
        settings, by = self._settings, record["by"].split("::")[0]
        folder = next((name for name in settings.folders if record["file"].startswith(name + "/")), None)
        if folder is None:
            return "left the scope"
        return digest(settings.source(record["file"]), *([settings.root / by] if by else settings.tests(folder)))

    def add(self, mutant: Mutant, outcome: str, by: str, change: str) -> dict[str, Any]:
        record = {"key": mutant.key, "file": mutant.file, "line": mutant.line, "outcome": outcome, "by": by, "change": change}
        record["state"] = self._state(record)
        self.records[mutant.key] = record
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return record

    def counts(self, mutants: Iterable[Mutant]) -> dict[str, Counter[str]]:
        """For each file: how many of its mutants had which outcome."""
        table: dict[str, Counter[str]] = {}
        for mutant in mutants:
            outcome = self.records[mutant.key]["outcome"] if mutant.key in self.records else NOT_RUN
            table.setdefault(mutant.file, Counter())[outcome] += 1
        return table
