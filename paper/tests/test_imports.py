"""The laboratory stands on the library's public names: those in `__all__` of `pairgrad` or of a package directly below it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pairgrad_paper"
FILES = sorted(SOURCE.rglob("*.py"))


def private(text: str) -> Iterator[str]:
    """What a file imports from the library that is not public there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("pairgrad."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pairgrad":
            module = node.module or ""
            public = getattr(importlib.import_module(module), "__all__", ()) if module.count(".") <= 1 else ()
            packages = {"cli"} if module == "pairgrad" else set()  # what commands are made with
            yield from (f"{module}.{alias.name}" for alias in node.names if alias.name not in {*public, *packages})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_public_names_are_imported(path: Path) -> None:
    assert list(private(path.read_text())) == []


def test_private_names_are_noticed() -> None:
    text = "from pairgrad.losses.scores import vmf_scores\nfrom pairgrad.losses import resolve, vmf_scores\nimport pairgrad.sphere.bank\nimport pairgrad as pg"
    assert set(private(text)) == {"pairgrad.losses.scores.vmf_scores", "pairgrad.losses.resolve", "pairgrad.sphere.bank"}
    assert len(FILES) > 100
