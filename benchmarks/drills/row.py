"""What a drill yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        what: was done, e.g. "kill -9 at a random moment, two processes".
        tried: how often, e.g. "20 kills".
        found: what came of it, e.g. "20 of 20 resumed; records lost 0, bits changed 0".
        wrong: how many of the tries did not end as they should. The page says what should be.
    """

    what: str
    tried: str
    found: str
    wrong: int


Drill = Callable[[Path, bool], Iterator[Row]]  # an empty directory to work in, and whether to make few tries, for a test
