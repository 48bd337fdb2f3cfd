"""A hook of mkdocs: formulas become MathML when the site is built, so that pages need no script and no network."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_SPACE = "http://www.w3.org/1998/Math/MathML"
_FUNCTIONS = ("log", "exp", "sin", "cos", "tanh", "ln")
_PRIMES = ("\u2032", "\u2033", "\u2034")
ElementTree.register_namespace("", _SPACE)


def on_page_content(content: str, **_: object) -> str:
    """The page with its formulas as MathML."""
    return _FORMULA.sub(lambda m: formula(html.unescape(m[3]), display="block" if m[2] == "[" else "inline"), content)


def formula(latex: str, display: str) -> str:
    """A formula whose primes can be seen and whose functions stand apart from their arguments, with fonts that were not made for mathematics too.

    In such a font a prime is small and raised already: as a superscript it would be shrunk and raised again.
    """
    root = ElementTree.fromstring(convert(latex, display=display))
    for element in list(root.iter()):
        if _name(element) in ("msup", "msubsup") and (element[-1].text or "") in _PRIMES:
            _put_behind(element)
    for element in root.iter():
        for place, child in reversed(list(enumerate(element))):
            argument = element[place + 1] if place + 1 < len(element) else None
            if (
                _name(child) == "mi"
                and child.text in _FUNCTIONS
                and argument is not None
                and _name(element) == "mrow"
                and _name(argument) != "mo"
            ):
                element.insert(place + 1, ElementTree.Element(f"{{{_SPACE}}}mspace", width="0.1667em"))
    return ElementTree.tostring(root, encoding="unicode")


def _put_behind(element: ElementTree.Element) -> None:
    """The prime as an operator behind what it is of, at full size."""
    *base, prime = element
    element[:] = []
    if len(base) == 2:
        kept = ElementTree.SubElement(element, f"{{{_SPACE}}}msub")
        kept.extend(base)
    else:
        element.append(base[0])
    element.tag = f"{{{_SPACE}}}mrow"
    ElementTree.SubElement(element, f"{{{_SPACE}}}mo", lspace="0", rspace="0").text = prime.text


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
