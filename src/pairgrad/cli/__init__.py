"""The command line. `main` is the entry point; what a command runs is loaded when it is called.

A distribution adds commands, and columns to tables, through the entry-point group `pairgrad.commands`: an entry names a sequence of `Command` and
`Columns`. The other names are what such
commands are made with: groups of the first page, clear errors, progress bars and output that survives a closed pipe.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from pairgrad._lazy import attach

if TYPE_CHECKING:
    from pairgrad.cli.commands import complete_realizations
    from pairgrad.cli.mistakes import THREADS, check_file, explained, fail
    from pairgrad.cli.output import Tick, prepare, progress
    from pairgrad.cli.pages import Columns, Command, Group
    from pairgrad.cli.step_costs import GPUS
    from pairgrad.cli.streams import Console, Streams, silence

__all__ = [
    "GPUS",
    "THREADS",
    "Columns",
    "Command",
    "Console",
    "Group",
    "Streams",
    "Tick",
    "check_file",
    "complete_realizations",
    "explained",
    "fail",
    "main",
    "prepare",
    "progress",
    "silence",
]

_NAMES = {
    "commands": ("complete_realizations",),
    "mistakes": ("THREADS", "check_file", "explained", "fail"),
    "output": ("Tick", "prepare", "progress"),
    "pages": ("Columns", "Command", "Group"),
    "step_costs": ("GPUS",),
    "streams": ("Console", "Streams", "silence"),
}
__getattr__, __dir__ = attach(__name__, {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names})


def main() -> None:
    """Run the command line, or say what to install for it. An unexpected error ends with its traceback and a code of its own."""
    try:
        import rich
        import typer
    except ImportError:
        print("pairgrad: the command line needs typer and rich: pip install 'pairgrad[cli]'", file=sys.stderr)
        sys.exit(2)
    del rich, typer
    from pairgrad.cli.app import app
    from pairgrad.cli.exit_codes import BUG

    try:
        app()
    except Exception:
        traceback.print_exc()
        print(
            "pairgrad: this is a bug in pairgrad. Please report it with these lines and the output of `pairgrad doctor`.", file=sys.stderr
        )
        sys.exit(BUG)
