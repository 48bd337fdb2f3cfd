"""From the paper to the code and back: `docs/equations.md`, made from `docs/equations.toml` and from the citations in the docstrings.

`python -m docs.equations` writes the page. The map says of every number of the paper what it is about, where it lives and what checks it; the second half of
the page is read from the docstrings themselves. `tests/test_equations.py` holds the two together.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MAP, PAGE = DOCS / "equations.toml", DOCS / "equations.md"
PACKAGES = ("src", "paper/src")
SOURCES = (*PACKAGES, "tests", "paper/tests", "benchmarks", "examples")

# How the code and the pages cite: "eq. a2", "eqs. a2 and f2", "lem. finite-state", "Theorem thm:a2", "Figure regime-scaling", or a whole label.
WORDS: Mapping[str, tuple[str, ...]] = {
    "eq": ("eq",),
    "thm": ("thm", "theorem"),
    "prop": ("prop", "proposition"),
    "lem": ("lem", "lemma"),
    "cor": ("cor", "corollary"),
    "tab": ("tab", "table"),
    "fig": ("fig", "figure"),
}
PREFIXES = (*WORDS, "sec", "app")
# Words that need the dot: without it, as in "one app or another", they are English.
_ABBREVIATED = frozenset(("eq", "thm", "prop", "lem", "cor", "tab", "fig"))
_KIND = {word: prefix for prefix, words in WORDS.items() for word in words}
_NAME = r"(?:(?:[a-z]+):)?[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*"
_OPENING = re.compile(rf"(?<![\w:-])({'|'.join(sorted(_KIND, key=len, reverse=True))})(s?)(\.?) (?=({_NAME}))", re.IGNORECASE)
_FIRST = re.compile(_NAME)
_NEXT = re.compile(rf"(?:, and |, or |, | and | or | to )({_NAME})")
_WHOLE = re.compile(rf"(?<![\w:/.-])((?:{'|'.join(PREFIXES)}):[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*)")
_FOREIGN = re.compile(r"\[[A-Za-z]+_?\d{4}[A-Za-z_]*,[^\]]*\]")  # [key, Eq. 2.1]: an equation of somebody else's


@dataclass(frozen=True)
class Entry:
    """One number of the paper.

    Attributes:
        number: as it is printed.
        kind: "equation", "theorem", "lemma", "proposition", "corollary", "table", "figure" or "section".
        says: what it is about, in our words.
        label: the LaTeX label; empty where the paper gives it none.
        of: for a number without a label, the label of the result or formula that it is a step of.
        formula: LaTeX, in our arrangement.
        code: public names, as the reference has them, and files that implement or check it; a docstring of each cites the label.
        tests: files with tests that would fail if it did not hold.
        pages: pages of the documentation, with or without an anchor.
        note: what differs, what is missing, and why.
    """

    number: str
    kind: str
    says: str
    label: str = ""
    of: str = ""
    formula: str = ""
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    note: str = ""

    @property
    def cited_as(self) -> str:
        return self.label or self.of


@cache
def entries() -> tuple[Entry, ...]:
    """The map, in the order of the file."""
    rows: list[dict[str, Any]] = [
        {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in tomllib.loads(MAP.read_text())["entry"]
    ]
    return tuple(Entry(**row) for row in rows)


@cache
def labels() -> frozenset[str]:
    return frozenset(entry.label for entry in entries() if entry.label)


def _in_full(prefix: str, name: str) -> str:
    return name if ":" in name else f"{prefix}:{name}"


def citations(text: str) -> Iterator[str]:
    """Every label that a text cites, in full, known or not.

    After "eq." any name is a citation. In a list of several, and after a word that is written out, a name is one if it is known or looks like a label.

    Examples:
        >>> sorted(citations("eqs. a2 and f2, with Theorem thm:a2 (app:a2-proof)"))
        ['app:a2-proof', 'eq:a2', 'eq:f2', 'thm:a2']
    """
    text = _FOREIGN.sub("", re.sub(r'"\s*\n\s*f?"', "", text))  # a string that goes on in the next line
    text = re.sub(r"\s*\n\s*(?:#|\*)?\s*", " ", text)
    yield from _WHOLE.findall(text)
    for opening in _OPENING.finditer(text):
        word, dot = opening[1].lower(), opening[3]
        if bool(dot) != (word in _ABBREVIATED):
            continue
        prefix, first = _KIND[word], _FIRST.match(text, opening.end())
        if first is None or not (word == "eq" or _looks_like_one(prefix, first[0])):
            continue
        yield _in_full(prefix, first[0])
        place = first.end()
        while (further := _NEXT.match(text, place)) and _looks_like_one(prefix, further[1]):
            yield _in_full(prefix, further[1])
            place = further.end()


def _looks_like_one(prefix: str, name: str) -> bool:
    return "-" in name or ":" in name or _in_full(prefix, name) in labels()


def cited(text: str | None) -> set[str]:
    """The known labels that a text cites."""
    return set(citations(text or "")) & labels()


@cache
def docstrings(path: Path) -> tuple[tuple[str, str], ...]:
    """Qualified name and docstring of the module, and of every class and function in it."""

    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{prefix}{child.name}"
                yield name, ast.get_docstring(child) or ""
                yield from visit(child, f"{name}.")

    tree = ast.parse(path.read_text())
    return ("", ast.get_docstring(tree) or ""), *visit(tree, "")


@dataclass(frozen=True)
class Citing:
    """A file that cites the paper in docstrings, or a public name in it that does."""

    file: str
    name: str  # as the reference has it; empty for everything in the file that the reference does not have
    labels: frozenset[str]


@cache
def citing() -> tuple[Citing, ...]:
    """Every docstring of the packages that cites the paper, by file and public name."""
    found: dict[tuple[str, str], set[str]] = {}
    for top in PACKAGES:
        for path in sorted((ROOT / top).glob("**/*.py")):
            parts = path.relative_to(ROOT / top).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            file = str(path.relative_to(ROOT))
            for name, text in docstrings(path):
                if here := cited(text):
                    public = anchors().get(f"{module}:{name}", "") if name else ""
                    found.setdefault((file, ""), set())  # the file comes first
                    found.setdefault((file, public), set()).update(here)
    return tuple(Citing(file, name, frozenset(here)) for (file, name), here in found.items() if here)


@cache
def anchors() -> Mapping[str, str]:
    """Of everything in the reference: "module:qualified name" -> the name it has there."""
    found: dict[str, str] = {}

    def add(path: str) -> None:
        module, name = resolved(path)
        found.setdefault(f"{module}:{name}" if name else module, path)

    for path, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", (DOCS / "api.md").read_text(), re.MULTILINE):
        members = (yaml.safe_load(options) or {}).get("options", {}).get("members") if options else None
        try:
            module, name = resolved(path)
        except ImportError:  # an adapter to something that is not installed
            continue
        add(path)
        if members is None and name:
            shown = (each for each, text in docstrings(_file(module)) if text and each.startswith(f"{name}."))
            members = [each[len(name) + 1 :] for each in shown if not each.rpartition(".")[2].startswith("_")]
        for member in members or ():
            add(f"{path}.{member}")
    return found


def _file(module: str) -> Path:
    """The file of a module, among the packages here."""
    for top in PACKAGES:
        path = ROOT / top / Path(*module.split("."))
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if file.is_file():
                return file
    raise ModuleNotFoundError(module)


def resolved(path: str) -> tuple[str, str]:
    """The module and the qualified name of what a dotted path stands for: where it is defined, not where it is exported."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        if cut == len(parts):
            return path, ""
        owner = thing
        for name in parts[cut:]:
            owner, thing = thing, getattr(thing, name)
        if isinstance(thing, property) or not hasattr(thing, "__qualname__"):  # a property, or a field
            where = owner if isinstance(owner, type) else type(owner)
            return where.__module__, f"{where.__qualname__}.{parts[-1]}"
        return str(thing.__module__), str(thing.__qualname__)  # type: ignore[attr-defined]
    raise ModuleNotFoundError(path)


def _code(name: str) -> str:
    """A link into the reference for a public name, else the file."""
    return f"`{name}`" if name.endswith(".py") else f"[`{_short(name)}`][{name}]"


def _short(name: str) -> str:
    return resolved(name)[1] or name.removeprefix("pairgrad.")


def cites(name: str) -> set[str]:
    """What a file cites in docstrings; or a public name, the classes around it and its module."""
    if name.endswith(".py"):
        return {label for _, text in docstrings(ROOT / name) for label in cited(text)}
    module, qualified = resolved(name)
    parts = qualified.split(".")
    around = {"", *(".".join(parts[: depth + 1]) for depth in range(len(parts)))}
    return {label for each, text in docstrings(_file(module)) if each in around for label in cited(text)}


def _page(name: str) -> str:
    target, _, anchor = name.partition("#")
    title = next((line[2:].strip() for line in (DOCS / target).read_text().splitlines() if line.startswith("# ")), target)
    return f"[{title}]({name})" if not anchor else f"[{title}, {anchor.replace('-', ' ')}]({name})"


def anchor(entry: Entry) -> str:
    return entry.label.replace(":", "-") if entry.label else f"{entry.kind}-{entry.number}"


def _item(entry: Entry) -> str:
    """A number, its label, what it says, and below it where it lives and what checks it."""
    label = f"`{entry.label}`" if entry.label else f"a step of `{entry.of}`"
    says = f"{entry.says} \\({entry.formula}\\)" if entry.formula else entry.says
    lines = [f"**{shown(entry)}**{{ #{anchor(entry)} }} {label}", f":   {says}" + (f" *{entry.note}*" if entry.note else ""), ""]
    for word, what in (("code", map(_code, entry.code)), ("pages", map(_page, entry.pages)), ("tests", map(_test, entry.tests))):
        if listed := ", ".join(what):
            lines.append(f"    - {word}: {listed}")
    return "\n".join(lines) + "\n"


def _test(name: str) -> str:
    return f"`{name.removeprefix('tests/')}`"


def shown(entry: Entry) -> str:
    return f"({entry.number})" if entry.kind == "equation" else entry.number


def order(entry: Entry) -> tuple[object, ...]:
    """Sorts numbers as a reader does: 2 before 10, and B.1 after 5."""
    parts = entry.number.split(".")
    return tuple((part.isalpha(), int(part) if part.isdigit() else 0, part) for part in parts)


_KINDS = (
    ("Equations", ("equation",)),
    ("Theorems, corollaries, the lemma and the proposition", ("theorem", "corollary", "lemma", "proposition")),
    ("Tables", ("table",)),
    ("Figures", ("figure",)),
    ("Sections", ("section",)),
)
_INTRODUCTION = """# Equations of the paper

Every number of *Same loss, different gradients*, and where it lives here; then [every place that cites the paper](#from-the-code-to-the-paper).
The code cites by LaTeX label, because labels stay and numbers move: "eq. a2" is the label `eq:a2`. Numbers are those that LaTeX gives (without
the paper's own style file, which we do not have); equations are numbered through the whole paper, and theorems, corollaries, the lemma and the
proposition share one count. What has a number and no label is listed with the result that it is a step of.

`make equations` writes this page from `docs/equations.toml` and from the docstrings. `tests/test_equations.py` checks that every public name and file
exists and cites what the map says, that every citation in the repository is of something that the paper has, and that no number is missing; with the
LaTeX source of the paper in `PAIRGRAD_PAPER`, it counts the labels and numbers there and compares. How the formulas come about is in the
[derivations](derivations/index.md). Names that are links lead to the [reference](api.md); what is not public, and tests (below `tests/`), are named by file.
"""
_BACKWARDS = """## From the code to the paper

Read from the docstrings, file by file: one row for all that is not in the reference, then the public names.
Citations in comments, tests and pages are checked too, and not listed.
"""


def page(every: Iterable[Entry] | None = None) -> str:
    every = entries() if every is None else tuple(every)
    parts = [_INTRODUCTION]
    for title, kinds in _KINDS:
        rows = sorted((entry for entry in every if entry.kind in kinds), key=order)
        parts.append(f"## {title}\n\n" + "\n".join(map(_item, rows)))
    return "\n".join([*parts, _backwards(every)])


def _backwards(every: Iterable[Entry]) -> str:
    number = {entry.label: entry for entry in every if entry.label}
    lines = [_BACKWARDS, "| file | name | cites |", "|---|---|---|"]
    last = None
    for place in citing():
        file = "" if place.file == last else f"`{place.file}`"
        last = place.file
        name = f"[`{_short(place.name)}`][{place.name}]" if place.name else ""
        there = sorted((number[label] for label in place.labels), key=lambda entry: (_rank(entry), order(entry)))
        lines.append(f"| {file} | {name} | {', '.join(map(_reference, there))} |")
    return "\n".join(lines) + "\n"


def _rank(entry: Entry) -> int:
    return next(i for i, (_, kinds) in enumerate(_KINDS) if entry.kind in kinds)


def _reference(entry: Entry) -> str:
    return f"[{_word(entry)}](#{anchor(entry)}) `{entry.label}`"


def _word(entry: Entry) -> str:
    if entry.kind == "equation":
        return f"({entry.number})"
    kind = "appendix" if entry.kind == "section" and entry.number[0].isalpha() else entry.kind
    return f"{kind} {entry.number}"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}: {len(entries())} entries, {len(citing())} files and public names that cite")
