"""How help pages look: options in groups, examples and exit codes at the end; plain text that fits 80 columns and needs no colour."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from pairgrad.cli import mistakes
from pairgrad.cli.exit_codes import GENERAL

_OPTIONS = "Options"  # of options that are in no other group
_DebugOption = Annotated[
    bool, typer.Option("--debug", envvar="PAIRGRAD_DEBUG", show_envvar=False, help="Show tracebacks of mistakes, too ($PAIRGRAD_DEBUG=1).")
]


class Page(TyperCommand):
    """A command whose page ends with examples and exit codes."""

    examples: Sequence[tuple[str, str]] = ()
    codes: Mapping[int, str] = GENERAL

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then every group of options in the order in which they are declared, and the general ones."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                groups.setdefault("Arguments", []).append((param.metavar or param.name, getattr(param, "help", "")))
            else:
                groups.setdefault(getattr(param, "rich_help_panel", None) or _OPTIONS, []).append(record)
        general = groups.pop(_OPTIONS, [])
        for name, records in (*groups.items(), (_OPTIONS, general)):
            with formatter.section(name):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """What one can type, and what the shell is told."""
        if self.examples:
            with formatter.section("Examples"):
                for command, words in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{command}\n")
                    with formatter.indentation():
                        formatter.write_text(words)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), words) for code, words in self.codes.items()])


class Contents(TyperGroup):
    """The first page: commands by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                groups.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append((name, command.short_help or ""))
        width = max(len(name) for group in groups.values() for name, _ in group)
        for title, group in groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), words) for name, words in group])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        formatter.write_text("pairgrad COMMAND --help has the options, examples and exit codes of a command.")


def add(
    app: typer.Typer,
    function: Callable[..., None],
    *,
    group: str,
    short: str,
    examples: Sequence[tuple[str, str]],
    codes: Mapping[int, str] | None = None,
) -> None:
    """Put a command on the command line.

    Args:
        app: the command line.
        function: the command; its docstring is its page.
        group: where it stands on the first page.
        short: what it does, there, in at most 60 characters.
        examples: what one can type, and what that does.
        codes: exit codes beside the general ones.
    """
    known = dict(sorted({**GENERAL, **(codes or {})}.items()))
    page = type("Page", (Page,), {"examples": tuple(examples), "codes": known})
    app.command(cls=page, rich_help_panel=group, short_help=short)(_debuggable(function))


def _debuggable(function: Callable[..., None]) -> Callable[..., None]:
    """The command with an option --debug."""

    @functools.wraps(function)
    def command(*arguments: Any, debug: bool, **options: Any) -> None:
        with mistakes.shown_in_full(debug):
            function(*arguments, **options)

    hints = {**get_type_hints(function, include_extras=True), "debug": _DebugOption}
    parameters = [each.replace(annotation=hints[name]) for name, each in inspect.signature(function).parameters.items()]
    option = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_DebugOption)
    command.__signature__ = inspect.Signature([*parameters, option])  # type: ignore[attr-defined]
    command.__annotations__ = hints
    return command
