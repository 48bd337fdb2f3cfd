"""Commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, help="Values and derivatives that belong together."
)


def _version(wanted: bool) -> None:
    if wanted:
        import pairgrad

        typer.echo(pairgrad.__version__)
        raise typer.Exit


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    pass


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the table and the picture.")] = Path("pairgrad-demo"),
) -> None:
    """Show the problem, the certificate and the cure: one value with two slopes, a table against ball arithmetic, a picture."""
    try:
        from pairgrad.cli.demo import run

        run(output)
    except ImportError as error:
        typer.echo(f"pairgrad demo: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"pairgrad demo: cannot write to {output}: {error.strerror or error}; choose another directory with --output", err=True)
        raise typer.Exit(2) from None


@app.command()
def realizations() -> None:
    """List the ways to compute the potential and what each trades."""
    from rich.console import Console
    from rich.table import Table

    import pairgrad

    table = Table("name", "coherent", "what it computes", "what it trades")
    for r in pairgrad.realizations():
        table.add_row(r.name, "yes" if r.coherent else "no", r.summary, r.trade)
    Console().print(table)
