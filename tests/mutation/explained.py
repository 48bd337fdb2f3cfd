"""Survivors that need no test, with the reason: explained.toml, keyed by file, function and changed text."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("explained.toml")
KINDS = {
    "equivalent": "no input tells the mutant from the original",
    "rounding": "the result moves by rounding or stays below a stated tolerance, for every input",
    "speed": "results are the same, the work to get there is not",
    "margin": "a constant with room to both sides, chosen and not derived",
    "message": "the wording or numbers of a message, a name or a description",
    "device": "code for a CUDA device or for a compiled region, which the tests of this command do not enter",
    "unreachable": "guards against a state that no caller can bring about today",
}


@dataclass(frozen=True)
class Explanation:
    """Changes of one function that survive for one reason."""

    module: str
    function: str
    kind: str
    reason: str
    changes: tuple[tuple[str, str], ...]  # (before, after)


def load(path: Path = FILE) -> list[Explanation]:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("explained", []) if path.exists() else []
    return [
        Explanation(e["file"], e["function"], e["kind"], " ".join(e["reason"].split()), tuple((b, a) for b, a in e["changes"]))
        for e in entries
    ]


def index(explanations: list[Explanation]) -> dict[tuple[str, str, str, str], Explanation]:
    return {(e.module, e.function, before, after): e for e in explanations for before, after in e.changes}


def normal(text: str) -> str:
    return " ".join(text.split())
