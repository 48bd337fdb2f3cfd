"""The command line. `main` is the entry point; the commands are in modules of their own and loaded when asked for."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        import rich
        import typer
    except ImportError:
        sys.exit("the command line needs typer and rich: pip install 'pairgrad[cli]'")
    del rich, typer
    from pairgrad.cli.app import app

    app()
