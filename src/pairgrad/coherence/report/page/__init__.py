"""Reports as pages: one HTML file that needs no network, with figures drawn as inline SVG.

`content` chooses words, figures and tables, `figures` draws them, `svg` has the strokes; the files in `templates` are filled in here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pairgrad.coherence.finding import ADVICE
from pairgrad.coherence.judge.verdict import MEANING
from pairgrad.coherence.report.page import content, svg
from pairgrad.coherence.report.page.figures import picture_figure
from pairgrad.coherence.report.report import LIMITS, METHOD, Report
from pairgrad.coherence.report.run import RunReport
from pairgrad.coherence.report.summary import named
from pairgrad.ground.text import printable

HERE = Path(__file__).parent
LARGEST = 2_000_000  # characters of JSON that a page carries whole
KEPT = 100  # readings of each list that it carries otherwise


def render(report: Report | RunReport) -> str:
    """The page of a report as one string.

    Everything that comes from the report is escaped. The page may load nothing and may run its own script only: its policy names the hash of it.
    """
    environment = _environment()
    style, script = ((HERE / "templates" / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    name = report.name if isinstance(report, Report) else "recorded run"
    data, left_out = _data(report)
    return environment.get_template("run.html" if isinstance(report, RunReport) else "report.html").render(
        report=report,
        name=name,
        meaning=MEANING,
        method=METHOD,
        limits=LIMITS,
        versions={"pairgrad": _version(), "torch": torch.__version__},
        made=datetime.now(UTC),
        data=data,
        left_out=left_out,
        file_name=re.sub(r"[^\w.-]+", "-", name)[:60].strip("-.") or "report",
        style=style,
        script=script,
        policy=(
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
    )


class Entry(NamedTuple):
    """A page of its own that a list of pages leads to."""

    file: str
    title: str
    verdict: str
    passed: bool
    headline: str


def contents(title: str, head: str, entries: Sequence[Entry]) -> str:
    """A page that leads to others, those that do not pass first. It may load nothing and run nothing."""
    style = (HERE / "templates" / "style.css").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("index.html")
        .render(
            title=title,
            head=head,
            entries=sorted(entries, key=lambda entry: entry.passed),
            versions={"pairgrad": _version(), "torch": torch.__version__},
            made=datetime.now(UTC),
            style=style,
            policy=f"default-src 'none'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'",
        )
    )


def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("to_html needs jinja2: pip install 'pairgrad[html]'") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
        finalize=lambda value: printable(value, lines=True) if type(value) is str else value,  # not markup
    )
    environment.globals |= {"content": content, "log10": math.log10, "advice": ADVICE}
    environment.filters |= {
        "pretty": svg.pretty,
        "prettily": svg.prettily,
        "sentence": content.sentence,
        "drawn": picture_figure,
        "named": named,
        "zip": zip,
    }
    return environment


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _version() -> str:
    try:
        return metadata.version("pairgrad")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _data(report: Report | RunReport) -> tuple[str, bool]:
    """The report as JSON that can stand inside a script element, and whether readings had to be left out."""
    data = report.to_dict()
    text = json.dumps(data, allow_nan=False)
    shortened = len(text) > LARGEST
    if shortened:
        said = f"lists of states are cut to the {KEPT} gravest; nodes after number {content.NODES} are without curves and pictures"
        text = json.dumps(_shortened(data) | {"shortened": said}, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text, shortened


def _shortened(data: Any) -> Any:
    if isinstance(data, list):
        return [_shortened(item) for item in data]
    if not isinstance(data, dict):
        return data
    cut = {key: _shortened(item) for key, item in data.items()}
    for node in cut.get("nodes", ())[content.NODES :]:
        node["worst"] = None if node["worst"] is None else node["worst"] | {"curves": [], "picture": None}
    states = cut.get("states")
    if isinstance(states, list) and len(states) > KEPT:
        cut["states"] = sorted(states, key=lambda s: (s["verdict"] != "incoherent", -float(s.get("relative", s.get("defect", 0)))))[:KEPT]
    return cut
