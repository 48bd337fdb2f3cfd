"""Text from elsewhere, made printable."""

from __future__ import annotations

import pytest

from pairgrad.ground import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ± 0.5 µs, naïve 日本 ✓ f\u00a0g", "plain ± 0.5 µs, naïve 日本 ✓ f\u00a0g"),
        ("red\x1b[31m", r"red\x1b[31m"),
        ("a\r\nb\tc\0", r"a\r\nb\tc\x00"),
        ("csi \x9b31m", r"csi \x9b31m"),
        ("\u202eabc\u2066 \u200b", r"\u202eabc\u2066 \u200b"),
        ("a\u2028b", r"a\u2028b"),
        ("half \ud800 of a pair", r"half \ud800 of a pair"),
        ("::error file=x::y", r"\x3a:error file=x::y"),
        ("  ::add-mask::y", r"  \x3a:add-mask::y"),
        ("test_a.py::test_b", "test_a.py::test_b"),
        ("f ##[error]g", r"f \x23#[error]g"),
        ("###[group]g##[", r"#\x23#[group]g\x23#["),
        ("f##vso[task.complete]", r"f\x23#vso[task.complete]"),
        ("## [a](b) #[c] #1", "## [a](b) #[c] #1"),
    ],
)
def test_what_cannot_be_seen_or_does_something_becomes_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_lines_may_be_kept() -> None:
    assert printable("a\n    ^\n::error::b\x1b", lines=True) == "a\n    ^\n\\x3a:error::b\\x1b"
