"""A hook of mkdocs: a page with one heading has no contents to list, and its tables get that room."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    if page.file.src_uri.startswith("evidence/") and not re.search(r"^##", markdown, re.MULTILINE):
        page.meta.setdefault("hide", []).append("toc")
    return markdown
