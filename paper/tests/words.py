"""How large the words of a figure are, from the figure as SVG."""

from __future__ import annotations

import re


def inches(svg: str) -> float:
    return float(re.findall(r'<svg [^>]*\bwidth="([\d.]+)pt"', svg)[0]) / 72


def points(svg: str) -> list[float]:
    """Sizes of words, in points: matplotlib draws letters of 100 units, turned upside down and scaled. Indices and exponents are scaled once more inside."""
    return sorted({100 * float(size) for size in re.findall(r"scale\(([\d.]+) -[\d.]+\)", svg)})
