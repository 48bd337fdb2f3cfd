"""The command line. `main` is the entry point; the commands are in modules of their own and loaded when asked for."""

from __future__ import annotations

import sys
import traceback


def main() -> None:
    """Run the command line, or say what to install for it. What nobody expected ends with its traceback and a code of its own."""
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
        print("pairgrad: this is a bug of pairgrad. Please report it with these lines and what `pairgrad doctor` prints.", file=sys.stderr)
        sys.exit(BUG)
