"""What is wrong with a page is seen: each of these has one fault, and is without complaint when it is mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.looks.pictures import smallest_words
from tests.looks.view import VIEWS, View, complaints, printed

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ margin: 8px; font: 16px sans-serif; background: #fff; color: #111 }} :focus-visible {{ outline: 2px solid blue }} {style}</style></head>
<body><main><h1>A page</h1>{body}</main></body></html>"""
LONG = "width: 3000px; height: 20px"
FAULTS = {
    "a console": ("", "<script>console.error('oh dear')</script>", "", "", "console: oh dear"),
    "a script": ("", "<script>throw new Error('oh dear')</script>", "", "", "script: oh dear"),
    "a file": ("", '<p><img src="missing.png" alt="It is not there"></p>', "", "", "could not be loaded"),
    "a width": ("", f'<div style="{LONG}">wide</div>', "", '<div style="height: 20px">wide</div>', "the page is 30"),
    "a scroller": (
        ".s { overflow-x: auto }",
        f'<div class="s"><div style="{LONG}">wide</div></div>',
        ".s { overflow-x: auto }",
        f'<div class="s" tabindex="0" role="region" aria-label="A scale"><div style="{LONG}">wide</div></div>',
        "the keyboard does not reach it",
    ),
    "a cut": (
        ".c { width: 50px; overflow: hidden; white-space: nowrap }",
        '<p class="c">cut off in the middle</p>',
        "",
        "<p>whole</p>",
        "is cut",
    ),
    "a box": (".b { width: 40px; white-space: nowrap }", '<p class="b">words that run out</p>', "", "<p>words</p>", "runs out of its"),
    "a formula": (
        "",
        "<p><math display='block'><mrow>" + "<mi>x</mi><mo>+</mo>" * 120 + "<mi>x</mi></mrow></math></p>",
        ".f { overflow-x: auto }",
        "<div class='f' tabindex='0' role='group' aria-label='Formula'><math display='block'><mrow>"
        + "<mi>x</mi><mo>+</mo>" * 120
        + "<mi>x</mi></mrow></math></div>",
        "runs out of its",
    ),
    "a size": (".x { font-size: 10px }", '<p class="x">small</p>', "", "<p>large</p>", "is written at 10.0 px"),
    "a drawing": (
        "",
        '<svg viewBox="0 0 400 40" width="200"><text x="5" y="20" font-size="12">words</text></svg>',
        "",
        '<svg viewBox="0 0 400 40" width="400"><text x="5" y="20" font-size="12">words</text></svg>',
        "is written at 6.0 px",
    ),
    "ink": (
        "",
        '<svg width="400" height="40"><text x="5" y="20" fill="#bbb">words</text></svg>',
        "",
        '<svg width="400" height="40"><text x="5" y="20" fill="#444">words</text></svg>',
        "has a contrast of 1.92",
    ),
    "contrast": (".p { color: #999 }", '<p class="p">pale</p>', ".p { color: #555 }", '<p class="p">pale</p>', "color-contrast"),
    "a name": ("", "<button></button>", "", "<button>Press</button>", "button-name"),
    "motion": (".m { transition: opacity 1s }", '<p class="m">moves</p>', "", "<p>rests</p>", "has a transition of 1s"),
    "a focus": (
        "a:focus-visible { outline: none }",
        '<p><a href="#x">there</a></p>',
        "",
        '<p><a href="#x">there</a></p>',
        "does not show that it has the focus",
    ),
    "a trap": (
        "",
        '<button id="t" onkeydown="event.preventDefault()">here</button> <button>there</button>',
        "",
        "<button>here</button> <button>there</button>",
        "the keyboard does not reach",
    ),
    "a place": (
        ".o { position: absolute; left: -900px }",
        '<a class="o" href="#x">there</a>',
        "",
        '<a href="#x">there</a>',
        "out of sight",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, browser: Any, tmp_path: Path) -> None:
    *pages, words = FAULTS[fault]
    path = tmp_path / "page.html"
    seen = []
    for style, body in (pages[:2], pages[2:]):
        path.write_text(PAGE.format(style=style, body=body), encoding="utf-8")
        seen.append(complaints(browser, path, VIEWS[0]))
    assert any(words in said for said in seen[0]), seen[0]
    assert seen[1] == []


@pytest.mark.slow
def test_small_words_of_a_picture_are_seen(browser: Any, tmp_path: Path) -> None:
    """On a desk they must be large enough; on a phone it is enough that the picture can be opened."""
    svg = "<svg xmlns='http://www.w3.org/2000/svg' width='1200' height='100'><text x='9' y='50' style='font-size: 12px'>words</text></svg>"
    (tmp_path / "picture.svg").write_text(svg, encoding="utf-8")
    image, path = '<img src="picture.svg" alt="Words" style="width: {}; max-width: 100%">', tmp_path / "page.html"

    def said(body: str, view: View) -> list[str]:
        path.write_text(PAGE.format(style="", body=f"<p>{body}</p>"), encoding="utf-8")
        return complaints(browser, path, view)

    desk, phone = VIEWS[0], VIEWS[2]
    assert said(image.format("1100px"), desk) == []
    assert "6.0 px high" in said(image.format("600px"), desk)[0]
    assert "neither opened nor scrolled" in said(image.format("600px"), phone)[0]
    assert said(f'<a href="picture.svg">{image.format("600px")}</a>', phone) == []
    assert "no words that stand for it" in said('<img src="picture.svg" style="width: 1100px">', desk)[0]


@pytest.mark.slow
def test_faults_on_paper_are_seen(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        PAGE.format(
            style="body { background: #123 } .s { overflow: auto }",
            body=f'<button>Go</button><div class="s"><p style="{LONG}">wide</p></div>',
        )
    )
    said = " ".join(printed(browser, path))
    assert all(words in said for words in ("the paper is not white", "nobody can press on paper: Go", "would have to be scrolled"))
    path.write_text(PAGE.format(style="@media print { button { display: none } }", body="<button>Go</button><p>narrow</p>"))
    assert printed(browser, path) == []


def test_words_of_a_picture() -> None:
    """Ten points of matplotlib, drawn as paths; twelve pixels of text; a PNG of 160 dots to the inch, whose words have nine points."""
    assert smallest_words(b'<svg><g transform="translate(1 2) scale(0.1 -0.1)"/><g transform="scale(0.12 -0.12)"/></svg>') == pytest.approx(
        10 / 72 * 96
    )
    assert smallest_words(
        b'<svg><text style="font: 12px sans-serif">a</text><text style="font-size: 30px">b</text></svg>'
    ) == pytest.approx(12)
    assert smallest_words(b"\x89PNG....pHYs" + (6299).to_bytes(4, "big") * 2 + b"\x01") == pytest.approx(9 / 72 * 160, rel=1e-4)
    assert smallest_words(b"\x89PNG") == 12
