"""A hook of mkdocs: what a stylesheet cannot give to a page, so that it can be read on a phone and with the keyboard alone.

What may be wider than a phone scrolls inside a frame that takes the focus; a picture links to itself at full size; boxes that open the drawer have names.
"""

from __future__ import annotations

import html
import re

NARROW = {"block": 20, "inline": 26}  # letters of a formula that fit across a phone, whatever stands over them

_TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)
_HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_FORMULA = re.compile(r'<math\b[^>]*\bdisplay="(block|inline)"[^>]*>.*?</math>', re.DOTALL)
_PICTURE = re.compile(r'(<a\b[^>]*>\s*)?(<img\b[^>]*?\bsrc="([^"]+)"[^>]*>)')
_TAG = re.compile(r"<[^>]*>")
_BOXES = (("drawer", "Show the pages"), ("search", "Search"))


def on_page_content(content: str, **_: object) -> str:
    content = _TABLE.sub(_table, content)
    content = _FORMULA.sub(_formula, content)
    return _PICTURE.sub(lambda m: m[0] if m[1] else f'<a class="picture" href="{m[3]}">{m[2]}</a>', content)


def on_post_page(output: str, **_: object) -> str:
    for toggle, name in _BOXES:
        output = output.replace(
            f'data-md-toggle="{toggle}" type="checkbox"', f'data-md-toggle="{toggle}" type="checkbox" aria-label="{name}"'
        )
    return output.replace(
        'class="md-search" data-md-component="search" role="dialog"', 'class="md-search" data-md-component="search" role="search"'
    )


def _table(found: re.Match[str]) -> str:
    """In a frame that scrolls; a head without words is no head."""
    rows = re.sub(r"<th\b[^>]*>\s*</th>", "<td></td>", found[1])
    heads = [words for head in _HEADING.findall(rows) if (words := _words(head))]
    return f'<div class="wide table"{_frame("Table: " + ", ".join(heads))}><table>{rows}</table></div>'


def _formula(found: re.Match[str]) -> str:
    """In a frame that scrolls, if it may be too long: one that stands alone, or one in a sentence."""
    if len(_words(found[0])) <= NARROW[found[1]]:
        return found[0]
    tag, kind = ("div", "formula") if found[1] == "block" else ("span", "phrase")
    return f'<{tag} class="wide {kind}"{_frame("Formula")}>{found[0]}</{tag}>'


def _frame(name: str) -> str:
    return f' tabindex="0" role="group" aria-label="{html.escape(name)}"'


def _words(part: str) -> str:
    return " ".join(html.unescape(_TAG.sub("", part)).split())
