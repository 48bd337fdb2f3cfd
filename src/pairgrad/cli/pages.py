"""How help pages look: options in groups, examples and exit codes at the end; plain text that fits 80 columns and needs no colour."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from pairgrad.cli import mistakes
from pairgrad.cli.exit_codes import GENERAL

HELP = {"help_option_names": ["--help", "-h"]}
# Commands of the distribution pairgrad-paper: without it they say how to get it.
PAPER = ("demo", "train", "evaluate", "fork", "frozen", "states", "collect", "tables", "figures", "report", "times")
_OPTIONS = "Options"  # of options that are in no other group
_DebugOption = Annotated[
    bool, typer.Option("--debug", envvar="PAIRGRAD_DEBUG", show_envvar=False, help="Show tracebacks of mistakes, too ($PAIRGRAD_DEBUG=1).")
]


class Group(StrEnum):
    """What commands are for, in the order of the first page."""

    START = "Start here"
    AUDIT = "Audit a backward"
    TRAIN = "Train with a von Mises-Fisher loss"
    PAPER = "Reproduce the paper"
    FIND_OUT = "Find out"


@dataclasses.dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        run: a function whose name is that of the command and whose docstring is its page. It takes nothing, or one dataclass whose fields are
            annotated with `typer.Option` or `typer.Argument`: the options of the command.
        group: where it is on the first page.
        short: what it does, there, in at most 60 characters.
        examples: what one can type, and what that does.
        codes: exit codes beside the general ones.
    """

    run: Callable[..., None]
    group: Group
    short: str
    examples: Sequence[tuple[str, str]]
    codes: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Columns:
    """Columns that a distribution adds to a table of the library, such as published numbers.

    Attributes:
        table: its name; `"local costs"` is the table of `pairgrad bench`.
        load: gives, for each heading, the cells by the first cell of their row. It is called when the table is printed.
    """

    table: str
    load: Callable[[], Mapping[str, Mapping[str, str]]]


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

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in PAPER:
            mistakes.fail(cmd_name, "this command comes with the paper's experiments: pip install pairgrad-paper")
        return found

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


def add(app: typer.Typer, command: Command) -> None:
    """Put a command on the command line."""
    codes = dict(sorted({**GENERAL, **command.codes}.items()))
    page = type("Page", (Page,), {"examples": tuple(command.examples), "codes": codes})
    app.command(command.run.__name__, cls=page, rich_help_panel=command.group, short_help=command.short, context_settings=HELP)(
        _flattened(command.run)
    )


def _flattened(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the fields of its options object as parameters, which is what typer reads, and with an option --debug."""
    kind: Any = next((hint for name, hint in get_type_hints(function).items() if name != "return"), None)
    fields = () if kind is None else dataclasses.fields(kind)
    hints = {**(get_type_hints(kind, include_extras=True) if fields else {}), "debug": _DebugOption}

    def command(debug: bool, **given: Any) -> None:
        before = mistakes.IN_FULL.set(debug)
        try:
            function() if kind is None else function(kind(**given))
        finally:
            mistakes.IN_FULL.reset(before)

    def parameter(name: str, default: Any) -> inspect.Parameter:
        default = inspect.Parameter.empty if default is dataclasses.MISSING else default
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])

    parameters = [parameter(each.name, each.default) for each in fields]
    command.__signature__ = inspect.Signature([*parameters, parameter("debug", False)])
    command.__annotations__ = hints
    command.__doc__ = function.__doc__
    return command
