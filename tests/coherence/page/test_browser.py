"""The page of a report in a browser."""

import dataclasses
import json
import re

import pytest

from tests.coherence.browser import NAMES, Browser, found
from tests.coherence.page.reports import (
    ALARM,
    EMPTY,
    NASTY,
    PHONE,
    REPORTS,
    curve,
    report,
    scanned,
)

BROWSER = found()
in_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser to look at pages with: none of {', '.join(NAMES)} is on the path")
LONG = "a_function_with_a_very_long_name_" * 6
WIDE = report(
    name=LONG,
    findings=(dataclasses.replace(ALARM, where=f"{LONG}.weight", numbers={LONG: LONG}),),
    curves=(curve(f"{LONG}.weight"), curve(t=tuple(-13200.0 + 100 * i for i in range(17)))),
    regions=scanned().regions,
    states=scanned().states + report().states,
)


@pytest.fixture(scope="module")
def browser():
    with Browser(BROWSER) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = REPORTS | EMPTY | {"wide": WIDE, "nasty": report(name=NASTY, findings=(dataclasses.replace(ALARM, text=NASTY, where=NASTY),))}
    return {name: each.to_html(folder / f"{name}.html") for name, each in made.items()}


VISIBLE = "[...document.querySelectorAll('svg[role=img]')].filter(s => s.getBoundingClientRect().height > 50).length"
OVERLAPS = """(() => {
  const bad = [];
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    const frame = svg.closest('figure').getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].filter(t => !t.getAttribute('transform')).map(t => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([words, a], i) => {
      if (a.width && (a.left < frame.left || a.right > frame.right)) bad.push(words + ' is cut');
      for (const [other, b] of boxes.slice(i + 1))
        if (a.width && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
          bad.push(words + ' is over ' + other);
    });
  }
  return bad;
})()"""


@in_browser
@pytest.mark.parametrize("name", [*REPORTS, *EMPTY, "wide"])
def test_pages_load_without_complaint(browser, pages, name):
    for dark in (False, True):
        browser.open(pages[name], dark=dark)
        assert browser.complaints == []
        assert browser.requests == [pages[name].as_uri()]
        assert browser.ask(OVERLAPS) == []
        if name in ("incoherent", "scanned", "coherent", "one number"):
            assert browser.ask(VISIBLE) >= 3
    assert browser.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 27)"


@in_browser
@pytest.mark.parametrize("name", [*REPORTS, "wide", "not a number"])
def test_a_phone_scrolls_in_one_direction_only(browser, pages, name):
    browser.open(pages[name], width=PHONE, height=740)
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.ask("document.querySelectorAll('.away').forEach(d => d.classList.remove('away'))")
    assert browser.ask("document.documentElement.scrollWidth") <= PHONE
    assert browser.ask(OVERLAPS) == []
    assert browser.ask("parseFloat(getComputedStyle(document.querySelector('svg[role=img] text')).fontSize) * 330 / 560") >= 8


@in_browser
def test_a_click_and_a_key_open_a_finding(browser, pages):
    browser.open(pages["incoherent"])
    opened = "document.querySelector('details.finding').open"
    height = "document.querySelector('.finding .inside').getBoundingClientRect().height"
    assert not browser.ask(opened)
    browser.click("details.finding summary")
    assert browser.ask(opened)
    assert browser.ask(height) > 50
    browser.ask("document.querySelector('details.finding summary').focus()")
    browser.press("Enter", 13)
    assert not browser.ask(opened)
    browser.open(pages["run"])
    browser.click("details.node summary")
    assert browser.ask("document.querySelector('details.node svg[role=img]').getBoundingClientRect().height") > 50


@in_browser
def test_one_curve_is_chosen(browser, pages):
    browser.open(pages["incoherent"])
    shown = "[...document.querySelectorAll('.choice')].map(c => c.getBoundingClientRect().height > 0)"
    assert browser.ask(shown) == [True, False]
    browser.click(".choices button:nth-child(2)")
    assert browser.ask(shown) == [False, True]
    assert browser.ask("[...document.querySelectorAll('.choices button')].map(b => b.getAttribute('aria-pressed'))") == ["false", "true"]


@in_browser
def test_light_and_dark_are_toggled(browser, pages):
    browser.open(pages["coherent"])
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    before = browser.ask(ground)
    browser.click("#theme")
    assert browser.ask(ground) != before
    browser.click("#theme")
    assert browser.ask(ground) == before


@in_browser
def test_pages_can_be_printed(browser, pages):
    browser.open(pages["incoherent"], dark=True)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
    assert browser.complaints == []
    browser.open(pages["incoherent"], dark=True, media="print")
    assert browser.ask("[...document.querySelectorAll('.finding .inside')].map(e => e.checkVisibility())") == [True, True]
    browser.open(pages["incoherent"])
    assert browser.ask("[...document.querySelectorAll('.finding .inside')].map(e => e.checkVisibility())") == [False, False]
    browser.open(pages["incoherent"], dark=True, media="print")
    assert browser.ask("[...document.querySelectorAll('.choice')].every(c => c.getBoundingClientRect().height > 0)")
    assert browser.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.body).color") == "rgb(28, 33, 40)"


@in_browser
def test_the_data_is_handed_out(browser, pages):
    browser.open(pages["nasty"])
    browser.ask("HTMLAnchorElement.prototype.click = function () { window.given = [this.download, fetched]; };")
    browser.ask("var fetched; URL.createObjectURL = blob => { fetched = blob.text(); return 'blob:x'; };")
    browser.click("#download")
    name, data = browser.ask("window.given[0]"), json.loads(browser.ask("window.given[1]"))
    assert name.endswith(".json")
    assert data["name"] == NASTY
    assert data == json.loads(json.dumps(data))


@in_browser
def test_nothing_in_a_report_is_run(browser, pages):
    browser.open(pages["nasty"])
    assert browser.ask("window.hacked") is None
    assert browser.complaints == []
    assert browser.ask("document.querySelector('h1').textContent") == NASTY


@in_browser
def test_the_browser_tells_of_a_broken_page(browser, pages, tmp_path):
    """What the tests above rely on: a script that throws, a foreign script, a picture from elsewhere and a wide line are seen."""
    whole = pages["incoherent"].read_text(encoding="utf-8")
    lax = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", whole.replace("&#39;", "'"))
    broken = tmp_path / "broken.html"
    for text, complaint in (
        (lax.replace('"use strict";', '"use strict"; throw new Error("broken on purpose");'), "broken on purpose"),
        (whole.replace("</body>", "<script>window.hacked = 1</script></body>"), "Content Security Policy"),
        (whole.replace("</body>", '<img src="https://example.org/x.png"></body>'), "Content Security Policy"),
    ):
        broken.write_text(text, encoding="utf-8")
        browser.open(broken)
        browser.ask("new Promise(r => setTimeout(r, 50))")
        assert complaint in "".join(browser.complaints)
        assert browser.ask("window.hacked") is None
    broken.write_text(whole.replace("overflow-wrap: anywhere", "").replace("<h1>", f"<h1>{'x' * 500}"), encoding="utf-8")
    browser.open(broken, width=PHONE)
    assert browser.ask("document.documentElement.scrollWidth") > PHONE
    broken.write_text(whole.replace('x="62"', 'x="-300"', 1), encoding="utf-8")
    browser.open(broken)
    assert browser.ask(OVERLAPS) == ["change of the value is cut"]
