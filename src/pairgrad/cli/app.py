"""Commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairgrad.cli import run_commands
from pairgrad.cli.mistakes import explained, reported

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
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for runs, tables and the picture.")] = Path("pairgrad-demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each training run.", show_default="80")] = None,
) -> None:
    """Show the problem, the certificate and the cure: one value with two slopes, three arms trained, the paper's tables recomputed, a picture."""
    with explained("demo", output), reported("demo"):
        from pairgrad.cli.demo import run

        try:
            run(output, epochs)
        except KeyboardInterrupt:
            typer.echo(f"stopped: the same command goes on with the runs in {output}", err=True)
            raise typer.Exit(130) from None


_Records = Annotated[
    Path | None,
    typer.Option("--records", help="Directory of records to read, instead of those behind the documentation.", show_default=False),
]


@app.command()
def tables(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the CSV and Markdown files.")] = Path("pairgrad-tables"),
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Name of a table, or its label in the paper; repeat for several.", metavar="NAME")
    ] = None,
    records: _Records = None,
) -> None:
    """Make the paper's tables, from records or computed on the spot, and set the published numbers beside them."""
    with explained("tables", output):
        from pairgrad.cli.tables import run

        run(output, only, records)


@app.command()
def figures(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the pictures and their data.")] = Path("pairgrad-figures"),
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Name of a figure, or its label in the paper; repeat for several.", metavar="NAME")
    ] = None,
    records: _Records = None,
) -> None:
    """Draw the paper's figures anew, from records or computed on the spot, as SVG, PNG and PDF, each with its data and its caption."""
    with explained("figures", output):
        from pairgrad.cli.figures import run

        run(output, only, records)


@app.command()
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for index.html.")] = Path("pairgrad-report"),
    records: _Records = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
) -> None:
    """All tables and figures on one page, with what each was made from: one HTML file that needs no network.

    What there is no record of is shown as not run, with the commands that run it.
    """
    with explained("report", output):
        from pairgrad.cli.report import run

        run(output, records, open_)


@app.command()
def times(
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the record.")] = Path("complexity-times.jsonl"),
    elements: Annotated[int | None, typer.Option(min=1, help="Numbers that each call gets.", show_default="4096")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Of each call; the median counts.", show_default="11")] = None,
) -> None:
    """Time value and slope together, of the recurrence and of the pair, by dimension: the record behind the table `complexity`.

    On one thread. Run it on an idle machine: other processes lengthen the times.
    """
    with explained("times", output.parent):
        from pairgrad.cli.times import run

        run(output, elements, repeats)


@app.command()
def certify(
    dim: Annotated[int | None, typer.Option(help="Feature dimension of a potential to certify.")] = None,
    nu: Annotated[float | None, typer.Option(help="Bessel order, instead of --dim.")] = None,
    order: Annotated[int | None, typer.Option(help="Order of the expansion; without it, the order that 'paired' chooses.")] = None,
    shift: Annotated[int | None, typer.Option(help="Order shift of 'paired', with --order.")] = None,
    max_order: Annotated[
        int | None,
        typer.Option(help="Without --dim, --nu and --order: prove orders 1 to this one; 24, the most, takes 40 s.", show_default="8"),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Certify a saved learning state instead: features, labels and a class bank, in safetensors.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="With --state: tau, unless the file says it.")] = None,
    realization: Annotated[
        list[str] | None,
        typer.Option(help="With --state: how the potential is computed; repeat to compare.", show_default="arfr and paired"),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="With --state: float32 or float64 instead of the dtype of the file.")] = None,
    bank: Annotated[str | None, typer.Option(help="With --state: prefix of the bank's tensors, if the file has several banks.")] = None,
) -> None:
    """Prove the error bounds of the Bessel ratio again, in ball arithmetic, or bound the errors of a saved learning state.

    Without options: for all x and nu. With --dim or --nu: for one potential. With --state: scores, losses, probabilities, predictions and gradients of a
    batch against a class bank. Exit code 1: a proof failed. Where there is no theorem, the reason is printed, and that is no failure.
    """
    with explained("certify", reads=state):
        if state is not None:
            from pairgrad.cli.certify_state import run as run_state

            for name, value in (("--dim", dim), ("--nu", nu), ("--order", order), ("--shift", shift), ("--max-order", max_order)):
                if value is not None:
                    raise typer.BadParameter(f"{name} is about a potential, --state about a learning state: give one of them")
            run_state(state, temperature, realization, dtype, bank)
            return
        for name, given in (("--temperature", temperature), ("--realization", realization), ("--dtype", dtype), ("--bank", bank)):
            if given is not None:
                raise typer.BadParameter(f"{name} needs --state FILE, the learning state it is about")
        from pairgrad.cli.certify import run

        if not run(dim, nu, order, shift, 8 if max_order is None else max_order):
            raise typer.Exit(1)


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


@app.command()
def audit(
    targets: Annotated[
        list[str],
        typer.Argument(help="module:function, module:Class, module:object.attr or path/to/file.py:function.", metavar="TARGET"),
    ],
    inputs: Annotated[
        str | None,
        typer.Option(help='What to call it with: "randn(32,128), randint(10,(32,))", "x=uniform(0.1,4,(16,)), n=3", @file.safetensors.'),
    ] = None,
    inputs_from: Annotated[
        str | None, typer.Option(help="A function that returns the inputs: module:function, or one beside the target.")
    ] = None,
    domain: Annotated[str | None, typer.Option(help='Where else to look: "0.1..4", "log 1e-3..1e3", "x=log 1..1e4, y=-1..1".')] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page; a folder if there are several targets.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report as data; a folder if there are several targets.")] = None,
    code_quality: Annotated[Path | None, typer.Option(help="Write what does not pass in GitLab's code-quality format.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float64, float32, float16 or bfloat16, instead of that of the inputs.")] = None,
    effort: Annotated[str, typer.Option(help="quick, standard or thorough.")] = "standard",
    seed: Annotated[int, typer.Option(help="Of random inputs and of the audit.")] = 0,
    tolerance: Annotated[float, typer.Option(help="Defects smaller than this, over the size of the gradient, do not decide.")] = 0.0,
    intent: Annotated[
        str | None, typer.Option(help="What is wanted: straight-through, gradient-cap or implicit-reparameterization.")
    ] = None,
    second_order: Annotated[bool, typer.Option("--second-order/--no-second-order", help="Audit the second backward too.")] = True,
    consequences: Annotated[bool, typer.Option("--consequences/--no-consequences", help="Look for causes and effects of a defect.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds for each target; 0 for no end.", metavar="SECONDS")] = 300.0,
    format: Annotated[str, typer.Option(help="text, json, or github for annotations.")] = "text",
    explain: Annotated[bool, typer.Option("--explain", help="Say it in plain words too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and the verdict only.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show the way to an exception.")] = False,
) -> None:
    """Find out whether the backward of a function is the derivative of its forward.

    The function runs in a process of its own. Without --inputs and --inputs-from they are taken from the attribute example_inputs of the function or from
    <function>_inputs beside it. Exit code 0: coherent. 1: not. 2: could not tell. Ctrl-C keeps what was found.
    """
    from pairgrad.cli.audit import Options, run

    options = Options(
        inputs=inputs,
        inputs_from=inputs_from,
        domain=domain,
        dtype=dtype,
        effort=effort,
        seed=seed,
        tolerance=tolerance,
        intent=intent,
        second_order=second_order,
        consequences=consequences,
        timeout=timeout,
        html=html,
        json=json,
        code_quality=code_quality,
        format=format,
        explain=explain,
        quiet=quiet,
        traceback=traceback,
    )
    raise typer.Exit(run(targets, options))


for _command in run_commands.COMMANDS:
    app.command()(_command)


@app.command()
def plan(
    classes: Annotated[str, typer.Option(help="Classes of the whole bank: 1e7, 10_000_000 or 10M.", metavar="N")],
    dim: Annotated[str, typer.Option(help="Feature dimension.", metavar="N")],
    ranks: Annotated[str, typer.Option(help="Processes, all together.", metavar="N")],
    batch: Annotated[str, typer.Option(help="Samples of a step, of all ranks together.", metavar="N")],
    bandwidth: Annotated[
        str | None, typer.Option(help="Bytes per second that a rank can send.", metavar="B/S", show_default="12.5e9, 100 Gbit/s")
    ] = None,
    latency: Annotated[str | None, typer.Option(help="Seconds that any message takes.", metavar="S", show_default="2e-5")] = None,
    flops: Annotated[
        str | None, typer.Option(help="Operations per second of a rank in matrix products.", metavar="OP/S", show_default="1e13")
    ] = None,
    elementwise: Annotated[
        str | None,
        typer.Option(help="Elementwise work per score, in such operations.", metavar="OP", show_default="2000, measured on a CPU"),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Bytes of a rank: 40G.", metavar="BYTES", show_default="not asked")] = None,
    process: Annotated[
        str | None, typer.Option(help="Bytes of a process before it has a bank.", metavar="BYTES", show_default="270M")
    ] = None,
    views: Annotated[str, typer.Option(help="Of each sample.", metavar="N")] = "1",
    dtype: Annotated[str, typer.Option(help="Of the bank: float32 or float64.")] = "float32",
    two_epochs: Annotated[bool, typer.Option("--two-epochs", help="A bank with memory='two-epochs'.")] = False,
    prior: Annotated[bool, typer.Option("--prior", help="The loss has a log prior.")] = False,
    sample: Annotated[str, typer.Option(help="Share of the classes that is scored in a step.", metavar="SHARE")] = "1",
    exchange: Annotated[str, typer.Option(help="Of class statistics between replicas: auto, the cheaper one, gather or reduce.")] = "auto",
    replicated_inputs: Annotated[
        bool, typer.Option("--replicated-inputs", help="Ranks that share the classes out bring the same samples.")
    ] = False,
    static: Annotated[bool, typer.Option("--static", help="Batch sizes never change: no headers.")] = False,
    unbounded: Annotated[bool, typer.Option("--unbounded", help="Features are not normalised: scores may lie far apart.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure --flops and --elementwise here, on one thread; takes seconds.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="With --measure: cpu, cuda.", show_default="cpu")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the plan as data, schema pairgrad.plan/1.", metavar="FILE")] = None,
) -> None:
    """Before a run on many ranks: memory, operations, bytes on the wire and time of a step in every layout, and the best one.

    A layout D x C has D replicas of the class bank, each shared out over C ranks. The best is the fastest that fits the memory. Exit code 1: none fits;
    then it says how many ranks are needed.
    """
    with explained("plan"):
        from rich.console import Console

        from pairgrad.cli import plan as command

        options = command.Options(
            classes=classes,
            dim=dim,
            ranks=ranks,
            batch=batch,
            bandwidth=bandwidth,
            latency=latency,
            flops=flops,
            elementwise=elementwise,
            memory=memory,
            process=process,
            views=views,
            dtype=dtype,
            two_epochs=two_epochs,
            prior=prior,
            sample=sample,
            exchange=exchange,
            replicated_inputs=replicated_inputs,
            static=static,
            unbounded=unbounded,
            measure=measure,
            device=device,
            json=json,
        )
        try:
            found = command.run(options, Console(highlight=False))
        except command.WrongOption as error:
            typer.echo(f"pairgrad plan: {error}", err=True)
            raise typer.Exit(2) from None
        except OSError as error:
            typer.echo(f"pairgrad plan: --json: cannot write {json}: {error.strerror or error}; choose another file", err=True)
            raise typer.Exit(2) from None
    if found.best is None:
        raise typer.Exit(1)
