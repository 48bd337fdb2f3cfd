"""Figures: each module computes a table and draws it.

`data(tick)` computes the table, or `read(records)` makes it from records; `draw(plt, table)` gives the figure from that table alone, with matplotlib's
pyplot `plt`. The modules have the names of the figures; `style` has colours and sizes, `cumulative` draws distribution functions.
"""

from pairgrad_paper.figures.style import SETTINGS, SMALLEST, WIDEST, pyplot, same_on_every_cpu

__all__ = ["SETTINGS", "SMALLEST", "WIDEST", "pyplot", "same_on_every_cpu"]
