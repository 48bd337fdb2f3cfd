"""What all figures share: the Okabe-Ito palette, told apart by line style and marker as well, and how a figure is saved."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy

from pairgrad.ground import write_atomically
from pairgrad_paper.tables.table import Table
from pairgrad_paper.tables.writers import to_caption, to_csv, write_page

WIDEST, SMALLEST = (
    10.2,
    9.0,
)  # inches of a figure and points of its words: at 740 pixels across, a column of a page, they are nine pixels high
BLUE, VERMILION, GREEN, PURPLE, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999", "#000000"


SETTINGS = {"svg.hashsalt": "pairgrad", "font.size": 10, "axes.titlesize": 11, "legend.fontsize": 9, "legend.frameon": False}
_GRID = 2.0**20


def pyplot() -> Any:
    """matplotlib's pyplot, drawing to files. Imported here, since most commands draw nothing."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


@contextmanager
def same_on_every_cpu() -> Iterator[None]:
    """Places on logarithmic axes to 2^-20 of a decade, a ten-thousandth of a pixel.

    numpy's logarithms differ in the last bit between CPUs with and without AVX-512. Where points of a line lie in one direction, that bit decides how two
    segments are joined, and a few pixels get another shade: the same figure would be another file.
    """
    from matplotlib.scale import LogTransform

    plain = LogTransform.transform_non_affine

    def rounded(self: LogTransform, values: Any) -> Any:
        return numpy.round(numpy.asarray(plain(self, values)) * _GRID) / _GRID

    LogTransform.transform_non_affine = rounded
    try:
        yield
    finally:
        LogTransform.transform_non_affine = plain


def open_axes(*axes: Any) -> None:
    """No frame above and to the right."""
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)


def save(figure: Any, table: Table, directory: Path) -> list[Path]:
    """The figure as SVG, PNG and PDF, its data as CSV and its caption as Markdown; no dates inside, so equal figures are equal files."""
    stem = directory / table.name
    paths = [write_atomically(stem.with_suffix(f".{kind}"), picture(figure, table, kind)) for kind in ("svg", "png", "pdf")]
    paths.append(write_atomically(stem.with_suffix(".csv"), to_csv(table)))
    return [*paths, *write_page(table.name, to_caption(table), directory)]


def picture(figure: Any, table: Table, kind: str) -> bytes:
    """The figure as a file: `"svg"`, `"png"` or `"pdf"`."""
    options = {
        "svg": {"metadata": {"Date": None, "Title": table.title, "Description": table.caption}},
        "png": {"dpi": 160, "metadata": {"Title": table.title, "Description": table.caption}},
        "pdf": {"metadata": {"CreationDate": None, "Title": table.title, "Subject": table.caption}},
    }[kind]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, bbox_inches="tight", **options)
    return buffer.getvalue()
