"""An example of the page that a report makes: the run of tests/coherence/training.py, and a picture of it for the documentation."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.coherence.browser import Browser, found
from tests.coherence.training import train

import pairgrad

WIDTH, HEIGHT, SCALE = 860, 1180, 1.5  # what the picture shows: little wider than the column that it stands in, and sharp


def make(folder: Path) -> list[Path]:
    """The page, and the picture if there is a browser to take it."""
    with pairgrad.record() as recording:
        train(60)
    page = recording.audit(seconds=None).to_html(folder / "audit-example.html")
    program = found()
    if program is None:
        return [page]
    with Browser(program) as browser:
        browser.open(page, width=WIDTH)
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": SCALE}
        shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    picture = folder / "audit-example.png"
    picture.write_bytes(base64.b64decode(shot))
    return [page, picture]
