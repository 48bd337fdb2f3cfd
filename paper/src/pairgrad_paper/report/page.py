"""The page: words of its head, and the template filled in."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from pairgrad import __version__
from pairgrad.ground import printable
from pairgrad_paper.records import Record
from pairgrad_paper.report.items import Item
from pairgrad_paper.tables.numbers import beside, in_words, sentence
from pairgrad_paper.tables.paper_items import PAPER, SECTIONS
from pairgrad_paper.tables.writers import is_words

HERE = Path(__file__).with_name("templates")
CLAIMS = (
    "The paper says that the loss which a program reports and the gradient which it hands to the optimizer can belong to two different functions: in two "
    "published systems for learning on spheres, equal scores and equal losses came with unequal gradients, and in one of them training is shown to take "
    "another way.",
    "Its remedy, AR/FR, is one formula for the potential whose derivative is the slope that is supplied; its error stays below nu^-3 at every concentration, "
    "where nu is half the dimension less one, so that it falls as the dimension grows, and the cost of a call does not grow with it.",
)


def templates(*more: Path) -> jinja2.Environment:
    """A jinja2 environment with the templates of the page and those in `more` directories."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*more, HERE]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value, lines=True) if type(value) is str else value,  # not markup
    )
    environment.filters |= {"inline": lambda text: markupsafe.Markup(inline(printable(text, lines=True)))}
    environment.globals |= {"is_words": is_words, "machine": machine, "beside": beside, "in_words": in_words, "sentence": sentence}
    return environment


def render(items: Sequence[Item]) -> str:
    """The page as one string. Everything that comes from the items is escaped; the page may load nothing and run nothing."""
    numbers = next((item.table.rows for item in items if item.name == "numbers" and item.table), ())
    return page(
        templates().get_template("page.html"),
        items=items,
        numbers=numbers,
        sections=[(key or "beyond", SECTIONS[key], list(group)) for key, group in groupby(items, key=lambda item: item.section)],
        claims=(*CLAIMS, *found(items)),
        absent=[each for each in PAPER.values() if each.name not in {item.name for item in items}],
        failing=[item for item in items if item.held < len(item.checks)],
    )


def page(template: Any, **content: Any) -> str:
    """A template filled in, with the style of all our pages and a policy that lets it load nothing and run nothing."""
    style = (HERE / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return template.render(version=__version__, style=style, policy=policy, **content)


def found(items: Sequence[Item]) -> tuple[str, str]:
    """Two sentences: what of the paper is on the page, and how many of its checks hold."""
    here = {item.name: item for item in items}
    beside = [each for each in PAPER.values() if each.name in here and here[each.name].made != "not run"]
    computed, read = (sum(here[each.name].made == how for each in beside) for how in ("computed", "record"))
    kinds = [sum(each.label.startswith(prefix) for each in PAPER.values()) for prefix in ("tab:", "fig:")]
    checks, held = sum(len(item.checks) for item in items), sum(item.held for item in items)
    rest = len(PAPER) - len(beside)
    return (
        f"Of its {kinds[0]} tables and {kinds[1]} figures, {computed} are computed here, {read} are made from records of runs"
        f"{f', and {rest} are not run: their commands are given' if rest else ''}.",
        f"Of the {checks} checks on this page, {'all' if held == checks else held} hold{'' if held == checks else f', and {checks - held} do not'}.",
    )


def machine(record: Record) -> str:
    """What a record was measured on."""
    device, versions = record.environment.get("device"), record.environment.get("versions")
    name = device.get("name", "") if isinstance(device, dict) else ""
    torch = f"torch {versions['torch']}" if isinstance(versions, dict) and "torch" in versions else ""
    return ", ".join(filter(None, (str(name), torch))) or "a machine that was not noted"


def inline(text: str) -> str:
    """A sentence as HTML: escaped, with what stands between backticks as code.

    Examples:
        >>> inline("`a < b` & c")
        '<code>a &lt; b</code> &amp; c'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
