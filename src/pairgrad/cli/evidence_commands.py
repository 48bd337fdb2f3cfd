"""Commands that show what there is to see, and their options: the demonstration, tables, figures, the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairgrad.cli import completion
from pairgrad.cli.mistakes import check_file, explained, reported

_Records = Annotated[
    Path | None,
    typer.Option(
        "--records", metavar="DIR", help="Directory of records to read, instead of those behind the documentation.", show_default=False
    ),
]


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for report.html, the runs, tables and pictures.")
    ] = Path("pairgrad-demo"),
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Epochs of each training run.", show_default="80")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the report in a browser.")] = False,
) -> None:
    """The whole story, live: one loss with two gradients, the certificate, three arms training, what the auditor says of them, the paper's tables; and one HTML
    report of it all.

    Nothing is downloaded. A demonstration that was stopped goes on with its runs.
    """
    with explained("demo", output), reported("demo"):
        from pairgrad.cli.demo import run

        try:
            run(output, epochs, open_)
        except KeyboardInterrupt:
            typer.echo(f"stopped: the same command goes on with the runs in {output}", err=True)
            raise typer.Exit(130) from None


def tables(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for the CSV and Markdown files.")] = Path(
        "pairgrad-tables"
    ),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Name of a table, or its label in the paper; repeat for several.",
            metavar="NAME",
            autocompletion=completion.tables,
        ),
    ] = None,
    records: _Records = None,
) -> None:
    """Make the paper's tables, from records or computed on the spot, and set the published numbers beside them."""
    with explained("tables", output):
        from pairgrad.cli.tables import run

        run(output, only, records)


def figures(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for the pictures and their data.")] = Path(
        "pairgrad-figures"
    ),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Name of a figure, or its label in the paper; repeat for several.",
            metavar="NAME",
            autocompletion=completion.figures,
        ),
    ] = None,
    records: _Records = None,
) -> None:
    """Draw the paper's figures anew, from records or computed on the spot, as SVG, PNG and PDF, each with its data and its caption."""
    with explained("figures", output):
        from pairgrad.cli.figures import run

        run(output, only, records)


def report(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for index.html.")] = Path("pairgrad-report"),
    records: _Records = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
) -> None:
    """All tables and figures on one page, with what each was made from: one HTML file that needs no network.

    What there is no record of is shown as not run, with the commands that run it.
    """
    with explained("report", output):
        from pairgrad.cli.report import run

        run(output, records, open_)


def times(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File for the record.")] = Path("complexity-times.jsonl"),
    elements: Annotated[int | None, typer.Option(min=1, metavar="N", help="Numbers that each call gets.", show_default="4096")] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Repetitions of each call; the median counts.", show_default="11")
    ] = None,
) -> None:
    """Time value and slope together, of the recurrence and of the pair, by dimension: the record behind the table complexity.

    On one thread. Run it on an idle machine: other processes lengthen the times.
    """
    with explained("times", output, file="--output"):
        from pairgrad.cli.times import run

        check_file("times", "--output", output)

        run(output, elements, repeats)
