"""What stands on a page, read back from its text."""

import html
import re
import tempfile
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Reads a page and insists that every element is closed in its turn."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words, self.raw = [], [], [], {}
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute is given twice: {tag} {attrs}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"closed but not open: {tag}"
        assert self.open.pop() == tag, f"{tag} is closed inside another"

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            self.raw.setdefault(self.open[-1], []).append(data)
        else:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag, **wanted):
        return [
            attrs for name, attrs in self.elements if name == tag and all(attrs.get(k.replace("_", "-")) == v for k, v in wanted.items())
        ]


def drawn(page):
    return page.all("svg", role="img")


def drawn_leaps(figure, kind="jump"):
    return [float(x) for x in re.findall(rf'class="event v-{kind}" d="M([\d.]+) ', figure.svg)]


def text_of(report):
    """The text of the page of a report, as `to_html` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        return report.to_html(Path(folder) / "page.html").read_text(encoding="utf-8")


def page_of(report):
    return Page(text_of(report))


@dataclass(frozen=True)
class Figure:
    title: str
    svg: str
    caption: str
    key: tuple[tuple[str, str], ...]

    @property
    def ends(self):
        """Where the axis below begins and ends."""
        left, right = re.findall(r'class="axis" d="M([\d.]+) [\d.]+H([\d.]+)"', self.svg)[-1]
        return float(left), float(right)


def figures_of(report):
    """The figures of a page, in their order."""
    found = []
    for block in re.findall(r"<figure>(.*?)</figure>", text_of(report), re.S):
        svg = re.search(r"<svg [^>]*role=.img.*?</svg>", block, re.S)
        key = re.findall(r'<li><svg[^>]*><\w+ class="([^"]*)"[^>]*/></svg>([^<]*)</li>', block)
        title, caption = (
            html.unescape(re.search(found, block, re.S)[1]) for found in (r"<h\d>(.*?)</h\d>", r"<figcaption>(.*?)</figcaption>")
        )
        found.append(Figure(title, svg[0] if svg else "", caption, tuple((kind, html.unescape(words)) for kind, words in key)))
    return found


def figure_of(report, start):
    """The figure whose title begins so."""
    return next(figure for figure in figures_of(report) if figure.title.startswith(start))


def plain(markup):
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).replace("\u00a0", " ").strip()


def fact(report, name):
    """What the head of the page says under a name: the words, and what is to be added."""
    (found,) = re.findall(rf"<dt>{name}</dt><dd><strong>(.*?)</strong>(?:<span>(.*?)</span>)?</dd>", text_of(report))[:1]
    return tuple(map(plain, found))


def rows_of(report, caption):
    """The rows of the table with this caption, each a list of words."""
    tables = [table for table in re.findall(r"<table>.*?</table>", text_of(report), re.S) if re.search(rf"<caption>{caption}", table)]
    rows = re.findall(r"<tr>(.*?)</tr>", tables[0].split("<tbody>")[1], re.S) if tables else []
    return [[plain(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)] for row in rows]


def cards_of(report):
    """The findings as the page tells them: kind, severity and text of each."""
    found = r'<details class="finding (\w+)">\s*<summary>.*?class="kind">(.*?)</span>\s*<span class="text">(.*?)</span></summary>'
    return [(kind, severity, plain(text)) for severity, kind, text in re.findall(found, text_of(report), re.S)]
