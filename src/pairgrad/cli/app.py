"""The command line: the commands of the library, and those that installed distributions add."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer

from pairgrad.cli.commands import COMMANDS
from pairgrad.cli.pages import HELP, Columns, Command, Contents, Group, add
from pairgrad.ground.text import printable

GROUP = "pairgrad.commands"  # of entry points


def _version(wanted: bool) -> None:
    if wanted:
        import pairgrad

        typer.echo(pairgrad.__version__)
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """The loss that a program reports and the gradient that it descends can belong to two functions. pairgrad makes them one object, and finds out where they
    are not.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def added() -> list[Command | Columns]:
    """What other installed distributions add. A distribution that cannot be loaded is reported and left out."""
    found: list[Command | Columns] = []
    for entry in entry_points(group=GROUP):
        try:
            found += entry.load()
        except Exception as error:
            name = entry.dist.name if entry.dist else entry.name
            said = f"pairgrad: the commands of {name} cannot be loaded ({type(error).__name__}: {error}); install it again"
            typer.echo(printable(said), err=True)
    return found


def made(commands: Sequence[Command]) -> typer.Typer:
    """A command line of these commands, by group."""
    app = typer.Typer(
        cls=Contents,
        invoke_without_command=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=HELP,
    )
    app.callback()(_root)
    for command in sorted(commands, key=lambda command: list(Group).index(command.group)):
        add(app, command)
    return app


_ADDED = added()
COLUMNS = [each for each in _ADDED if isinstance(each, Columns)]
app = made([*(each for each in _ADDED if isinstance(each, Command)), *COMMANDS])
