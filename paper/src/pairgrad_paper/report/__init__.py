"""All tables and figures as one page: an HTML file that needs no network and runs no script.

`items` makes everything that is shown, `page` fills in the `templates`.
"""

from pairgrad_paper.report.items import Item, collected
from pairgrad_paper.report.page import page, render, templates

__all__ = ["Item", "collected", "page", "render", "templates"]
