"""Links out of the repository, as far as they can be checked without a network; those within it are checked by test_docs."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TARGET = re.compile(r"\]\(([^)]*)\)|<(https?:[^>]*)>")


def malformed(text: str) -> list[str]:
    """Targets of links that begin with a scheme and cannot be opened anywhere."""
    wrong = []
    for match in TARGET.finditer(text):
        target = (match[1] or match[2] or "").strip()
        if not re.match(r"[a-z]+:", target):
            continue
        parts = urlsplit(target)
        good = parts.scheme in ("http", "https") and re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", parts.netloc)
        if not good or re.search(r"[\s{}]", target):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_out_are_well_formed(page: Path) -> None:
    assert malformed(page.read_text()) == []


def test_malformed_links_are_noticed() -> None:
    good = "[a](https://example.org/x#y) <https://example.org> [b](docs/index.md) [c](#d)"
    assert malformed(good) == []
    for target in ("htps://example.org", "https:/example.org", "https://example", "https://example.org/{name}", "https://example.org/a b"):
        assert malformed(f"{good} [d]({target})") == [target]


def test_the_changelog_links_to_files_that_exist() -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / "CHANGELOG.md").read_text()):
        assert re.match(r"[a-z]+:", target) or (ROOT / target).exists(), target
