"""What `docs/limits.md` says of the published numbers, from `docs/evidence/numbers.md`: `python -m docs.limits` writes it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGE, NUMBERS = DOCS / "limits.md", DOCS / "evidence" / "numbers.md"
PLACE = re.compile(r"<!-- begin numbers -->\n.*?<!-- end numbers -->", re.DOTALL)


def text() -> str:
    """The page, with the count, what differs and what was not run in their place."""
    numbers = NUMBERS.read_text(encoding="utf-8")
    count = re.findall(r"^\d+ published numbers: [^.]*\.", numbers, re.MULTILINE)
    parts = [
        f"**{title}**\n\n{body.strip()}"
        for title, body in re.findall(r"^## (What [^\n]*)\n(.*?)(?=^## )", numbers, re.MULTILINE | re.DOTALL)
    ]
    shown = "\n\n".join([*count, *parts])
    return PLACE.sub(lambda _: f"<!-- begin numbers -->\n\n{shown}\n\n<!-- end numbers -->", PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
