"""How small the words of a picture are: measured where the file tells, and by the rule of the figures where it does not."""

from __future__ import annotations

import base64
import re
import struct
import urllib.parse
from pathlib import Path

from pairgrad_paper.figures.style import SMALLEST

POINT = 1 / 72  # of an inch
INCH = 96  # pixels of a page, as CSS counts them
LARGER = {"hyperspherical-vae-elbo.png": 10.0}  # points of words, where a figure has larger ones than it must
SHARP = {"audit-example.png": 1.5}  # pixels of a picture of a page for one of the page
SCREENSHOT = 12.0  # pixels of the smallest words of a page, and of a picture of one


def content(source: str) -> bytes:
    """What an image shows, from the address of a file or a `data:` address."""
    if source.startswith("data:"):
        head, _, data = source.partition(",")
        return base64.b64decode(data) if head.endswith(";base64") else urllib.parse.unquote_to_bytes(data)
    return Path(urllib.parse.unquote(urllib.parse.urlparse(source).path)).read_bytes()


def smallest_words(picture: bytes, name: str = "") -> float:
    """Height of the smallest words, without indices and exponents, in pixels of the picture at its natural size."""
    if picture.startswith(b"\x89PNG"):
        inch = resolution(picture)
        return SCREENSHOT * SHARP.get(name, 1.0) if inch is None else LARGER.get(name, SMALLEST) * POINT * inch
    return min(_sizes(picture.decode()), default=SCREENSHOT)


def resolution(png: bytes) -> float | None:
    """Pixels to the inch, if the file says so."""
    at = png.find(b"pHYs")
    if at < 0:
        return None
    across, _, unit = struct.unpack(">IIB", png[at + 4 : at + 13])
    return across * 0.0254 if unit == 1 else None


def _sizes(svg: str) -> list[float]:
    """Sizes of words: matplotlib draws letters of 100 points, turned upside down and scaled; others write them as text."""
    drawn = [100 * float(size) * POINT * INCH for size in re.findall(r"scale\(([\d.]+) -[\d.]+\)", svg)]
    written = [float(size) * (POINT * INCH if unit == "pt" else 1) for size, unit in re.findall(r"font(?:-size)?:\s*([\d.]+)(px|pt)", svg)]
    return drawn + written
