"""The story as one page, which needs no network and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pairgrad.ground import machine_line
from pairgrad_paper.commands.demo.telling import Grid, Picture, Told
from pairgrad_paper.report import page, templates

_HERE = Path(__file__).with_name("templates")


def render(told: Sequence[Told], seconds: float) -> str:
    """The chapters in the look of `pairgrad report`; everything in them is escaped."""
    return page(
        templates(_HERE).get_template("demo.html"),
        chapters=told,
        kind=lambda part: (
            "words" if isinstance(part, str) else "grid" if isinstance(part, Grid) else "picture" if isinstance(part, Picture) else "item"
        ),
        machine_line=machine_line(),
        seconds=round(seconds),
    )
