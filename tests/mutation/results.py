"""What became of each mutant, kept from run to run as long as it is still true."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutation.explained import Explanation
from tests.mutation.mutants import Mutant, code_digest, digest, text_of
from tests.mutation.scope import GROUPS, ROOT, Group, group_of

KILLED, TIMEOUT, SURVIVED = "killed", "timeout", "survived"


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def files_of(group: Group) -> list[Path]:
    found: list[Path] = []
    for name in group.tests:
        path = ROOT / "tests" / name
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return [path for path in found if path.relative_to(ROOT / "tests").as_posix() not in group.leave_out]


def tests_digest(group: Group) -> str:
    return digest("".join(_text(path) for path in files_of(group)))


@cache
def _functions(path: Path) -> dict[str, str]:
    """The text of each function of a file, by its name; of all of that name, if there are several."""
    text = _text(path)
    lines = text.splitlines()
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name] = found.get(node.name, "") + "\n".join(lines[first - 1 : node.end_lineno])
    return found


def importers(module: str, files: Iterable[str]) -> set[str]:
    """Those of the test files that import a file below src/pairgrad, or from it."""
    dotted = "pairgrad." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    folder, _, name = dotted.rpartition(".")
    pattern = re.compile(
        rf"^(from {re.escape(dotted)} import|import {re.escape(dotted)}\b|from {re.escape(folder)} import .*\b{name}\b)", re.MULTILINE
    )
    return {file for file in files if (ROOT / file).exists() and pattern.search(_text(ROOT / file))}


def digest_of_test(name: str) -> str:
    """Of the text of a test, given by its node id; empty for what is not a test, or no longer one."""
    file, _, rest = name.partition("::")
    path = ROOT / file
    if path.suffix != ".py" or not path.exists():
        return ""
    function = rest.split("[")[0].split("::")[-1]
    return digest(_functions(path).get(function, _text(path)))


class Results:
    """An outcome is kept while the code of its file is unchanged, and a kill only while the test that killed is. A survivor of other tests is `stale`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "results.jsonl"
        self.records: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                if self._still_true(record):
                    self.records[record["key"]] = record
                else:
                    self.records.pop(record["key"], None)

    def _still_true(self, record: dict[str, Any]) -> bool:
        module = record["module"]
        if not any(module in group.modules for group in GROUPS) or record["source"] != code_digest(text_of(module)):
            return False
        if record["outcome"] == SURVIVED:
            return True
        return record["tests"] == digest_of_test(record["by"])

    def stale(self, record: dict[str, Any]) -> bool:
        """Whether it survived other tests than there are now."""
        return record["outcome"] == SURVIVED and record["tests"] != tests_digest(group_of(record["module"]))

    def add(self, mutant: Mutant, outcome: str, by: str, how: str, seconds: float, tests: int) -> dict[str, Any]:
        place = mutant.place
        group = group_of(place.module)
        record = {
            "key": place.key,
            "module": place.module,
            "function": mutant.function,
            "line": place.line,
            "operator": place.operator.removeprefix("core/"),
            "before": mutant.before,
            "after": mutant.after,
            "outcome": outcome,
            "by": by,
            "how": how,
            "seconds": round(seconds, 2),
            "tried": tests,
            "source": code_digest(text_of(place.module)),
            "tests": tests_digest(group) if outcome == SURVIVED else digest_of_test(by),
        }
        self.records[place.key] = record
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return record


def is_explained(record: dict[str, Any], known: dict[tuple[str, str, str, str], Explanation]) -> bool:
    return (record["module"], record["function"], record["before"], record["after"]) in known


def counts(records: list[dict[str, Any]], known: dict[tuple[str, str, str, str], Explanation]) -> dict[str, Counter[str]]:
    """By module: mutants, killed, timeout, explained, unexplained."""
    table: dict[str, Counter[str]] = {}
    for record in records:
        row = table.setdefault(record["module"], Counter())
        row["mutants"] += 1
        if record["outcome"] == SURVIVED:
            row["explained" if is_explained(record, known) else "unexplained"] += 1
        else:
            row[record["outcome"]] += 1
    order = [module for group in GROUPS for module in group.modules]
    return {module: table[module] for module in order if module in table}
