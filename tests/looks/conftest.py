"""A browser for the session, and pages that are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.looks import view
from tests.looks.pages import MAKERS


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    for package in ("playwright", "axe_playwright_python"):
        pytest.importorskip(package, reason=f"no {package} to look at pages with: pip install 'pairgrad[looks]'")
    if view.program() is None:
        pytest.skip(f"no browser to look at pages with: none of {', '.join(view.NAMES)} is on the path, and PAIRGRAD_CHROMIUM names none")
    with view.opened() as opened:
        yield opened


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Path]]:
    return cache(lambda kind: MAKERS[kind](tmp_path_factory.mktemp(kind)))
