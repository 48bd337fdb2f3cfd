"""How far a measurement is, where somebody looks on."""

from __future__ import annotations

import sys


def progress(what: str, done: int, every: int) -> None:
    """One line on a terminal, written over and over; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r{what}: {done} of {every}", end="" if done < every else "\n", file=sys.stderr, flush=True)
