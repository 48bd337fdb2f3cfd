"""Every folder says what it is for, and names what is in it; CONTRIBUTING.md has them all on its map."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(
    path.parent for top in ("src", "paper", "benchmarks", "census", "tools", "tests") for path in (ROOT / top).rglob("__init__.py")
)
# The modules of the command line have the names of the commands, and tests those of what they test.
ROOTS = ("pairgrad", "pairgrad_paper", "paper")
NAMED = [
    folder for folder in PACKAGES if folder.name not in ROOTS and not {"cli", "commands", "tests"} & set(folder.relative_to(ROOT).parts)
]


def said(folder: Path) -> str:
    """The docstring of a package."""
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""


def parts(folder: Path) -> set[str]:
    """Modules and packages in a folder."""
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


def unnamed(folder: Path) -> set[str]:
    """What the docstring of a package does not name. The figures are named like what they show, and the drivers of the census like their packages."""
    words = set(re.findall(r"`([a-z_]+)`", said(folder)))
    return set() if folder.name in ("figures", "drivers") else parts(folder) - words


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_says_what_it_is_for(folder: Path) -> None:
    assert said(folder), f"{folder.relative_to(ROOT)}/__init__.py has no docstring: say in a sentence what the folder is for"


@pytest.mark.parametrize("folder", NAMED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_names_what_is_in_it(folder: Path) -> None:
    missing = unnamed(folder)
    assert not missing, f"the docstring of {folder.relative_to(ROOT)}/__init__.py does not name {sorted(missing)}"


def test_no_code_stands_outside_of_a_package() -> None:
    """A folder of Python files without `__init__.py` would be looked at by nobody."""
    loose = {path.parent for top in ("src/pairgrad", "paper", "benchmarks", "tools", "tests") for path in (ROOT / top).rglob("*.py")} - set(
        PACKAGES
    )
    assert not loose, sorted(str(path.relative_to(ROOT)) for path in loose)


def imports_of_tests(text: str) -> list[str]:
    """The test files that a file imports from."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    found = [name for node in nodes for name in [*(node.module or "").split("."), *(alias.name for alias in node.names)]]
    return [
        name
        for name in found
        if re.fullmatch(r"test_\w+", name) and [*ROOT.glob(f"tests/**/{name}.py"), *ROOT.glob(f"paper/tests/**/{name}.py")]
    ]


def test_tests_import_helpers_and_never_other_tests() -> None:
    files = [path for top in ("tests", "paper/tests") for path in (ROOT / top).rglob("*.py")]
    wrong = {str(path.relative_to(ROOT)): found for path in files if (found := imports_of_tests(path.read_text()))}
    assert not wrong, f"what several tests share goes into a module without test_: {wrong}"
    assert imports_of_tests("from tests import test_tree\nfrom .test_docs import x\nfrom y import test_of_another") == [
        "test_tree",
        "test_docs",
    ]


def test_the_map_has_every_folder() -> None:
    """Of the first level below src/pairgrad and tests, and of the top."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    start = text.index("## The tree")
    words = set(re.findall(r"`([\w./]+)`", text[start : text.index("\n## ", start + 1)]))
    folders = {folder for folder in PACKAGES if folder.parent in (ROOT / "src" / "pairgrad", ROOT)}
    missing = {folder.name for folder in folders} - {word.rstrip("/").split("/")[-1] for word in words}
    assert not missing, f"the map in CONTRIBUTING.md does not have {sorted(missing)}"


def test_the_walk_sees_what_it_should(tmp_path: Path) -> None:
    """The checks above pass on an empty list too."""
    names = {str(folder.relative_to(ROOT)) for folder in PACKAGES}
    assert {"src/pairgrad/ground", "paper/src/pairgrad_paper/runs", "benchmarks/learning", "tests/potentials"} <= names
    (tmp_path / "__init__.py").write_text('"""Has `one`."""')
    for name in ("one.py", "two.py", "_private.py"):
        (tmp_path / name).touch()
    assert unnamed(tmp_path) == {"two"}
