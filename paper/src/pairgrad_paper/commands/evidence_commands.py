"""Commands that show results, and their options: demo, tables, figures, report, times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pairgrad.cli import check_file
from pairgrad.ground import printable
from pairgrad_paper.commands import completion
from pairgrad_paper.commands.mistakes import explained

_Records = Annotated[
    Path | None,
    typer.Option(
        "--records", metavar="DIR", help="Directory of records to read, instead of those behind the documentation.", show_default=False
    ),
]


@dataclass(frozen=True)
class DemoOptions:
    """Where the demonstration goes."""

    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for report.html, the runs, tables and pictures.")
    ] = Path("pairgrad-demo")
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Epochs of each training run.", show_default="80")] = None
    open_: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False


def demo(options: DemoOptions) -> None:
    """The whole story, live: one loss with two gradients, the certificate, three arms training, what the auditor says of them, the paper's tables; and one HTML
    report of it all.

    Nothing is downloaded. The same command again resumes a demonstration that was stopped.
    """
    with explained("demo", options.output):
        from pairgrad_paper.commands.demo import run

        try:
            run(options.output, options.epochs, options.open_)
        except KeyboardInterrupt:
            typer.echo(printable(f"stopped: run the same command again to resume the runs in {options.output}"), err=True)
            raise typer.Exit(130) from None


@dataclass(frozen=True)
class TablesOptions:
    """Which tables, from which records."""

    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for the CSV and Markdown files.")] = Path(
        "pairgrad-tables"
    )
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Name of a table, or its label in the paper; repeat for several.",
            metavar="NAME",
            autocompletion=completion.tables,
        ),
    ] = None
    records: _Records = None


def tables(options: TablesOptions) -> None:
    """Make the paper's tables, from records or computed on the spot, and compare them with the published numbers."""
    with explained("tables", options.output):
        from pairgrad_paper.commands.tables import run

        run(options.output, options.only, options.records)


@dataclass(frozen=True)
class FiguresOptions:
    """Which figures, from which records."""

    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for the pictures and their data.")] = Path(
        "pairgrad-figures"
    )
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Name of a figure, or its label in the paper; repeat for several.",
            metavar="NAME",
            autocompletion=completion.figures,
        ),
    ] = None
    records: _Records = None


def figures(options: FiguresOptions) -> None:
    """Draw the paper's figures, from records or computed on the spot, as SVG, PNG and PDF, each with its data and its caption."""
    with explained("figures", options.output):
        from pairgrad_paper.commands.figures import run

        run(options.output, options.only, options.records)


@dataclass(frozen=True)
class ReportOptions:
    """Where the page goes, from which records."""

    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for index.html.")] = Path("pairgrad-report")
    records: _Records = None
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False


def report(options: ReportOptions) -> None:
    """All tables and figures on one page, with what each was made from: one HTML file that needs no network.

    Items without a record are shown as not run, with the commands that run them.
    """
    with explained("report", options.output):
        from pairgrad_paper.commands.report import run

        run(options.output, options.records, options.open_)


@dataclass(frozen=True)
class TimesOptions:
    """What to time."""

    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File for the record.")] = Path("complexity-times.jsonl")
    elements: Annotated[int | None, typer.Option(min=1, metavar="N", help="Numbers in each call.", show_default="4096")] = None
    repeats: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Repetitions of each call; the median counts.", show_default="11")
    ] = None


def times(options: TimesOptions) -> None:
    """Time value and slope together, of the recurrence and of the pair, by dimension: the record behind the table complexity.

    On one thread. Run it on an idle machine: other processes lengthen the times.
    """
    with explained("times", options.output, file="--output"):
        from pairgrad_paper.commands.times import run

        check_file("times", "--output", options.output)
        run(options.output, options.elements, options.repeats)
