"""The story as one page, which needs no network and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pairgrad.cli.demo.telling import Grid, Picture, Told
from pairgrad.experiments.report import page, templates
from pairgrad.experiments.timing import machine_line

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
