"""What all figures share: the Okabe-Ito palette, told apart by line style and marker as well, and how a figure is saved."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from pairgrad.experiments.table import Table
from pairgrad.experiments.writers import to_caption, to_csv
from pairgrad.ground.files import write_atomically

BLUE, VERMILION, GREEN, PURPLE, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999", "#000000"


SETTINGS = {"svg.hashsalt": "pairgrad", "font.size": 10, "axes.titlesize": 11, "legend.fontsize": 9, "legend.frameon": False}


def pyplot() -> Any:
    """matplotlib without a window, or what to install."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'pairgrad[figures]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def open_axes(*axes: Any) -> None:
    """No frame above and to the right."""
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)


def save(figure: Any, table: Table, directory: Path) -> list[Path]:
    """The figure as SVG, PNG and PDF, its data as CSV and its caption as Markdown; no dates inside, so equal figures are equal files."""
    stem = directory / table.name
    paths = []
    for kind, options in (
        ("svg", {"metadata": {"Date": None, "Title": table.title, "Description": table.caption}}),
        ("png", {"dpi": 160, "metadata": {"Title": table.title, "Description": table.caption}}),
        ("pdf", {"metadata": {"CreationDate": None, "Title": table.title, "Subject": table.caption}}),
    ):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, bbox_inches="tight", **options)
        paths.append(write_atomically(stem.with_suffix(f".{kind}"), buffer.getvalue()))
    paths.append(write_atomically(stem.with_suffix(".csv"), to_csv(table)))
    paths.append(write_atomically(stem.with_suffix(".md"), to_caption(table)))
    return paths
