"""Documentation is code: blocks run, doctests hold, keys and links exist."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import pairgrad

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# The README sets "what vMF code has today" beside ours: that block is a sketch of other people's code and runs nowhere.
SKETCHES = ("log_miller_bessel",)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_run(page: Path) -> None:
    import torch

    scope: dict[str, object] = {"kappa": torch.rand(4) + 1, "r": (torch.rand(4) + 2).requires_grad_()}
    for block in BLOCK.findall(page.read_text()):
        if not any(name in block for name in SKETCHES):
            exec(compile(block, str(page), "exec"), scope)


@pytest.mark.parametrize(
    "module",
    [
        m.name
        for m in pkgutil.walk_packages(pairgrad.__path__, "pairgrad.")
        if not m.name.startswith(("pairgrad.cli", "pairgrad.integrations."))
    ],
)
def test_doctests(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


def test_the_main_example_is_a_doctest() -> None:
    assert doctest.testmod(importlib.import_module("pairgrad.potentials.registry")).attempted >= 5


def test_citations_exist() -> None:
    keys = set(re.findall(r"@\w+\{([^,]+),", (ROOT / "docs/references.bib").read_text()))
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md")]
    cited = {key for path in sources for key in re.findall(r"\[([A-Za-z]+_?\d{4}[A-Za-z_]*)(?:, Eq\.[^\]]*)?\]", path.read_text())}
    assert cited
    assert cited <= keys, cited - keys


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_relative_links_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target.strip()).exists(), f"{page.name} links to {target}"


def test_changelog_has_the_version_or_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## Unreleased" in text or f"## {pairgrad.__version__}" in text
