"""What docs/looks.py gives to pages of the documentation."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FORMULA = '<math display="{}"><mrow>{}</mrow></math>'


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("looks_hook", Path(__file__).parents[2] / "docs" / "looks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_stands_in_a_frame_with_a_name(hook: ModuleType) -> None:
    made = hook.on_page_content('<table><thead><tr><th></th><th style="text-align: right;"><em>a</em> &lt; b</th></tr></thead></table>')
    assert made.startswith('<div class="wide table" tabindex="0" role="group" aria-label="Table: a &lt; b"><table>')
    assert made.endswith("</table></div>")
    assert "<td></td>" in made
    assert made.count("<th") == 2  # thead, and the one with words


def test_a_picture_opens_itself_unless_it_leads_elsewhere(hook: ModuleType) -> None:
    image = '<img alt="Words" src="a/b.png" />'
    assert hook.on_page_content(f"<p>{image}</p>") == f'<p><a class="picture" href="a/b.png">{image}</a></p>'
    assert hook.on_page_content(f'<a href="page.html">{image}</a>') == f'<a href="page.html">{image}</a>'


def test_a_long_formula_scrolls_and_a_short_one_stays(hook: ModuleType) -> None:
    for display, tag in (("block", "div"), ("inline", "span")):
        short, long = (FORMULA.format(display, "<mi>x</mi>" * count) for count in (9, 40))
        assert hook.on_page_content(short) == short
        assert hook.on_page_content(long).startswith(f'<{tag} class="wide ')
        assert 'tabindex="0"' in hook.on_page_content(long)


def test_boxes_have_names(hook: ModuleType) -> None:
    box = '<input class="md-toggle" data-md-toggle="drawer" type="checkbox" id="__drawer">'
    assert 'aria-label="Show the pages"' in hook.on_post_page(box)
