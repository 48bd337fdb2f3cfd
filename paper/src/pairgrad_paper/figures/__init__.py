"""Figures: each module computes a table and draws it.

`data(tick)` computes the table, or `read(records)` makes it from records; `draw(plt, table)` gives the figure from that table alone, with matplotlib's
pyplot `plt`. The modules have the names of the figures; `style` has colours and sizes, `cumulative` draws distribution functions.
"""
