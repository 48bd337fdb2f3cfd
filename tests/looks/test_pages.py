"""Every page of the project, wide and narrow, light and dark, and the reports on paper: nothing to complain of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.looks.view import VIEWS, View, complaints, printed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
Pages = Callable[[str], list[Path]]


def told(said: dict[str, list[str]]) -> str:
    return "\n".join(f"{page}\n  " + "\n  ".join(found) for page, found in said.items() if found)


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_documentation(view: View, browser: Any, pages: Pages) -> None:
    assert not told({str(page): complaints(browser, page, view) for page in pages("site")})


@pytest.mark.parametrize("kind", ["report", "demo", "audits"])
def test_reports(kind: str, browser: Any, pages: Pages) -> None:
    """In one test, so that workers do not make the same pages twice."""
    said = {f"{page.name}, {view}": complaints(browser, page, view) for page in pages(kind) for view in VIEWS}
    said |= {f"{page.name}, on paper": printed(browser, page) for page in pages(kind)}
    assert not told(said)
