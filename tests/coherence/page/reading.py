"""What stands on a page, read back from its text."""

import re
from html.parser import HTMLParser

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
