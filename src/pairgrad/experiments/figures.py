"""Figures. Colours are the Okabe-Ito palette, told apart by line style as well."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

import pairgrad as pg
from pairgrad.ground.files import write_atomically

BLUE, ORANGE, GREY, BLACK = "#0072B2", "#D55E00", "#999999", "#000000"


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'pairgrad[figures]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, stem: Path) -> list[Path]:
    """`stem`.svg and `stem`.png, written whole; the SVG has no date in it, so equal figures are equal files."""
    paths = []
    for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 160})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, bbox_inches="tight", **options)
        paths.append(write_atomically(stem.with_suffix(f".{kind}"), buffer.getvalue()))
    return paths


def _clip_onset(dim: int) -> float:
    """The x at which the raw ratio reaches 1, by bisection."""
    raw = pg.potential(dim, "original", clip=False)
    low, high = float(raw.nu), 1e6 * float(raw.nu)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if raw.slope(torch.tensor(middle, dtype=torch.float64)) >= 1 else (middle, high)
    return high


def value_and_supplied_slope(directory: Path, dim: int = 128) -> list[Path]:
    """The picture of the README: one value curve, two slopes, and the point where they part.

    Left, value - x of the finite recurrence, with short segments of the slope of that curve and of the slope the public code supplies. Right,
    1 - slope: the derivative of the same value, the supplied ratio with its clip, and the exact ratio.
    """
    plt = _pyplot()
    plt.rcParams["svg.hashsalt"] = "pairgrad"
    original, consistent, paired = (pg.potential(dim, name) for name in ("original", "consistent", "paired"))
    nu = float(original.nu)

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0))
    x = torch.linspace(8 * nu, 110 * nu, 400, dtype=torch.float64)
    left.plot(x / nu, original.value(x) - x, color=BLACK, lw=1.6, label="the value both report")
    marks = torch.tensor([16.0, 48.0, 80.0], dtype=torch.float64) * nu
    reach = 9.0 * nu
    for index, at in enumerate(marks):
        height = (original.value(at) - at).item()
        run = torch.tensor([-reach, reach], dtype=torch.float64)
        for pot, colour, style, label in (
            (consistent, BLUE, "-", "its own slope"),
            (original, ORANGE, "--", "the slope handed to the optimizer"),
        ):
            rise = (pot.slope(at).item() - 1) * run
            left.plot((at + run) / nu, height + rise, color=colour, ls=style, lw=2.4, label=label if index == 0 else None)
        left.plot(at.item() / nu, height, "o", color=BLACK, ms=4)
    left.set_xlabel(r"$x/\nu$")
    left.set_ylabel(r"value $-\,x$")
    left.set_title(f"Same value, another slope (dim {dim})", fontsize=11)
    left.legend(frameon=False, fontsize=9)

    x = nu * torch.logspace(-0.5, 3, 500, dtype=torch.float64)
    right.loglog(x / nu, paired.complement(x), color=GREY, lw=4.5, alpha=0.6, label="exact, and pairgrad's paired")
    right.loglog(x / nu, 1 - consistent.slope(x), color=BLUE, lw=1.8, label="derivative of the reported value")
    supplied = 1 - original.slope(x)
    clipped = _clip_onset(dim) / nu
    keep = supplied > 0
    right.loglog(x[keep] / nu, supplied[keep], color=ORANGE, ls="--", lw=1.8, label="supplied")
    right.axvline(clipped, color=ORANGE, lw=0.8, ls=":")
    right.set_ylim(1e-4, 1.5)
    right.text(clipped * 1.2, 1.4e-4, f"beyond $x/\\nu = {clipped:.1f}$\nclipped: 1 $-$ slope = 0", fontsize=9, color=ORANGE)
    right.set_xlabel(r"$x/\nu$")
    right.set_ylabel("1 $-$ slope")
    right.set_title("Where the supplied slope leaves its value", fontsize=11)
    right.legend(frameon=False, fontsize=9, loc="lower left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    paths = save(figure, directory / "value-and-slope")
    plt.close(figure)
    return paths
