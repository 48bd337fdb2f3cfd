"""A page in a browser at one width and in one scheme of colours, and what is wrong with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.looks.pictures import content, smallest_words

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUESTIONS = Path(__file__).with_name("questions.js")
SMALLEST = 12  # pixels of words
SMALL = 9  # pixels of indices and of words in drawings
CONTRAST = 4.5  # WCAG 2, AA
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]
# Advice, no demand of WCAG, that the theme of the documentation does not follow, or that axe misreads.
OF_THEME = {
    "region": "the boxes that open drawer and search stand before the header",
    "landmark-unique": "every block of code has a navigation, whose one button has its name",
    "empty-table-header": "a head that is a formula counts as empty: axe does not read MathML",
}
PAPER = 718  # pixels between the margins of a sheet of A4: 190 mm
THUMBNAIL = 420  # pixels across, at most, of a picture that leads to the whole one
TALLEST = 8000  # pixels of a page that are pictured
PATIENCE = 120_000  # milliseconds for one answer, on a machine that has other things to do
STEPS = 3000  # presses of Tab after which a page is said to have no end


@dataclass(frozen=True)
class View:
    """How wide the window is, and whether the reader likes it dark."""

    width: int
    height: int
    scheme: str

    def __str__(self) -> str:
        return f"{self.width}-{self.scheme}"

    @property
    def phone(self) -> bool:
        return self.width < 600

    @property
    def thorough(self) -> bool:
        """Whether to ask what takes long and does not depend on width and colours together: each of them is asked once."""
        return self.phone == (self.scheme == "dark")


VIEWS = tuple(View(*size, scheme) for size in ((1280, 900), (390, 844)) for scheme in ("light", "dark"))


def program() -> str | None:
    """The browser to use: `PAIRGRAD_CHROMIUM`, or one on the path."""
    return os.environ.get("PAIRGRAD_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


def axe() -> str:
    """The rules of axe-core, as it comes with axe-playwright-python."""
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser without a window. As root Chromium cannot build its sandbox; the pages are our own."""
    from playwright.sync_api import sync_playwright

    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--disable-gpu", *["--no-sandbox"] * root])
        yield browser
        browser.close()


@contextmanager
def shown(browser: Browser, path: Path, view: View, said: list[str]) -> Iterator[Page]:
    """The page, open, with everything unfolded; what it says on its console, or asks the network for, is added to `said`."""
    scheme: Any = view.scheme
    context = browser.new_context(viewport={"width": view.width, "height": view.height}, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: said.append(f"console: {message.text}") if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(f"script: {error}"))
    page.on("requestfailed", lambda request: said.append(f"could not be loaded: {request.url}"))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else said.append(f"network: {request.url}")
    )
    page.goto(path.resolve().as_uri())
    page.evaluate(f"window.looks = {QUESTIONS.read_text(encoding='utf-8')}")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.evaluate("document.querySelectorAll('.away').forEach(each => each.classList.remove('away'))")
    try:
        yield page
    finally:
        context.close()


def complaints(browser: Browser, path: Path, view: View, shots: Path | None = None) -> list[str]:
    """What is wrong with the page at `path`; a picture of it is put into `shots`."""
    said: list[str] = []
    with shown(browser, path, view, said) as page:
        if shots:
            height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)
            page.screenshot(
                path=shots / f"{path.stem}-{view}.png", full_page=True, clip={"x": 0, "y": 0, "width": view.width, "height": height}
            )
        said += page.evaluate("looks.overflow()")
        said += page.evaluate(f"looks.sizes({SMALLEST}, {SMALL})")
        said += page.evaluate(f"looks.drawings({CONTRAST})")
        said += page.evaluate("looks.motion()")
        said += [words for picture in page.evaluate("looks.pictures()") for words in _of_picture(picture, view)]
        said += _of_axe(page, every_rule=view.thorough)
        said += _of_keyboard(page) if view.thorough else []
    return said


def printed(browser: Browser, path: Path, scheme: str = "dark") -> list[str]:
    """What is wrong with the page on paper: it cannot be scrolled or unfolded there, and its ground is white."""
    said: list[str] = []
    with shown(browser, path, View(PAPER, 1000, scheme), said) as page:
        page.emulate_media(media="print", color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
        said += page.evaluate("looks.overflow(false)")
        ground = page.evaluate("[document.body, document.documentElement].map(e => getComputedStyle(e).backgroundColor)")
        if not set(ground) <= {"rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"}:
            said.append(f"the paper is not white: {ground}")
        buttons = page.evaluate(
            "[...document.querySelectorAll('button, nav')].filter(e => e.checkVisibility()).map(e => e.textContent.trim())"
        )
        said += [f"nobody can press on paper: {words[:60]}" for words in buttons]
    return said


def _of_picture(picture: dict[str, Any], view: View) -> Iterator[str]:
    name = picture["source"] if len(picture["source"]) < 200 else f"the picture of {(picture['alternative'] or 'something')[:60]}"
    if picture["broken"]:
        yield f"{name} is not drawn"
        return
    if not picture["alternative"] and not picture["decoration"]:
        yield f"{name} has no words that stand for it"
    size = smallest_words(content(picture["source"]), picture["source"].rpartition("/")[2][:100]) * picture["width"] / picture["natural"]
    closer = picture["linked"] or picture["scrolls"]
    thumbnail = picture["linked"] and picture["width"] <= THUMBNAIL
    if size < SMALL and not thumbnail and not (view.phone and closer):
        yield f"{name}: its smallest words are {size:.1f} px high{'' if closer else ', and it can be neither opened nor scrolled'}"


def _of_axe(page: Page, every_rule: bool) -> list[str]:
    """Rules of colours on one element of each look; the others, which no scheme of colours changes, on the whole page."""
    page.evaluate(axe())
    asked = "{resultTypes: ['violations'], preload: false, runOnly: %s, rules: %s}"
    theme = OF_THEME if page.query_selector("meta[name=generator][content^=mkdocs]") else ()
    off = {rule: {"enabled": False} for rule in (*OF_COLOURS, *theme)}
    found = page.evaluate(f"axe.run({{include: looks.representatives()}}, {asked % (OF_COLOURS, {})})")["violations"]
    if every_rule:
        found += page.evaluate(f"axe.run(document, {asked % (RULES, str(off).replace('False', 'false'))})")["violations"]
    return [
        f"axe, {rule['id']}: {node['html'][:120]} ({' '.join(node['failureSummary'].split())[:240]})"
        for rule in found
        for node in rule["nodes"]
    ]


def _of_keyboard(page: Page) -> list[str]:
    wanted = page.evaluate("looks.walk()")
    for pressed in range(min(STEPS, wanted + 20)):
        page.keyboard.press("Tab")
        if pressed % 20 == 19 and page.evaluate("looks.walked()") >= wanted and not page.evaluate("looks.unreached().length"):
            break
    return page.evaluate("looks.unreached()")
