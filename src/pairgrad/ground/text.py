"""Text from elsewhere (names, paths, messages of exceptions), made fit to be shown where it cannot do anything."""

from __future__ import annotations

import re

# Control characters, what changes the direction of text or is not seen, line separators of Unicode, and halves of surrogate pairs, which cannot be encoded.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
# What a continuous-integration service would obey: "::" at the start of a line, "##[" (GitHub) and "##vso[" (Azure) anywhere.
_COMMAND = re.compile(r"(?m:^(?P<space>[^\S\n]*):(?=:))|#(?=#(?i:vso)?\[)")


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text in one line of characters that are seen: others become escapes as in Python. Printing it twice changes nothing.

    Args:
        lines: keep line feeds, of a text that is laid out in lines.

    Examples:
        >>> print(printable("f\x1b[31m\n::error::g"))
        f\x1b[31m\n::error::g
        >>> print(printable("::error::g"))
        \x3a:error::g
        >>> print(printable("g ##[error]h"))
        g \x23#[error]h
    """
    shown = _HIDDEN.sub(lambda found: found[0] if lines and found[0] == "\n" else found[0].encode("unicode_escape").decode(), text)
    return _COMMAND.sub(lambda found: "\\x23" if found["space"] is None else f"{found['space']}\\x3a", shown)
